package manager

import (
	"time"

	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// appeared notes a contender that has come into the replica, and reports
// whether it is news. It is none when it is back (the listing of a server that
// lags lacked it), and it stays untold when its lease is told of by another contender,
// or ended before the replica showed it.
func (m *Manager) appeared(q *queues.Queue, c *recipe.Contender) bool {
	var l *lease
	var s *slot
	if c.Ours {
		if l = m.leases[c.LeaseID]; l != nil {
			s = l.slotAt(q, c)
		}
	}
	switch {
	case s != nil && (s.name() == "" || s.name() == c.Name) && c.Member <= 1:
		news := !s.shown
		s.shown = true
		return news
	case s != nil && s.name() == c.Name:
		return false // the lease is told of by its first contender there
	case l != nil, c.Member > 1, q.Replaces(c), c.Ours && m.history.Has(c.LeaseID):
		m.replica.Observe(c, queues.Observed{SuppressEvents: true})
		return false
	}
	return true
}

// observedOf is what is noted of a contender that is in the replica.
func (m *Manager) observedOf(q *queues.Queue, c *recipe.Contender) queues.Observed {
	if _, s := m.slotOf(q, c); s != nil {
		return s.observation()
	}
	return m.replica.Observed(c)
}

// seenHolding notes, and tells, that a contender which is no lease of this
// gateway's holds by the queue's names. listed: a listing shows it, so it may have
// held for a while, as it may while the tree is being read.
func (m *Manager) seenHolding(q *queues.Queue, c *recipe.Contender, now time.Duration, listed bool) {
	if !m.synced && !listed {
		return // what stood before it may be missing from the replica: the listing tells
	}
	s := m.replica.Observed(c)
	if s.Holds || c.Ours && !c.Unknown && (!m.replica.LeaseHolds(q, c) || m.replica.AwaitsElsewhere(c)) {
		return
	}
	var others []queues.Location // of a lease of several
	if c.Ours && !c.Unknown && queues.OneOfSeveral(c) {
		others = m.replica.Group(c.LeaseID).Whole()
		for _, at := range others {
			if m.replica.Incomplete(at.Queue) {
				return // it is judged when all of its listing is there
			}
		}
	}
	m.granted(q, c, nil, now)
	tell := s.Begin(now, listed || !m.synced)
	m.replica.Observe(c, s)
	m.foreignHolds(q, c)
	if tell {
		m.tellGranted(q, c, nil)
	}
	for _, at := range others { // the queue that was the last to let it in speaks for all
		m.seenHolding(at.Queue, at.Contender, now, listed)
	}
}
