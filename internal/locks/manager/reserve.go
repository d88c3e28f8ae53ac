package manager

import (
	"strings"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
)

// Reservations. No heartbeat keeps such a lease, and none extends it: it ends at a time, which its record has as wall time.
// The gateway that writes that time turns it into a deadline of its boot clock at once, so that a wall clock that is set
// later moves nothing. A successor has the record alone. Its wall clock may be ahead of the earlier gateway's, so it adds
// clockSpare. A successor that finds held a reservation whose end was not written yet gives the whole span again.

const (
	// clockSpare is by how much the clocks of two gateways may differ without a reservation ending early.
	clockSpare = time.Minute
	// warningPart and longestWarning: lease.ending comes when a tenth of the reservation is left, at most ten minutes.
	warningPart    = 10
	longestWarning = 10 * time.Minute
	// endRetry is when an end that could not be written is written again.
	endRetry = 5 * time.Second
)

// reservation is what is known of a lease that ends at a time. All readings are of the boot clock.
type reservation struct {
	asked   record.Reserve
	end     time.Duration // when it ends for its client; 0: not known before its grant
	spare   time.Duration // it is ended so much later
	warned  bool          // lease.ending has been published for this end
	written bool          // the record has the end
	retry   time.Duration // when the end is written; 0: it need not be
}

// reservation is nil for a lease that heartbeats keep.
func (l *lease) reservation() *reservation { return l.known().reserve }

// reserve makes a new lease a reservation if the request asks for one.
func (l *lease) reserve(req *locks.AcquireRequest, boot, wall time.Duration) {
	if !req.Reserves() {
		return
	}
	r := &reservation{asked: record.Reserve{For: roundUp(req.For).Milliseconds(), Stays: req.Async}, written: true}
	if !req.Until.IsZero() {
		r.endAt(time.Duration(req.Until.UnixNano()), boot, wall)
	}
	l.rare().reserve = r
}

// endAt sets the end, in whole milliseconds as it is written.
func (r *reservation) endAt(end, boot, wall time.Duration) {
	r.asked.Until = roundUp(end).Milliseconds()
	r.end, r.spare, r.warned = boot+r.asked.EndsAtUnix()-wall, 0, false
}

