package manager

import (
	"time"

	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// appeared records a contender that the replica now shows, and reports whether an event is due. None is due when the
// contender reappears after a lagging server's listing, when another contender reports its lease, or when the lease
// ended before the replica showed it.
func (m *Manager) appeared(q *queues.Queue, c *recipe.Contender) bool {
	var l *lease
	var s *slot
	if c.Ours {
		if l = m.leases.byID[c.LeaseID]; l != nil {
			s = l.slotAt(q, c)
		}
	}
	switch {
	case s != nil && (s.name() == "" || s.name() == c.Name) && c.Member <= 1:
		news := !s.shown
		s.shown = true
		return news
	case s != nil && s.name() == c.Name:
		return false // the lease's first contender there reports it
	case l != nil, c.Member > 1, q.Replaces(c), c.Ours && m.history.Has(c.LeaseID):
		m.replica.Observe(c, queues.Observed{SuppressEvents: true})
		return false
	}
	return true
}

// observedOf returns what this gateway has observed of a contender in the replica.
func (m *Manager) observedOf(q *queues.Queue, c *recipe.Contender) queues.Observed {
	if _, s := m.leases.slotOf(q, c); s != nil {
		return s.observation()
	}
	return m.replica.Observed(c)
}

// seenHolding records and reports that a contender of another owner holds by the queue's names. listed: a listing
// shows it, so it may have held for a while. The same is true while the tree is being read.
func (m *Manager) seenHolding(q *queues.Queue, c *recipe.Contender, now time.Duration, listed bool) {
	if !m.stream.synced && !listed {
		return // the replica may lack contenders before it until the listing arrives
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
				return // the check repeats when the listing is complete
			}
		}
	}
	m.granted(q, c, nil, now)
	tell := s.Begin(now, listed || !m.stream.synced)
	m.replica.Observe(c, s)
	m.foreignHolds(q, c)
	if tell {
		m.tellGranted(q, c, nil)
	}
	for _, at := range others { // the last queue to grant it reports all of them
		m.seenHolding(at.Queue, at.Contender, now, listed)
	}
}
