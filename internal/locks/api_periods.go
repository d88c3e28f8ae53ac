package locks

import (
	"fmt"
	"time"

	"lockkeeper/internal/locks/recipe"
)

// Bounds of acquires that are for a period.
const (
	MinOncePer = time.Second
	MaxOncePer = 31 * 24 * time.Hour
	MaxPeriod  = 64 // bytes of a period's name
	MaxPeriods = 64 // that one lock keeps
)

// DoneOn says what makes a period done.
type DoneOn string

// The ways in which a period becomes done.
const (
	DoneOnGrant   DoneOn = "grant"   // a lease of it was granted, whatever becomes of it: at most once
	DoneOnRelease DoneOn = "release" // its client released it: a crash frees the period
)

// Done says by which lease a period was done.
type Done struct {
	NS, Lock, Period string
	LeaseID          string
	By               string // the lease's owner; "" where the asker may not read the lock
	At               time.Time
}

// Period is a period of a lock, as its record has it.
type Period struct {
	Name, LeaseID, Owner, Principal string
	DoneOn                          DoneOn
	Done                            bool // else a lease was granted for it, and may be running
	At, KeptUntil                   time.Time
}

// PeriodsRequest names a lock, and for a change one of its periods.
type PeriodsRequest struct {
	Principal        Principal
	NS, Lock, Period string
}

// CheckPeriod refuses a name that no period may have.
func CheckPeriod(name string) error {
	if len(name) > MaxPeriod || recipe.CheckLockName(name) != nil {
		return Invalid("period", fmt.Sprintf("period must have 1 to %d characters of those that the name of a lock may have, such as 2026-11-22", MaxPeriod))
	}
	return nil
}

// WindowAt is the name of the window of that length that has a Unix time: its start in UTC.
func WindowAt(now, per time.Duration) string {
	return time.Unix(0, 0).Add(now.Truncate(per)).UTC().Format(time.RFC3339Nano)
}

// checkOnce refuses what cannot go with once_per.
func (r *AcquireRequest) checkOnce() error {
	switch {
	case r.OncePer == 0 && r.Period != "":
		return Invalid("period", "period names what once_per counts by: give once_per, too, such as once_per=24h")
	case r.OncePer == 0 && r.DoneOn != "":
		return Invalid("done_on", "done_on says when a period of once_per is done: give once_per, too, such as once_per=24h")
	case r.OncePer == 0:
		return nil
	case r.OncePer < MinOncePer || r.OncePer > MaxOncePer:
		return Invalid("once_per", "once_per must be between "+span(MinOncePer)+" and "+span(MaxOncePer))
	case r.DoneOn != "" && r.DoneOn != DoneOnGrant && r.DoneOn != DoneOnRelease:
		return Invalid("done_on", "done_on must be grant or release")
	case r.Ephemeral:
		return Invalid("once_per", "an ephemeral lease ends with its gateway's session: leave ephemeral out with once_per")
	case r.Hold != "":
		return Invalid("once_per", "a lease with holds has more than one piece of work: leave hold out with once_per")
	case r.Group != nil:
		return Invalid("once_per", "once_per counts by one lock: take a lock of its own with once_per, and the others in the work")
	case r.Mode != Exclusive:
		return Invalid("once_per", "a lock that several hold at once has no period: leave mode out with once_per")
	case r.NS != DefaultNamespace:
		return Invalid("once_per", "other programs write the queues of the namespace "+r.NS+" and know nothing of periods: once_per takes locks of the namespace "+DefaultNamespace)
	}
	if r.DoneOn == "" {
		r.DoneOn = DoneOnGrant
	}
	if r.Period != "" {
		return CheckPeriod(r.Period)
	}
	return nil
}

// Check fills in the namespace and refuses names that cannot be.
func (r *PeriodsRequest) Check(one bool) error {
	if err := CheckPlace(&r.NS, &r.Lock); err != nil {
		return err
	}
	if one {
		return CheckPeriod(r.Period)
	}
	return nil
}
