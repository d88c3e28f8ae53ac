package locks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"lockkeeper/internal/locks/recipe"
)

// The only validation of requests. The manager applies it; adapters parse text and use the same field names.

// Invalid returns the error that refuses a field, by its name in the API.
func Invalid(field, detail string) *Error {
	return &Error{Code: CodeInvalid, Field: field, Detail: detail}
}

// Normalize fills in defaults and refuses invalid requests.
func (r *AcquireRequest) Normalize() error {
	if r.NS == "" {
		r.NS = DefaultNamespace
	}
	if r.Token != "" {
		return r.normalizeHold()
	}
	if err := r.normalizeReserve(); err != nil {
		return err
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
	if err := r.checkTerms(); err != nil {
		return err
	}
	if err := r.checkOnce(); err != nil {
		return err
	}
	if err := CheckText("owner", r.Owner, MaxOwner); err != nil {
		return err
	}
	if err := checkReason(r.Purpose); err != nil {
		return err
	}
	if err := CheckText("notify_url", r.NotifyURL, MaxNotifyURL); err != nil {
		return err
	}
	return checkMetadata(r.Metadata)
}

// checkTerms refuses terms that are out of bounds or contradict each other.
func (r *AcquireRequest) checkTerms() error {
	key := r.IdempotencyKey
	switch {
	case r.Wait < 0 || r.Wait > MaxWait && r.Wait != WaitForever:
		return Invalid("wait", "wait must be between 0 and "+span(MaxWait)+", or forever")
	case r.Async && r.Wait != 0:
		return Invalid("wait", "an async acquire answers at once: leave wait out, and poll the lease with wait")
	case r.LockDelay < 0 || r.LockDelay > MaxLockDelay:
		return Invalid("lock_delay", "lock_delay must be between 0 and "+span(MaxLockDelay))
	case r.AtLeast < 0 || r.AtLeast > MaxAtLeast:
		return Invalid("at_least", "at_least must be between 0 and "+span(MaxAtLeast))
	case r.Deadlock != "" && r.Deadlock != DeadlockWait && r.Deadlock != DeadlockFail:
		return Invalid("deadlock", "deadlock must be wait or fail")
	case r.Deadlock == DeadlockFail && !IsParty(cmp.Or(r.Owner, r.Principal.Owner())):
		return Invalid("owner", "deadlock=fail needs an owner: the name that all leases of one program or job have, and no address")
	case r.LockDelayOn != "" && r.LockDelay == 0:
		return Invalid("lock_delay_on", "lock_delay_on says which ends a lock_delay follows: give lock_delay, too")
	case r.LockDelayOn != "" && r.LockDelayOn != DelayOnExpiry && r.LockDelayOn != DelayAlways:
		return Invalid("lock_delay_on", "lock_delay_on must be expiry or always")
	case key != "" && (len(key) < MinKeyLength || len(key) > MaxKeyLength || !visible(key)):
		return Invalid("Idempotency-Key", fmt.Sprintf(
			"Idempotency-Key must have %d to %d visible ASCII characters: a fresh random one for each attempt to do the job, secret like the token", MinKeyLength, MaxKeyLength))
	case r.Ephemeral && (r.LockDelay != 0 || r.LockDelayOn != ""):
		return Invalid("lock_delay", "an ephemeral lease goes with its gateway's session, and nothing of it stays for a lock_delay; leave one of them out")
	case r.Ephemeral && r.AtLeast != 0:
		return Invalid("at_least", "an ephemeral lease goes with its gateway's session, and nothing of it stays until at_least is over; leave one of them out")
	}
	return nil
}

// normalizeHold refuses every other field in a request that adds a hold.
func (r *AcquireRequest) normalizeHold() error {
	if r.Hold == "" {
		return Invalid("hold", "a Lease-Token adds a hold to its lease: name the hold, or leave the token out")
	}
	for _, given := range []struct {
		field string
		is    bool
	}{
		{"ttl", r.TTL != 0}, {"wait", r.Wait != 0}, {"async", r.Async}, {"owner", r.Owner != ""}, {"metadata", r.Metadata != ""},
		{"Idempotency-Key", r.IdempotencyKey != ""}, {"mode", r.Mode != ""}, {"limit", r.Limit != 0}, {"permits", r.Permits != 0},
		{"locks", r.Group != nil}, {"lock_delay", r.LockDelay != 0}, {"lock_delay_on", r.LockDelayOn != ""}, {"at_least", r.AtLeast != 0},
		{"once_per", r.OncePer != 0}, {"period", r.Period != ""}, {"done_on", r.DoneOn != ""},
		{"deadlock", r.Deadlock != ""}, {"ephemeral", r.Ephemeral}, {"notify_url", r.NotifyURL != ""}, {"dry_run", r.DryRun}, {"reason", r.Purpose != ""},
		{"for", r.For != 0}, {"until", !r.Until.IsZero()},
	} {
		if given.is {
			return Invalid(given.field, "a Lease-Token adds a hold to its lease, by the hold's name alone: leave "+given.field+" out")
		}
	}
	if err := CheckPlace(&r.NS, &r.Lock); err != nil {
		return err
	}
	return CheckHold(r.Hold)
}

// normalizeWants fills in and checks the request for each lock.
func (r *AcquireRequest) normalizeWants() error {
	if r.Group == nil {
		w := r.Wants()[0]
		err := w.normalize(func(name string) string { return name })
		r.NS, r.Lock, r.Mode, r.Limit, r.Permits = w.NS, w.Lock, w.Mode, w.Limit, w.Permits
		return err
	}
	switch {
	case len(r.Group) == 0 || len(r.Group) > MaxGroup:
		return Invalid("locks", fmt.Sprintf("locks must name 1 to %d locks, not %d", MaxGroup, len(r.Group)))
	case r.Lock != "" || r.Mode != "" || r.Limit != 0 || r.Permits != 0:
		return Invalid("locks", "with locks, each has its own lock, mode, limit and permits")
	}
	group := slices.Clone(r.Group) // the caller's slice stays unchanged
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

// normalize fills in and checks the request for one lock; field returns a field's name in the API.
func (w *Want) normalize(field func(string) string) error {
	if w.Mode == "" {
		w.Mode = Exclusive
	}
	if w.Mode == Semaphore && w.Permits == 0 {
		w.Permits = 1
	}
	if err := checkNS(field("ns"), &w.NS); err != nil {
		return err
	}
	if err := recipe.CheckLockName(w.Lock); err != nil {
		return Invalid(field("lock"), err.Error())
	}
	switch {
	case !w.Mode.Known():
		return Invalid(field("mode"), modeWords)
	case w.Mode != Semaphore && w.Limit != 0:
		return Invalid(field("limit"), "limit goes with mode=semaphore")
	case w.Mode != Semaphore && w.Permits != 0:
		return Invalid(field("permits"), "permits go with mode=semaphore")
	case w.Limit < 0 || w.Limit > MaxLimit:
		return Invalid(field("limit"), fmt.Sprintf("limit must be between 1 and %d", MaxLimit))
	case w.Permits < 0 || w.Permits > MaxLimit:
		return Invalid(field("permits"), fmt.Sprintf("permits must be between 1 and %d", MaxLimit))
	case w.Limit > 0 && w.Permits > w.Limit:
		return Invalid(field("permits"), fmt.Sprintf("permits must be at most the limit: %d of %d would never be granted", w.Permits, w.Limit))
	}
	return nil
}

const modeWords = "mode must be exclusive, shared or semaphore"

// Wants returns the requested locks.
func (r *AcquireRequest) Wants() []Want { return r.WantsIn(new([1]Want)) }

// WantsIn is Wants in the caller's memory, when there is one lock.
func (r *AcquireRequest) WantsIn(room *[1]Want) []Want {
	if len(r.Group) > 0 {
		return r.Group
	}
	room[0] = Want{NS: r.NS, Lock: r.Lock, Mode: r.Mode, Limit: r.Limit, Permits: r.Permits}
	return room[:]
}

// Field is the API's name of a field of the i-th lock.
func (r *AcquireRequest) Field(i int, name string) string {
	if len(r.Group) == 0 {
		return name
	}
	return "locks[" + strconv.Itoa(i) + "]." + name
}

// CheckTTL refuses a time to live out of bounds.
func CheckTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return Invalid("ttl", "ttl must be between "+span(MinTTL)+" and "+span(MaxTTL))
	}
	return nil
}

