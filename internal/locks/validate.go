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

func Invalid(field, detail string) *Error {
	return &Error{Code: CodeInvalid, Field: field, Detail: detail}
}

// normalize fills in defaults and refuses what the API does not allow.
func (r *AcquireRequest) Normalize() error {
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
		if err := CheckHold(r.Hold); err != nil {
			return err
		}
	}
	if err := r.normalizeWants(); err != nil {
		return err
	}
	if err := CheckTTL(r.TTL); err != nil {
		return err
	}
	switch {
	case r.Wait < 0:
		return Invalid("wait", "wait is 0 or longer")
	case r.Async && r.Wait != 0:
		return Invalid("wait", "an async acquire answers at once: leave wait out, and poll the lease")
	case r.LockDelay < 0 || r.LockDelay > MaxLockDelay:
		return Invalid("lock_delay", "lock_delay is at most "+MaxLockDelay.String())
	case r.LockDelayOn != "" && r.LockDelay == 0:
		return Invalid("lock_delay_on", "lock_delay_on says which ends lock_delay follows: give lock_delay too")
	case r.LockDelayOn != "" && r.LockDelayOn != DelayOnExpiry && r.LockDelayOn != DelayAlways:
		return Invalid("lock_delay_on", "lock_delay_on is expiry or always")
	case r.IdempotencyKey != "" && (len(r.IdempotencyKey) < MinKeyLength || len(r.IdempotencyKey) > MaxKeyLength):
		return Invalid("Idempotency-Key", fmt.Sprintf("an Idempotency-Key has %d to %d visible characters", MinKeyLength, MaxKeyLength))
	}
	if err := r.checkEphemeral(); err != nil {
		return err
	}
	if err := CheckText("owner", r.Owner, MaxOwner); err != nil {
		return err
	}
	return CheckText("metadata", r.Metadata, MaxMetadata)
}

// normalizeWants fills in and checks what is asked of each lock.
func (r *AcquireRequest) normalizeWants() error {
	if r.Group == nil {
		w := r.Wants()[0]
		err := w.normalize(func(name string) string { return name })
		r.NS, r.Lock, r.Mode, r.Limit, r.Permits = w.NS, w.Lock, w.Mode, w.Limit, w.Permits
		return err
	}
	switch {
	case len(r.Group) == 0:
		return Invalid("locks", "locks names 1 to "+strconv.Itoa(MaxGroup)+" locks")
	case len(r.Group) > MaxGroup:
		return Invalid("locks", fmt.Sprintf("locks names at most %d locks, not %d", MaxGroup, len(r.Group)))
	case r.Lock != "" || r.Mode != "" || r.Limit != 0 || r.Permits != 0:
		return Invalid("locks", "with locks, each has its own lock, mode, limit and permits")
	}
	group := slices.Clone(r.Group) // the caller's stays as it is
	for i := range group {
		if group[i].NS == "" {
			group[i].NS = r.NS
		}
		if err := group[i].normalize(func(name string) string { return r.Field(i, name) }); err != nil {
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
		return Invalid(field("lock"), err.Error())
	}
	if w.Mode == "" {
		w.Mode = Exclusive
	}
	switch w.Mode {
	case Exclusive, Shared:
		switch {
		case w.Limit != 0:
			return Invalid(field("limit"), "limit goes with mode=semaphore")
		case w.Permits != 0:
			return Invalid(field("permits"), "permits go with mode=semaphore")
		}
		return nil
	case Semaphore:
	default:
		return Invalid(field("mode"), "mode is exclusive, shared or semaphore")
	}
	if w.Permits == 0 {
		w.Permits = 1
	}
	switch {
	case w.Limit < 0 || w.Limit > MaxLimit:
		return Invalid(field("limit"), fmt.Sprintf("limit is 1 to %d", MaxLimit))
	case w.Permits < 0 || w.Permits > MaxLimit:
		return Invalid(field("permits"), fmt.Sprintf("permits are 1 to %d", MaxLimit))
	case w.Limit > 0 && w.Permits > w.Limit:
		return Invalid(field("permits"), fmt.Sprintf("%d permits are more than the limit of %d", w.Permits, w.Limit))
	}
	return nil
}

func CheckTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return Invalid("ttl", fmt.Sprintf("ttl is %v to %v", MinTTL, MaxTTL))
	}
	return nil
}

// checkLock makes a lock's name, or its directory's, the name. Only those that
// Want.normalize accepts come to be.
func CheckLock(name *string) error {
	parsed, err := recipe.ParseLockName(*name)
	if err != nil {
		return Invalid("lock", err.Error())
	}
	*name = parsed
	return nil
}

func CheckText(field, text string, limit int) error {
	if len(text) > limit {
		return Invalid(field, fmt.Sprintf("%s has at most %d bytes", field, limit))
	}
	if !utf8.ValidString(text) {
		return Invalid(field, field+" is not valid UTF-8")
	}
	for _, r := range text {
		if unicode.IsControl(r) {
			return Invalid(field, field+" has a control character")
		}
	}
	return nil
}

// wants is what the request asks for.
func (r *AcquireRequest) Wants() []Want {
	if len(r.Group) > 0 {
		return r.Group
	}
	return []Want{{NS: r.NS, Lock: r.Lock, Mode: r.Mode, Limit: r.Limit, Permits: r.Permits}}
}

// field is what the API calls a field of the i-th lock.
func (r *AcquireRequest) Field(i int, name string) string {
	if len(r.Group) == 0 {
		return name
	}
	return "locks[" + strconv.Itoa(i) + "]." + name
}

// checkEphemeral refuses what an ephemeral lease cannot have.
func (r *AcquireRequest) checkEphemeral() error {
	if r.Ephemeral && (r.LockDelay != 0 || r.LockDelayOn != "") {
		return Invalid("lock_delay", "an ephemeral lease goes with its gateway's session, and nothing of it stays for a lock_delay; leave one of them out")
	}
	return nil
}

func CheckHold(name string) error {
	if name == "" || len(name) > MaxHoldName {
		return Invalid("hold", fmt.Sprintf("a hold's name has 1 to %d characters", MaxHoldName))
	}
	for i := range len(name) {
		if name[i] <= ' ' || name[i] > '~' {
			return Invalid("hold", "a hold's name has visible ASCII characters alone, and no spaces")
		}
	}
	return nil
}

// normalizeHold refuses whatever else comes with a hold that is added.
func (r *AcquireRequest) normalizeHold() error {
	for _, given := range []struct {
		field string
		is    bool
	}{
		{"ttl", r.TTL != 0}, {"wait", r.Wait != 0}, {"async", r.Async}, {"owner", r.Owner != ""}, {"metadata", r.Metadata != ""},
		{"Idempotency-Key", r.IdempotencyKey != ""}, {"mode", r.Mode != ""}, {"limit", r.Limit != 0}, {"permits", r.Permits != 0},
		{"locks", r.Group != nil}, {"lock_delay", r.LockDelay != 0}, {"lock_delay_on", r.LockDelayOn != ""},
		{"ephemeral", r.Ephemeral}, {"notify_url", r.NotifyURL != ""}, {"dry_run", r.DryRun},
	} {
		if given.is {
			return Invalid(given.field, "with a lease's token an acquire adds a hold to that lease, and takes nothing but the hold's name: leave "+given.field+" out")
		}
	}
	if err := CheckLock(&r.Lock); err != nil {
		return err
	}
	return CheckHold(r.Hold)
}

func CheckReasonText(reason string) error { return CheckText("reason", reason, MaxReasonText) }
