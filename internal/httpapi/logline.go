package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

// logLine is what a request's line in the log says besides its status. Neither the query nor the raw path is in it, for
// people put secrets where they do not belong.
type logLine struct {
	code     code
	cause    error
	quiet    bool // the operation comes all the time and says little
	streamed bool // events were sent, so many:
	events   int
	to       string // the gateway that the request was sent on to

	// Told unless the request was refused as invalid.
	lock, ns, lease, owner string

	attrs []slog.Attr // kept for the next request
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
		l.ns = *to
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
	ctx := x.r.Context()
	if !x.s.log.Enabled(ctx, level) {
		return
	}
	attrs := l.attrs[:0]
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	add("request_id", x.requestID)
	add("operation", x.operation)
	add("method", loggable(x.r.Method))
	attrs = append(attrs, slog.Int("status", x.status))
	add("code", l.code)
	if l.code != codeInvalidField {
		add("lock", l.lock)
		add("ns", l.ns)
		add("lease_id", l.lease)
		add("owner", l.owner)
	}
	if l.streamed {
		attrs = append(attrs, slog.Int("events", l.events))
	}
	attrs = append(attrs, slog.String("principal", "anonymous"))
	attrs = append(attrs, slog.Float64("duration_ms", float64(time.Since(x.started).Microseconds())/1000))
	add("client_ip", x.client())
	add("forwarded_to", l.to)
	if x.peer != nil {
		add("forwarded_by", x.peer.From)
	}
	add("traceparent", traceparent(x.r.Header))
	if l.cause != nil {
		add("error", l.cause.Error())
	}
	// One nameless group: its members stand in the line as if they had been given one by one, and the record need not copy
	// them.
	x.s.log.LogAttrs(ctx, level, "request", slog.Attr{Value: slog.GroupValue(attrs...)})
	clear(attrs)
	l.attrs = attrs
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

// loggable is a method that HTTP knows, else "other": a client may send any text.
func loggable(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}
