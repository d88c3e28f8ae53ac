package locks

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/quota"
)

// Principal is the caller and what it may do. The zero value may do nothing, except what a lease's token alone allows.
type Principal struct {
	Name  string // idempotency keys belong to it
	Rules *access.Rules
	// Counts: the caller was asked who it is. Its leases name it and count for it.
	Counts bool
}

// Account is the name that the principal's leases count for; "" where none is asked who it is.
func (p Principal) Account() string {
	if !p.Counts {
		return ""
	}
	return p.Name
}

// Anonymous is the principal of every caller of a gateway without authentication. It may do everything.
var Anonymous = Principal{Name: "anonymous", Rules: access.Everything()}

// Owner is the owner of the principal's leases that name none: its name, as much of it as an owner may have. It is "" for a
// caller that has not said who it is.
func (p Principal) Owner() string {
	if !p.Counts || p.Name == Anonymous.Name {
		return ""
	}
	return CutText(p.Name, MaxOwner)
}

// By is how the principal is named to those whose lease it ends or asks for: by its name, or by the address of a caller that is
// not asked who it is or has not said so. The result is at most MaxPrincipal bytes long.
func (p Principal) By(address string) string {
	if !p.Counts || p.Name == Anonymous.Name || len(p.Name) > MaxPrincipal {
		return CutText(address, MaxPrincipal)
	}
	return p.Name
}

// CheckLeases refuses an acquire of leases that are more than the principal may have: by its roles for these locks, or else
// otherwise, 0 for no bound. account counts what the principal has, and takes is what the acquire would add.
func (p Principal) CheckLeases(wants []Want, takes int64, account *quota.Account, otherwise int64) *Error {
	if account == nil {
		return nil
	}
	used, _ := account.Used()
	for i := range wants {
		most := int64(p.Rules.Limits(wants[i].NS, wants[i].Lock).Leases)
		if most == 0 {
			most = otherwise
		}
		if most > 0 && used+takes > most {
			return &Error{Code: CodePrincipalLimit, RetryAfter: time.Second,
				Detail: fmt.Sprintf("%s has %d of at most %d leases at this gateway for the lock %s in the namespace %s, a lease of several locks counted once for each, and this one would count %d: release some, or ask an operator for a role with more leases",
					p.called(), used, most, wants[i].Lock, wants[i].NS, takes)}
		}
	}
	return nil
}

// Denied is what a principal may not do.
type Denied struct {
	Verb     access.Verb
	NS, Lock string // Lock "": any lock of the namespace; both "": what has no lock
}

// Check refuses a principal that lacks the verb for a lock. It knows nothing of the lock but its name: the answer is the same
// whether the lock is there or not.
func (p Principal) Check(v access.Verb, ns, lock string) *Error {
	if p.Rules.May(v, ns, lock) {
		return nil
	}
	return p.denied(v, ns, lock)
}

// CheckIn refuses a principal that lacks the verb for every lock of a namespace. It does not say whether there is such a
// namespace.
func (p Principal) CheckIn(v access.Verb, ns string) *Error {
	if p.Rules.MayIn(v, ns) {
		return nil
	}
	return p.denied(v, ns, "")
}

// CheckAcquire refuses an acquire of which the principal may not have a lock, or not for that long. An acquire without a TTL
// gets DefaultTTL, or what the principal may have at most.
func (p Principal) CheckAcquire(r *AcquireRequest, ttlGiven bool) *Error {
	if len(r.Group) == 0 {
		return p.checkWant(r, r.NS, r.Lock, ttlGiven)
	}
	for i := range r.Group {
		if err := p.checkWant(r, r.Group[i].NS, r.Group[i].Lock, ttlGiven); err != nil {
			return err
		}
	}
	return nil
}

func (p Principal) checkWant(r *AcquireRequest, ns, lock string, ttlGiven bool) *Error {
	if err := p.Check(access.Acquire, ns, lock); err != nil {
		return err
	}
	if ttlGiven {
		if err := p.CheckTTL(r.TTL, ns, lock); err != nil {
			return err
		}
	} else if longest := p.Rules.Limits(ns, lock).MaxTTL; longest > 0 && !r.Reserves() {
		r.TTL = min(r.TTL, longest)
	}
	if err := p.CheckSpan("at_least", r.AtLeast, ns, lock); err != nil {
		return err
	}
	if r.LockDelay > freeLockDelay {
		if err := p.CheckSpan("lock_delay", r.LockDelay, ns, lock); err != nil {
			return err
		}
	}
	return p.checkNotify(r.NotifyURL, ns, lock)
}

// freeLockDelay is the longest lock delay that max_ttl does not bound: it was the longest of all.
const freeLockDelay = time.Hour

