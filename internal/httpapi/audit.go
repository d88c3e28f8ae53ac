package httpapi

import (
	"net/http"

	"lockkeeper/internal/audit"
)

// audited reports whether a request stands in the audit log: each that was refused, and each that changes something but a heartbeat.
func (x *exchange) audited() (result string, ok bool) {
	switch {
	case x.status == http.StatusUnauthorized, x.status == http.StatusForbidden, x.status == http.StatusTooManyRequests:
		return "refused", true
	case x.operation == "" || quiet(x.operation), x.r.Method == http.MethodGet && x.operation != opLogIn, x.r.Method == http.MethodHead, x.r.Method == http.MethodOptions:
		return "", false
	case x.status >= http.StatusBadRequest:
		return "failed", true
	}
	return "ok", true
}

// audit adds the request's line to the audit log.
func (x *exchange) audit() {
	if x.s.audit == nil || x.line.repeated {
		return
	}
	result, ok := x.audited()
	if !ok {
		return
	}
	l := &x.line
	line := audit.Line{Event: "request", Operation: x.operation, Result: result, Status: x.status, Code: string(l.code), Principal: x.principal().Name, Credential: x.caller.ID,
		Address: x.client(), RequestID: x.requestID, ForwardedTo: l.to}
	if l.code != codeInvalidField {
		line.NS, line.Lock, line.LeaseID, line.Owner = l.ns, l.lock, l.lease, l.owner
	}
	if x.peer != nil {
		line.ForwardedBy = x.peer.From
	}
	x.s.audit.Add(line)
}
