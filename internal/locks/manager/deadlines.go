package manager

import (
	"container/heap"
	"time"
)

// deadlines is a heap of leases by due time.
type deadlines struct{ leaseHeap[byDue] }

// next is the earliest due time.
func (d *deadlines) next() (due time.Duration, ok bool) {
	if d.Len() == 0 {
		return 0, false
	}
	return d.leases[0].due, true
}

// pop removes and returns the earliest lease when it is due.
func (d *deadlines) pop(now time.Duration) *lease {
	if due, ok := d.next(); !ok || due > now {
		return nil
	}
	return heap.Pop(d).(*lease)
}

// byDue orders leases by their due time. Leases that are due at one instant go by their ids, so that the order in which
// they came does not matter.
type byDue struct{}

func (byDue) less(a, b *lease) bool { return a.due < b.due || a.due == b.due && a.id() < b.id() }
func (byDue) index(l *lease) *int32 { return &l.heapIndex }
