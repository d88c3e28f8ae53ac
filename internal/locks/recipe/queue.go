package recipe

import (
	"iter"
	"slices"
	"sort"
	"strings"
)

// Queue holds the contenders of one lock in their order. The zero value is an
// empty queue. It must not be copied, nor changed during an iteration over it.
//
// Appending the highest number and removing the head take O(1), amortised;
// finding a name O(log n), because the name gives the number; inserting or removing
// in the middle moves pointers, on the shorter side where there is room. A number
// before the head moves them all: Reset takes what comes in no order.
type Queue struct {
	// buf[head:] are the contenders: in queue order, or, while there is none, in
	// order around the circle from the first one.
	buf  []*Contender
	head int32

	lead     int32 // the contenders before the first one that is not shared
	joined   int32 // neighbours that belong to one entry
	permits  int32 // contenders of mode Permit
	foreign  int32 // those of them that are foreign
	maxLimit int32 // no Limit in the queue is higher; exact only until one is removed

	disordered bool
}

func (q *Queue) items() []*Contender { return q.buf[q.head:] }

// Len is the number of contenders.
func (q *Queue) Len() int { return len(q.buf) - int(q.head) }

// At is the contender at index i, 0 <= i < Len. While the queue is not Ordered
// the index says nothing about who came first.
func (q *Queue) At(i int) *Contender { return q.items()[i] }

// All yields the contenders as At numbers them.
func (q *Queue) All() iter.Seq2[int, *Contender] { return slices.All(q.items()) }

// Ordered reports whether the numbers fit into half the circle of int32. If
// they do not, there is no order among them: nothing holds until enough
// contenders have gone. ZooKeeper alone never gets there, two billion contenders in one
// queue aside; a child with a handmade number does.
func (q *Queue) Ordered() bool { return !q.disordered }

// ForeignPermits is the number of contenders of another program's semaphore. Ours
// never wait among them: for Curator's SemaphoreV2 every child counts, so a
// waiter of ours would block the one that it waits for.
func (q *Queue) ForeignPermits() int { return int(q.foreign) }

// Get finds a contender by its name, nil when it is not there.
func (q *Queue) Get(name string) *Contender {
	if i := q.Index(name); i >= 0 {
		return q.At(i)
	}
	return nil
}

// Index is where a contender stands, -1 when it is not there.
func (q *Queue) Index(name string) int {
	n, ok := Number(name)
	if !ok {
		return -1
	}
	if i, found := q.find(n, name); found {
		return i
	}
	return -1
}

// find is the place of a number and name around the circle from the first
// contender.
func (q *Queue) find(n int32, name string) (i int, found bool) {
	items := q.items()
	if len(items) == 0 {
		return 0, false
	}
	origin := items[0].Number
	after := func(c *Contender) int {
		if a, b := uint32(c.Number-origin), uint32(n-origin); a != b {
			if a < b {
				return -1
			}
			return 1
		}
		return strings.Compare(c.Name, name)
	}
	if after(items[len(items)-1]) < 0 { // the usual place of a newcomer
		return len(items), false
	}
	i = sort.Search(len(items), func(i int) bool { return after(items[i]) >= 0 })
	return i, items[i].Name == name
}

// Insert puts c in its place and keeps the pointer. It reports false, and
// changes nothing, when a contender of that name is there already. c.Number
// must be the Number of c.Name.
func (q *Queue) Insert(c *Contender) bool {
	i, found := q.find(c.Number, c.Name)
	if found {
		return false
	}
	q.insertAt(i, c)
	q.settle()
	return true
}

// Remove takes a contender out and returns it, nil when it was not there.
func (q *Queue) Remove(name string) *Contender {
	i := q.Index(name)
	if i < 0 {
		return nil
	}
	c := q.At(i)
	q.removeAt(i)
	q.settle()
	return c
}

