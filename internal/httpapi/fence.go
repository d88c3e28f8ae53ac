package httpapi

import (
	"net/http"
	"strconv"

	"lockkeeper/internal/locks"
)

// fenceForm is the fields of a question about a fencing token.
type fenceForm struct{ req locks.FenceRequest }

func (*fenceForm) names() []string { return []string{"fencing_token", "ns"} }

func (f *fenceForm) take(name string, v value) (known bool, p *problem) {
	switch name {
	case "fencing_token":
		var ok bool
		if f.req.Token, ok = fencingToken(v.text); !ok {
			p = invalid(name, tokenWords)
		}
	case "ns":
		f.req.NS, p = namespace(v)
	default:
		return false, nil
	}
	return true, p
}

const tokenWords = "it is the fencing_token of a lease, a whole number from 1"

func (x *exchange) getFence() {
	form := fenceForm{req: locks.FenceRequest{Principal: locks.Anonymous, NS: locks.DefaultNamespace}}
	var p *problem
	if form.req.Lock, p = x.lockName(); p == nil {
		p = x.fields(&form, 0)
	}
	if p == nil && form.req.Token == 0 {
		p = invalid("fencing_token", tokenWords)
	}
	if p != nil {
		x.problem(p)
		return
	}
	x.ns = form.req.NS
	answer, err := x.s.locks.Fence(x.r.Context(), form.req)
	if err != nil {
		x.fail(err)
		return
	}
	shape := fenceShape(&answer)
	x.encode(&shape)
	if answer.Current {
		x.confirmed(answer.Term, http.StatusOK, typeJSON)
		return
	}
	x.send(http.StatusOK, typeJSON) // this gives nobody anything, so memory may say it
}

// The headers of a proxied request, and of the answer to its proxy.
const (
	headerToken     = "Fencing-Token"
	headerLock      = "Lockkeeper-Lock"
	headerNamespace = "Lockkeeper-Namespace"
)

// guardForm is the fields of a proxy's question. What is in the query is the
// proxy's own words, what is in headers may be its client's.
type guardForm struct{ lock, ns, token string }

func (*guardForm) names() []string { return []string{"lock", "ns", "fencing_token"} }

func (f *guardForm) take(name string, v value) (known bool, p *problem) {
	switch name {
	case "lock":
		f.lock, p = lockName(v.text)
	case "ns":
		f.ns, p = namespace(v)
	case "fencing_token":
		if f.token = v.text; v.text == "" {
			p = tokenNeeded(name)
		}
	default:
		return false, nil
	}
	return true, p
}

// tokenNeeded is what a client's request lacks. It is 403, which proxies pass
// on; another status they take for a broken gateway.
func tokenNeeded(field string) *problem {
	return &problem{code: codeTokenNeeded, field: field, detail: "send the fencing token of the lease in the Fencing-Token header: " + tokenWords}
}

// fill takes from a header what the query does not have. One that contradicts
// the query is refused.
func fill(field *string, h http.Header, name string) (given bool, p *problem) {
	s, given, p := single(h, name)
	if p != nil || !given {
		return false, p
	}
	if *field == "" {
		*field = s
	} else if *field != s {
		return false, &problem{code: codeRepeatedField, field: name, detail: "it is given in the query and in this header, and they differ"}
	}
	return true, nil
}

func (f *guardForm) headers(h http.Header) *problem {
	given, p := fill(&f.lock, h, headerLock)
	if p == nil && given {
		f.lock, p = lockName(f.lock)
	}
	if p == nil {
		if given, p = fill(&f.ns, h, headerNamespace); p == nil && given {
			_, p = namespace(value{text: f.ns})
		}
	}
	if p != nil {
		return p
	}
	if _, p = fill(&f.token, h, headerToken); p != nil {
		return tokenNeeded(headerToken)
	}
	return nil
}

func (f *guardForm) request(x *exchange) (req locks.FenceRequest, p *problem) {
	d := decoder{form: f}
	if x.r.URL.RawQuery != "" {
		p = d.query(x.r.URL.RawQuery)
	}
	if p == nil {
		p = f.headers(x.r.Header)
	}
	if p != nil {
		return req, p
	}
	if f.lock == "" {
		return req, invalid("lock", "name the lock: in the query, where the proxy is configured, or in the "+headerLock+" header")
	}
	req = locks.FenceRequest{Principal: locks.Anonymous, NS: f.ns, Lock: f.lock}
	if req.NS == "" {
		req.NS = locks.DefaultNamespace
	}
	x.lock, x.ns = req.Lock, req.NS
	var ok bool
	if req.Token, ok = fencingToken(f.token); !ok {
		return req, tokenNeeded(headerToken)
	}
	return req, nil
}

// checkFence answers a proxy. A body is the proxied request's, and not looked at.
func (x *exchange) checkFence() {
	var form guardForm
	req, p := form.request(x)
	if p != nil {
		x.problem(p)
		return
	}
	answer, err := x.s.locks.Fence(x.r.Context(), req)
	if err != nil {
		x.fail(err)
		return
	}
	if !answer.Current {
		x.problem(&problem{code: codeTokenStale, fence: &answer, detail: "whoever holds this token does not hold the lock: nothing may be done with it"})
		return
	}
	if !x.s.locks.StillValid(answer.Term) {
		x.notConfirmed()
		return
	}
	h := x.Header()
	h[headerToken] = []string{strconv.FormatInt(req.Token, 10)}
	h[headerLock] = []string{req.Lock}
	h[headerNamespace] = []string{req.NS}
	x.WriteHeader(http.StatusNoContent)
}

// The same for proxies that ask with the method of the request.

func (x *exchange) checkFencePost()   { x.checkFence() }
func (x *exchange) checkFencePut()    { x.checkFence() }
func (x *exchange) checkFencePatch()  { x.checkFence() }
func (x *exchange) checkFenceDelete() { x.checkFence() }
