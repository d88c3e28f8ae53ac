package locks

import "slices"

// HazardCode is a kind of hazard.
type HazardCode string

// Hazard is a property of a lock that a person should know. A lock has at most one per code and programs.
type Hazard struct {
	Code     HazardCode
	Programs []string // that do not wait, as docs/operate/interop.md names them; nil where none are concerned; immutable
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

// NumHazards is the number of codes.
const NumHazards = len(hazardCodes)

// HazardCodes lists every code, in the order of the specification.
func HazardCodes() []HazardCode { return slices.Clone(hazardCodes[:]) }
