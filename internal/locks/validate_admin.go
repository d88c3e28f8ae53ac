package locks

import (
	"fmt"
	"slices"

	"lockkeeper/internal/locks/recipe"
)

func (r *ReapRequest) Check() error {
	switch {
	case r.OlderThan < 0:
		return Invalid("older_than", "older_than is 0 or longer")
	case r.Mode != "" && r.Mode != Exclusive && r.Mode != Shared && r.Mode != Semaphore:
		return Invalid("mode", "mode is exclusive, shared or semaphore")
	case r.State != "" && r.State != Waiting && r.State != Held:
		return Invalid("state", "state is waiting or held")
	}
	if err := r.Shown.Check(); err != nil {
		return err
	}
	if err := CheckText("owner", r.Owner, MaxOwner); err != nil {
		return err
	}
	return CheckReasonText(r.Reason)
}

func (r *RevokeRequest) Check() error {
	if r.ForceAfter < 0 || r.ForceAfter > MaxForceAfter {
		return Invalid("force_after", "force_after is at most "+MaxForceAfter.String())
	}
	if err := r.Shown.Check(); err != nil {
		return err
	}
	return CheckReasonText(r.Reason)
}

func (r *DestroyRequest) Check() error { return CheckReasonText(r.Reason) }

func (s *Shown) Given() bool { return s.LeaseIDs != nil || s.Znodes != nil }

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

func (r *UpdateRequest) Check() error {
	if r.TTL != 0 {
		if err := CheckTTL(r.TTL); err != nil {
			return err
		}
	}
	if r.Owner != nil {
		if err := CheckText("owner", *r.Owner, MaxOwner); err != nil {
			return err
		}
	}
	if r.Metadata != nil {
		return CheckText("metadata", *r.Metadata, MaxMetadata)
	}
	return nil
}
