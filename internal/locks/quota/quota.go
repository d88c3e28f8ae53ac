// Package quota owns the bounds on what clients may leave in a gateway's memory, and what is counted against them.
//
// A bound refuses what is new: an acquire, a longer metadata, the settings of another lock. It never refuses what
// a gateway takes over from another one, or finds again after a restart, because those leases were promised to their
// clients. So a gateway may be above a bound; then it refuses what is new until enough has ended.
//
// The package is pure: it has no lock, no clock and no goroutine. The lock manager calls it with its own lock held.
package quota

import (
	"errors"
	"fmt"
)

// Bound is one of the bounds.
type Bound uint8

// The bounds, in the order in which they are shown.
const (
	Leases        Bound = iota // leases of this gateway, once per contender: waiting, held, or ended with a running lock delay
	Tickets                    // leases of this gateway that wait though their acquire's request is over, each counted once
	MetadataBytes              // owners, metadata, names of holds and notify_urls of those leases
	Keys                       // idempotency keys that this gateway keeps
	Locks                      // locks that this gateway knows: in use in the whole fleet, or whose directory is still there
	Settings                   // locks with settings, of the whole fleet
	Bounds                     // how many bounds there are
)

var names = [Bounds]string{"leases", "tickets", "metadata_bytes", "idempotency_keys", "locks", "settings"}

// String is the bound's name in metrics and in errors.
func (b Bound) String() string { return names[b] }

// GiB is the amount of memory that the defaults are given for.
const GiB = 1 << 30

// Limits are the bounds' values. 0 stands for the default.
type Limits [Bounds]int64

// perGiB are the defaults for each GiB of memory. A gateway that is at all of them at once stays within its memory;
// docs/operate/bounds.md has the bytes that each of them takes, as measured.
var perGiB = Limits{Leases: 40_000, MetadataBytes: 64 << 20, Keys: 160_000, Locks: 200_000, Settings: 10_000}

// For gives the limits for a process that may use so much memory. What is set in l stays.
func (l Limits) For(memory int64) Limits {
	for b, n := range perGiB {
		if l[b] == 0 && n > 0 {
			// In this order: neither a small memory nor a large one loses digits or overflows.
			l[b] = max(memory/GiB*n+memory%GiB*n/GiB, 1)
		}
	}
	if l[Tickets] == 0 {
		// The other half is for acquires whose clients wait connected.
		l[Tickets] = max(l[Leases]/2, 1)
	}
	return l
}

// Check refuses limits that contradict each other or make no sense.
func (l Limits) Check() error {
	for b, n := range l {
		if n < 0 {
			return fmt.Errorf("the bound on %s must be at least 1, or 0 for the default", Bound(b))
		}
	}
	if l[Leases] > 0 && l[Tickets] > l[Leases] {
		return errors.New("the bound on tickets must not be above the bound on leases: each ticket is a lease")
	}
	return nil
}

// Quota counts what is used of the bounds.
type Quota struct {
	limits  Limits
	used    [Bounds]int64
	refused [Bounds]uint64
}

// New begins to count. The limits are complete: see Limits.For.
func New(l Limits) Quota { return Quota{limits: l} }

// Limit is a bound's value.
func (q *Quota) Limit(b Bound) int64 { return q.limits[b] }

// Used is how much of a bound is in use.
func (q *Quota) Used(b Bound) int64 { return q.used[b] }

// Add counts something that has come (more than 0) or gone (less than 0).
func (q *Quota) Add(b Bound, n int64) {
	if q.used[b] += n; q.used[b] < 0 {
		panic("quota: more " + b.String() + " have gone than came")
	}
}

// Set replaces a count that the caller keeps anyway.
func (q *Quota) Set(b Bound, n int) { q.used[b] = int64(n) }

// Fits reports whether n more may come. A refusal is counted. What is no more always fits.
func (q *Quota) Fits(b Bound, n int64) bool { return q.FitsTimes(b, n, 1) }

// FitsTimes is Fits with a bound that is so many times as high.
func (q *Quota) FitsTimes(b Bound, n, times int64) bool {
	if n <= 0 || q.used[b]+n <= q.limits[b]*times {
		return true
	}
	q.refused[b]++
	return false
}

// State is what is shown of a bound.
type State struct {
	Bound   Bound
	Used    int64
	Limit   int64
	Refused uint64 // requests, since the process was started
}

// States are all bounds, in their order.
func (q *Quota) States() []State {
	states := make([]State, Bounds)
	for b := range Bounds {
		states[b] = State{b, q.used[b], q.limits[b], q.refused[b]}
	}
	return states
}
