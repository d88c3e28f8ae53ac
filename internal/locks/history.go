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
	at           time.Duration // boot
	ns, lock     string
	fencingToken int64
	ttl          time.Duration
	mode         Mode
}

// history remembers ended leases for endedLife, at most maxHistory of them.
type history struct {
	byID  map[recipe.LeaseID]past
	order []recipe.LeaseID // ring, oldest at head
	head  int
}

func (h *history) get(id recipe.LeaseID) (past, bool) { p, ok := h.byID[id]; return p, ok }
func (h *history) has(id recipe.LeaseID) bool         { _, ok := h.byID[id]; return ok }
func (h *history) drop(id recipe.LeaseID)             { delete(h.byID, id) }

func (h *history) add(id recipe.LeaseID, p past) {
	if h.byID == nil {
		h.byID = map[recipe.LeaseID]past{}
	}
	h.byID[id] = p
	if len(h.order) < maxHistory {
		h.order = append(h.order, id)
		return
	}
	delete(h.byID, h.order[h.head])
	h.order[h.head] = id
	h.head = (h.head + 1) % maxHistory
}

// sweep forgets what ended before the given time.
func (h *history) sweep(before time.Duration) {
	for id, p := range h.byID {
		if p.at < before {
			delete(h.byID, id)
		}
	}
}

// remember keeps what became of a lease for those who ask later.
func (m *Manager) remember(l *lease, now time.Duration) {
	m.history.add(l.id, past{reason: l.reason, at: now, ns: l.q.space.name, lock: l.q.name,
		fencingToken: m.fencingToken(l.czxid), ttl: l.ttl, mode: Exclusive})
	if k := m.keys[l.key]; k != nil && l.key != "" {
		k.reason, k.endedAt = l.reason, now
	}
}

// fencingToken turns a czxid into the number that clients see.
func (m *Manager) fencingToken(czxid int64) int64 {
	if czxid == 0 {
		return 0
	}
	return m.layout.FenceBase + czxid
}
