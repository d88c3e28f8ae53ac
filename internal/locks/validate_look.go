package locks

import (
	"fmt"
	"slices"
	"time"
)

// Check refuses an invalid question about a lease.
func (r *LeaseRequest) Check() error { return CheckPollWait(r.Wait) }

// Check fills in the namespace and refuses an invalid question about a lock.
func (r *LockRequest) Check() error {
	if err := CheckPlace(&r.NS, &r.Lock); err != nil {
		return err
	}
	if err := CheckPollWait(r.Wait); err != nil {
		return err
	}
	return checkPage(r.Limit)
}

// Check refuses a filter that cannot match.
func (f *LeaseFilter) Check() error {
	if f.NS != "" {
		if err := checkNS("ns", &f.NS); err != nil {
			return err
		}
	}
	if f.State != "" && !f.State.living() {
		return Invalid("state", stateWords)
	}
	if err := CheckText("acquire_reason", f.Purpose, MaxReasonText); err != nil {
		return err
	}
	if err := CheckText("owner", f.Owner, MaxOwner); err != nil {
		return err
	}
	if err := CheckText("host", f.Host, MaxOwner); err != nil {
		return err
	}
	return checkPage(f.Limit)
}

// Check fills in the namespace and refuses a filter that cannot match.
func (f *LockFilter) Check() error {
	if err := checkNS("ns", &f.NS); err != nil {
		return err
	}
	if states := []LockState{"", LockFree, LockHeld, LockUnclaimed, LockQueued, LockDelayed}; !slices.Contains(states, f.State) {
		return Invalid("state", "state must be free, held, unclaimed, queued or delayed")
	}
	if f.Sort != "" && f.Sort != SortWaiters && f.Sort != SortHeld && f.Sort != SortWait {
		return Invalid("sort", "sort must be -waiters, -held or -wait")
	}
	if f.Mode != "" && f.Mode != Exclusive && f.Mode != Shared && f.Mode != Semaphore {
		return Invalid("mode", "mode must be exclusive, shared or semaphore")
	}
	if err := CheckText("host", f.Host, MaxOwner); err != nil {
		return err
	}
	if err := CheckText("acquire_reason", f.Purpose, MaxReasonText); err != nil {
		return err
	}
	if err := CheckText("owner", f.Owner, MaxOwner); err != nil {
		return err
	}
	if err := CheckText("prefix", f.Prefix, MaxPattern); err != nil {
		return err
	}
	if err := CheckText("contains", f.Contains, MaxPattern); err != nil {
		return err
	}
	return checkPage(f.Limit)
}

// Check fills in the namespace and refuses an invalid fencing token.
func (r *FenceRequest) Check() error {
	if r.Token <= 0 {
		return Invalid("fencing_token", "fencing_token must be that of a lease, a whole number from 1")
	}
	return CheckPlace(&r.NS, &r.Lock)
}

const stateWords = "state must be waiting or held"

func (s State) living() bool { return s == Waiting || s == Held }

// CheckPollWait refuses an invalid wait of a long poll.
func CheckPollWait(wait time.Duration) error {
	if wait < 0 || wait > MaxPollWait {
		return Invalid("wait", "wait must be between 0 and "+span(MaxPollWait))
	}
	return nil
}

func checkPage(limit int) error {
	if limit < 0 || limit > MaxPage {
		return Invalid("limit", fmt.Sprintf("limit must be between 1 and %d", MaxPage))
	}
	return nil
}
