package queues

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/recipe"
)

// Replica is what ZooKeeper's stream has shown of the locks; see the package's doc.
type Replica struct {
	Namespaces map[string]*Namespace // that the replica holds whole, or whose first tree read is under way
	Loading    map[string]*Loading   // recorded namespaces that it does not hold whole
	Counts     Counts
	latest     *Namespace // of NamespaceAt

	contended map[*Queue]struct{} // with two contenders or more

	groups   map[recipe.LeaseID]*Group // leases with several contenders
	newer    map[recipe.LeaseID]int    // contenders whose names are of a later release
	index    index
	observed map[*recipe.Contender]Observed

	deferred   map[*Queue]struct{} // grants wait for trust
	polled     map[*Queue]struct{} // ZooKeeper may send no event about a contender
	incomplete *Queue              // a listing of it is being applied

	rev    uint64
	wake   func(chan struct{}) // see New
	deltas []Delta             // of the last call; reused
}

// Counts are kept as things change: asking costs nothing that grows.
type Counts struct {
	Locks      int                   // queues with contenders
	Contenders int                   // in all queues
	Hazards    [locks.NumHazards]int // locks that have a hazard of each code
	Hazardous  int                   // locks that have a hazard
	Moves      uint64                // contenders that have come or gone
}

// New makes a replica that has seen nothing. wake is given each channel of Queue.Changed that is to be closed once the
// caller's lock is free.
func New(wake func(chan struct{})) *Replica {
	return &Replica{
		wake:       wake,
		Namespaces: map[string]*Namespace{},
		Loading:    map[string]*Loading{},
		contended:  map[*Queue]struct{}{},
		groups:     map[recipe.LeaseID]*Group{},
		newer:      map[recipe.LeaseID]int{},
		observed:   map[*recipe.Contender]Observed{},
		deferred:   map[*Queue]struct{}{},
		polled:     map[*Queue]struct{}{},
	}
}

// Queue returns the queue of a lock and makes one when there is none. The caller counts what refers to it (Leases, Polls)
// and calls Forget when nothing does any more.
func (r *Replica) Queue(s *Namespace, name string, now time.Duration) *Queue {
	q := s.Find(name)
	if q != nil {
		return q
	}
	// Its Rev is 0 until it changes: every query of an unused lock shows the same.
	q = &Queue{Namespace: s, Path: s.Path(name), Since: now}
	if q.Dir() != name {
		q.MakeExtras().EncodedName = true
	}
	s.Queues.Set(q)
	q.heedMarker()
	return q
}

// Leave ends a use of a queue, which q.Polls++ began.
func (r *Replica) Leave(q *Queue) {
	q.Polls--
	r.Forget(q)
}

// Forget drops a queue that nothing refers to any more.
func (r *Replica) Forget(q *Queue) {
	if q.Exists || q.Leases > 0 || q.Polls > 0 || q.Contenders.Len() > 0 {
		return
	}
	if q.Namespace.Find(q.Name()) == q { // else it was dropped before, and another took its place
		q.Namespace.Queues.Delete(q)
		q.Mark()
	}
	delete(r.deferred, q)
	delete(r.polled, q)
}

// Touch marks a visible change of a queue and wakes its waiting polls.
func (r *Replica) Touch(q *Queue) {
	r.rev++
	q.Rev = r.rev
	q.Mark()
	if x := q.extras; x != nil && x.wake != nil {
		r.wake(x.wake)
		x.wake = nil
		q.Trim()
	}
}

// Add puts a contender that the replica shows into its queue: Added, unless it was there. listed: a listing shows it.
func (r *Replica) Add(q *Queue, c *recipe.Contender, listed bool, now time.Duration) []Delta {
	r.begin()
	q.countNumber(c, listed)
	if !q.Contenders.Insert(c) {
		return nil
	}
	r.Counts.Moves++
	r.countNewer(c, 1)
	q.countPresence(c, 1)
	r.joinGroup(q, c, now)
	r.index.add(q, c)
	r.Counts.Contenders++
	switch q.Contenders.Len() {
	case 1:
		r.Counts.Locks++
		q.Namespace.InUse++
	case 2:
		r.contended[q] = struct{}{}
	}
	r.Touch(q)
	r.emit(Delta{Kind: Added, Queue: q, Contender: c})
	r.review(q)
	return r.deltas
}

// Remove takes a contender out of its queue: Removed, unless it was not there.
func (r *Replica) Remove(q *Queue, name string, now time.Duration) []Delta {
	r.begin()
	held := q.Contenders.Holds(name)
	c := q.Contenders.Remove(name)
	if c == nil {
		return nil
	}
	r.Counts.Moves++
	r.countNewer(c, -1)
	r.leaveGroup(c)
	r.index.remove(c)
	r.Counts.Contenders--
	switch q.Contenders.Len() {
	case 0:
		r.Counts.Locks--
		q.Namespace.InUse--
	case 1:
		delete(r.contended, q)
	}
	delete(r.observed, c)
	q.countPresence(c, -1)
	q.forgetContender(name)
	if len(q.Extras().Hidden) == 0 {
		delete(r.polled, q)
	}
	q.Freed = q.Freed || held
	if held || q.Contenders.Len() == 0 {
		q.Since = now
	}
	r.Touch(q)
	r.emit(Delta{Kind: Removed, Queue: q, Contender: c})
	r.review(q)
	r.Forget(q)
	return r.deltas
}

