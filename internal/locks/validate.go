package locks

import (
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"lockkeeper/internal/locks/recipe"
)

func invalid(field, detail string) *Error {
	return &Error{Code: CodeInvalid, Field: field, Detail: detail}
}

// normalize fills in defaults and refuses what the API does not allow.
func (r *AcquireRequest) normalize() error {
	if r.NS == "" {
		r.NS = DefaultNamespace
	}
	if r.Principal == "" {
		r.Principal = Anonymous
	}
	if r.Token != "" {
		return r.normalizeHold()
	}
	if r.TTL == 0 {
		r.TTL = DefaultTTL
	}
	if r.LockDelay > 0 && r.LockDelayOn == "" {
		r.LockDelayOn = DelayOnExpiry
	}
	if r.Hold != "" {
		if err := checkHold(r.Hold); err != nil {
			return err
		}
	}
	if err := r.normalizeWants(); err != nil {
		return err
	}
	if err := checkTTL(r.TTL); err != nil {
		return err
	}
	switch {
	case r.Wait < 0:
		return invalid("wait", "wait is 0 or longer")
	case r.Async && r.Wait != 0:
		return invalid("wait", "an async acquire answers at once: leave wait out, and poll the lease")
	case r.LockDelay < 0 || r.LockDelay > MaxLockDelay:
		return invalid("lock_delay", "lock_delay is at most "+MaxLockDelay.String())
	case r.LockDelayOn != "" && r.LockDelay == 0:
		return invalid("lock_delay_on", "lock_delay_on says which ends lock_delay follows: give lock_delay too")
	case r.LockDelayOn != "" && r.LockDelayOn != DelayOnExpiry && r.LockDelayOn != DelayAlways:
		return invalid("lock_delay_on", "lock_delay_on is expiry or always")
	case r.IdempotencyKey != "" && (len(r.IdempotencyKey) < MinKeyLength || len(r.IdempotencyKey) > MaxKeyLength):
		return invalid("Idempotency-Key", fmt.Sprintf("an Idempotency-Key has %d to %d visible characters", MinKeyLength, MaxKeyLength))
	}
	if err := r.checkEphemeral(); err != nil {
		return err
	}
	if err := checkText("owner", r.Owner, MaxOwner); err != nil {
		return err
	}
	return checkText("metadata", r.Metadata, MaxMetadata)
}

// normalizeWants fills in and checks what is asked of each lock.
func (r *AcquireRequest) normalizeWants() error {
	if r.Group == nil {
		w := r.wants()[0]
		err := w.normalize(func(name string) string { return name })
		r.NS, r.Lock, r.Mode, r.Limit, r.Permits = w.NS, w.Lock, w.Mode, w.Limit, w.Permits
		return err
	}
	switch {
	case len(r.Group) == 0:
		return invalid("locks", "locks names 1 to "+strconv.Itoa(MaxGroup)+" locks")
	case len(r.Group) > MaxGroup:
		return invalid("locks", fmt.Sprintf("locks names at most %d locks, not %d", MaxGroup, len(r.Group)))
	case r.Lock != "" || r.Mode != "" || r.Limit != 0 || r.Permits != 0:
		return invalid("locks", "with locks, each has its own lock, mode, limit and permits")
	}
	group := slices.Clone(r.Group) // the caller's stays as it is
	for i := range group {
		if group[i].NS == "" {
			group[i].NS = r.NS
		}
		if err := group[i].normalize(func(name string) string { return r.field(i, name) }); err != nil {
			return err
		}
	}
	r.Group = group
	return nil
}

// normalize fills in and checks what is asked of one lock; field gives a
// field's name in the API.
func (w *Want) normalize(field func(string) string) error {
	if w.NS == "" {
		w.NS = DefaultNamespace
	}
	if err := recipe.CheckLockName(w.Lock); err != nil {
		return invalid(field("lock"), err.Error())
	}
	if w.Mode == "" {
		w.Mode = Exclusive
	}
	switch w.Mode {
	case Exclusive, Shared:
		switch {
		case w.Limit != 0:
			return invalid(field("limit"), "limit goes with mode=semaphore")
		case w.Permits != 0:
			return invalid(field("permits"), "permits go with mode=semaphore")
		}
		return nil
	case Semaphore:
	default:
		return invalid(field("mode"), "mode is exclusive, shared or semaphore")
	}
	if w.Permits == 0 {
		w.Permits = 1
	}
	switch {
	case w.Limit < 0 || w.Limit > MaxLimit:
		return invalid(field("limit"), fmt.Sprintf("limit is 1 to %d", MaxLimit))
	case w.Permits < 0 || w.Permits > MaxLimit:
		return invalid(field("permits"), fmt.Sprintf("permits are 1 to %d", MaxLimit))
	case w.Limit > 0 && w.Permits > w.Limit:
		return invalid(field("permits"), fmt.Sprintf("%d permits are more than the limit of %d", w.Permits, w.Limit))
	}
	return nil
}

func checkTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return invalid("ttl", fmt.Sprintf("ttl is %v to %v", MinTTL, MaxTTL))
	}
	return nil
}

// checkLock makes a lock's name, or its directory's, the name. Only those that
// Want.normalize accepts come to be.
func checkLock(name *string) error {
	parsed, err := recipe.ParseLockName(*name)
	if err != nil {
		return invalid("lock", err.Error())
	}
	*name = parsed
	return nil
}

func checkText(field, text string, limit int) error {
	if len(text) > limit {
		return invalid(field, fmt.Sprintf("%s has at most %d bytes", field, limit))
	}
	if !utf8.ValidString(text) {
		return invalid(field, field+" is not valid UTF-8")
	}
	for _, r := range text {
		if unicode.IsControl(r) {
			return invalid(field, field+" has a control character")
		}
	}
	return nil
}
