package traces

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
)

// Request is the span of one request. The zero Request is none.
type Request struct {
	span trace.Span
	// Traceparent is the span as what the request causes refers to it.
	Traceparent string
}

// Answered is what a request's span says besides its times.
type Answered struct {
	Method, Route string // Route is a pattern, "" when none matched
	Operation     string // of openapi.yaml
	Status        int
	Code          string // of the problem; "" for a success
	Client        string // its address
	RequestID     string
	NS, Lock      string
	LeaseID       string
	Gateway       string // this one's id
	ForwardedTo   string // another one's
}

// Begin begins the span of a request that has just come in. parent is its traceparent, "" for none.
func (t *Tracer) Begin(parent, method string, at time.Time) Request {
	if t == nil {
		return Request{}
	}
	_, span := t.tracer.Start(remote(parent), method, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(at),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(method)))
	return Request{span: span, Traceparent: traceparent(span.SpanContext())}
}

// Is reports whether there is a span.
func (r *Request) Is() bool { return r.span != nil }

// End ends the span.
func (r *Request) End(a *Answered) {
	if r.span == nil {
		return
	}
	defer r.span.End()
	if !r.span.IsRecording() {
		return
	}
	if a.Route != "" {
		r.span.SetName(a.Method + " " + a.Route)
	}
	list := make(attributes, 0, 14)
	if a.Status != 0 { // else the connection was cut
		list = append(list, semconv.HTTPResponseStatusCode(a.Status))
	}
	list.text(semconv.HTTPRouteKey, a.Route)
	list.text(semconv.ClientAddressKey, a.Client)
	list.text("lockkeeper.operation", a.Operation)
	list.text("lockkeeper.code", a.Code)
	list.text("lockkeeper.request_id", a.RequestID)
	list.text("lockkeeper.namespace", a.NS)
	list.text("lockkeeper.lock", a.Lock)
	list.text("lockkeeper.lease_id", a.LeaseID)
	list.text("lockkeeper.gateway", a.Gateway)
	list.text("lockkeeper.forwarded_to", a.ForwardedTo)
	if a.Status >= 500 {
		list.text(semconv.ErrorTypeKey, a.Code)
		r.span.SetStatus(codes.Error, a.Code)
	}
	r.span.SetAttributes([]attribute.KeyValue(list)...)
}
