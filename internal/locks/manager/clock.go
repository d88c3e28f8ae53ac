package manager

import (
	"container/heap"
	"context"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/reports"
)

// The clock loop: what time ends.

// run ends leases whose time is over. Time ends nothing anywhere else.
func (t *timers) run(m *Manager, ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.wake:
		case <-timer.C:
		}
		m.do(func() {
			now := m.clock.Now()
			sleep := t.tick(m, now.Boot())
			t.expected = now.Boot() + sleep
			timer.Reset(sleep)
		})
	}
}

// tick does what is due at now and tells how long to sleep.
func (t *timers) tick(m *Manager, now time.Duration) time.Duration {
	c := t
	late := now - c.expected
	c.beat = now
	m.publisher.connection()
	m.reports.ReleaseDue(now)
	if !m.trusted() {
		c.trusted = false
		return t.soonest(m, clockTick, now)
	}
	switch {
	case !c.trusted && c.lastTrusted != 0:
		if !fault.On("blind-time") {
			t.forgive(m, now, now-c.lastTrusted)
		}
	case late > lateWake && c.expected != 0:
		t.forgive(m, now, late)
	}
	c.trusted, c.lastTrusted = true, now
	m.considerTakeovers(now)
	m.port.PumpReads()
	m.settleDeferred(now)
	if m.life.draining {
		return t.soonest(m, clockTick, now)
	}
	m.delays.endDue(m, now)
	for t.expiring < expiryWindow {
		l := t.deadlines.pop(now)
		if l == nil {
			break
		}
		l.atDeadline(m, now)
	}
	if t.expiring >= expiryWindow {
		return expiryPause
	}
	sleep := clockTick
	if next, ok := t.deadlines.next(); ok {
		sleep = min(sleep, max(next-now, 0))
	}
	if next, ok := m.delays.next(); ok {
		sleep = min(sleep, max(next-now, 0))
	}
	return t.soonest(m, sleep, now)
}

// soonest is how long to sleep so that no event is held back for too long.
func (t *timers) soonest(m *Manager, sleep, now time.Duration) time.Duration {
	if next, ok := m.reports.Next(); ok {
		return min(sleep, max(next-now, 0))
	}
	return sleep
}

// forgive moves every deadline by the time in which heartbeats could not be received, and blindGrace, once per blind interval.
func (t *timers) forgive(m *Manager, now, blind time.Duration) {
	m.log.Info("deadlines moved: heartbeats could not be received", "blind_ms", blind.Milliseconds(), "leases", m.leases.byID.Len())
	for l := range m.leases.byID.All() {
		if l.Settled() {
			// Never further than a heartbeat would, so that dead clients expire in spite of many blind intervals.
			moved := l.deadline + blind + min(l.ttl, blindGrace)
			l.deadline = l.bound(max(l.deadline, min(moved, max(now, l.grace)+l.clock())))
			if l.shrinkAt() != 0 {
				l.rareFields.shrinkAt = max(l.shrinkAt(), l.deadline)
			}
		}
	}
}

// atDeadline handles a lease that left the heap because something was due.
func (l *lease) atDeadline(m *Manager, now time.Duration) {
	l.tickReservation(m, now)
	switch {
	case l.shrinkAt() == 0 || l.shrinkAt() > now || l.deadline <= now:
	case l.term != m.port.Term() || !l.Record().Loaded() || l.rewriting():
		l.rareFields.shrinkAt = now + loadRetry
	default:
		l.rareFields.shrinkAt = 0
		l.writeRecord(m, func(r *record.Record) { r.SetTTL(l.ttl) }, nil)
	}
	if l.takeBack(m, now) {
		return
	}
	switch {
	case l.deadline > now: // a heartbeat moved it since
		l.writeGrant(m, now)
	case l.term != m.port.Term():
		// Its session is gone; the takeover sets a new deadline.
		l.deadline = now + clockTick
	case l.Waiting() && l.listeners > 0 && !l.reservation().ended(now):
		l.deadline = l.bound(now + l.waitingClock())
	case l.Record() != lifecycle.RecordCurrent:
		// Closed, held longer, ...: what the data says is read before the end.
		l.load(m)
		l.deadline = now + loadRetry
	case l.Held() && l.Grant() == lifecycle.GrantUnclaimed && fault.On("unclaimed-ends"):
		l.deadline = now + clockTick
	case l.Held() && l.Grant() == lifecycle.GrantUnclaimed:
		l.end(m, locks.ReasonUnclaimed, now)
		return
	default:
		l.end(m, locks.ReasonExpired, now)
		return
	}
	m.timers.schedule(l)
}

