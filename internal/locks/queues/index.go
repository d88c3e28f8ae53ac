package queues

import (
	"time"

	"lockkeeper/internal/locks/recipe"
)

// IndexLife is how long the index is kept up though it is not asked.
const IndexLife = time.Minute

// index finds a contender by its lease's id. The leases of other gateways are asked for when one of them is broken, or
// heartbeaten while its gateway cannot be reached, and then often. So the index is made when it is first needed, kept
// up while it is, and dropped again: it has an entry for each lease in the replica, and most gateways never need one.
//
// A lease of several contenders is found in Replica.groups, and is not in it.
type index struct {
	at    map[recipe.LeaseID]Location // nil while it is not needed
	more  map[recipe.LeaseID]int      // contenders beside the one in at: a downgrade's, or names that a program made up
	asked time.Duration               // boot: the last time
}

func (x *index) covers(c *recipe.Contender) bool {
	return x.at != nil && c.Ours && c.LeaseID != "" && !OneOfSeveral(c)
}

func (x *index) add(q *Queue, c *recipe.Contender) {
	if !x.covers(c) {
		return
	}
	if _, there := x.at[c.LeaseID]; there {
		if x.more == nil {
			x.more = map[recipe.LeaseID]int{}
		}
		x.more[c.LeaseID]++
	}
	x.at[c.LeaseID] = Location{q, c}
}

func (x *index) remove(c *recipe.Contender) {
	if !x.covers(c) {
		return
	}
	known, others := x.at[c.LeaseID].Contender == c, x.more[c.LeaseID]
	switch {
	case known && others > 0:
		*x = index{} // where the others are is found out anew
	case known:
		delete(x.at, c.LeaseID)
	case others > 1:
		x.more[c.LeaseID]--
	default:
		delete(x.more, c.LeaseID)
	}
}

// FindLease looks for a contender of a lease by its id, the one with the record first. The first call in a while looks at
// all queues.
func (r *Replica) FindLease(id recipe.LeaseID, now time.Duration) (at Location, found bool) {
	if g := r.groups[id]; g != nil && len(g.At) > 0 {
		return r.Record(g.At[0]), true
	}
	x := &r.index
	x.asked = now
	if x.at == nil {
		x.at = map[recipe.LeaseID]Location{}
		for s := range r.All {
			s.Queues.Scan(func(q *Queue) bool {
				for _, c := range q.Contenders.All() {
					x.add(q, c)
				}
				return true
			})
		}
	}
	at, found = x.at[id]
	return at, found
}

// ForgetIndex drops the index of FindLease when it has not been asked for a while.
func (r *Replica) ForgetIndex(now time.Duration) {
	if now-r.index.asked >= IndexLife {
		r.index = index{}
	}
}
