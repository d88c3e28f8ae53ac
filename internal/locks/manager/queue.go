package manager

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/btree"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/recipe"
)

// space is a namespace: a lock root in ZooKeeper and the queues below it.
type space struct {
	name   string
	root   string
	naming *recipe.Naming // its dialect: the names that its leases have
	// ignoring are the programs that do not wait for its leases: exclusive ones, shared ones.
	ignoring interop.Ignoring
	queues   *btree.BTreeG[*queue] // by path, thus by lock name: lists are pages in order
	// whole: the replica holds all of it. Before, nothing in it is adopted or granted.
	whole   bool
	inUse   int // locks with contenders
	markers int // nodes that mark a lock as invalid; see invalid.go
	// plains are locks in whose place plain nodes have stood; see plain.go.
	plains map[string]struct{}
	// hazardous are those with a hazard.
	hazardous int
	// sweepFrom is where the next sweep goes on, "" for the front.
	sweepFrom string
	// sweeping is how many directories sweeps have asked to remove, and ZooKeeper has not answered.
	sweeping int
	asked    uint64 // how often it was asked whether a lease holds by the names in a queue
}

func newSpace(name, root string, naming *recipe.Naming) *space {
	return &space{name: name, root: root, naming: naming, ignoring: interop.IgnoringOf(naming), queues: btree.NewBTreeGOptions(
		func(a, b *queue) bool { return a.path < b.path }, btree.Options{NoLocks: true})}
}

// queue is the replica of one lock: its contenders in ZooKeeper's order and
// what is needed to trust that order. Guarded by Manager.mu.
type queue struct {
	space *space
	path  string // of the lock's directory: the replica's string, once it exists

	contenders recipe.Queue
	leases     int32 // leases of ours that refer to this queue
	polls      int32 // requests that refer to this queue

	exists bool // the lock's directory, as far as the replica has seen
	// Numbers below next have been seen, or a listing showed that they are
	// nobody's. A gap is a number that was handed out and never seen: perhaps
	// a contender that we may not read, whose events we are not sent.
	known   bool // next means something
	gap     bool
	listing bool // a listing has been asked for
	next    int32

	remarks *remarks
	freedAt time.Duration // boot: when the last holder left, for hand-over times
	idle    time.Duration // boot: since when it has been empty
	rev     uint64
	wake    chan struct{} // closed at the next visible change; nil while nobody waits
}

// remarks are what there is to be noted of few locks.
type remarks struct {
	hidden   map[string]struct{} // contenders that may not be read
	infos    map[string]*info    // data of contenders that are not ours, when someone looked
	strays   int                 // children without a number
	presence interop.Presence    // of other programs' contenders
	settings *settings           // nil for none
	early    []*recipe.Contender // ended, as the writer was told, and in the replica still: see awaits
	polled   *recipe.Contender   // the first of early at the last poll
	hazards  []*interop.Hazard   // that have been told; nil for none
	// misplaced: it is no lock's directory, but another program's contender.
	misplaced bool

	plainCzxid int64 // of the plain node in the directory's place; see plain.go
	suspect    bool  // there may be one that the replica has not shown yet
	ceiling    int32 // of Kazoo's Semaphore whose directory it is: the data says so; else 0
	marking    bool  // it is a marker of bigdata's, and no lock; see invalid.go
	invalid    bool  // there is such a marker for it
	passing    bool  // the directory is ours, and goes as soon as it is empty
	odd        bool  // the lock's name is not its directory's: see recipe.LockName
}

// bare reports whether nothing is noted any more.
func (r *remarks) bare() bool {
	return len(r.hidden) == 0 && len(r.infos) == 0 && r.strays == 0 && r.settings == nil && len(r.early) == 0 && !r.presence.Foreign() && r.hazards == nil && !r.misplaced &&
		r.plainCzxid == 0 && !r.suspect && !r.passing && !r.odd && r.ceiling == 0 && !r.marking && !r.invalid
}

// noRemarks is read where there are none, and never written.
var noRemarks remarks

func (q *queue) noted() *remarks {
	if q.remarks == nil {
		return &noRemarks
	}
	return q.remarks
}

// note is where remarks can be written.
func (q *queue) note() *remarks {
	if q.remarks == nil {
		q.remarks = &remarks{}
	}
	return q.remarks
}

// unnote takes away what is noted of a contender, and the remarks when nothing is left.
func (q *queue) unnote(name string) {
	r := q.remarks
	if r == nil {
		return
	}
	delete(r.hidden, name)
	delete(r.infos, name)
	if r.bare() {
		q.remarks = nil
	}
}

