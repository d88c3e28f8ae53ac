package manager

import (
	"slices"
	"time"

	"lockkeeper/internal/locks/recipe"
)

// maxHistory is how many ended leases are remembered. Beyond it the oldest is
// forgotten: its client is then told that it ended for an unknown reason.
const maxHistory = 1 << 16

// history remembers ended leases for endedLife, at most maxHistory of them.
type history struct {
	byID  map[recipe.LeaseID]past
	order []recipe.LeaseID // in the order of their ends, from head on
	head  int
	gone  uint64 // how many there were before head: the one at head is the gone-th that there ever was
	// heirless are those that held and whose lock nobody has been granted since,
	// in the order of their ends.
	heirless map[place][]recipe.LeaseID
}

func (h *history) get(id recipe.LeaseID) (past, bool) { p, ok := h.byID[id]; return p, ok }
func (h *history) has(id recipe.LeaseID) bool         { _, ok := h.byID[id]; return ok }

// drop forgets a lease at once; its place in the order is passed over later.
func (h *history) drop(id recipe.LeaseID) {
	if p, ok := h.byID[id]; ok {
		h.settle(id, p)
		delete(h.byID, id)
	}
}

func (h *history) add(id recipe.LeaseID, p past) {
	if h.byID == nil {
		h.byID, h.heirless = map[recipe.LeaseID]past{}, map[place][]recipe.LeaseID{}
	}
	if h.has(id) {
		return // its contender was back for a moment: what was told first stays
	}
	h.byID[id] = p
	h.order = append(h.order, id)
	if p.held != 0 {
		at := place{p.ns, p.lock}
		h.heirless[at] = append(h.heirless[at], id)
	}
	if len(h.order)-h.head > maxHistory {
		h.pop()
	}
}

// revise replaces what is remembered of a lease; who was granted its lock next stays.
func (h *history) revise(id recipe.LeaseID, p past) {
	old, ok := h.byID[id]
	if !ok {
		return
	}
	if old.next != nil {
		p.next = old.next
	}
	if p.held == 0 || p.next != nil {
		h.settle(id, old)
	}
	h.byID[id] = p
}

// from lists leases in the order of their ends, at most so many, from the at-th that there ever was on; next is where it goes
// on. It is at when there is nothing more.
func (h *history) from(at uint64, most int) (list []recipe.LeaseID, next uint64) {
	for at = max(at, h.gone); at-h.gone < uint64(len(h.order)-h.head) && len(list) < most; at++ {
		if id := h.order[h.head+int(at-h.gone)]; h.has(id) {
			list = append(list, id)
		}
	}
	return list, at
}

// settle takes a lease from those whose lock waits for its next holder.
func (h *history) settle(id recipe.LeaseID, p past) {
	if p.held == 0 || p.next != nil {
		return
	}
	at := place{p.ns, p.lock}
	list := h.heirless[at]
	if i := slices.Index(list, id); i >= 0 { // the first, but for those that were dropped
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(h.heirless, at)
	} else {
		h.heirless[at] = list
	}
}

// sweep forgets what ended before the given time.
func (h *history) sweep(before time.Duration) {
	for h.head < len(h.order) {
		if p, ok := h.byID[h.order[h.head]]; ok && p.at >= before {
			return
		}
		h.pop()
	}
}

func (h *history) pop() {
	h.drop(h.order[h.head])
	h.order[h.head] = ""
	h.head++
	h.gone++
	if h.head > len(h.order)/2 {
		h.order = append(h.order[:0], h.order[h.head:]...)
		h.head = 0
	}
}
