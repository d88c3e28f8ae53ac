package manager

import (
	"container/heap"
	"time"
)

// deadlines is a heap of leases by due time.
type deadlines struct{ h leaseHeap }

func (d *deadlines) push(l *lease) { heap.Push(&d.h, l) }
func (d *deadlines) fix(l *lease)  { heap.Fix(&d.h, int(l.heapIndex)) }
func (d *deadlines) remove(l *lease) {
	if l.heapIndex >= 0 {
		heap.Remove(&d.h, int(l.heapIndex))
	}
}

// next is the earliest due time.
func (d *deadlines) next() (due time.Duration, ok bool) {
	if len(d.h) == 0 {
		return 0, false
	}
	return d.h[0].due, true
}

// pop removes and returns the earliest lease when it is due.
func (d *deadlines) pop(now time.Duration) *lease {
	if len(d.h) == 0 || d.h[0].due > now {
		return nil
	}
	return heap.Pop(&d.h).(*lease)
}

type leaseHeap []*lease

func (h leaseHeap) Len() int { return len(h) }

// Less: those that are due at one instant go by their ids, whatever the order in which they came.
func (h leaseHeap) Less(i, j int) bool {
	return h[i].due < h[j].due || h[i].due == h[j].due && h[i].id() < h[j].id()
}

func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = int32(i), int32(j)
}

func (h *leaseHeap) Push(x any) {
	l := x.(*lease)
	l.heapIndex = int32(len(*h))
	*h = append(*h, l)
}

func (h *leaseHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	l.heapIndex = -1
	return l
}
