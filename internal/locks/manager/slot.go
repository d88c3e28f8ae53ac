package manager

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

// slot is a lease's place in one queue: one contender. Most leases have one
// slot; a lease of several locks has one in each of their queues. They are
// created in one transaction and deleted in one, the lease is granted when it
// holds in all of them, and it ends, whole, when one of them loses its contender.
type slot struct {
	q *queue // immutable
	// contender is the lease's entry in the queue, the queue's own once it has
	// been seen there. Before that it has the lease's id and what was asked for, and
	// a name once the reply tells. Its strings are the replica's.
	contender *recipe.Contender
	seenAt    time.Duration // sight.since
	seen      bool          // the contender is in the replica
	shown     bool          // it has been there: the lease's end will be told
	gone      bool          // its deletion is certain
	noted     sighting      // what is noted of the contender
}

// name is the contender's name; "" until the reply or the event tells.
func (s *slot) name() string { return s.contender.Name }

// path is the contender's full path.
func (s *slot) path() string { return s.q.path + "/" + s.name() }

// slots yields the lease's slots, the first one first.
func (l *lease) slots(yield func(*slot) bool) {
	if !yield(&l.slot) || l.seldom == nil {
		return
	}
	for i := range l.seldom.rest {
		if !yield(&l.seldom.rest[i]) {
			return
		}
	}
}

// width is the number of slots.
func (l *lease) width() int {
	if l.seldom == nil {
		return 1
	}
	return 1 + len(l.seldom.rest)
}

// oneOfSeveral reports whether a contender's lease has more than this one.
func oneOfSeveral(c *recipe.Contender) bool { return c.Groups > 1 || c.Members > 1 }

// leads reports whether a contender is the first of its lease: the one whose
// record counts.
func leads(c *recipe.Contender) bool { return c.Group <= 1 && c.Member <= 1 }

// samePlace reports whether two contenders of a lease stand for the same slot.
func samePlace(a, b *recipe.Contender) bool {
	return max(a.Group, 1) == max(b.Group, 1) && max(a.Member, 1) == max(b.Member, 1) &&
		max(a.Groups, 1) == max(b.Groups, 1) && max(a.Members, 1) == max(b.Members, 1)
}

// slotAt is the lease's slot that a contender in a queue claims by its name, nil
// when the lease has none there: then somebody else made up the name.
func (l *lease) slotAt(q *queue, c *recipe.Contender) *slot {
	for s := range l.slots {
		if s.q == q && samePlace(s.contender, c) {
			return s
		}
	}
	return nil
}

// slotOf is the slot of one of this gateway's leases that has exactly this
// contender; without one, s is nil.
func (m *Manager) slotOf(q *queue, c *recipe.Contender) (l *lease, s *slot) {
	if !c.Ours {
		return nil, nil
	}
	if l = m.leases[c.LeaseID]; l == nil {
		return nil, nil
	}
	if s = l.slotAt(q, c); s != nil && s.name() != c.Name {
		s = nil
	}
	return l, s
}

// leaseOf is this gateway's lease that a contender belongs to, or nil.
func (m *Manager) leaseOf(q *queue, c *recipe.Contender) *lease {
	if l, s := m.slotOf(q, c); s != nil {
		return l
	}
	return nil
}

// copied reports whether a contender has the id of one of this gateway's leases and is not the lease's own: another program
// has made it. Only the lease's own gateway can tell.
func (m *Manager) copied(q *queue, c *recipe.Contender) bool {
	l, s := m.slotOf(q, c)
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
		return l.seen
	}
	return l.every(func(s *slot) bool { return s.seen })
}

// seenAny reports whether some slot's contender is in the replica.
func (l *lease) seenAny() bool { return !l.every(func(s *slot) bool { return !s.seen }) }

// gonePart reports whether some slot's contender is certain to be gone, and
// whether all are.
func (l *lease) gonePart() (some, all bool) {
	all = true
	for s := range l.slots {
		some = some || s.gone
		all = all && s.gone
	}
	return some, all
}

// turn reports whether by the queues' names alone the lease holds: in every
// slot, with nothing before it that conflicts.
func (l *lease) turn() bool {
	if l.width() == 1 || fault.On("group-turn") {
		return l.q.leaseHolds(l.name())
	}
	// Most leases that wait do so in the slot in which they did before: one question answers for all slots.
	if s := l.seldom.behind; s != nil && !s.q.leaseHolds(s.name()) {
		return false
	}
	for s := range l.slots {
		if !s.q.leaseHolds(s.name()) {
			l.seldom.behind = s
			return false
		}
	}
	return true
}

// leaseHolds is recipe.Queue.LeaseHolds. It counts the questions: tests bound them.
func (q *queue) leaseHolds(name string) bool {
	q.space.asked++
	return q.contenders.LeaseHolds(name)
}

// touchQueues marks a visible change in each of the lease's queues.
func (m *Manager) touchQueues(l *lease) {
	for s := range l.slots {
		m.touchQueue(s.q)
	}
}

// evaluateAll evaluates each of the lease's queues.
func (m *Manager) evaluateAll(l *lease, now time.Duration) {
	for s := range l.slots {
		m.evaluate(s.q, now)
	}
}

// parts are the contenders in the replica of a lease that has several,
// whoever runs it. It is complete when each is there.
type parts struct {
	at    []part
	since time.Duration // boot: when the first of them was seen

	// What has been found of them. It goes when one of them comes or goes.
	looked bool
	list   []part // see whole; never changed in place
	behind part   // did not hold when it was last asked
	moves  uint64 // counts.moves when holds was found; 0: it was not
	holds  bool   // all of them held
}

type part struct {
	q *queue
	c *recipe.Contender
}

