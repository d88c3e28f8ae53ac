package postmortem

import (
	"iter"
	"slices"
	"time"

	"lockkeeper/internal/locks/recipe"
)

// MaxEnds is how many ends a Log keeps. Beyond it the Log forgets the oldest; that lease then has ended for an unknown
// reason.
const MaxEnds = 1 << 16

// Log remembers ends. The zero Log is empty and ready.
type Log struct {
	byID  map[recipe.LeaseID]End
	order []recipe.LeaseID // in the order of their ends, from head on
	head  int
	gone  uint64 // how many ends there were before head
	// awaitingNext has the leases that held, and whose lock no contender has been granted since, in the order of their ends.
	awaitingNext map[Place][]recipe.LeaseID
}

// Get is what is remembered of a lease.
func (h *Log) Get(id recipe.LeaseID) (End, bool) { p, ok := h.byID[id]; return p, ok }

// Has reports whether a lease's end is remembered.
func (h *Log) Has(id recipe.LeaseID) bool { _, ok := h.byID[id]; return ok }

// Drop forgets a lease at once; pop passes over its place in the order later.
func (h *Log) Drop(id recipe.LeaseID) {
	if p, ok := h.byID[id]; ok {
		h.stopAwaiting(id, p)
		delete(h.byID, id)
	}
}

// Add remembers an end. An earlier one of the same lease stays: its contender was back for a moment only.
func (h *Log) Add(id recipe.LeaseID, p End) {
	if h.byID == nil {
		h.byID, h.awaitingNext = map[recipe.LeaseID]End{}, map[Place][]recipe.LeaseID{}
	}
	if h.Has(id) {
		return
	}
	h.byID[id] = p
	h.order = append(h.order, id)
	if p.Held != 0 {
		at := Place{p.NS, p.Lock}
		h.awaitingNext[at] = append(h.awaitingNext[at], id)
	}
	if len(h.order)-h.head > MaxEnds {
		h.pop()
	}
}

// Revise replaces what is remembered of a lease. Its next holder stays.
func (h *Log) Revise(id recipe.LeaseID, p End) {
	old, ok := h.byID[id]
	if !ok {
		return
	}
	if old.Next != nil {
		p.Next = old.Next
	}
	if p.Held == 0 || p.Next != nil {
		h.stopAwaiting(id, old)
	}
	h.byID[id] = p
}

// From lists leases in the order of their ends, at most so many, from the at-th that there ever was on; next is where it goes
// on. It is at when there is nothing more.
func (h *Log) From(at uint64, most int) (list []recipe.LeaseID, next uint64) {
	for at = max(at, h.gone); at-h.gone < uint64(len(h.order)-h.head) && len(list) < most; at++ {
		if id := h.order[h.head+int(at-h.gone)]; h.Has(id) {
			list = append(list, id)
		}
	}
	return list, at
}

// stopAwaiting takes a lease from those whose lock waits for its next holder.
func (h *Log) stopAwaiting(id recipe.LeaseID, p End) {
	if p.Held == 0 || p.Next != nil {
		return
	}
	at := Place{p.NS, p.Lock}
	list := h.awaitingNext[at]
	if i := slices.Index(list, id); i >= 0 { // the first, but for those that were dropped
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(h.awaitingNext, at)
	} else {
		h.awaitingNext[at] = list
	}
}

// Sweep forgets what ended before the given time.
func (h *Log) Sweep(before time.Duration) {
	for h.head < len(h.order) {
		if p, ok := h.byID[h.order[h.head]]; ok && p.At >= before {
			return
		}
		h.pop()
	}
}

func (h *Log) pop() {
	h.Drop(h.order[h.head])
	h.order[h.head] = ""
	h.head++
	h.gone++
	if h.head > len(h.order)/2 {
		h.order = append(h.order[:0], h.order[h.head:]...)
		h.head = 0
	}
}

// Granted notes that the lock has been granted again, for the leases that wait to learn of it. next is called only when one does.
func (h *Log) Granted(at Place, now time.Duration, next func() Next) {
	ids := h.awaitingNext[at]
	if len(ids) == 0 {
		return
	}
	to := next()
	for _, id := range ids {
		if p, ok := h.byID[id]; ok && id != to.Lease {
			to := to
			to.After = now - p.At
			p.Next = &to
			h.byID[id] = p
		}
	}
	delete(h.awaitingNext, at)
}

// AddOrRevise adds an end, or revises the one that is remembered when may allows it.
func (h *Log) AddOrRevise(id recipe.LeaseID, p End, may func(End) bool) {
	old, ok := h.Get(id)
	switch {
	case !ok:
		h.Add(id, p)
	case may(old):
		h.Revise(id, p)
	}
}

// Recent are the latest ends, the last one first, at most so many.
func (h *Log) Recent(most int) iter.Seq[End] {
	return func(yield func(End) bool) {
		for i := len(h.order) - 1; i >= max(h.head, len(h.order)-most); i-- {
			if p, ok := h.byID[h.order[i]]; ok && !yield(p) {
				return
			}
		}
	}
}

// Sizes are how much a log keeps.
type Sizes struct{ Ends, Order, Awaiting int }

// Size is how many ends are remembered, how long their order is, and how many locks wait for their next holder.
func (h *Log) Size() Sizes {
	return Sizes{len(h.byID), len(h.order) - h.head, len(h.awaitingNext)}
}
