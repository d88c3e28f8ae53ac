package httpapi

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"lockkeeper/internal/httpapi/accesslog"
	"lockkeeper/internal/httpapi/compat/terraform"
	"lockkeeper/internal/locks"
)

// logLine is what a request's line in the log says besides its status. Neither the query nor the raw path is in it, for
// people put secrets where they do not belong.
type logLine struct {
	code     code
	cause    error
	quiet    bool // the operation comes all the time and says little
	repeated bool // one of many refusals of the same caller: no line for each
	streamed bool // events were sent, so many:
	events   int
	to       string // the gateway that the request was sent on to

	// Told unless the request was refused as invalid.
	lock, ns, lease, owner string

	text accesslog.Line // kept for the next request
}

// about records for the log line what the request is about, when a field of it is read.
func (l *logLine) about(target any) {
	switch to := target.(type) {
	case *lockName:
		l.lock = string(*to)
	case *leaseID:
		l.lease = string(*to)
	case *leaseOrSelf:
		l.lease = string(*to)
	case *string: // of all recorded targets, the namespace alone is plain text
		l.in(*to)
	}
}

// in records the namespace, and by the owner. A text that cannot be one is left out: a request may be refused before it is looked at.
func (l *logLine) in(ns string) {
	if locks.CheckText("ns", ns, locks.MaxNamespace) == nil {
		l.ns = ns
	}
}

func (l *logLine) by(owner string) {
	if locks.CheckText("owner", owner, locks.MaxOwner) == nil {
		l.owner = owner
	}
}

// log writes the request's line.
func (x *exchange) log() {
	l := &x.line
	level := slog.LevelInfo
	switch {
	case l.code == codeInternal:
		level = slog.LevelError
	case x.status < 400 && (l.quiet || quiet(x.operation)), byGuard(l.code, l.cause):
		level = slog.LevelDebug
	case x.status >= 500:
		level = slog.LevelWarn
	}
	access := x.s.access
	if access == nil || !access.Wants(level, x.status >= 400) {
		return
	}
	line, now := &l.text, time.Now()
	access.Begin(line, level, "request")
	line.Given("request_id", x.requestID)
	line.Given("operation", x.operation)
	line.Given("method", loggable(x.r.Method))
	line.Int("status", x.status)
	line.Given("code", l.code)
	if l.code != codeInvalidField {
		line.Given("lock", l.lock)
		line.Given("ns", l.ns)
		line.Given("lease_id", l.lease)
		line.Given("owner", l.owner)
	}
	if l.streamed {
		line.Int("events", l.events)
	}
	line.Given("principal", x.caller.Principal.Name)
	line.Given("credential", x.caller.ID)
	line.Millis("duration_ms", now.Sub(x.started))
	line.Given("client_ip", x.client())
	line.Given("forwarded_to", l.to)
	if x.peer != nil {
		line.Given("forwarded_by", x.peer.From)
	}
	given := traceparent(x.r.Header)
	line.Given("traceparent", given)
	line.Given("trace_id", locks.TraceID(cmp.Or(x.span.Traceparent, given)))
	if l.cause != nil {
		line.Given("error", l.cause.Error())
	}
	access.End(line, now)
}

// quiet are operations that come all the time and say little.
func quiet(operation string) bool {
	switch operation {
	case "Heartbeat", "HeartbeatMany", "Healthz", "Readyz", "Metrics",
		"GetFence", "CheckFence", "CheckFencePost", "CheckFencePut", "CheckFencePatch", "CheckFenceDelete":
		return true
	}
	return false
}

// loggable is a method that the gateway knows, else "other": a client may send any text.
func loggable(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
		terraform.MethodLock, terraform.MethodUnlock:
		return method
	}
	return "other"
}
