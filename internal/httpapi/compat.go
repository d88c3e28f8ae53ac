package httpapi

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"lockkeeper/internal/httpapi/compat"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
)

// adapters are the protocols of other programs, over the same locks. Their clients keep no lease token and send no heartbeats.
// So a lease of theirs says in its metadata whose it is, and any gateway finds it in the queue by that. It is a reservation, which lasts
// for Hold from the last request for it.
type adapters struct {
	locks Locks
	s     *Server
	compat.Options
}

// mountCompat gives the protocols their paths, behind the same guard and in the same log as the rest. They are no part of
// openapi.yaml: it is about the gateway's own interface, and OpenAPI 3 has no methods LOCK and UNLOCK.
func (s *Server) mountCompat(o compat.Options) {
	a := &adapters{s.locks, s, o}
	if o.Has(compat.FleetLock) {
		s.mountAdapter(http.MethodPost, fleetLockPath+"pre-reboot", "FleetLockPreReboot", a.preReboot)
		s.mountAdapter(http.MethodPost, fleetLockPath+"steady-state", "FleetLockSteadyState", a.steadyState)
	}
	if o.Has(compat.Terraform) {
		a.mountTerraform()
	}
}

func (s *Server) mountAdapter(method, pattern, operation string, handle func(*exchange) error) {
	s.router.MethodFunc(method, pattern, func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		x.operation, x.r = operation, r
		p := x.account()
		if p == nil {
			p = x.mayAsk(needsDecision)
		}
		if p != nil {
			x.refuse(p)
			return
		}
		if err := handle(x); err != nil {
			x.fail(err)
		}
	})
}

// looks is how often a queue is read in which the record of a holder is not known yet: one that is just being created.
const looks = 3

// queueOf is the lock's holders in the order of the queue, as of a moment after the request came, and the first of its waiters.
func (a *adapters) queueOf(x *exchange, ns, lock string) (holders []locks.Contender, first *locks.Contender, err error) {
	for range looks {
		if holders, first, err = a.readQueue(x, ns, lock); err != nil {
			return nil, nil, err
		}
		// Without its record it may be the one that is looked for.
		if !slices.ContainsFunc(holders, func(h locks.Contender) bool { return h.Foreign == nil && h.FencingToken == 0 && h.Metadata == "" }) {
			return holders, first, nil
		}
	}
	return nil, nil, &problem{code: code(locks.CodeUnavailable), detail: "a holder's record cannot be read at the moment: repeat the request"}
}

func (a *adapters) readQueue(x *exchange, ns, lock string) (holders []locks.Contender, first *locks.Contender, err error) {
	req := locks.LockRequest{Principal: x.principal(), NS: ns, Lock: lock, Consistent: true, Limit: locks.MaxPage}
	for {
		page, err := a.locks.Lock(x.r.Context(), req)
		if err != nil {
			return nil, nil, err
		}
		if first == nil && len(page.Waiters) > 0 {
			first = &page.Waiters[0]
		}
		holders = append(holders, page.Holders...)
		if len(holders) >= page.HolderCount || len(page.Holders) == 0 || page.NextCursor == "" {
			return holders, first, nil // holders that fit on one page are on each page
		}
		req.Cursor, req.Consistent = page.NextCursor, false
	}
}

// ofProtocol reports whether a contender is a reservation, as all leases of these protocols are. A lease of the API may have the
// same metadata, but has no end that could be moved.
func ofProtocol(c *locks.Contender) bool {
	return c.Foreign == nil && (c.ReservedFor != 0 || !c.EndsAt.IsZero())
}

// mayActFor refuses a caller whose lease it is not: its id in the protocol is no secret. The verb operate is enough, as
// it is for every lease.
func mayActFor(x *exchange, c *locks.Contender) error {
	p := x.principal()
	if c.Principal == p.Account() {
		return nil
	}
	if err := p.Check(access.Operate, c.NS, lockOf(c)); err != nil {
		return &problem{code: codeForbidden, detail: "another principal has taken this lock under the same id: a role of " + p.Name + " must give the verb operate for the lock " + lockOf(c)}
	}
	return nil
}

