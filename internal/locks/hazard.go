package locks

import "slices"

// HazardCode is a kind of hazard.
type HazardCode string

// Hazard is something about a lock that a person should know. A lock has at most one with the same code and programs.
type Hazard struct {
	Code     HazardCode
	Programs []string // that do not wait, as docs/interop.md names them; nil where the code concerns none. Never written to
	Detail   string   // what happens, and what to do
}

const (
	HazardUnreadable       HazardCode = "unreadable"
	HazardDisordered       HazardCode = "disordered"
	HazardStrayChild       HazardCode = "stray_child"
	HazardMisplaced        HazardCode = "misplaced"
	HazardLockInvalid      HazardCode = "lock_invalid"
	HazardForeignSemaphore HazardCode = "foreign_semaphore"
	HazardIgnoreEachOther  HazardCode = "programs_ignore_each_other"
	HazardIgnoresLeases    HazardCode = "program_ignores_leases"
)

var hazardCodes = [...]HazardCode{HazardUnreadable, HazardDisordered, HazardStrayChild, HazardMisplaced, HazardLockInvalid, HazardForeignSemaphore, HazardIgnoreEachOther, HazardIgnoresLeases}

// NumHazards is how many codes there are.
const NumHazards = len(hazardCodes)

// HazardCodes is every code there is, in the order of the specification.
func HazardCodes() []HazardCode { return slices.Clone(hazardCodes[:]) }