// joinParts notes a contender of a lease that has several.
func (m *Manager) joinParts(q *queue, c *recipe.Contender) {
	if !c.Ours || c.Unknown || !oneOfSeveral(c) {
		return
	}
	p := m.parts[c.LeaseID]
	if p == nil {
		p = &parts{since: m.clock.Now().Boot()}
		m.parts[c.LeaseID] = p
	}
	p.at = append(p.at, part{q, c})
	p.unlook()
}

// unlook forgets what has been found of the parts that there were.
func (p *parts) unlook() { p.looked, p.list, p.behind, p.moves = false, nil, part{}, 0 }

// leaveParts forgets a contender that leaves the replica.
func (m *Manager) leaveParts(c *recipe.Contender) {
	p := m.parts[c.LeaseID]
	if p == nil {
		return
	}
	for i := range p.at {
		if p.at[i].c == c {
			p.at = append(p.at[:i], p.at[i+1:]...)
			p.unlook()
			break
		}
	}
	if len(p.at) == 0 {
		delete(m.parts, c.LeaseID)
	}
}

// whole are the parts of a lease in the order of its slots, nil while one is
// missing. Of two for one slot (a downgrade's replacement stands beside what it
// replaces for a moment) the one counts that is not the replacement.
func (p *parts) whole() []part {
	if !p.looked {
		p.looked, p.list = true, p.sorted()
	}
	return p.list
}

func (p *parts) sorted() []part {
	list := make([]part, 0, len(p.at))
	for _, at := range p.at {
		i := slices.IndexFunc(list, func(other part) bool { return samePlace(other.c, at.c) })
		switch {
		case i < 0:
			list = append(list, at)
		case list[i].c.FirstCzxid != 0 && at.c.FirstCzxid == 0:
			list[i] = at
		}
	}
	slices.SortFunc(list, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.c.Group, b.c.Group), cmp.Compare(a.c.Member, b.c.Member))
	})
	// Members 1 to n of lock 1, then those of the next, to the last.
	group, member, members := uint8(0), uint8(0), uint8(0)
	for _, at := range list {
		switch {
		case at.c.Group == group && at.c.Member == member+1 && at.c.Members == members:
			member++
		case at.c.Group == group+1 && member == members && at.c.Member == 1:
			group, member, members = group+1, 1, at.c.Members
		default:
			return nil
		}
	}
	if len(list) == 0 || member != members || group != list[0].c.Groups {
		return nil
	}
	return list
}

// holdsWhole reports whether the lease that a contender belongs to holds by the
// names alone: in its queue, and in those of its other contenders. One that is not
// of this program's leases needs to hold in its queue alone.
func (m *Manager) holdsWhole(q *queue, c *recipe.Contender) bool {
	if !c.Ours || c.Unknown {
		return q.contenders.Holds(c.Name)
	}
	if !q.leaseHolds(c.Name) {
		return false
	}
	if !oneOfSeveral(c) {
		return true
	}
	p := m.parts[c.LeaseID]
	return p != nil && p.hold(m.counts.moves)
}

// hold reports whether the lease is whole and each of its parts holds. While no contender has come or gone anywhere,
// that is found once: a view asks for each contender of a lease. After that the part that did not hold is
// asked first, as in lease.turn.
func (p *parts) hold(moves uint64) bool {
	if p.moves == moves {
		return p.holds
	}
	p.moves, p.holds = moves, false
	if p.behind.c != nil && !p.behind.q.leaseHolds(p.behind.c.Name) {
		return false
	}
	list := p.whole()
	for _, at := range list {
		if !at.q.leaseHolds(at.c.Name) {
			p.behind = at
			return false
		}
	}
	p.holds = list != nil
	return p.holds
}

// awaitsElsewhere is queue.awaits for all the queues of a lease: the end of whoever
// stands before it in one of them is not shown yet. When it is, that queue is
// evaluated.
func (m *Manager) awaitsElsewhere(c *recipe.Contender) bool {
	p := m.parts[c.LeaseID]
	return p != nil && slices.ContainsFunc(p.at, func(at part) bool { return at.q.awaits(at.c) })
}

// sweepParts deletes what is left of leases of this gateway that have lost
// contenders while nobody knew them. A lease's contenders come in one
// transaction: when the replica, a promise window later, has only some, the
// others have been deleted.
func (m *Manager) sweepParts(now time.Duration) {
	if !m.knowsAll() {
		return // the others may be where the replica has not looked yet
	}
	for _, id := range slices.Sorted(maps.Keys(m.parts)) {
		p := m.parts[id]
		if m.leases[id] != nil || now-p.since < m.layout.PromiseWindow || !m.owns(id.Gateway()) || p.whole() != nil || fault.On("group-whole") {
			continue
		}
		p.since = now // asked for; the events remove it
		m.deleteParts(p)
	}
}

// deleteParts deletes contenders of a lease that nobody runs.
func (m *Manager) deleteParts(p *parts) {
	w := &zk.Write{Alone: true}
	for _, at := range tailFirst(p.at) {
		w.Ops = append(w.Ops, zk.Op{Kind: zk.OpDelete, Path: at.q.path + "/" + at.c.Name, Version: -1})
	}
	m.submit(w, func(zk.Result) {})
}

// tailFirst are contenders such that of one queue's the last comes first:
// watchers are told of a transaction's deletions one by one, and nobody may be let
// in by the first of them who is not by all.
func tailFirst(at []part) []part {
	list := slices.Clone(at)
	slices.SortStableFunc(list, func(a, b part) int {
		if a.q != b.q {
			return strings.Compare(a.q.path, b.q.path)
		}
		if recipe.Less(a.c.Number, a.c.Name, b.c.Number, b.c.Name) {
			return 1
		}
		return -1
	})
	return list
}
