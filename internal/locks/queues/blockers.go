package queues

import (
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

// The replica says whether another gateway's lease holds, and that may change before the transaction that ends it.
// Then the owner grants the lease and tells its client, but its end would count as that of a waiter: no delivery.
// So the transaction checks that the blockers are still there. If they are not, the end is decided anew.

// maxBlockers is how many contenders are checked for one, and how many are looked at to find them. Only permits are kept
// from holding by several together; where even these do not suffice, nothing is checked.
const maxBlockers = 64

// StillWaits returns the checks that a lease with these contenders still waits.
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
			continue // it goes with this one: it may not be checked
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
