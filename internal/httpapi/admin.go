package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"lockkeeper/internal/locks"
)

// admin are the operations that end or ask for the leases of others, and settings. There is no authentication yet: a client
// that reaches the gateway may use them.
type admin struct {
	locks Administration
	s     *Server
}

// ofLock are the fields of an operation on one lock.
func ofLock[T any](lock, ns func(*T) *string, more ...field[T]) []field[T] {
	return append([]field[T]{
		{name: "lock", in: inPath, to: func(t *T) any { return (*lockName)(lock(t)) }},
		{name: "ns", preset: locks.DefaultNamespace, to: func(t *T) any { return ns(t) }},
	}, more...)
}

// ofShown are the fields that name the only contenders that a request may touch.
func ofShown[T any](at func(*T) *locks.Shown) []field[T] {
	return []field[T]{
		{name: "lease_ids", to: func(t *T) any { return &at(t).LeaseIDs }},
		{name: "znodes", to: func(t *T) any { return &at(t).Znodes }},
	}
}

var breakLease = operation[locks.BreakRequest]{body: maxBody, fields: []field[locks.BreakRequest]{
	{name: "id", in: inPath, to: func(b *locks.BreakRequest) any { return (*leaseID)(&b.ID) }},
	{name: "reason", zero: true, to: func(b *locks.BreakRequest) any { return &b.Reason }},
}}

func (a *admin) breakLease(x *exchange) error {
	req := locks.BreakRequest{Principal: x.principal(), Client: x.client(), AtOwner: a.s.forwarder.fleet != nil}
	if err := decode(x, &breakLease, &req); err != nil {
		return err
	}
	err := a.locks.Break(x.traced(), req)
	if to := ownerIn(err); to != nil && x.peer == nil {
		// The owner gives the lease's client the text of the request. This gateway ends the lease when the owner cannot.
		if a.s.forwarder.may(x, to) {
			if answer, err := a.s.forwarder.ask(x, to); err == nil && answer.Status < http.StatusInternalServerError {
				return a.s.forwarder.pass(x, answer)
			}
		}
		req.AtOwner = false
		err = a.locks.Break(x.traced(), req)
	}
	return x.done(err)
}

// contenderName is the last part of a contender's znode.
type contenderName string

func (c *contenderName) read(_ string, v value) error {
	const most = 1024 // bytes of a name that is looked for
	if v.text == "" || len(v.text) > most || strings.ContainsAny(v.text, "/\x00") {
		return &problem{code: code(locks.CodeNoContender), detail: "this is not a contender's name: it is the last part of its znode"}
	}
	*c = contenderName(v.text)
	return nil
}

var breakContender = operation[locks.BreakRequest]{body: maxBody, fields: ofLock(
	func(b *locks.BreakRequest) *string { return &b.Lock }, func(b *locks.BreakRequest) *string { return &b.NS },
	field[locks.BreakRequest]{name: "name", in: inPath, to: func(b *locks.BreakRequest) any { return (*contenderName)(&b.Name) }},
	field[locks.BreakRequest]{name: "reason", zero: true, to: func(b *locks.BreakRequest) any { return &b.Reason }},
)}

func (a *admin) breakContender(x *exchange) error {
	req := locks.BreakRequest{Principal: x.principal(), Client: x.client()}
	if err := decode(x, &breakContender, &req); err != nil {
		return err
	}
	return x.done(a.locks.Break(x.traced(), req))
}

var configureLock = operation[locks.SettingsRequest]{body: maxBody, fields: ofLock(
	func(s *locks.SettingsRequest) *string { return &s.Lock }, func(s *locks.SettingsRequest) *string { return &s.NS },
	field[locks.SettingsRequest]{name: "limit", missing: invalid("limit", "say how many permits the lock has"), to: func(s *locks.SettingsRequest) any { return &s.Limit }},
	field[locks.SettingsRequest]{name: "If-Match", in: inHeader, to: func(s *locks.SettingsRequest) any { return (*ifMatch)(&s.IfMatch) }},
)}

func (a *admin) configureLock(x *exchange) error {
	req := locks.SettingsRequest{Principal: x.principal()}
	if err := decode(x, &configureLock, &req); err != nil {
		return err
	}
	lock, err := a.locks.Configure(x.r.Context(), req)
	if err != nil {
		return err
	}
	x.tag(lock.Rev)
	return x.answer(new(lockShape(&lock)))
}

// lockOnly is a lock that nothing else is said of.
type lockOnly struct{ lock, ns string }

var removeLock = operation[lockOnly]{fields: ofLock(func(l *lockOnly) *string { return &l.lock }, func(l *lockOnly) *string { return &l.ns })}

