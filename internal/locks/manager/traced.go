package manager

import (
	"context"
	"strings"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/record"
)

// Traces gets the waits and holds of leases whose acquire is part of a trace. Implementations must be quick and safe for
// concurrent use; the manager calls them with its lock held.
type Traces interface {
	LeaseWaited(*locks.LeaseSpan)
	LeaseHeld(*locks.LeaseSpan)
}

// leaseTrace is the trace of a lease's acquire. The client's traceparent is in the lease's record: the gateway that takes the
// lease over exports the wait or the hold that it then sees the end of. Immutable.
type leaseTrace struct {
	locks.Trace
	takenOver  bool
	heldBefore bool // perhaps: its place was a holder's when it was taken over
}

// beginTrace keeps of which trace a new lease is a part. What the sampler has left out stays out.
func (l *lease) beginTrace(m *Manager, ctx context.Context) {
	if m.opt.Traces == nil {
		return
	}
	if t := locks.TraceOf(ctx); t.Sampled() {
		t.Parent = strings.Clone(t.Parent) // of a request's header
		l.rare().trace = &leaseTrace{Trace: t}
	}
}

// learnTrace takes over what a former owner has written down. A gateway that exports no traces keeps it for the next one.
func (l *lease) learnTrace(r record.Record) {
	if r.Trace != "" && l.known().trace == nil {
		l.rare().trace = &leaseTrace{Trace: locks.Trace{Parent: strings.Clone(r.Trace)}, takenOver: true, heldBefore: l.turn()}
	}
}

// carried is the traceparent that the lease's acquire carried; "" for none.
func (r *rare) carried() string {
	if r.trace == nil {
		return ""
	}
	return r.trace.Parent
}

// granted exports that the wait of a lease ends with its grant. One that its former owner may have granted is a hold that
// goes on.
func (t *leaseTrace) granted(m *Manager, l *lease) {
	if t != nil && !t.heldBefore {
		t.waited(m, l, locks.ReasonGranted)
	}
}

// waited exports that the lease has waited until now.
func (t *leaseTrace) waited(m *Manager, l *lease, reason string) {
	if t != nil && m.opt.Traces != nil {
		now := m.clock.Now()
		s := t.span(m, l, reason, now.Wall())
		s.Started = wallTime(now.Wall() - (now.Boot() - l.since))
		if l.enqueued > 0 {
			s.Started = wallTime(l.enqueued)
		}
		m.opt.Traces.LeaseWaited(s)
	}
}

// held exports that the lease was held until now. A lease that was taken over was held from then on, as far as this gateway
// has seen.
func (t *leaseTrace) held(m *Manager, l *lease, reason string) {
	if t != nil && m.opt.Traces != nil {
		now := m.clock.Now()
		s := t.span(m, l, reason, now.Wall())
		s.Started, s.FencingToken = wallTime(now.Wall()-(now.Boot()-l.since)), m.fleet.fencingToken(l.czxid)
		m.opt.Traces.LeaseHeld(s)
	}
}

func (t *leaseTrace) span(m *Manager, l *lease, reason string, wall time.Duration) *locks.LeaseSpan {
	s := &locks.LeaseSpan{Trace: t.Trace, Ended: wallTime(wall), NS: l.q.Namespace.Name, LeaseID: string(l.id()), Owner: l.owner,
		Mode: locks.ModeOf(l.contender.Mode), Gateway: string(m.members.Self()), Reason: reason, TakenOver: t.takenOver}
	for slot := range l.slots {
		if name := slot.q.Name(); len(s.Locks) == 0 || s.Locks[len(s.Locks)-1] != name { // a dialect may have several contenders in one queue
			s.Locks = append(s.Locks, name)
		}
	}
	return s
}

// wallTime is a reading of the wall clock as a time.
func wallTime(wall time.Duration) time.Time { return time.Unix(0, int64(wall)) }
