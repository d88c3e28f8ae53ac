package httpapi

import (
	"cmp"
	"net/http"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/traces"
)

// beginSpan begins the request's span, and gives the request a context that says so: the waits, holds and deliveries that follow
// from the request refer to it. Probes and scrapes have none. Nor has what another gateway sends without a trace: it follows from
// no request of a client.
func (x *exchange) beginSpan() *http.Request {
	parent := traceparent(x.r.Header)
	switch x.r.URL.Path {
	case "/healthz", "/readyz", "/metrics":
		return x.r
	}
	if parent == "" && sealed(x.r) {
		return x.r
	}
	x.span = x.s.traces.Begin(parent, loggable(x.r.Method), x.started)
	x.r = x.r.WithContext(locks.WithTrace(x.r.Context(), locks.Trace{Parent: parent, Request: x.span.Traceparent}))
	return x.r
}

// endSpan ends it, with what the log says of the request.
func (x *exchange) endSpan() {
	if !x.span.Is() {
		return
	}
	a := traces.Answered{Method: loggable(x.r.Method), Route: x.route, Operation: x.operation, Status: x.status, Code: x.line.code, Client: x.client(), RequestID: x.requestID,
		Gateway: x.s.locks.GatewayID(), ForwardedTo: x.line.to}
	if x.line.code != codeInvalidField {
		a.NS, a.Lock, a.LeaseID = x.line.ns, x.line.lock, x.line.lease
	}
	x.span.End(&a)
	x.span = traces.Request{}
}

// tracedBy is the traceparent for what this gateway asks others for the request; "" for none.
func (x *exchange) tracedBy() string { return cmp.Or(x.span.Traceparent, traceparent(x.r.Header)) }
