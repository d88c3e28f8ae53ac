package locks

import (
	"fmt"
	"slices"

	"lockkeeper/internal/locks/recipe"
)

// Check refuses invalid settings.
func (r *SettingsRequest) Check() error {
	if r.Limit < 1 || r.Limit > MaxLimit {
		return Invalid("limit", fmt.Sprintf("limit must be between 1 and %d", MaxLimit))
	}
	if err := recipe.CheckLockName(r.Lock); err != nil { // only a lock that can be acquired has a limit
		return Invalid("lock", err.Error())
	}
	return nil
}

// Check refuses a text that is not printable.
func (r *BreakRequest) Check() error { return checkReason(r.Reason) }

// Check refuses a text that is not printable.
func (r *DestroyRequest) Check() error {
	if err := r.Shown.Check(); err != nil {
		return err
	}
	return checkReason(r.Reason)
}

// Check refuses filters that cannot match.
func (r *ReapRequest) Check() error {
	switch {
	case r.OlderThan < 0:
		return Invalid("older_than", "older_than must be 0 or longer")
	case r.Mode != "" && !r.Mode.Known():
		return Invalid("mode", modeWords)
	case r.State != "" && !r.State.living():
		return Invalid("state", stateWords)
	}
	if err := r.Shown.Check(); err != nil {
		return err
	}
	if err := CheckText("owner", r.Owner, MaxOwner); err != nil {
		return err
	}
	return checkReason(r.Reason)
}

// Check refuses an invalid revocation.
func (r *RevokeRequest) Check() error {
	if r.ForceAfter < 0 || r.ForceAfter > MaxForceAfter {
		return Invalid("force_after", "force_after must be at most "+span(MaxForceAfter))
	}
	if err := r.Shown.Check(); err != nil {
		return err
	}
	return checkReason(r.Reason)
}

// Given reports whether the request names contenders.
func (s *Shown) Given() bool { return s.LeaseIDs != nil || s.Znodes != nil }

// Check refuses lists that are too long or empty, and invalid entries.
func (s *Shown) Check() error {
	for _, list := range []struct {
		field string
		names []string
	}{{"lease_ids", s.LeaseIDs}, {"znodes", s.Znodes}} {
		if list.names != nil && (len(list.names) == 0 || slices.Contains(list.names, "")) {
			return Invalid(list.field, list.field+" must name at least one, and each must not be empty; or leave it out")
		}
		if len(list.names) > MaxReap {
			return Invalid(list.field, fmt.Sprintf("%s must have at most %d entries", list.field, MaxReap))
		}
	}
	for _, id := range s.LeaseIDs {
		if _, err := recipe.ParseLeaseID(id); err != nil {
			return Invalid("lease_ids", "each of lease_ids must be the lease_id of a holder or waiter")
		}
	}
	if len(s.LeaseIDs)+len(s.Znodes) > MaxReap {
		return Invalid("znodes", fmt.Sprintf("lease_ids and znodes must have at most %d entries together", MaxReap))
	}
	return nil
}

// Check refuses invalid changes of a lease.
func (r *UpdateRequest) Check() error {
	if r.TTL != 0 {
		if err := CheckTTL(r.TTL); err != nil {
			return err
		}
	}
	if r.Reserves() && r.TTL != 0 {
		return Invalid("ttl", NoTTL)
	}
	if err := checkEnd(r.For, r.Until); err != nil {
		return err
	}
	if r.Owner != nil {
		if err := CheckText("owner", *r.Owner, MaxOwner); err != nil {
			return err
		}
	}
	if r.Purpose != nil {
		if err := checkReason(*r.Purpose); err != nil {
			return err
		}
	}
	if r.Metadata != nil {
		return checkMetadata(*r.Metadata)
	}
	return nil
}

func checkReason(reason string) error { return CheckText("reason", reason, MaxReasonText) }