// awaits reports whether a contender stands behind one whose end the writer was
// told of before the replica shows it. Without that one the queue is a state
// that may never have been: the replica may still show as waiting what went
// before it. So nobody behind it is taken for a holder until the replica shows
// the end too, which is seldom later than the writer's answer.
func (q *queue) awaits(c *recipe.Contender) bool {
	return slices.ContainsFunc(q.noted().early, func(gone *recipe.Contender) bool {
		return recipe.Less(gone.Number, gone.Name, c.Number, c.Name)
	})
}

// shown takes away what awaits waits for: the replica shows the end.
func (q *queue) shown(name string) {
	if r := q.remarks; r != nil && len(r.early) > 0 {
		r.early = slices.DeleteFunc(r.early, func(c *recipe.Contender) bool { return c.Name == name })
		q.unnote("")
	}
}

// stray counts the children without a number.
func (q *queue) stray(by int) {
	if strays := max(q.noted().strays+by, 0); strays != q.noted().strays {
		q.note().strays = strays
		q.unnote("")
	}
}

// dir is the name of the lock's directory.
func (q *queue) dir() string { return q.path[len(q.space.root)+1:] }

// name is the lock's name: the directory's, unless another program has made one that no lock of
// ours could have.
func (q *queue) name() string {
	if !q.noted().odd { // a list that looks at 100,000 names writes none of them
		return q.dir()
	}
	return recipe.LockName(q.dir())
}

// queueOf returns the queue of a lock and makes one when there is none.
func (m *Manager) queueOf(s *space, name string) *queue {
	q := s.find(name)
	if q != nil {
		return q
	}
	q = &queue{space: s, path: s.path(name), idle: m.clock.Now().Boot()}
	if q.dir() != name {
		q.note().odd = true
	}
	// Its rev is 0 until something happens to it: whoever looks at a lock that
	// nobody uses sees the same thing each time.
	s.queues.Set(q)
	q.heedMarker()
	return q
}

// forget drops a queue that nothing refers to any more.
func (m *Manager) forget(q *queue) {
	if q.exists || q.leases > 0 || q.polls > 0 || q.contenders.Len() > 0 {
		return
	}
	if q.space.find(q.name()) == q { // else it was dropped before, and another took its place
		q.space.queues.Delete(q)
	}
	delete(m.deferred, q)
	delete(m.hazardous, q)
}

// touchQueue marks a visible change and wakes whoever waits for one.
func (m *Manager) touchQueue(q *queue) {
	m.rev++
	q.rev = m.rev
	if q.wake != nil {
		m.wake(q.wake)
		q.wake = nil
	}
}

func (q *queue) changed() <-chan struct{} {
	if q.wake == nil {
		q.wake = make(chan struct{})
	}
	return q.wake
}

// addContender puts a contender that the replica has seen into the queue, and
// tells of it.
func (m *Manager) addContender(q *queue, c *recipe.Contender, listed bool) {
	switch {
	case !q.known || listed || c.Name == interop.PlainNode:
	case recipe.IsKazooLease(c.Name):
		q.gap = true // it used up a number: a listing tells
	default:
		switch ahead := c.Number - q.next; { // wraps like ZooKeeper's counter
		case ahead == 0:
			q.next++
		case ahead > 0:
			q.gap = true
			q.next = c.Number + 1
		}
	}
	if !q.contenders.Insert(c) {
		return
	}
	m.counts.moves++
	if c.Ours && c.LeaseID != "" {
		m.peer(c.LeaseID.Gateway()).contenders++
	}
	m.countNewer(c, 1)
	q.countPresence(c, 1)
	m.joinParts(q, c)
	m.whereabouts.add(q, c)
	m.counts.contenders++
	if q.contenders.Len() == 1 {
		m.counts.locks++
		q.space.inUse++
	}
	m.touchQueue(q)
	if m.appeared(q, c) {
		m.tellQueued(q, c)
	}
	m.consider(q)
}

// removeContender takes a contender out of the queue; nothing happens when it
// is not in it.
func (m *Manager) removeContender(q *queue, name string) {
	held := q.contenders.Holds(name)
	c := q.contenders.Remove(name)
	if c == nil {
		return
	}
	m.counts.moves++
	if c.Ours && c.LeaseID != "" {
		m.peerLeft(c.LeaseID.Gateway())
	}
	m.countNewer(c, -1)
	m.leaveParts(c)
	m.leaveOrphan(c)
	m.whereabouts.remove(c)
	m.counts.contenders--
	if q.contenders.Len() == 0 {
		m.counts.locks--
		q.space.inUse--
	}
	delete(m.sights, c)
	delete(m.verdicts, c)
	q.countPresence(c, -1)
	q.unnote(name)
	if len(q.noted().hidden) == 0 {
		delete(m.hazardous, q)
	}
	now := m.clock.Now().Boot()
	if held {
		q.freedAt = now
	}
	if q.contenders.Len() == 0 {
		q.idle = now
	}
	m.touchQueue(q)
	m.consider(q)
	m.forget(q)
}

