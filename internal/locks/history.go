package locks

import (
	"time"

	"lockkeeper/internal/locks/recipe"
)

// maxHistory is how many ended leases are remembered. Beyond it the oldest is
// forgotten: its client is then told that it ended for an unknown reason.
const maxHistory = 1 << 16

// past is what is remembered of an ended lease.
type past struct {
	reason       Reason
	words        string        // of the administrator who ended it
	at           time.Duration // boot
	ns, lock     string
	fencingToken int64
	ttl          time.Duration
	mode         Mode
	// doubtful: nobody knew when the contender was created, so the listing that
	// lacked it may have come from a server that lags. It may be there again.
	doubtful bool
}

// history remembers ended leases for endedLife, at most maxHistory of them.
type history struct {
	byID  map[recipe.LeaseID]past
	order []recipe.LeaseID // in the order of their ends, from head on
	head  int
}

func (h *history) get(id recipe.LeaseID) (past, bool) { p, ok := h.byID[id]; return p, ok }
func (h *history) has(id recipe.LeaseID) bool         { _, ok := h.byID[id]; return ok }

// drop forgets a lease at once; its place in the order is passed over later.
func (h *history) drop(id recipe.LeaseID) { delete(h.byID, id) }

func (h *history) add(id recipe.LeaseID, p past) {
	if h.byID == nil {
		h.byID = map[recipe.LeaseID]past{}
	}
	if h.has(id) {
		return // its contender was back for a moment: what was told first stays
	}
	h.byID[id] = p
	h.order = append(h.order, id)
	if len(h.order)-h.head > maxHistory {
		h.pop()
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
	delete(h.byID, h.order[h.head])
	h.order[h.head] = ""
	h.head++
	if h.head > len(h.order)/2 {
		h.order = append(h.order[:0], h.order[h.head:]...)
		h.head = 0
	}
}