// BeginPart and EndPart enclose the part of a listing that is about a queue: until EndPart nothing in it is certain.
func (r *Replica) BeginPart(q *Queue) { r.incomplete = q }

// EndPart ends what BeginPart began.
func (r *Replica) EndPart() { r.incomplete = nil }

// Incomplete reports whether a listing of the queue is being applied.
func (r *Replica) Incomplete(q *Queue) bool { return r.incomplete == q }

// Certain reports whether no contender can stand before this one that the replica does not show or that may not be
// read, and whether the end of each one before it is shown. list: a listing of the queue's directory would tell.
func (r *Replica) Certain(q *Queue, c *recipe.Contender) (certain, list bool) {
	switch {
	case q == r.incomplete: // the listing ends with the queue's evaluation
	case q.Extras().Invalid: // until the marker is gone
	case q.Awaits(c):
		r.polled[q] = struct{}{} // ZooKeeper may send no event about its end
	case (q.gap || !q.known) && !fault.On("gap"):
		return false, true
	default:
		return true, false
	}
	return false, false
}

// NextNumber is the number that the queue's directory gives to the next contender that is created, if no other client creates
// one before. known: the replica has seen, or a listing has shown, what became of all numbers below.
func (r *Replica) NextNumber(q *Queue) (next int32, known bool) {
	return q.next, q.Exists && q.known && !q.gap && q.next >= 0 && r.incomplete != q
}

// Contended are the queues with two contenders or more, in no order: something waits in no other.
func (r *Replica) Contended() []*Queue { return slices.Collect(maps.Keys(r.contended)) }

// IsContended reports whether there is such a queue.
func (r *Replica) IsContended() bool { return len(r.contended) > 0 }

// Defer keeps a queue whose grants wait for trust.
func (r *Replica) Defer(q *Queue) { r.deferred[q] = struct{}{} }

// Undefer forgets a queue that Defer kept.
func (r *Replica) Undefer(q *Queue) { delete(r.deferred, q) }

// Deferred are the queues whose grants wait for trust, by their paths.
func (r *Replica) Deferred() []*Queue { return inOrder(r.deferred) }

// Ended notes that a contender has ended, as its writer was told: until the replica shows it, nothing behind it is certain.
func (q *Queue) Ended(c *recipe.Contender) { x := q.MakeExtras(); x.ended = append(x.ended, c) }

// Poll has the queue's directory listed once a second: see ToList.
func (r *Replica) Poll(q *Queue) { r.polled[q] = struct{}{} }

// Hide notes that a contender may not be read. Its directory is polled until the contender is gone.
func (r *Replica) Hide(q *Queue, name string) []Delta {
	r.begin()
	if q.Contenders.Index(name) < 0 {
		return nil
	}
	x := q.MakeExtras()
	if x.Hidden == nil {
		x.Hidden = map[string]struct{}{}
	}
	x.Hidden[name] = struct{}{}
	r.polled[q] = struct{}{}
	r.review(q)
	return r.deltas
}

// ToList are the queues with contenders about whose end no event may come. It is called once a second, and
// gives an end that was told to the writer a second for its event.
func (r *Replica) ToList() (list []*Queue) {
	for _, q := range inOrder(r.polled) {
		switch x := q.Extras(); {
		case len(x.Hidden) > 0:
		case len(x.ended) == 0:
			delete(r.polled, q)
			continue
		case x.polledFor != x.ended[0]:
			x.polledFor = x.ended[0]
			continue
		}
		list = append(list, q)
	}
	return list
}

// countNewer counts contenders of a later release. Such a contender stands in the queue, counts as exclusive, and is shown.
func (r *Replica) countNewer(c *recipe.Contender, by int) {
	if !c.Unknown || c.LeaseID == "" {
		return
	}
	if r.newer[c.LeaseID] += by; r.newer[c.LeaseID] == 0 {
		delete(r.newer, c.LeaseID)
	}
}

// HasNewer reports whether a later release made contenders of that lease.
func (r *Replica) HasNewer(id recipe.LeaseID) bool { return r.newer[id] > 0 }

// inOrder are the queues of a set by their paths: what is decided about them is sent in this order.
func inOrder(set map[*Queue]struct{}) []*Queue {
	if len(set) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Keys(set), func(a, b *Queue) int { return cmp.Compare(a.Path, b.Path) })
}

// countPresence counts a contender that comes (by 1) or goes (by -1) beside other programs' contenders.
func (q *Queue) countPresence(c *recipe.Contender, by int32) {
	if !c.Ours {
		q.MakeExtras().presence.CountForeign(c, by, q.Contenders.All())
	} else if q.extras != nil {
		q.extras.presence.CountLease(c, by)
	}
}

// countNumber notes the number of a contender that has come.
func (q *Queue) countNumber(c *recipe.Contender, listed bool) {
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
}
