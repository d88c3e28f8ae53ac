package locks

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// Trace is of what a request is a part, as W3C traceparents. The caller must check the form of what a client has sent.
type Trace struct {
	Parent  string // what the request carried; "" for nothing
	Request string // the gateway's own span of the request; "" when there is none
}

// Origin is the span below which the waits and holds of the request's lease stand: the client's, else the request's own.
func (t Trace) Origin() string { return cmp.Or(t.Parent, t.Request) }

// Sampled reports whether the gateway exports its own span of the request.
func (t Trace) Sampled() bool {
	return len(t.Request) == lenTraceParent && strings.IndexByte("13579bdf", t.Request[lenTraceParent-1]) >= 0
}

// lenTraceParent is the length of version 00's form, which is all that is read.
const lenTraceParent = 55

// TraceParent is s when it is a W3C traceparent, else "".
func TraceParent(s string) string {
	if len(s) != lenTraceParent || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" {
		return ""
	}
	traceID, spanID := false, false // not all zeros
	for i := range len(s) {
		c := s[i]
		switch {
		case i == 2 || i == 35 || i == 52:
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return ""
		case i < 35:
			traceID = traceID || i > 2 && c != '0'
		case i < 52:
			spanID = spanID || c != '0'
		}
	}
	if !traceID || !spanID {
		return ""
	}
	return s
}

// TraceID is that of a traceparent; "" for none.
func TraceID(traceParent string) string {
	if len(traceParent) != lenTraceParent {
		return ""
	}
	return traceParent[3:35]
}

// traceKey is the context key of a trace.
type traceKey struct{}

// WithTrace returns a context for calls of a traced request.
func WithTrace(ctx context.Context, t Trace) context.Context {
	if t == (Trace{}) {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, t)
}

// WithTraceParent is WithTrace for a request of which the gateway has no span of its own.
func WithTraceParent(ctx context.Context, traceParent string) context.Context {
	return WithTrace(ctx, Trace{Parent: traceParent})
}

// TraceOf returns the trace of a call; the zero Trace for none.
func TraceOf(ctx context.Context) Trace {
	t, _ := ctx.Value(traceKey{}).(Trace)
	return t
}

// TraceParentOf returns the traceparent for what a call causes elsewhere, such as the deliveries about a lease that it ends;
// "" for none.
func TraceParentOf(ctx context.Context) string {
	t := TraceOf(ctx)
	return cmp.Or(t.Request, t.Parent)
}

// LeaseSpan is the time that a lease waited, or was held, as a trace shows it.
type LeaseSpan struct {
	Trace          Trace // of the acquire
	Started, Ended time.Time
	NS             string
	Locks          []string // the lease's, in its order
	LeaseID        string
	Owner          string
	Mode           Mode
	Gateway        string
	FencingToken   int64  // 0: it was never granted
	Reason         string // how the wait or the hold ended: ReasonGranted, or the lease's end
	TakenOver      bool   // from another gateway, while it lasted
}

// ReasonGranted is how a wait ends well.
const ReasonGranted = "granted"

// undoneKey is the context key of a release whose work was not done.
type undoneKey struct{}

// WithUndone returns a context for a release that says that the work of its period was not done.
func WithUndone(ctx context.Context) context.Context {
	return context.WithValue(ctx, undoneKey{}, true)
}

// IsUndone reports whether a release says so.
func IsUndone(ctx context.Context) bool {
	undone, _ := ctx.Value(undoneKey{}).(bool)
	return undone
}