// CheckHold refuses an invalid name of a hold.
func CheckHold(name string) error {
	if name == "" || len(name) > MaxHoldName || !visible(name) {
		return Invalid("hold", fmt.Sprintf("hold must have 1 to %d visible ASCII characters, and no spaces", MaxHoldName))
	}
	return nil
}

// CheckPlace fills in the namespace, normalizes a lock's name (or its directory's), and refuses what is neither.
// Only names that recipe.CheckLockName accepts can be acquired; locks with other names belong to other programs.
func CheckPlace(ns, lock *string) error {
	if err := checkNS("ns", ns); err != nil {
		return err
	}
	parsed, err := recipe.ParseLockName(*lock)
	if err != nil {
		return Invalid("lock", err.Error())
	}
	*lock = parsed
	return nil
}

func checkNS(field string, ns *string) error {
	if *ns == "" {
		*ns = DefaultNamespace
	}
	for i, r := range *ns {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if i == MaxNamespace || !letter && (i == 0 || r != '.' && r != '_' && r != '-') {
			return Invalid(field, fmt.Sprintf("ns must be 1 to %d of A-Z a-z 0-9 . _ -, the first a letter or digit", MaxNamespace))
		}
	}
	return nil
}

// CheckText refuses a text that is too long or not printable.
func CheckText(field, text string, limit int) error {
	switch {
	case len(text) > limit:
		return Invalid(field, fmt.Sprintf("%s must have at most %d bytes, and has %d", field, limit, len(text)))
	case !utf8.ValidString(text):
		return Invalid(field, field+" must be UTF-8")
	case strings.ContainsFunc(text, unicode.IsControl):
		return Invalid(field, field+" must have no control characters")
	}
	return nil
}

// CutText is the text, or as many of its first characters as have so many bytes. The rest is not kept alive.
func CutText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return strings.Clone(text[:most])
}

var oneLine = strings.NewReplacer("\n", " ", "\r", " ", "\t", " ")

// checkMetadata refuses metadata that is too long or not printable. It may have lines.
func checkMetadata(text string) error {
	return CheckText("metadata", oneLine.Replace(text), MaxMetadata)
}

// visible reports whether s has only visible ASCII characters.
func visible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// span formats a duration briefly: 24h, not 24h0m0s.
func span(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