// expiresIn is what is promised of a lease's life. The deadline may be later, when it was moved because heartbeats could not be
// heard: a successor does not know of that, and gives what the record says.
func (l *lease) expiresIn(now time.Duration) time.Duration {
	span := l.recorded
	if !l.Held() {
		span = min(span, waitingClock)
	}
	if r := l.reservation(); r != nil && r.end != 0 {
		span = r.end - now
	} else if r != nil {
		span = locks.MaxReserve
	}
	span = min(l.deadline-now, span)
	if at := l.forceAt(); at != 0 {
		span = min(span, at-now)
	}
	return max(span, 0)
}

// takeBack ends a lease whose force is due. It reports false when that is later.
func (l *lease) takeBack(m *Manager, now time.Duration) bool {
	at := l.forceAt()
	if at == 0 || at > now {
		return false
	}
	if l.term != m.port.Term() || l.Record() != lifecycle.RecordCurrent {
		// Its takeover comes first, and what its record says.
		l.load(m)
		l.rareFields.revoke.forceAt = now + loadRetry
		return false
	}
	asked := l.revocation().asked
	l.rare().cause = &reports.Cause{Reason: locks.ReasonRevoked, Words: asked.Reason, By: asked.By}
	l.endFor(m, postmortem.Forced)
	return true
}

// What is due when.

const (
	// clockTick is the longest that the clock loop sleeps: how soon it notices that the gateway is trusted again.
	clockTick = 500 * time.Millisecond
	// lateWake is how late the loop may wake before the time that it slept through counts as blind: heartbeats may wait
	// unread in their sockets.
	lateWake = time.Second
	// blindGrace is what each deadline gets besides the blind time, at most and at most the TTL, so that waiting heartbeats
	// are received first. It is small, so that dead clients expire on a machine that is often late.
	blindGrace = 15 * time.Second
	// loadRetry is when an adopted lease whose data could not be read is read again.
	loadRetry = time.Second
	// expiryWindow bounds the deletions under way that time decided: when very many leases end together, ZooKeeper still takes
	// the writes of clients, and no expiry is refused, which would give it a whole TTL more.
	expiryWindow = 2048
	expiryPause  = 20 * time.Millisecond
)

// timers are the leases' deadlines, and what the clock loop remembers between ticks.
type timers struct {
	deadlines
	expiring    int           // deletions of expired or unclaimed leases in flight
	trusted     bool          // at the last look
	lastTrusted time.Duration // boot: the last time the gateway could speak
	expected    time.Duration // boot: when the loop meant to wake
	beat        time.Duration // boot: when it last turned, for Alive
	wake        chan struct{} // capacity 1
	grants      grantBudget
}

// deadlines is a heap of leases by due time.
type deadlines struct{ leaseHeap[byDue] }

// next is the earliest due time.
func (d *deadlines) next() (due time.Duration, ok bool) {
	if d.Len() == 0 {
		return 0, false
	}
	return d.leases[0].due, true
}

// pop removes and returns the earliest lease when it is due.
func (d *deadlines) pop(now time.Duration) *lease {
	if due, ok := d.next(); !ok || due > now {
		return nil
	}
	return heap.Pop(d).(*lease)
}

// byDue orders leases by their due time. Leases that are due at one instant go by their ids, so that the order in which
// they came does not matter.
type byDue struct{}

func (byDue) less(a, b *lease) bool { return a.due < b.due || a.due == b.due && a.id() < b.id() }

func (byDue) index(l *lease) *int32 { return &l.heapIndex }

// wakeAt wakes the loop when something is due earlier than it means to wake.
func (t *timers) wakeAt(due time.Duration) {
	if due >= t.expected {
		return
	}
	select {
	case t.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// schedule puts the lease's next due time into the heap. A heartbeat only moves the deadline; the heap is updated when
// the earlier time is due.
func (t *timers) schedule(l *lease) {
	due := l.deadline
	if l.shrinkAt() != 0 {
		due = min(due, l.shrinkAt())
	}
	if at := l.forceAt(); at != 0 {
		due = min(due, at)
	}
	if at := l.reservationDue(); at != 0 {
		due = min(due, at)
	}
	switch {
	case !l.Settled():
		t.deadlines.remove(l)
	case l.heapIndex < 0:
		if at := l.grantDue(t.beat); at != 0 {
			due = min(due, at)
		}
		l.due = due
		t.deadlines.push(l)
		t.wakeAt(due)
	case due < l.due:
		l.due = due
		t.deadlines.fix(l)
		t.wakeAt(due)
	}
}

// deleteRetry is the pause before a refused deletion is tried again.
const deleteRetry = time.Second
