package traces

import (
	"cmp"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"lockkeeper/internal/locks"
)

// LeaseWaited exports how a lease waited.
func (t *Tracer) LeaseWaited(s *locks.LeaseSpan) { t.lease("lock.wait", s) }

// LeaseHeld exports how a lease was held.
func (t *Tracer) LeaseHeld(s *locks.LeaseSpan) { t.lease("lock.hold", s) }

func (t *Tracer) lease(name string, s *locks.LeaseSpan) {
	if t == nil {
		return
	}
	list := make(attributes, 0, 12)
	list.text("lockkeeper.namespace", s.NS)
	if len(s.Locks) > 0 {
		list.text("lockkeeper.lock", s.Locks[0])
	}
	if len(s.Locks) > 1 {
		list = append(list, attribute.StringSlice("lockkeeper.locks", s.Locks))
	}
	list.text("lockkeeper.lease_id", s.LeaseID)
	list.text("lockkeeper.owner", s.Owner)
	list.text("lockkeeper.mode", string(s.Mode))
	list.text("lockkeeper.gateway", s.Gateway)
	list.text("lockkeeper.end_reason", string(s.Reason))
	if s.FencingToken != 0 {
		list = append(list, attribute.Int64("lockkeeper.fencing_token", s.FencingToken))
	}
	if s.TakenOver {
		list = append(list, attribute.Bool("lockkeeper.taken_over", true))
	}
	options := []trace.SpanStartOption{trace.WithTimestamp(s.Started), trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(list...)}
	if s.Trace.Parent != "" {
		// The acquire's own span, where this gateway has answered it, else the client's.
		options = append(options, trace.WithLinks(trace.LinkFromContext(remote(cmp.Or(s.Trace.Request, s.Trace.Parent)))))
	}
	_, span := t.tracer.Start(remote(s.Trace.Origin()), name, options...)
	span.End(trace.WithTimestamp(latest(s.Started, s.Ended)))
}

// latest is the end of a span whose start another machine's clock may have given.
func latest(a, b time.Time) time.Time {
	if b.Before(a) {
		return a
	}
	return b
}
