package recipe

import (
	"slices"
	"sort"
	"strings"
)

// row is a queue of two contenders and more; it works with fewer, too.
//
// Appending the highest number and removing the head take O(1), amortised;
// finding a name O(log n), because the name gives the number; inserting or removing
// in the middle moves pointers, on the shorter side where there is room. A number
// before the head moves them all: reset takes what comes in no order.
type row struct {
	// buf[head:] are the contenders: in queue order, or, while there is none, in
	// order around the circle from the first one.
	buf  []*Contender
	head int32

	lead     int32 // the contenders before the first one that is not shared
	joined   int32 // neighbours that belong to one entry
	permits  int32 // contenders of mode Permit
	foreign  int32 // those of them that are foreign
	taken    int64 // the permits that they take together
	maxLimit int32 // no Limit in the queue is higher; exact only until one is removed

	disordered bool
}

func (r *row) items() []*Contender { return r.buf[r.head:] }

// len is the number of contenders.
func (r *row) len() int { return len(r.buf) - int(r.head) }

// at is the contender at index i, 0 <= i < Len. While the queue is disordered the index says
// nothing about the order of arrival.
func (r *row) at(i int) *Contender { return r.items()[i] }

// index is a contender's index, -1 when it is not there.
func (r *row) index(name string) int {
	n, ok := Number(name)
	if !ok {
		return -1
	}
	if i, found := r.find(n, name); found {
		return i
	}
	return -1
}

// find is the place of a number and name around the circle from the first
// contender.
func (r *row) find(n int32, name string) (i int, found bool) {
	items := r.items()
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
	if after(items[len(items)-1]) < 0 { // a newcomer usually comes last
		return len(items), false
	}
	i = sort.Search(len(items), func(i int) bool { return after(items[i]) >= 0 })
	return i, items[i].Name == name
}

// insert puts c in its place and keeps the pointer. It reports false, and
// changes nothing, when a contender of that name is there already. c.Number
// must be the Number of c.Name.
func (r *row) insert(c *Contender) bool {
	i, found := r.find(c.Number, c.Name)
	if found {
		return false
	}
	r.insertAt(i, c)
	r.settle()
	return true
}

// remove takes a contender out and returns it, nil when it was not there.
func (r *row) remove(name string) *Contender {
	i := r.index(name)
	if i < 0 {
		return nil
	}
	c := r.at(i)
	r.removeAt(i)
	r.settle()
	return c
}

// reset replaces everything by the given contenders, in any order in which they
// come; of several with one name the first stays. It keeps the pointers but not
// the slice.
func (r *row) reset(contenders []*Contender) {
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
	*r = row{buf: items}
	for i, c := range items {
		r.count(c, 1)
		if i > 0 {
			r.joined += join(items[i-1], c)
		}
	}
	r.extendLead()
	r.settle()
}

func (r *row) insertAt(i int, c *Contender) {
	items := r.items()
	if i > 0 && i < len(items) {
		r.joined -= join(items[i-1], items[i])
	}
	if i > 0 {
		r.joined += join(items[i-1], c)
	}
	if i < len(items) {
		r.joined += join(c, items[i])
	}
	r.count(c, 1)
	if i <= int(r.lead) {
		if c.Mode == Shared {
			r.lead++
		} else {
			r.lead = int32(i)
		}
	}

	if i < len(items)/2 && r.head > 0 {
		r.head--
		copy(r.items(), items[:i])
	} else {
		r.grow()
		r.buf = append(r.buf, nil)
		copy(r.items()[i+1:], r.items()[i:])
	}
	r.items()[i] = c
}

// grow makes room for one more at the end: in the space that removed heads
// left, if that is at least as large as what has to be moved.
func (r *row) grow() {
	if n := r.len(); len(r.buf) == cap(r.buf) && int(r.head) >= n && r.head > 0 {
		copy(r.buf, r.items())
		clear(r.buf[n:])
		r.buf, r.head = r.buf[:n], 0
	}
}

func (r *row) removeAt(i int) {
	items := r.items()
	c, n := items[i], len(items)
	if i > 0 {
		r.joined -= join(items[i-1], c)
	}
	if i < n-1 {
		r.joined -= join(c, items[i+1])
	}
	if i > 0 && i < n-1 {
		r.joined += join(items[i-1], items[i+1])
	}
	r.count(c, -1)

	if i < n/2 {
		copy(items[1:], items[:i])
		items[0] = nil
		r.head++
	} else {
		copy(items[i:], items[i+1:])
		items[n-1] = nil
		r.buf = r.buf[:len(r.buf)-1]
	}
	switch {
	case i < int(r.lead):
		r.lead--
	case i == int(r.lead):
		r.extendLead()
	}
	r.shrink()
}

// shrink frees memory once a long queue has become short.
func (r *row) shrink() {
	const small = 16
	n := r.len()
	switch {
	case cap(r.buf) > small && n <= cap(r.buf)/8:
		r.buf, r.head = append(make([]*Contender, 0, 2*n), r.items()...), 0
	case n == 0:
		r.buf, r.head = r.buf[:0], 0
	}
}

func (r *row) count(c *Contender, by int32) {
	if c.Mode != Permit {
		return
	}
	r.permits += by
	r.taken += int64(by) * int64(c.Permits)
	if !c.Ours {
		r.foreign += by
	}
	if r.permits == 0 {
		r.maxLimit = 0
	} else if by > 0 {
		r.maxLimit = max(r.maxLimit, c.Limit)
	}
}

func (r *row) extendLead() {
	items := r.items()
	for int(r.lead) < len(items) && items[r.lead].Mode == Shared {
		r.lead++
	}
}

// settle finds out whether there is an order, and turns the circle so that the
// queue starts where it does. The numbers fit into half the circle when a gap
// of more than half of it lies between two neighbours. There is at most one such gap;
// seen from the first contender it is behind the last number that lies less
// than half a circle ahead.
func (r *row) settle() {
	items := r.items()
	n := len(items)
	if n == 0 || uint32(items[n-1].Number-items[0].Number) < halfCircle {
		r.disordered = false
		return
	}
	origin := items[0].Number
	i := sort.Search(n, func(i int) bool { return uint32(items[i].Number-origin) >= halfCircle })
	if r.disordered = uint32(items[i].Number-items[i-1].Number) <= halfCircle; r.disordered {
		return
	}
	r.joined += join(items[n-1], items[0]) - join(items[i-1], items[i])
	r.buf, r.head = slices.Concat(items[i:], items[:i]), 0
	r.lead = 0
	r.extendLead()
}
