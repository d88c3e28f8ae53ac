package manager

import (
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/recipe"
)

func (m *Manager) applyDeltas(deltas []queues.Delta, now time.Duration) {
	for _, d := range deltas {
		switch q := d.Queue; d.Kind {
		case queues.Added:
			if c := d.Contender; c.Ours && c.LeaseID != "" {
				m.members.CountContender(c.LeaseID.Gateway(), 1)
			}
			if m.appeared(q, d.Contender) {
				m.tellQueued(q, d.Contender)
			}
		case queues.Removed:
			if c := d.Contender; c.Ours && c.LeaseID != "" {
				m.members.CountContender(c.LeaseID.Gateway(), -1)
			}
			m.orphans.leave(d.Contender)
			delete(m.verdicts, d.Contender)
		case queues.HazardBegins:
			m.tellHazard(events.LockHazard, q, d.Hazard)
		case queues.HazardEnds:
			m.tellHazard(events.LockHazardCleared, q, d.Hazard)
		case queues.Evaluate:
			m.evaluate(q, now)
		case queues.ReadDir:
			m.readDir(q)
		case queues.ReadLimit:
			m.readLimit(q, d.Limit)
		case queues.LookSoon:
			m.lookSoon(q)
		case queues.SettingsBegin:
			m.quota.Add(quota.Settings, 1)
		case queues.SettingsEnd:
			m.quota.Add(quota.Settings, -1)
		}
	}
}

func (m *Manager) addContender(q *queues.Queue, c *recipe.Contender, listed bool, now time.Duration) {
	m.applyDeltas(m.replica.Add(q, c, listed, now), now)
}

// removeContender does nothing when the queue has no contender with that name.
func (m *Manager) removeContender(q *queues.Queue, name string, now time.Duration) {
	m.applyDeltas(m.replica.Remove(q, name, now), now)
}

// list asks the observer for the children of the queue's directory.
func (m *Manager) list(q *queues.Queue) {
	if q.BeginListing() {
		path := q.Path
		m.effect(func() { m.port.Watcher.List(path) })
	}
}

// evaluate grants what can be granted, and records holders of other gateways and programs. Its cost does not grow with
// the queue: Holders stops at the first contender that does not hold.
func (m *Manager) evaluate(q *queues.Queue, now time.Duration) { m.evaluateAfter(q, now, false) }

func (m *Manager) evaluateAfter(q *queues.Queue, now time.Duration, listed bool) {
	if m.replica.Incomplete(q) {
		return
	}
	blocked := false // nothing more of this gateway is granted for now
	for c := range q.Contenders.Holders() {
		var l *lease
		if c.Ours {
			l = m.leases.byID[c.LeaseID]
		}
		if l == nil {
			if !q.Awaits(c) {
				m.seenHolding(q, c, now, listed)
			}
			continue
		}
		if !blocked {
			blocked = m.letIn(q, l, now)
		}
	}
}

// letIn grants a waiting lease of this gateway when it is next in q and in all its other queues. It reports whether
// nothing more of this gateway is granted in q for now.
func (m *Manager) letIn(q *queues.Queue, l *lease, now time.Duration) (blocked bool) {
	switch {
	case l.phase != waiting, l.term != m.port.Term():
		return false
	case !l.positionKnown() && !l.asksWhetherAcknowledged(m):
		return false // being next would have no effect
	case !l.turn():
		return false
	}
	l.mayBeAcknowledged(m, now)
	switch {
	case !l.positionKnown():
		return false
	case !m.certainToHold(l):
		return q.Blocked()
	case !m.trusted():
		m.replica.Defer(q)
		return true
	}
	l.becomeHeld(m, now)
	return false
}

// certainToHold reports whether the queues show for certain that the lease holds. It requests the listings that are
// missing; the last of them evaluates again.
func (m *Manager) certainToHold(l *lease) bool {
	all := true
	for s := range l.slots {
		certain, list := m.replica.Certain(s.q, s.contender)
		if list {
			m.list(s.q)
		}
		all = all && certain
	}
	return all
}

// settleDeferred evaluates the queues whose grants waited for trust.
func (m *Manager) settleDeferred(now time.Duration) {
	for _, q := range m.replica.Deferred() {
		m.replica.Undefer(q)
		m.evaluate(q, now)
	}
}