func roundUp(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// grantReservation sets the end of a reservation for a span when it is granted. It is written soon after.
func (l *lease) grantReservation(m *Manager, now time.Duration) {
	r := l.reservation()
	if r == nil || r.end != 0 {
		return
	}
	boot, wall := max(now, l.grace), m.clock.Now().Wall()
	r.endAt(wall+boot-now+r.asked.Span(), boot, wall+boot-now)
	r.written, r.retry = false, now
}

// bound is the deadline of a reservation, where that of any other lease would be the given one.
func (l *lease) bound(deadline time.Duration) time.Duration {
	r := l.reservation()
	switch {
	case r == nil:
		return deadline
	case fault.On("reservation-end"):
		return deadline
	case l.Held() && l.Grant() == lifecycle.GrantClaimed:
		return r.end + r.spare
	case l.Waiting() && r.asked.Stays && r.end == 0:
		return l.since + locks.MaxReserve
	case l.Waiting() && r.asked.Stays:
		return r.end + r.spare
	case r.end != 0:
		return min(deadline, r.end+r.spare)
	}
	return deadline
}

// ended reports whether the time of a reservation is over.
func (r *reservation) ended(now time.Duration) bool {
	return r != nil && r.end != 0 && r.end+r.spare <= now
}

// left is what is left of a reservation for its client; what it will have before that is known.
func (r *reservation) left(now time.Duration) time.Duration {
	if r.end == 0 {
		return r.asked.Span()
	}
	return max(r.end-now, 0)
}

// warnAt is when the end is announced; 0: it has been, or is not known.
func (l *lease) warnAt() time.Duration {
	r := l.reservation()
	if r == nil || r.warned || r.end == 0 || !l.Held() {
		return 0
	}
	return max(r.end-min(r.span(l.enqueued)/warningPart, longestWarning), 1)
}

// span is the length of the reservation. One that ends at a time is counted from when it was queued.
func (r *reservation) span(enqueued time.Duration) time.Duration {
	if span := r.asked.Span(); span != 0 {
		return span
	}
	return max(r.asked.EndsAtUnix()-enqueued, 0)
}

// reservationDue is when something is to be done about a reservation before its end; 0: nothing is.
func (l *lease) reservationDue() time.Duration {
	due := l.warnAt()
	if r := l.reservation(); r != nil && r.retry != 0 && (due == 0 || r.retry < due) {
		due = r.retry
	}
	return due
}

// tickReservation announces the end of a reservation, and writes the end that its grant has set.
func (l *lease) tickReservation(m *Manager, now time.Duration) {
	r := l.reservation()
	if r == nil {
		return
	}
	if at := l.warnAt(); at != 0 && at <= now {
		r.warned = true
		m.publisher.ending(l)
	}
	if r.retry == 0 || r.retry > now {
		return
	}
	r.retry = now + endRetry
	switch {
	case r.written || !l.Settled() || r.ended(now):
		r.retry = 0
	case l.term == m.port.Term() && l.Record().Loaded() && !l.rewriting():
		l.writeRecord(m, func(*record.Record) {}, func(err error) { r.written = r.written || err == nil })
	}
}

// learnReserve takes over what a record says of the end. A record without it, of an earlier release, changes nothing.
// assumed: the record is the first that this gateway has read of the lease, and was written by another one.
func (l *lease) learnReserve(m *Manager, asked *record.Reserve, assumed bool, now time.Duration) (news bool) {
	r := l.reservation()
	switch {
	case asked == nil:
		return false
	case r == nil:
		r = &reservation{}
		l.rare().reserve = r
	case r.asked == *asked:
		r.written = true
		return false
	case asked.Until == 0 && l.Held() && asked.For == r.asked.For:
		return false // read before the end of its grant was written
	}
	r.asked, r.written, r.retry, r.end = *asked, true, 0, 0
	switch {
	case asked.Until == 0 && l.Held(): // the change was written before the end of its grant
		l.grantReservation(m, now)
	case asked.Until != 0:
		left := min(asked.EndsAtUnix()-m.clock.Now().Wall(), locks.MaxReserve)
		r.end, r.spare, r.warned = max(now+left, 1), 0, false
		if assumed && !fault.On("reservation-spare") {
			r.spare = clockSpare
		}
	}
	return true
}

// reschedule moves the deadline after the end of a reservation has moved.
func (l *lease) reschedule(m *Manager) {
	l.deadline = l.bound(l.deadline)
	m.timers.schedule(l)
}

// moved is what the record is to say of the end after a change; nil: the change leaves it. It refuses an end of a lease that
// is no reservation, one that is out of bounds, and one that the principal may not ask for.
func (l *lease) moved(req *locks.UpdateRequest, now zk.Instant) (*record.Reserve, *locks.Error) {
	r, field := l.reservation(), "for"
	if !req.Until.IsZero() {
		field = "until"
	}
	switch {
	case r == nil && !req.Reserves():
		return nil, nil
	case r == nil:
		return nil, locks.Invalid(field, "this lease is no reservation, and has no end: its heartbeats keep it; change its ttl")
	case req.TTL != 0:
		return nil, locks.Invalid("ttl", locks.NoTTL)
	case !req.Reserves():
		return nil, nil
	}
	next, left, span := record.Reserve{Stays: r.asked.Stays}, req.For, req.Until.IsZero()
	if l.Held() && span { // once for the request, which may ask again
		req.For, req.Until = 0, time.Unix(0, int64(now.Wall()+req.For))
	}
	if req.Until.IsZero() { // from the grant
		next.For = roundUp(req.For).Milliseconds()
	} else {
		if !span { // a span is as long as it says, by whichever of the two clocks it becomes a time
			if over := locks.CheckUntil(req.Until, now.Calendar()); over != nil {
				return nil, over
			}
			left = req.Until.Sub(now.Calendar())
		}
		next.Until = roundUp(time.Duration(req.Until.UnixNano())).Milliseconds()
	}
	if r.end != 0 && now.Boot()+left <= r.end {
		return &next, nil
	}
	for s := range l.slots {
		ns, lock := s.q.Namespace.Name, s.q.Name()
		if err := req.Principal.Check(access.Acquire, ns, lock); err != nil {
			return nil, err
		}
		if err := req.Principal.CheckSpan(field, left, ns, lock); err != nil {
			return nil, err
		}
	}
	return &next, nil
}

func (l *lease) purpose() string { return l.known().purpose }

// hasPart reports whether a part stands in a text, in upper or lower case.
func hasPart(text, part string) bool {
	return part == "" || strings.Contains(strings.ToLower(text), strings.ToLower(part))
}

// ending publishes that a reservation ends soon.
func (p *publisher) ending(l *lease) {
	for s := range l.slots {
		if !p.enabled() || !s.shown {
			continue
		}
		e := p.slotEvent(events.LeaseEnding, l, s)
		e.FencingToken = p.fleet.fencingToken(l.czxid)
		p.reports.Publish(e)
	}
}
