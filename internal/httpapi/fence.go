package httpapi

import (
	"errors"
	"net/http"
	"strconv"

	"lockkeeper/internal/locks"
)

// fences are the operations that tell whether a fencing token is current.
type fences struct{ locks Queues }

var getFence = operation[locks.FenceRequest]{fields: []field[locks.FenceRequest]{
	{name: "lock", in: inPath, to: func(r *locks.FenceRequest) any { return (*lockName)(&r.Lock) }},
	{name: "fencing_token", in: inQuery, missing: invalid("fencing_token", tokenWords), to: func(r *locks.FenceRequest) any { return (*fencingToken)(&r.Token) }},
	{name: "ns", in: inQuery, preset: locks.DefaultNamespace, to: func(r *locks.FenceRequest) any { return &r.NS }},
}}

func (f *fences) getFence(x *exchange) error {
	req := locks.FenceRequest{Principal: x.principal()}
	if err := decode(x, &getFence, &req); err != nil {
		return err
	}
	answer, err := f.locks.Fence(x.r.Context(), req)
	if err != nil {
		return err
	}
	shape := fenceShape(&answer)
	x.encode(&shape)
	if answer.Current {
		return x.confirmed(answer.Term, http.StatusOK, typeJSON)
	}
	return x.send(http.StatusOK, typeJSON) // "not current" gives no client anything, so memory may say it
}

// The headers of a proxied request, and of the answer to its proxy.
const (
	headerToken     = "Fencing-Token"
	headerLock      = "Lockkeeper-Lock"
	headerNamespace = "Lockkeeper-Namespace"
)

// A proxy says the query; the headers may be its client's. A body is the proxied request's, and not looked at.
var checkFence = operation[locks.FenceRequest]{body: unread, fields: []field[locks.FenceRequest]{
	{name: "lock", in: inQuery, header: headerLock, to: func(r *locks.FenceRequest) any { return (*lockName)(&r.Lock) },
		missing: invalid("lock", "name the lock: in the query, where the proxy is configured, or in the "+headerLock+" header")},
	{name: "ns", in: inQuery, header: headerNamespace, preset: locks.DefaultNamespace, to: func(r *locks.FenceRequest) any { return &r.NS }},
	{name: "fencing_token", in: inQuery, header: headerToken, missing: tokenNeeded(headerToken), to: func(r *locks.FenceRequest) any { return (*proxiedToken)(&r.Token) }},
}}

// proxiedToken is the fencing token of a proxied request.
type proxiedToken fencingToken

func (t *proxiedToken) read(name string, v value) error {
	if (*fencingToken)(t).read(name, v) != nil {
		return tokenNeeded(name)
	}
	return nil
}

// tokenNeeded is what a client's request lacks. It is 403, which proxies pass on; another status they take for a broken
// gateway.
func tokenNeeded(field string) error {
	return &problem{code: codeTokenNeeded, field: field, detail: "send the fencing token of the lease in the Fencing-Token header: " + tokenWords}
}

// checkFence answers a proxy.
func (f *fences) checkFence(x *exchange) error {
	req := locks.FenceRequest{Principal: x.principal()}
	if err := decode(x, &checkFence, &req); err != nil {
		if p, ok := errors.AsType[*problem](err); ok && p.field == headerToken {
			return tokenNeeded(headerToken) // two headers, or another token than the query's: the client's doing
		}
		return err
	}
	answer, err := f.locks.Fence(x.r.Context(), req)
	switch {
	case err != nil:
		return err
	case !answer.Current:
		return &problem{code: codeTokenStale, fence: &answer, detail: "the lease with this token does not hold the lock: do nothing with it"}
	case !x.s.locks.StillValid(answer.Term):
		return x.notConfirmed()
	}
	h := x.Header()
	h[headerToken] = []string{strconv.FormatInt(req.Token, 10)}
	h[headerLock] = []string{req.Lock}
	h[headerNamespace] = []string{req.NS}
	return x.done(nil)
}