// lockOf is the name of the contender's lock: the last part but one of its znode's path.
func lockOf(c *locks.Contender) string {
	dir := c.Znode[:max(strings.LastIndexByte(c.Znode, '/'), 0)]
	return dir[strings.LastIndexByte(dir, '/')+1:]
}

// mayAsk refuses a caller that lacks the verb for a lock, before anything is looked up.
func mayAsk(x *exchange, verb access.Verb, ns, lock string) error {
	if err := x.principal().Check(verb, ns, lock); err != nil {
		return err
	}
	return nil
}

// take acquires the lock without a wait.
func (a *adapters) take(x *exchange, req locks.AcquireRequest) (locks.Lease, error) {
	req.Principal, req.Client, req.For = x.principal(), x.client(), a.Hold
	ctx, end, err := x.takePlaceInQueue(0)
	if err != nil {
		return locks.Lease{}, err
	}
	defer end()
	result, err := a.locks.Acquire(ctx, req)
	if err != nil {
		return locks.Lease{}, problemOf(err) // never sent on: at another gateway it would be a new request
	}
	x.line.lease, x.line.owner = result.Lease.ID, result.Lease.Owner
	return result.Lease, nil
}

// keepFor begins a lease's Hold anew, and answers with body.
func (a *adapters) keepFor(x *exchange, c *locks.Contender, body any) error {
	x.line.lease, x.line.owner = c.LeaseID, c.Owner
	token, err := a.locks.TokenOf(c.LeaseID)
	if err != nil {
		return err
	}
	kept, err := a.locks.Update(x.r.Context(), locks.UpdateRequest{Principal: x.principal(), Token: token, For: a.Hold})
	if to := ownerIn(err); x.s.forwarder.may(x, to) {
		if err := x.askOwner(to, "UpdateLease", http.MethodPatch, "/v1/leases/self?for="+a.Hold.String(), token); err != nil {
			return err
		}
		return x.answer(body) // under the owner's term
	}
	if err != nil {
		return err
	}
	return x.granted(kept.Term, body)
}

// release releases a lease at any gateway.
func (a *adapters) release(x *exchange, c *locks.Contender) error {
	x.line.lease, x.line.owner = c.LeaseID, c.Owner
	token, err := a.locks.TokenOf(c.LeaseID)
	if err != nil {
		return err
	}
	err = a.locks.ReleaseFor(x.traced(), x.principal(), token)
	if e, ok := errors.AsType[*locks.Error](err); ok && e.Code == locks.CodeEnded {
		return nil // by its time, or by an administrator
	}
	return err
}

// askOwner sends a request about a lease to the gateway that runs it, in the place of the client's request.
func (x *exchange) askOwner(to *locks.Route, operation, method, target, token string) error {
	r, was, read := x.r, x.operation, x.bodyRead
	defer func() { x.r, x.operation, x.bodyRead = r, was, read }()
	at, err := url.Parse(target)
	if err != nil {
		return internal(err)
	}
	x.r = r.Clone(r.Context())
	x.r.Method, x.r.URL, x.r.Header = method, at, http.Header{}
	if token != "" {
		x.r.Header["Lease-Token"] = []string{token}
	}
	if trace := r.Header["Traceparent"]; trace != nil {
		x.r.Header["Traceparent"] = trace
	}
	x.operation, x.bodyRead = operation, false
	answer, err := x.s.forwarder.ask(x, to)
	switch {
	case err != nil:
		return unanswered(x, err)
	case answer.Status == http.StatusGone:
		return &locks.Error{Code: locks.CodeEnded, Detail: "the lease has ended meanwhile: repeat the request"}
	case answer.Status >= http.StatusBadRequest:
		return &problem{code: codeOwnerUnreachable, detail: "the gateway that runs this lease answers " + problemIn(answer) + ": repeat the request"}
	}
	return nil
}

// granted answers with success, under the term of a grant.
func (x *exchange) granted(term locks.Term, body any) error {
	x.encode(body)
	return x.confirmed(term, http.StatusOK, typeJSON)
}