// Reset replaces everything by the given contenders, in whatever order they
// come; of several with one name the first stays. It keeps the pointers but not
// the slice.
func (q *Queue) Reset(contenders []*Contender) {
	items := slices.Clone(contenders)
	slices.SortStableFunc(items, func(a, b *Contender) int {
		if a.Number != b.Number {
			if a.Number < b.Number {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	items = slices.CompactFunc(items, func(a, b *Contender) bool { return a.Name == b.Name })
	*q = Queue{buf: items}
	for i, c := range items {
		q.count(c, 1)
		if i > 0 {
			q.joined += join(items[i-1], c)
		}
	}
	q.extendLead()
	q.settle()
}

func (q *Queue) insertAt(i int, c *Contender) {
	items := q.items()
	if i > 0 && i < len(items) {
		q.joined -= join(items[i-1], items[i])
	}
	if i > 0 {
		q.joined += join(items[i-1], c)
	}
	if i < len(items) {
		q.joined += join(c, items[i])
	}
	q.count(c, 1)
	if i <= int(q.lead) {
		if c.Mode == Shared {
			q.lead++
		} else {
			q.lead = int32(i)
		}
	}

	if i < len(items)/2 && q.head > 0 {
		q.head--
		copy(q.items(), items[:i])
	} else {
		q.grow()
		q.buf = append(q.buf, nil)
		copy(q.items()[i+1:], q.items()[i:])
	}
	q.items()[i] = c
}

// grow makes room for one more at the end: in the space that removed heads
// left, if that is at least as large as what has to be moved.
func (q *Queue) grow() {
	if n := q.Len(); len(q.buf) == cap(q.buf) && int(q.head) >= n && q.head > 0 {
		copy(q.buf, q.items())
		clear(q.buf[n:])
		q.buf, q.head = q.buf[:n], 0
	}
}

func (q *Queue) removeAt(i int) {
	items := q.items()
	c, n := items[i], len(items)
	if i > 0 {
		q.joined -= join(items[i-1], c)
	}
	if i < n-1 {
		q.joined -= join(c, items[i+1])
	}
	if i > 0 && i < n-1 {
		q.joined += join(items[i-1], items[i+1])
	}
	q.count(c, -1)

	if i < n/2 {
		copy(items[1:], items[:i])
		items[0] = nil
		q.head++
	} else {
		copy(items[i:], items[i+1:])
		items[n-1] = nil
		q.buf = q.buf[:len(q.buf)-1]
	}
	switch {
	case i < int(q.lead):
		q.lead--
	case i == int(q.lead):
		q.extendLead()
	}
	q.shrink()
}

// shrink gives memory back once a long queue has become short.
func (q *Queue) shrink() {
	const small = 16
	n := q.Len()
	switch {
	case cap(q.buf) > small && n <= cap(q.buf)/8:
		q.buf, q.head = append(make([]*Contender, 0, 2*n), q.items()...), 0
	case n == 0:
		q.buf, q.head = q.buf[:0], 0
	}
}

func (q *Queue) count(c *Contender, by int32) {
	if c.Mode != Permit {
		return
	}
	q.permits += by
	if !c.Ours {
		q.foreign += by
	}
	if q.permits == 0 {
		q.maxLimit = 0
	} else if by > 0 {
		q.maxLimit = max(q.maxLimit, c.Limit)
	}
}

func (q *Queue) extendLead() {
	items := q.items()
	for int(q.lead) < len(items) && items[q.lead].Mode == Shared {
		q.lead++
	}
}

// settle finds out whether there is an order, and turns the circle so that the
// queue starts where it does. The numbers fit into half the circle when a gap
// of more than half of it lies between two neighbours. There is at most one such gap;
// seen from the first contender it is behind the last number that lies less
// than half a circle ahead.
func (q *Queue) settle() {
	items := q.items()
	n := len(items)
	if n == 0 || uint32(items[n-1].Number-items[0].Number) < halfCircle {
		q.disordered = false
		return
	}
	origin := items[0].Number
	i := sort.Search(n, func(i int) bool { return uint32(items[i].Number-origin) >= halfCircle })
	if q.disordered = uint32(items[i].Number-items[i-1].Number) <= halfCircle; q.disordered {
		return
	}
	q.joined += join(items[n-1], items[0]) - join(items[i-1], items[i])
	q.buf, q.head = slices.Concat(items[i:], items[:i]), 0
	q.lead = 0
	q.extendLead()
}
