package httpapi

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// pathSegment is a parameter of the path, decoded once: chi routes on the raw
// path where there is one.
func (x *exchange) pathSegment(name string) (string, *problem) {
	segment := chi.URLParam(x.r, name)
	if x.r.URL.RawPath == "" {
		return segment, nil
	}
	decoded, err := url.PathUnescape(segment)
	if err != nil {
		return "", malformed("the path is not percent-encoded")
	}
	return decoded, nil
}

func (x *exchange) lockName() (string, *problem) {
	name, p := x.pathSegment("lock")
	if p == nil {
		name, p = lockName(name)
	}
	if p != nil {
		return "", p
	}
	x.lock, x.ns = name, locks.DefaultNamespace
	return name, nil
}

// newLockName is the name of a lock that is to be taken.
func (x *exchange) newLockName() (string, *problem) {
	name, p := x.pathSegment("lock")
	if p == nil {
		p = newLockName(name)
	}
	if p != nil {
		return "", p
	}
	x.lock, x.ns = name, locks.DefaultNamespace
	return name, nil
}

// self in place of a lease's id is the lease that the Lease-Token header names.
const self = "self"

// leaseFromPath is the lease of an operation that has the Lease-Token header: "" for self.
func (x *exchange) leaseFromPath() (string, *problem) {
	if chi.URLParam(x.r, "id") == self {
		return "", nil
	}
	return x.leaseIDFromPath()
}

// leaseIDFromPath refuses what cannot be a lease's id.
func (x *exchange) leaseIDFromPath() (string, *problem) {
	id, p := x.pathSegment("id")
	if p != nil {
		return "", p
	}
	if _, err := recipe.ParseLeaseID(id); err != nil {
		p := &problem{code: string(locks.CodeNotFound), detail: "this is not a lease's id"}
		if looksLikeToken(id) {
			p.detail = tokenHint
		}
		return "", p
	}
	x.leaseID = id
	return id, nil
}

// leaseForm is the fields of a look at a lease.
type leaseForm struct{ req locks.LeaseRequest }

func (*leaseForm) names() []string { return []string{"wait", "since", "verify"} }

func (f *leaseForm) take(name string, v value) (known bool, p *problem) {
	switch name {
	case "wait":
		f.req.Wait, p = duration(name, v, 0, locks.MaxPollWait)
	case "since":
		f.req.Since, p = opaque(name, v, 128)
	case "verify":
		f.req.Verify, p = boolean(name, v)
	default:
		return false, nil
	}
	return true, p
}

func (x *exchange) getLease() {
	id, p := x.leaseFromPath()
	var token string
	if p == nil && id == "" {
		token, p = neededToken(x.r.Header)
	} else if p == nil {
		token, p = leaseToken(x.r.Header)
	}
	if p != nil {
		x.problem(p)
		return
	}
	form := leaseForm{req: locks.LeaseRequest{Principal: locks.Anonymous, ID: id, Token: token}}
	if p := x.fields(&form, 0); p != nil {
		x.problem(p)
		return
	}
	ctx := x.r.Context()
	var unpark func()
	x.wait = form.req.Wait
	if form.req.Wait > 0 {
		var p *problem
		if ctx, unpark, p = x.park(); p != nil {
			x.problem(p)
			return
		}
	}
	lease, err := x.s.locks.Lease(ctx, form.req)
	if unpark != nil {
		unpark()
	}
	if err != nil {
		x.fail(err)
		return
	}
	x.show(&lease)
}

// heartbeatForm is the field of a heartbeat.
type heartbeatForm struct{ ttl time.Duration }

func (*heartbeatForm) names() []string { return []string{"ttl"} }

func (f *heartbeatForm) take(name string, v value) (known bool, p *problem) {
	if name != "ttl" {
		return false, nil
	}
	f.ttl, p = duration(name, v, locks.MinTTL, locks.MaxTTL)
	return true, p
}

func (x *exchange) heartbeat() {
	id, p := x.leaseFromPath()
	var token string
	if p == nil {
		token, p = neededToken(x.r.Header)
	}
	if p != nil {
		x.problem(p)
		return
	}
	var form heartbeatForm
	if p := x.fields(&form, maxBody); p != nil {
		x.problem(p)
		return
	}
	renewed, err := x.s.locks.Heartbeat(x.r.Context(), locks.Anonymous, id, token, form.ttl)
	x.tell(token, err)
	if to := ownerIn(err); x.mayForward(to) {
		answer, failed := x.ask(to)
		if answer != nil {
			x.pass(answer)
			return
		}
		if renewed, err = x.standIn(failed, token, form.ttl); err != nil {
			x.unanswered(err)
			return
		}
	}
	if err != nil {
		x.fail(err)
		return
	}
	shape := heartbeatShape(&renewed)
	x.encode(&shape)
	x.confirmed(renewed.Term, http.StatusOK, typeJSON)
}