// evaluate grants what can be granted, and notes who holds elsewhere. Its cost
// does not grow with the queue: Holders stops at the first contender that does
// not hold.
func (m *Manager) evaluate(q *queue, now time.Duration) { m.evaluateAfter(q, now, false) }

// evaluateAfter evaluates after a listing, or after an event.
func (m *Manager) evaluateAfter(q *queue, now time.Duration, listed bool) {
	if q == m.incomplete {
		return
	}
	blocked := false // nothing more of ours is granted for now
	for c := range q.contenders.Holders() {
		var l *lease
		if c.Ours {
			l = m.leases[c.LeaseID]
		}
		if l == nil {
			if !q.awaits(c) {
				m.seenHolding(q, c, now, listed)
			}
			continue
		}
		if !blocked {
			blocked = m.letIn(q, l, now)
		}
	}
}

// letIn grants a lease of this gateway if it waits and its turn has come, in q and in all its other queues. It
// reports whether nothing more of ours is granted in q for now.
func (m *Manager) letIn(q *queue, l *lease, now time.Duration) (blocked bool) {
	switch {
	case l.phase != waiting, l.term != m.term:
		return false
	case !l.placed() && !m.asksWhetherTold(l):
		return false // nothing would follow from its turn
	case !l.turn():
		return false
	}
	m.mayBeTold(l, now)
	switch {
	case !l.placed():
		return false
	case !m.settled(l):
		return q.gap || !q.known || q.noted().invalid
	case !m.trusted():
		m.deferred[q] = struct{}{}
		return true
	}
	m.grant(l, now)
	return false
}

// settled reports whether nobody can stand before the lease whom the replica
// does not show, a contender that may not be read, and nobody has whose end it
// does not show. It asks for the listings that are missing; the last of them, or
// of the ends, evaluates again.
func (m *Manager) settled(l *lease) bool {
	sure := true
	for s := range l.slots {
		if s.q == m.incomplete {
			sure = false // the listing that is being applied ends with its queue's evaluation
		} else if s.q.noted().invalid {
			sure = false // until the marker is gone
		} else if s.q.awaits(s.contender) {
			sure = false
			m.hazardous[s.q] = struct{}{} // ZooKeeper may never tell of it: see shutout.go
		} else if (s.q.gap || !s.q.known) && !fault.On("gap") {
			m.list(s.q)
			sure = false
		}
	}
	return sure
}

// settleDeferred evaluates the queues whose grants waited for trust.
func (m *Manager) settleDeferred(now time.Duration) {
	for _, q := range inOrder(m.deferred) {
		delete(m.deferred, q)
		m.evaluate(q, now)
	}
}

// inOrder are the queues of a set by their paths: what is decided about them
// is sent in this order, whatever the order of a map.
func inOrder(set map[*queue]struct{}) []*queue {
	return slices.SortedFunc(maps.Keys(set), func(a, b *queue) int { return strings.Compare(a.path, b.path) })
}

// list asks the observer for the children of the queue's directory.
func (m *Manager) list(q *queue) {
	if q.listing || !q.exists {
		return
	}
	q.listing = true
	path := q.path
	m.effect(func() { m.watcher.List(path) })
}

// find returns the queue of a lock, or nil.
func (s *space) find(name string) *queue {
	q, _ := s.queues.Get(s.from(name))
	return q
}

// from is what stands in the tree where the lock of that name does.
func (s *space) from(name string) *queue { return &queue{path: s.path(name)} }

// path is the directory of the lock of that name, which is a name as recipe.LockName writes it.
func (s *space) path(name string) string {
	dir, _ := recipe.LockDir(name)
	return s.root + "/" + dir
}

// countPresence counts a contender that comes (by 1) or goes (by -1) beside other programs' contenders.
func (q *queue) countPresence(c *recipe.Contender, by int32) {
	if !c.Ours {
		q.note().presence.CountForeign(c, by, q.contenders.All())
	} else if q.remarks != nil {
		q.remarks.presence.CountLease(c, by)
	}
}
