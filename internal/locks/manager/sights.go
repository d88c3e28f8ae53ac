package manager

import (
	"time"

	"lockkeeper/internal/locks/recipe"
)

// sight is what is noted of a contender of which its place in the queue does
// not tell everything: one that holds, or one that stays untold. That of a lease
// of this gateway is in the lease and ends with it. The others are in Manager.sights
// and go when their contender leaves the replica; those that merely wait have
// none, so there are at most about as many as there are holders.
type sight struct {
	since  time.Duration // boot: when this gateway saw that it holds
	held   bool          // since means something, and the grant has been told
	longer bool          // it may have held before since
	mute   bool          // events tell nothing of it, see appeared
}

// appeared notes a contender that has come into the replica, and reports
// whether it is news. It is none when it is back (the listing of a server that
// lags lacked it), and it stays untold when its lease is told of by another contender,
// or ended before the replica showed it.
func (m *Manager) appeared(q *queue, c *recipe.Contender) bool {
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
		s.noted.mute = true // the lease is told of by its first contender there
		return false
	case l != nil, c.Member > 1, q.replaces(c), c.Ours && m.history.Has(c.LeaseID):
		m.sights[c] = sight{mute: true}
		return false
	}
	return true
}

// holds notes that the contender holds, and reports whether that is to be told.
func (s *sight) holds(now time.Duration, longer bool) bool {
	if s.held {
		return false
	}
	s.held, s.since, s.longer = true, now, longer
	return !s.mute
}

// sightOf is what is noted of a contender that is in the replica.
func (m *Manager) sightOf(q *queue, c *recipe.Contender) sight {
	if _, s := m.slotOf(q, c); s != nil {
		return s.sight()
	}
	return m.sights[c]
}

// seenHolding notes, and tells, that a contender which is no lease of this
// gateway's holds by the queue's names. listed: a listing shows it, so it may have
// held for a while, as it may while the tree is being read.
func (m *Manager) seenHolding(q *queue, c *recipe.Contender, now time.Duration, listed bool) {
	if !m.synced && !listed {
		return // what stood before it may be missing from the replica: the listing tells
	}
	s := m.sights[c]
	if s.held || c.Ours && !c.Unknown && (!m.holdsWhole(q, c) || m.awaitsElsewhere(c)) {
		return
	}
	var others []part // of a lease of several
	if c.Ours && !c.Unknown && oneOfSeveral(c) {
		others = m.parts[c.LeaseID].whole()
		for _, at := range others {
			if at.q == m.incomplete {
				return // it is judged when all of its listing is there
			}
		}
	}
	m.granted(q, c, nil, now)
	tell := s.holds(now, listed || !m.synced)
	m.sights[c] = s
	m.foreignHolds(q, c)
	if tell {
		m.tellGranted(q, c, nil)
	}
	for _, at := range others { // the queue that was the last to let it in speaks for all
		m.seenHolding(at.q, at.c, now, listed)
	}
}
