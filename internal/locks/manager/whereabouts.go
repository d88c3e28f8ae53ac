package manager

import (
	"time"

	"lockkeeper/internal/locks/recipe"
)

// whereaboutsLife is how long the index is kept up though nobody asks.
const whereaboutsLife = time.Minute

// whereabouts finds a contender by its lease's id. What this gateway runs is found in
// Manager.leases; others' leases are asked for when one of them is broken, or
// heartbeaten while its gateway cannot be reached, and then often. So the index is made
// when it is first needed, kept up while it is, and dropped again: it has an entry for
// each lease in the replica, and most gateways never need one.
//
// A lease of several contenders is found in Manager.parts, and is not in it.
type whereabouts struct {
	at    map[recipe.LeaseID]part // nil while it is not needed
	more  map[recipe.LeaseID]int  // contenders beside the one in at: a downgrade's, or names that somebody made up
	asked time.Duration           // boot: the last time
}

func (w *whereabouts) covers(c *recipe.Contender) bool {
	return w.at != nil && c.Ours && c.LeaseID != "" && !oneOfSeveral(c)
}

func (w *whereabouts) add(q *queue, c *recipe.Contender) {
	if !w.covers(c) {
		return
	}
	if _, there := w.at[c.LeaseID]; there {
		if w.more == nil {
			w.more = map[recipe.LeaseID]int{}
		}
		w.more[c.LeaseID]++
	}
	w.at[c.LeaseID] = part{q, c}
}

func (w *whereabouts) remove(c *recipe.Contender) {
	if !w.covers(c) {
		return
	}
	known, others := w.at[c.LeaseID].c == c, w.more[c.LeaseID]
	switch {
	case known && others > 0:
		*w = whereabouts{} // where the others are is found out anew
	case known:
		delete(w.at, c.LeaseID)
	case others > 1:
		w.more[c.LeaseID]--
	default:
		delete(w.more, c.LeaseID)
	}
}

// findLease looks for a contender of a lease that this gateway does not run, the
// one with the record first.
func (m *Manager) findLease(id recipe.LeaseID) (at part, found bool) {
	if p := m.parts[id]; p != nil && len(p.at) > 0 {
		return m.recordAt(p.at[0]), true
	}
	w := &m.whereabouts
	w.asked = m.clock.Now().Boot()
	if w.at == nil {
		w.at = map[recipe.LeaseID]part{}
		for s := range m.everySpace {
			s.queues.Scan(func(q *queue) bool {
				for _, c := range q.contenders.All() {
					w.add(q, c)
				}
				return true
			})
		}
	}
	at, found = w.at[id]
	return at, found
}

// forgetWhereabouts drops the index when nobody has asked for a while. The sweeper calls it.
func (m *Manager) forgetWhereabouts(now time.Duration) {
	if now-m.whereabouts.asked >= whereaboutsLife {
		m.whereabouts = whereabouts{}
	}
}
