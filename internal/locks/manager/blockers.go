package manager

import (
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

// Whether another gateway's lease holds is known here from the replica, and may have changed when the transaction that
// ends it is done: what stood before it goes, its own gateway grants it and tells its client, and its end would be
// noted for nobody, as that of one that waits. So such a transaction checks that whoever keeps it from holding is
// still there. When they are not, it is decided anew.

// maxBlockers is how many contenders are checked for one, and how many are looked at to find them. Only permits are kept from holding by several
// together; where even these do not suffice, nothing is checked.
const maxBlockers = 64

// stillWaits are the checks that a lease that waits by its contenders, which are parts, goes on waiting.
func stillWaits(parts []part) []zk.Op {
	for _, p := range parts {
		if p.q.contenders.Holds(p.c.Name) {
			continue // there; it waits elsewhere
		}
		if checks := p.blockers(); checks != nil {
			return checks
		}
	}
	return nil
}

// blockers are checks of contenders that keep a contender from holding as long as they are there; nil when none were found.
func (p part) blockers() []zk.Op {
	at := p.q.contenders.Index(p.c.Name)
	var all recipe.Queue
	all.Insert(p.c)
	var together []zk.Op
	for i := at - 1; i >= max(at-maxBlockers, 0); i-- {
		before := p.q.contenders.At(i)
		if _, hidden := p.q.noted().hidden[before.Name]; hidden || before.Ours && before.LeaseID == p.c.LeaseID {
			continue // it may not be looked at; it goes with this one
		}
		check := zk.Op{Kind: zk.OpCheck, Path: p.q.nodeOf(before.Name), Version: -1}
		var two recipe.Queue
		two.Insert(before)
		two.Insert(p.c)
		if !two.Holds(p.c.Name) {
			return []zk.Op{check}
		}
		all.Insert(before)
		if together = append(together, check); !all.Holds(p.c.Name) {
			return together
		}
	}
	return nil
}
