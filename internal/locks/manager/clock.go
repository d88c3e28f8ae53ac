package manager

import (
	"context"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/record"
)

const (
	// clockTick is the longest the clock loop sleeps: how soon it notices that
	// the gateway may speak again.
	clockTick = 500 * time.Millisecond
	// lateWake is how late the loop may wake before the time it slept through
	// counts as blind: heartbeats may wait unread in their sockets.
	lateWake = time.Second
	// blindGrace is what each deadline gets besides the blind time, at most,
	// so that waiting heartbeats are heard first. It is bounded by the TTL, and
	// small, so that dead clients still expire on a machine that is often late.
	blindGrace = 15 * time.Second
	// loadRetry is how long an adopted lease whose data could not be read yet
	// is kept before it is looked at again.
	loadRetry = time.Second
	// expiryWindow bounds the deletions under way that time decided: when very many leases end together, the line to ZooKeeper stays open for
	// clients, and no expiry is refused (which would give it a whole TTL more).
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
}

// runClock ends leases whose time is over. It is the only place where time
// ends anything.
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

// wakeAt makes the loop look again when something is due earlier than it
// means to wake.
func (t *timers) wakeAt(due time.Duration) {
	if due >= t.expected {
		return
	}
	select {
	case t.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// tick does what is due at now and tells how long to sleep.
func (t *timers) tick(m *Manager, now time.Duration) time.Duration {
	c := t
	late := now - c.expected
	c.beat = now
	m.lookAtConnection()
	m.releaseDue(now)
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
	if next, ok := m.back.next(); ok {
		return min(sleep, max(next-now, 0))
	}
	return sleep
}

// forgive moves every deadline by the time in which heartbeats could not be
// heard and a little more, once per blind interval.
func (t *timers) forgive(m *Manager, now, blind time.Duration) {
	m.log.Info("deadlines moved: heartbeats could not be heard", "blind_ms", blind.Milliseconds(), "leases", len(m.leases.byID))
	for _, l := range m.leases.byID {
		if l.phase == waiting || l.phase == held {
			// Never further than a heartbeat would: where one blind interval follows
			// the other, dead clients expire all the same.
			moved := l.deadline + blind + min(l.ttl, blindGrace)
			l.deadline = max(l.deadline, min(moved, max(now, l.grace)+l.clock()))
			if l.shrinkAt() != 0 {
				l.rareFields.shrinkAt = max(l.shrinkAt(), l.deadline)
			}
		}
	}
}

// atDeadline handles a lease that left the heap because something was due.
func (l *lease) atDeadline(m *Manager, now time.Duration) {
	switch {
	case l.shrinkAt() == 0 || l.shrinkAt() > now || l.deadline <= now:
	case l.term != m.port.Term() || !l.recordState.loaded() || l.rewriting():
		l.rareFields.shrinkAt = now + loadRetry
	default:
		l.rareFields.shrinkAt = 0
		l.writeRecord(m, func(r *record.Record) { r.SetTTL(l.ttl) }, nil)
	}
	if m.takeBack(l, now) {
		return
	}
	switch {
	case l.deadline > now: // a heartbeat moved it since
	case l.term != m.port.Term():
		// Its session is gone; the takeover sets a new deadline.
		l.deadline = now + clockTick
	case l.phase == waiting && l.listeners > 0:
		l.deadline = now + l.waitingClock()
	case l.recordState != recordCurrent:
		// Closed, held longer, ...: what the data says is read before the end.
		l.load(m)
		l.deadline = now + loadRetry
	case l.phase == held && l.grant == grantUnclaimed && fault.On("unclaimed-ends"):
		l.deadline = now + clockTick
	case l.phase == held && l.grant == grantUnclaimed:
		l.end(m, locks.ReasonUnclaimed, now)
		return
	default:
		l.end(m, locks.ReasonExpired, now)
		return
	}
	m.timers.schedule(l)
}
