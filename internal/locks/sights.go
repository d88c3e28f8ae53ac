package locks

import (
	"time"

	"lockkeeper/internal/locks/recipe"
)

// sight is what is noted of a contender of which its place in the queue does
// not tell everything: one that holds, or one that stays untold. Those that
// merely wait have none, so there are about as many as there are holders. It
// goes when its contender leaves the replica.
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
func (m *Manager) appeared(c *recipe.Contender) bool {
	var l *lease
	if c.Ours {
		l = m.leases[c.LeaseID]
	}
	switch {
	case l != nil && (l.name == "" || l.name == c.Name) && c.Member <= 1:
		if l.shown && l.wasGranted() {
			m.sights[c] = sight{held: true, since: l.grantedAt}
		}
		news := !l.shown
		l.shown = true
		return news
	case l != nil, c.Member > 1, c.Ours && m.history.has(c.LeaseID):
		m.sights[c] = sight{mute: true}
		return false
	}
	return true
}

// wasGranted reports whether the lease holds, or held until its end began.
func (l *lease) wasGranted() bool { return l.phase == held || l.phase == ending && l.wasHeld }

// holds notes that a contender holds, and reports whether that is to be told.
func (m *Manager) holds(c *recipe.Contender, now time.Duration, longer bool) bool {
	s := m.sights[c]
	if s.held {
		return false
	}
	s.held, s.since, s.longer = true, now, longer
	m.sights[c] = s
	return !s.mute
}

// seenHolding notes, and tells, that a contender which is no lease of this
// gateway's holds by the queue's names. listed: a listing shows it, so it may have
// held for a while.
func (m *Manager) seenHolding(q *queue, c *recipe.Contender, now time.Duration, listed bool) {
	if m.sights[c].held || c.Ours && !c.Unknown && !q.contenders.LeaseHolds(c.Name) {
		return
	}
	if m.holds(c, now, listed || !m.loadedOnce) {
		m.tellGranted(q, c, nil)
	}
}
