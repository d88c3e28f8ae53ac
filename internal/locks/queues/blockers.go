package queues

import (
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

// Whether another gateway's lease holds is known from the replica, and may have changed when the transaction that ends
// it is done: what stood before it goes, its own gateway grants it and tells its client, and its end would be noted for
// no webhook, as that of one that waits. So such a transaction checks that what keeps it from holding is still there.
// When it is not, the end is decided anew.

// maxBlockers is how many contenders are checked for one, and how many are looked at to find them. Only permits are kept
// from holding by several together; where even these do not suffice, nothing is checked.
const maxBlockers = 64

// StillWaits are the checks that a lease that waits by its contenders goes on waiting.
func StillWaits(lease []Location) []zk.Op {
	for _, at := range lease {
		if at.Queue.Contenders.Holds(at.Contender.Name) {
			continue // there; it waits elsewhere
		}
		if checks := at.blockers(); checks != nil {
			return checks
		}
	}
	return nil
}

// blockers are checks of contenders that keep a contender from holding as long as they are there; nil when none were found.
func (at Location) blockers() []zk.Op {
	q, c := at.Queue, at.Contender
	place := q.Contenders.Index(c.Name)
	var all recipe.Queue
	all.Insert(c)
	var together []zk.Op
	for i := place - 1; i >= max(place-maxBlockers, 0); i-- {
		before := q.Contenders.At(i)
		if _, hidden := q.Extras().Hidden[before.Name]; hidden || before.Ours && before.LeaseID == c.LeaseID {
			continue // it may not be looked at; it goes with this one
		}
		check := zk.Op{Kind: zk.OpCheck, Path: q.NodeOf(before.Name), Version: -1}
		var two recipe.Queue
		two.Insert(before)
		two.Insert(c)
		if !two.Holds(c.Name) {
			return []zk.Op{check}
		}
		all.Insert(before)
		if together = append(together, check); !all.Holds(c.Name) {
			return together
		}
	}
	return nil
}