func (a *admin) removeLock(x *exchange) error {
	var in lockOnly
	if err := decode(x, &removeLock, &in); err != nil {
		return err
	}
	return x.done(a.locks.Remove(x.r.Context(), x.principal(), in.ns, in.lock))
}

var revoke = operation[locks.RevokeRequest]{body: largeBody, fields: slices.Concat(
	ofLock(func(r *locks.RevokeRequest) *string { return &r.Lock }, func(r *locks.RevokeRequest) *string { return &r.NS },
		field[locks.RevokeRequest]{name: "reason", zero: true, to: func(r *locks.RevokeRequest) any { return &r.Reason }},
		field[locks.RevokeRequest]{name: "force_after", to: func(r *locks.RevokeRequest) any { return &r.ForceAfter }},
	), ofShown(func(r *locks.RevokeRequest) *locks.Shown { return &r.Shown }),
)}

func (a *admin) revoke(x *exchange) error {
	req := locks.RevokeRequest{Principal: x.principal(), Client: x.client()}
	if err := decode(x, &revoke, &req); err != nil {
		return err
	}
	return reserved(x, revokeShape, func() (locks.RevokeAnswer, error) { return a.locks.Revoke(x.r.Context(), req) })
}

var withdrawRevocation = operation[locks.WithdrawRequest]{fields: slices.Concat(
	ofLock(func(w *locks.WithdrawRequest) *string { return &w.Lock }, func(w *locks.WithdrawRequest) *string { return &w.NS }),
	ofShown(func(w *locks.WithdrawRequest) *locks.Shown { return &w.Shown }),
)}

func (a *admin) withdrawRevocation(x *exchange) error {
	req := locks.WithdrawRequest{Principal: x.principal()}
	if err := decode(x, &withdrawRevocation, &req); err != nil {
		return err
	}
	return reserved(x, withdrawShape, func() (locks.WithdrawAnswer, error) { return a.locks.Withdraw(x.r.Context(), req) })
}

type reapInput struct {
	locks.ReapRequest
	age given
}

var reap = operation[reapInput]{body: largeBody, fields: slices.Concat(
	ofLock(func(r *reapInput) *string { return &r.Lock }, func(r *reapInput) *string { return &r.NS },
		field[reapInput]{name: "older_than", zero: true, to: func(r *reapInput) any { return r.age.note(&r.OlderThan) }},
		field[reapInput]{name: "mode", to: func(r *reapInput) any { return &r.Mode }},
		field[reapInput]{name: "state", to: func(r *reapInput) any { return &r.State }},
		field[reapInput]{name: "owner", to: func(r *reapInput) any { return &r.Owner }},
		field[reapInput]{name: "foreign", to: func(r *reapInput) any { return &r.Foreign }},
		field[reapInput]{name: "dry_run", to: func(r *reapInput) any { return &r.DryRun }},
		field[reapInput]{name: "reason", zero: true, to: func(r *reapInput) any { return &r.Reason }},
	), ofShown(func(r *reapInput) *locks.Shown { return &r.Shown }),
)}

// given records that a field was given: 0 is another value than none.
type given bool

func (g *given) note(target any) any {
	*g = true
	return target
}

func (a *admin) reap(x *exchange) error {
	in := reapInput{ReapRequest: locks.ReapRequest{Principal: x.principal(), Client: x.client()}}
	if err := decode(x, &reap, &in); err != nil {
		return err
	}
	if !in.age && in.Shown.LeaseIDs == nil && in.Shown.Znodes == nil {
		// A request without any filter would end every lease.
		return invalid("older_than", "say how old a contender has to be, such as 10m; 0s is every one")
	}
	return reserved(x, reapShape, func() (locks.ReapAnswer, error) { return a.locks.Reap(x.traced(), in.ReapRequest) })
}

var destroy = operation[locks.DestroyRequest]{body: maxBody, fields: append(ofLock(
	func(d *locks.DestroyRequest) *string { return &d.Lock }, func(d *locks.DestroyRequest) *string { return &d.NS },
	field[locks.DestroyRequest]{name: "reason", zero: true, to: func(d *locks.DestroyRequest) any { return &d.Reason }},
), ofShown(func(d *locks.DestroyRequest) *locks.Shown { return &d.Shown })...)}

func (a *admin) destroy(x *exchange) error {
	req := locks.DestroyRequest{Principal: x.principal(), Client: x.client()}
	if err := decode(x, &destroy, &req); err != nil {
		return err
	}
	answer, err := a.locks.Destroy(x.traced(), req)
	return answerWith(x, destroyShape, answer, err)
}
