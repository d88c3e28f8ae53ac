package manager

import (
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// The slots of a lease, and what follows from all of them.

// slot is a lease's place in one queue: one contender. A lease of several locks has one in each of their queues.
type slot struct {
	q *queues.Queue // immutable
	// contender is the queue's own entry once it has been seen there. Before that it has the lease's id and what was asked
	// for, and a name once the reply tells it. Its strings are the replica's.
	contender *recipe.Contender
	seenAt    time.Duration      // Observed.Since
	presence  lifecycle.Presence // of the contender
	observed  observed           // whether it was seen to hold
	shown     bool               // the replica has shown it: the lease's end will be published
}

// observed is whether a slot's contender was seen to hold. It follows its lease's grant, or what the replica showed before the
// lease was taken over.
type observed uint8

const (
	observedNot  observed = iota
	observedHeld          // from seenAt on
	observedLate          // from seenAt on, and perhaps before
)

// name is the contender's name; "" until the reply or the event tells.
func (s *slot) name() string { return s.contender.Name }

// path is the contender's full path.
func (s *slot) path() string { return s.q.Path + "/" + s.name() }

// named takes the name from the create's reply.
func (s *slot) named(name string) {
	if s.name() == name {
		return
	}
	c := s.q.Contenders.Get(name) // the replica showed it under another name: another client created one with its id
	if c == nil {
		unseen := *s.contender
		unseen.Name = name
		c = &unseen
	}
	s.contender = c
}

// observation is what is observed of the slot's contender.
func (s *slot) observation() queues.Observed {
	return queues.Observed{Since: s.seenAt, Holds: s.observed != observedNot, SinceBefore: s.observed == observedLate, SuppressEvents: !s.shown}
}

func (s *slot) setObservation(to queues.Observed) {
	s.seenAt, s.observed = to.Since, observedNot
	switch {
	case to.SinceBefore:
		s.observed = observedLate
	case to.Holds:
		s.observed = observedHeld
	}
}

// observeHold is Observed.Begin.
func (s *slot) observeHold(now time.Duration, longer bool) bool {
	noted := s.observation()
	news := noted.Begin(now, longer)
	s.setObservation(noted)
	return news
}

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

// slotAt is the slot that a contender claims by its name; nil: the lease has none there, another program made up the name.
func (l *lease) slotAt(q *queues.Queue, c *recipe.Contender) *slot {
	for s := range l.slots {
		if s.q == q && queues.SameSlot(s.contender, c) {
			return s
		}
	}
	return nil
}

// parts are the lease's contenders with their queues.
func (l *lease) parts() []queues.Location {
	list := make([]queues.Location, 0, l.width())
	for s := range l.slots {
		list = append(list, queues.Location{Queue: s.q, Contender: s.contender})
	}
	return list
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

// some reports whether a slot is as asked.
func (l *lease) some(is func(*slot) bool) bool {
	return !l.every(func(s *slot) bool { return !is(s) })
}

// any reports whether the lease has a contender of that mode.
func (l *lease) any(mode recipe.Mode) bool {
	return l.some(func(s *slot) bool { return s.contender.Mode == mode })
}

// seenWhole reports whether every slot's contender is in the replica.
func (l *lease) seenWhole() bool {
	if l.width() == 1 {
		return l.presence.Seen()
	}
	return l.every(func(s *slot) bool { return s.presence.Seen() })
}

// seenAny reports whether some slot's contender is in the replica.
func (l *lease) seenAny() bool { return l.some(func(s *slot) bool { return s.presence.Seen() }) }

// gonePart reports whether some slot's contender is certain to be gone, and whether all are.
func (l *lease) gonePart() (some, all bool) {
	all = true
	for s := range l.slots {
		some = some || s.presence.Gone()
		all = all && s.presence.Gone()
	}
	return some, all
}

// positionKnown reports whether the lease's position is certain: its contenders are shown and their czxid is known.
func (l *lease) positionKnown() bool { return l.czxid != 0 && l.seenWhole() }

// turn reports whether the lease holds in every slot, by the queues' names alone.
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

// position is the slot's place among the waiters of its queue, from 1; 0: nothing stands before it.
func position(s *slot) int {
	if s.name() == "" || !s.presence.Seen() {
		return s.q.Contenders.Waiting() + 1
	}
	position, _ := s.q.Contenders.Position(s.name())
	return position
}

// firstReadable is the first of the lease's locks that the rules let read; nil without one. A lease may be read by who may read
// one of its locks, and then without the others.
func (l *lease) firstReadable(rules *access.Rules) *slot {
	for s := range l.slots {
		if s.readable(rules) {
			return s
		}
	}
	return nil
}

func (s *slot) readable(rules *access.Rules) bool {
	return rules.May(access.Read, s.q.Namespace.Name, s.q.Name())
}

// hides reports whether the lease has a lock that the rules do not let read.
func (l *lease) hides(rules *access.Rules) bool {
	for s := range l.slots {
		if !s.readable(rules) {
			return true
		}
	}
	return false
}
