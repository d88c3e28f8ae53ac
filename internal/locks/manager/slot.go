package manager

import (
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// slot is a lease's place in one queue: one contender. Most leases have one
// slot; a lease of several locks has one in each of their queues. They are
// created in one transaction and deleted in one, the lease is granted when it
// holds in all of them, and it ends, whole, when one of them loses its contender.
type slot struct {
	q *queues.Queue // immutable
	// contender is the lease's entry in the queue, the queue's own once it has
	// been seen there. Before that it has the lease's id and what was asked for, and
	// a name once the reply tells. Its strings are the replica's.
	contender *recipe.Contender
	seenAt    time.Duration // Observed.Since
	presence  presence      // of the contender
	observed  observed      // whether it was seen to hold
	shown     bool          // it has been there: the lease's end will be told
}

// name is the contender's name; "" until the reply or the event tells.
func (s *slot) name() string { return s.contender.Name }

// path is the contender's full path.
func (s *slot) path() string { return s.q.Path + "/" + s.name() }

// slots yields the lease's slots, the first one first.
func (l *lease) slots(yield func(*slot) bool) {
	if !yield(&l.slot) || l.rareFields == nil {
		return
	}
	for i := range l.rareFields.rest {
		if !yield(&l.rareFields.rest[i]) {
			return
		}
	}
}

// width is the number of slots.
func (l *lease) width() int {
	if l.rareFields == nil {
		return 1
	}
	return 1 + len(l.rareFields.rest)
}

// slotAt is the lease's slot that a contender in a queue claims by its name, nil
// when the lease has none there: then another program made up the name.
func (l *lease) slotAt(q *queues.Queue, c *recipe.Contender) *slot {
	for s := range l.slots {
		if s.q == q && queues.SameSlot(s.contender, c) {
			return s
		}
	}
	return nil
}

// slotOf is the slot of one of this gateway's leases that has exactly this
// contender; without one, s is nil.
func (t *leaseTable) slotOf(q *queues.Queue, c *recipe.Contender) (l *lease, s *slot) {
	if !c.Ours {
		return nil, nil
	}
	if l = t.byID[c.LeaseID]; l == nil {
		return nil, nil
	}
	if s = l.slotAt(q, c); s != nil && s.name() != c.Name {
		s = nil
	}
	return l, s
}

// leaseOf is this gateway's lease that a contender belongs to, or nil.
func (t *leaseTable) leaseOf(q *queues.Queue, c *recipe.Contender) *lease {
	if l, s := t.slotOf(q, c); s != nil {
		return l
	}
	return nil
}

// copied reports whether a contender has the id of one of this gateway's leases and is not the lease's own: another program
// has made it. Only the lease's own gateway can tell.
func (t *leaseTable) copied(q *queues.Queue, c *recipe.Contender) bool {
	l, s := t.slotOf(q, c)
	return l != nil && s == nil
}

// every reports whether all slots are as asked.
func (l *lease) every(is func(*slot) bool) bool {
	for s := range l.slots {
		if !is(s) {
			return false
		}
	}
	return true
}

// seenWhole reports whether every slot's contender is in the replica.
func (l *lease) seenWhole() bool {
	if l.width() == 1 {
		return l.presence.seen()
	}
	return l.every(func(s *slot) bool { return s.presence.seen() })
}

// seenAny reports whether some slot's contender is in the replica.
func (l *lease) seenAny() bool { return !l.every(func(s *slot) bool { return !s.presence.seen() }) }

// gonePart reports whether some slot's contender is certain to be gone, and
// whether all are.
func (l *lease) gonePart() (some, all bool) {
	all = true
	for s := range l.slots {
		some = some || s.presence.gone()
		all = all && s.presence.gone()
	}
	return some, all
}

// turn reports whether by the queues' names alone the lease holds: in every
// slot, with nothing before it that conflicts.
func (l *lease) turn() bool {
	if l.width() == 1 || fault.On("group-turn") {
		return l.q.LeaseHolds(l.name())
	}
	// Most leases that wait do so in the slot in which they did before: one question answers for all slots.
	if s := l.rareFields.behind; s != nil && !s.q.LeaseHolds(s.name()) {
		return false
	}
	for s := range l.slots {
		if !s.q.LeaseHolds(s.name()) {
			l.rareFields.behind = s
			return false
		}
	}
	return true
}

// touchQueues marks a visible change in each of the lease's queues.
func (l *lease) touchQueues(m *Manager) {
	for s := range l.slots {
		m.replica.Touch(s.q)
	}
}

// evaluateAll evaluates each of the lease's queues.
func (l *lease) evaluateAll(m *Manager, now time.Duration) {
	for s := range l.slots {
		m.evaluate(s.q, now)
	}
}
