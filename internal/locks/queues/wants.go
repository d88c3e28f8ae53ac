package queues

import (
	"fmt"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// What the replica shows of the locks that an acquire wants. Nameable comes first: the others need known namespaces.

// Nameable refuses locks for which there are no contenders: in an unknown namespace, in a mode for which its dialect has no
// name, or asked for twice, by one name or by two namespaces that share a root.
func (r *Replica) Nameable(req *locks.AcquireRequest, wants []locks.Want) error {
	for i := range wants {
		s := r.Namespaces[wants[i].NS]
		switch {
		case s == nil:
			return locks.NamespaceUnknown(req.Field(i, "ns"), wants[i].NS)
		case wants[i].Mode == locks.Semaphore && !s.Naming.Has(recipe.Permit):
			return locks.Invalid(req.Field(i, "mode"), fmt.Sprintf("namespace %s has the names of %s locks, and none for a semaphore's permits; use a namespace of the native dialect",
				s.Name, s.Naming.Dialect()))
		case wants[i].Mode == locks.Shared && !s.Naming.Has(recipe.Shared):
			return locks.Invalid(req.Field(i, "mode"), fmt.Sprintf("namespace %s has no names for shared leases: its dialect has none (shared=)", s.Name))
		}
	}
	if len(wants) < 2 {
		return nil
	}
	paths := make(map[string]int, len(wants))
	for i := range wants {
		path := r.Namespaces[wants[i].NS].Path(wants[i].Lock)
		if first, twice := paths[path]; twice {
			return locks.Invalid(req.Field(i, "lock"), fmt.Sprintf("locks[%d] is the same lock: each may be asked for once", first))
		}
		paths[path] = i
	}
	return nil
}

// FindWant is the queue of a lock, nil when the replica has none.
func (r *Replica) FindWant(w *locks.Want) *Queue { return r.Namespaces[w.NS].Find(w.Lock) }

// InTheWay is the first queue in which a newcomer would have to wait; nil: none.
func (r *Replica) InTheWay(wants []locks.Want) *Queue {
	for i := range wants {
		q := r.FindWant(&wants[i])
		if q == nil {
			continue
		}
		c := ContenderOf(&wants[i])
		if n, _ := q.Limit(); c.Mode == recipe.Permit && c.Limit == 0 {
			c.Limit = int32(n)
		}
		if !q.Contenders.WouldHold(c) {
			return q
		}
	}
	return nil
}

// FirstSemaphore is the first lock that is another program's semaphore; nil: none. No lease joins one: Curator's SemaphoreV2
// and Kazoo's Semaphore count every child against their limit, so a waiter would block the holder that it waits for.
func (r *Replica) FirstSemaphore(wants []locks.Want) *Queue {
	return r.first(wants, (*Queue).Semaphore)
}

// FirstObstructed is the first lock whose place is obstructed; nil: none.
func (r *Replica) FirstObstructed(wants []locks.Want) *Queue {
	return r.first(wants, (*Queue).Obstructed)
}

func (r *Replica) first(wants []locks.Want, is func(*Queue) bool) *Queue {
	for i := range wants {
		if q := r.FindWant(&wants[i]); q != nil && is(q) {
			return q
		}
	}
	return nil
}

// FirstMarked is the first lock that is marked as being destroyed, or is such a marker; nil: none.
func (r *Replica) FirstMarked(wants []locks.Want) *locks.Want {
	for i := range wants {
		if r.Namespaces[wants[i].NS].Marked(wants[i].Lock) {
			return &wants[i]
		}
	}
	return nil
}

// Members is how many contenders a lease on the locks has. Some dialects need several for one lock.
func (r *Replica) Members(wants []locks.Want) (n int64) {
	for i := range wants {
		n += int64(r.Namespaces[wants[i].NS].Naming.Members())
	}
	return n
}

// Unknown is how many of the locks have no queue.
func (r *Replica) Unknown(wants []locks.Want) (n int64) {
	for i := range wants {
		if r.FindWant(&wants[i]) == nil {
			n++
		}
	}
	return n
}

// ContenderOf is what stands for the lock in its queue, without its lease.
func ContenderOf(w *locks.Want) *recipe.Contender {
	return &recipe.Contender{Member: 1, Members: 1, Mode: w.Mode.Recipe(), Permits: int32(w.Permits), Limit: int32(w.Limit)}
}
