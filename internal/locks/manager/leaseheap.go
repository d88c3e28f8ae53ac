package manager

import "container/heap"

// leaseHeap is a heap of leases. A lease knows its index in it, -1 when it is not there.
type leaseHeap[O leaseOrder] struct {
	order  O
	leases []*lease
}

// leaseOrder is the order of a heap, and the field of a lease with its index in that heap.
type leaseOrder interface {
	less(a, b *lease) bool
	index(l *lease) *int32
}

func (h *leaseHeap[O]) push(l *lease) { heap.Push(h, l) }
func (h *leaseHeap[O]) fix(l *lease)  { heap.Fix(h, int(*h.order.index(l))) }

// remove does nothing when the lease is not in the heap.
func (h *leaseHeap[O]) remove(l *lease) {
	if i := *h.order.index(l); i >= 0 {
		heap.Remove(h, int(i))
	}
}

// Len, Less, Swap, Push and Pop are for container/heap.
func (h *leaseHeap[O]) Len() int           { return len(h.leases) }
func (h *leaseHeap[O]) Less(i, j int) bool { return h.order.less(h.leases[i], h.leases[j]) }

func (h *leaseHeap[O]) Swap(i, j int) {
	a, b := h.leases[i], h.leases[j]
	h.leases[i], h.leases[j] = b, a
	*h.order.index(b), *h.order.index(a) = int32(i), int32(j)
}

func (h *leaseHeap[O]) Push(x any) {
	l := x.(*lease)
	*h.order.index(l) = int32(len(h.leases))
	h.leases = append(h.leases, l)
}

func (h *leaseHeap[O]) Pop() any {
	last := len(h.leases) - 1
	l := h.leases[last]
	h.leases[last], h.leases = nil, h.leases[:last]
	*h.order.index(l) = -1
	return l
}