// checkNotify refuses a notify_url that no role allows for the lock. What else is wrong with it is not said here.
func (p Principal) checkNotify(address, ns, lock string) *Error {
	if address == "" {
		return nil
	}
	host := ""
	if u, err := url.Parse(address); err == nil {
		host = strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	}
	if p.Rules.MayNotify(ns, lock, host) {
		return nil
	}
	return &Error{Code: CodeForbidden, Field: "notify_url", Denied: &Denied{access.Acquire, ns, lock},
		Detail: "notify_url must name a host that a role of " + p.called() + " allows for the lock " + lock + " in the namespace " + ns + "; GET /v1/whoami lists them"}
}

// CheckTTL refuses a time to live that is longer than the principal may ask for.
func (p Principal) CheckTTL(ttl time.Duration, ns, lock string) *Error {
	return p.CheckSpan("ttl", ttl, ns, lock)
}

// CheckReserve refuses a reservation for longer than the principal may have a time to live.
func (p Principal) CheckReserve(r *AcquireRequest, now time.Time) *Error {
	field, length := "for", r.For
	if !r.Until.IsZero() {
		field, length = "until", r.Until.Sub(now)
	}
	for _, w := range r.Wants() {
		if err := p.CheckSpan(field, length, w.NS, w.Lock); err != nil {
			return err
		}
	}
	return nil
}

// CheckSpan is CheckTTL for a span that a field of that name says.
func (p Principal) CheckSpan(field string, of time.Duration, ns, lock string) *Error {
	longest := p.Rules.Limits(ns, lock).MaxTTL
	if longest == 0 || of <= longest {
		return nil
	}
	words := field + " must be"
	if field == "until" {
		words = "until must be from now"
	}
	return &Error{Code: CodeForbidden, Field: field, Denied: &Denied{access.Acquire, ns, lock},
		Detail: words + " at most " + span(longest) + " for the lock " + lock + " in the namespace " + ns + ", by the roles of " + p.called()}
}

// For is what the principal may know of the gateway: without the namespaces in which it may read no lock, and without totals
// unless it may read every lock.
func (i Info) For(p Principal) Info {
	if p.Rules.MayAll(access.Read) {
		return i
	}
	i.Namespaces = slices.DeleteFunc(slices.Clone(i.Namespaces), func(ns string) bool { return !p.Rules.MayIn(access.Read, ns) })
	i.Locks, i.Contenders, i.Leases, i.Kinds, i.OldestWaiter, i.Hazards, i.HazardousLocks, i.Deadlocks = 0, 0, nil, nil, 0, nil, 0, 0
	return i
}

func (p Principal) denied(v access.Verb, ns, lock string) *Error {
	about := "for what has no lock"
	switch {
	case lock != "":
		about = "for the lock " + lock + " in the namespace " + ns
	case ns != "":
		about = "for any lock in the namespace " + ns
	}
	return &Error{Code: CodeForbidden, Denied: &Denied{v, ns, lock},
		Detail: "a role of " + p.called() + " must give the verb " + v.String() + " " + about + "; ask an operator of the gateway for it"}
}

func (p Principal) called() string {
	if p.Name == "" {
		return "this caller"
	}
	return p.Name
}

// ShownRev is a revision of what is shown of a lease, for a principal that may not read all of its locks. It changes with
// nothing else.
func (l *Lease) ShownRev() string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q %q %q %d %d %q %d %q %d %d %+v %q %v", l.State, l.Reason, l.Owner, l.Metadata, l.FencingToken, l.TTL, l.Holds, l.LockDelay, l.LockDelayOn,
		l.Position, l.QueueLength, l.Locks, l.Purpose, l.EndsAt)
	if l.Revoke != nil {
		fmt.Fprintf(h, " %q %t", l.Revoke.Reason, l.Revoke.Forced)
	}
	return "shown" + strconv.FormatUint(h.Sum64(), 36)
}

// Conceal takes the names of locks that the principal may not read out of a lock's contenders: a lease of several locks names
// the others. Of such a lease it also leaves out who asked for it: that caller may be known at the other lock alone.
func (p Principal) Conceal(list []Contender) {
	for i := range list {
		p.concealOne(&list[i])
	}
}

// ConcealUnreached is Conceal for contenders that a request could not change.
func (p Principal) ConcealUnreached(list []Unreached) {
	for i := range list {
		p.concealOne(&list[i].Contender)
	}
}

// ConcealIn is Conceal for the contenders in an error. It returns the error.
func (p Principal) ConcealIn(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		p.Conceal(e.Holders)
		e.Cycle = e.Cycle.conceal(p.Rules)
	}
	return err
}

func (p Principal) concealOne(c *Contender) {
	if len(c.Group) == 0 || p.Rules.MayAll(access.Read) {
		return
	}
	if c.Revoke != nil {
		c.Revoke.By = ""
	}
	c.Group = slices.DeleteFunc(c.Group, func(name string) bool {
		ns, lock, elsewhere := strings.Cut(name, "/")
		if !elsewhere {
			ns, lock = c.NS, name
		}
		return !p.Rules.May(access.Read, ns, lock)
	})
}
