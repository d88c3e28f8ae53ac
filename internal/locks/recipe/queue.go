package recipe

import (
	"iter"
	"slices"
)

// Queue holds the contenders of one lock in their order. The zero value is an
// empty queue. It must not be copied, nor changed during an iteration over it.
//
// Most locks have at most one contender, and there may be very many locks: a queue of one is only its pointer. More
// than one takes a row, which the queue keeps until it is empty.
type Queue struct {
	only [1]*Contender // while there is no row; nil for none
	row  *row
}

func (q *Queue) items() []*Contender {
	switch {
	case q.row != nil:
		return q.row.items()
	case q.only[0] != nil:
		return q.only[:]
	}
	return nil
}

// Len is the number of contenders.
func (q *Queue) Len() int { return len(q.items()) }

// At is the contender at index i, 0 <= i < Len. While the queue is not Ordered the index says
// nothing about the order of arrival.
func (q *Queue) At(i int) *Contender { return q.items()[i] }

// All yields the contenders as At numbers them.
func (q *Queue) All() iter.Seq2[int, *Contender] { return slices.All(q.items()) }

// Ordered reports whether the numbers fit into half the circle of int32. If not, they have no order, and no contender
// holds until enough have gone. ZooKeeper makes such numbers only after two billion contenders in one queue; a child
// with a handmade number makes them at once.
func (q *Queue) Ordered() bool { return q.row == nil || !q.row.disordered }

// ForeignPermits is the number of contenders of another program's semaphore. Ours
// never wait among them: for Curator's SemaphoreV2 every child counts, so a
// waiter of ours would block the one that it waits for.
func (q *Queue) ForeignPermits() int {
	if c := q.only[0]; c != nil && c.Mode == Permit && !c.Ours {
		return 1
	}
	if q.row == nil {
		return 0
	}
	return int(q.row.foreign)
}

// Get finds a contender by its name, nil when it is not there.
func (q *Queue) Get(name string) *Contender {
	if q.row == nil {
		return q.onlyIf(name)
	}
	if i := q.row.index(name); i >= 0 {
		return q.row.at(i)
	}
	return nil
}

// onlyIf is the only contender if it has that name, else nil.
func (q *Queue) onlyIf(name string) *Contender {
	if c := q.only[0]; c != nil && c.Name == name {
		return c
	}
	return nil
}

// Index is a contender's index, -1 when it is not there.
func (q *Queue) Index(name string) int {
	switch {
	case q.row != nil:
		return q.row.index(name)
	case q.onlyIf(name) != nil:
		return 0
	}
	return -1
}

// Insert puts c in its place and keeps the pointer. It reports false, and
// changes nothing, when a contender of that name is there already. c.Number
// must be the Number of c.Name.
func (q *Queue) Insert(c *Contender) bool {
	if q.row == nil {
		first := q.only[0]
		switch {
		case first == nil:
			q.only[0] = c
			return true
		case first.Name == c.Name:
			return false
		}
		q.row, q.only[0] = new(row), nil
		q.row.insert(first)
	}
	return q.row.insert(c)
}

// Remove takes a contender out and returns it, nil when it was not there.
func (q *Queue) Remove(name string) *Contender {
	if q.row == nil {
		c := q.onlyIf(name)
		if c != nil {
			q.only[0] = nil
		}
		return c
	}
	c := q.row.remove(name)
	if q.row.len() == 0 {
		q.row = nil
	}
	return c
}

// Reset replaces everything by the given contenders, in any order in which they
// come; of several with one name the first stays. It keeps the pointers but not
// the slice.
func (q *Queue) Reset(contenders []*Contender) {
	*q = Queue{row: new(row)}
	q.row.reset(contenders)
	switch items := q.row.items(); len(items) {
	case 1:
		q.only[0] = items[0]
		fallthrough
	case 0:
		q.row = nil
	}
}

// Holders yields the contenders that hold the lock, in queue order; none while
// the queue is not Ordered. It looks at the holders and at one contender more;
// with permits at no more contenders than the highest limit, unless another
// program's semaphore is among them.
func (q *Queue) Holders() iter.Seq[*Contender] {
	return func(yield func(*Contender) bool) {
		if q.row != nil {
			q.row.walk(yield)
		} else if c := q.only[0]; c != nil && alone(c) {
			yield(c)
		}
	}
}

// alone reports whether the contender would hold in a queue of its own.
func alone(c *Contender) bool { return new(tally).admits(c) }

// Holds reports whether the contender of that name holds the lock. It takes
// O(log n), for a permit what Holders takes.
func (q *Queue) Holds(name string) bool {
	if q.row != nil {
		return q.row.holds(name)
	}
	c := q.onlyIf(name)
	return c != nil && alone(c)
}

// WouldHold reports whether a new contender of ours with c's mode, permits and limit would hold at once behind all
// others, for a lease with nothing in the queue yet. It reads nothing else of c. It is a forecast: it knows nothing of
// contenders under way, nor of numbers that do not fit. It takes O(1) and does not allocate.
func (q *Queue) WouldHold(c *Contender) bool {
	newcomer := Contender{Mode: c.Mode, Permits: c.Permits, Limit: c.Limit, Ours: true}
	if q.row != nil {
		return q.row.wouldHold(&newcomer)
	}
	var before tally
	if first := q.only[0]; first != nil {
		before.add(first)
	}
	return before.admits(&newcomer)
}

// LeaseHolds reports whether the lease that a contender belongs to holds the
// lock: every contender of its entry does, and each of its members is there. It
// is false for an Unknown contender, whose members are not known.
func (q *Queue) LeaseHolds(name string) bool {
	if q.row != nil {
		return q.row.leaseHolds(name)
	}
	c := q.onlyIf(name)
	return c != nil && alone(c) && c.Member == 1 && c.Members == 1
}

// Position is the place of a contender's entry among the entries that wait,
// from 1; 0 when all of the entry holds. ok is false when the contender is not
// there, or there is no order. It takes O(log n) and the holders of a
// semaphore; O(n) in a queue where a lease has several contenders.
func (q *Queue) Position(name string) (position int, ok bool) {
	if q.row != nil {
		return q.row.position(name)
	}
	switch c := q.onlyIf(name); {
	case c == nil:
		return 0, false
	case alone(c):
		return 0, true
	}
	return 1, true
}

// Waiting is the number of entries that wait: all, while there is no order. It
// takes what Position takes.
func (q *Queue) Waiting() int {
	switch {
	case q.row != nil:
		return q.row.waiting()
	case q.only[0] == nil || alone(q.only[0]):
		return 0
	}
	return 1
}