// tell puts the lease that a token names into the log, unless the manager has
// found that the token is not genuine: then it is the client's invention.
func (x *exchange) tell(token string, err error) {
	var e *locks.Error
	if x.leaseID == "" && !(errors.As(err, &e) && e.Code == locks.CodeTokenWrong) {
		x.leaseID = leaseOf(token)
	}
}

// heartbeatsForm is the field of a bulk heartbeat.
type heartbeatsForm struct{ tokens []string }

func (*heartbeatsForm) names() []string { return []string{"tokens"} }

func (f *heartbeatsForm) take(name string, v value) (known bool, p *problem) {
	if name != "tokens" {
		return false, nil
	}
	switch {
	case v.source == fromQuery:
		return true, malformed("tokens are secrets: they travel in the body, never in a URL")
	case v.kind != isList || len(v.list) == 0:
		return true, invalid(name, "it is an array of lease tokens")
	case len(v.list) > locks.MaxHeartbeats:
		return true, invalid(name, "it has at most 1000 tokens: send several requests")
	}
	f.tokens = v.list
	return true, nil
}

func (x *exchange) heartbeatMany() {
	var form heartbeatsForm
	if p := x.fields(&form, maxHeartbeatsBody); p != nil {
		x.problem(p)
		return
	}
	if form.tokens == nil {
		x.problem(invalid("tokens", "send {\"tokens\": [...]} as application/json"))
		return
	}
	results := x.s.locks.Heartbeats(x.r.Context(), locks.Anonymous, form.tokens)
	list := api.HeartbeatList{Items: make([]api.HeartbeatItem, len(results))}
	var terms []locks.Term // one for all, unless some were renewed in their owner's place
	for i := range results {
		list.Items[i] = heartbeatItem(&results[i])
		if term := results[i].Heartbeat.Term; results[i].Err == nil && !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	if elsewhere := x.elsewhere(results); len(elsewhere) > 0 {
		more, p := x.renewElsewhere(elsewhere, form.tokens, list.Items)
		if p != nil {
			x.problem(p)
			return
		}
		terms = append(terms, more...)
	}
	x.encode(&list)
	for _, term := range terms {
		if !x.s.locks.StillValid(term) {
			x.notConfirmed()
			return
		}
	}
	x.send(http.StatusOK, typeJSON)
}

// holdForm is the field of a release.
type holdForm struct{ hold string }

func (*holdForm) names() []string { return []string{"hold"} }

func (f *holdForm) take(name string, v value) (known bool, p *problem) {
	if name != "hold" {
		return false, nil
	}
	f.hold, p = holdName(v) // an empty one is refused: it would let go of everything
	return true, p
}

func (x *exchange) release() {
	var form holdForm
	var token string
	id, p := x.leaseFromPath()
	if p == nil {
		token, p = neededToken(x.r.Header)
	}
	if p == nil {
		p = x.fields(&form, 0)
	}
	if p != nil {
		x.problem(p)
		return
	}
	var err error
	if form.hold == "" {
		err = x.s.locks.Release(x.traced(), locks.Anonymous, id, token)
	} else {
		err = x.s.locks.ReleaseHold(x.traced(), locks.Anonymous, id, token, form.hold)
	}
	x.tell(token, err)
	x.done(err)
}

// leasesForm is the fields of a list of leases.
type leasesForm struct{ filter locks.LeaseFilter }

func (*leasesForm) names() []string { return []string{"ns", "owner", "state", "limit", "cursor"} }

func (f *leasesForm) take(name string, v value) (known bool, p *problem) {
	switch name {
	case "ns":
		f.filter.NS, p = namespace(v)
	case "owner":
		f.filter.Owner, p = text(name, v, locks.MaxOwner)
	case "state":
		var state string
		state, p = choice(name, v, string(locks.Waiting), string(locks.Held))
		f.filter.State = locks.State(state)
	case "limit":
		f.filter.Limit, p = integer(name, v, 1, locks.MaxPage)
	case "cursor":
		f.filter.Cursor, p = opaque(name, v, 1024)
	default:
		return false, nil
	}
	return true, p
}

func (x *exchange) listLeases() {
	form := leasesForm{filter: locks.LeaseFilter{Principal: locks.Anonymous, Limit: locks.DefaultPage}}
	if p := x.fields(&form, 0); p != nil {
		x.problem(p)
		return
	}
	page, err := x.s.locks.Leases(x.r.Context(), form.filter)
	if err != nil {
		x.fail(err)
		return
	}
	list := api.LeaseList{Items: make([]api.Lease, len(page.Items)), NextCursor: page.NextCursor}
	for i := range page.Items {
		list.Items[i] = leaseShape(&page.Items[i])
		list.Items[i].Token = "" // whatever the manager says
	}
	x.answer(http.StatusOK, &list)
}
