package locks

import "context"

// traceKey is the context key of a trace.
type traceKey struct{}

// WithTraceParent returns a context for calls of a traced request. Deliveries about a lease that such a call ends
// carry the W3C traceparent. The caller must check its form: it comes from the client.
func WithTraceParent(ctx context.Context, traceParent string) context.Context {
	if traceParent == "" {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, traceParent)
}

// TraceParentOf returns the traceparent of a call; "" for none.
func TraceParentOf(ctx context.Context) string {
	trace, _ := ctx.Value(traceKey{}).(string)
	return trace
}
