package manager

import (
	"context"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
)

// The clock loop: what time ends.

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

// tick does what is due at now and tells how long to sleep.
func (t *timers) tick(m *Manager, now time.Duration) time.Duration {
	c := t
	late := now - c.expected
	c.beat = now
	m.publisher.connection()
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
	if l.takeBack(m, now) {
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

// takeBack ends a lease whose holder was asked in vain until force was due. It
// reports false when that is not yet, or has to be later.
func (l *lease) takeBack(m *Manager, now time.Duration) bool {
	at := l.forceAt()
	if at == 0 || at > now {
		return false
	}
	if l.term != m.port.Term() || l.recordState != recordCurrent {
		// Its takeover comes first, and what its record says.
		l.load(m)
		l.rareFields.revoke.forceAt = now + loadRetry
		return false
	}
	l.rare().words = l.revocation().asked.Reason
	l.endFor(m, postmortem.Forced)
	return true
}

// endDue deletes the contenders whose lock delay is over. The clock loop calls it.
func (d *delays) endDue(m *Manager, now time.Duration) {
	for m.timers.expiring < expiryWindow {
		one, ok := d.line.Min()
		if !ok || one.until > now {
			return
		}
		switch {
		case m.members.Elsewhere(one.id.Gateway()):
			d.drop(one) // another gateway has taken it over, and gives its delay
		case !m.members.Owns(one.id.Gateway()) || one.deleting:
			d.put(one, now+deleteRetry)
		default:
			d.end(m, one, now)
		}
	}
}

func (d *delays) end(m *Manager, one *delay, now time.Duration) {
	one.deleting = true
	d.put(one, now+deleteRetry)
	w := &zk.Write{}
	for _, at := range queues.TailFirst(one.at) {
		w.Ops = append(w.Ops, zk.Op{Kind: zk.OpDelete, Path: at.Queue.Path + "/" + at.Contender.Name, Version: -1})
	}
	m.timers.expiring++
	m.port.Submit(w, func(res zk.Result) {
		m.timers.expiring--
		one.deleting = false
		if isNoNode(res.Err) && res.Culprit >= 0 {
			// Another client was quicker; the event follows.
			d.leave(one, func(at queues.Location) bool {
				return at.Queue.Path+"/"+at.Contender.Name == w.Ops[res.Culprit].Path && at.Queue.Contenders.Get(at.Contender.Name) == nil
			})
		}
	})
}
