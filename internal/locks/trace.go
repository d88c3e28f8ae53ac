package locks

import "context"

// traceKey is under which a call's context carries a trace.
type traceKey struct{}

// WithTraceParent is a context for calls of a request that belongs to a trace: whoever is
// told of a lease that such a call ends is told the W3C traceparent, too. It is what the client
// says, so the caller makes sure that it is well formed.
func WithTraceParent(ctx context.Context, traceParent string) context.Context {
	if traceParent == "" {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, traceParent)
}

// TraceParentOf is the traceparent of a call; "" for none.
func TraceParentOf(ctx context.Context) string {
	trace, _ := ctx.Value(traceKey{}).(string)
	return trace
}
