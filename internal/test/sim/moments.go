package sim

import (
	"context"
	"encoding/json"
	"time"

	"lockkeeper/internal/locks"
)

// maySay is by how much more than the truth a gateway may say that a lock has been held, or has been held at most: times are told in
// whole milliseconds, and a create takes some.
const maySay = time.Second

// judgeHolds compares what a gateway shows of how long locks have been held with what ZooKeeper has committed. It is asked in
// its process, so that a run takes the same course without this check. Both go by the clocks of gateways, which may have been moved. A
// plan in which wall clocks are set all the time is left alone.
func (w *world) judgeHolds(g *gateway) {
	if w.plan.books() {
		return
	}
	page, err := g.manager.Locks(context.Background(), locks.LockFilter{Principal: locks.Anonymous, NS: locks.DefaultNamespace})
	if err != nil {
		return
	}
	now := time.Now()
	slack := maySay + w.gateways.clocksMoved()
	for i := range page.Items {
		for _, c := range page.Items[i].Holders {
			at := w.audit.find(c.Znode)
			if at == nil || at.held.IsZero() || c.HeldFor == 0 || c.Delayed || at.glimpsed || at.group > 1 {
				continue
			}
			truth := now.Sub(at.held)
			if !at.held.After(at.made) { // it was granted at once: its create may have taken long
				truth = max(truth, now.Sub(at.enqueued()))
			}
			switch {
			case c.HeldFor > truth+slack:
				w.violate("held for: %s says that %s has held for %v, and it has for %v", g.name, c.Znode, c.HeldFor, truth)
			case c.HeldLonger && c.HeldAtMost != 0 && c.HeldAtMost < now.Sub(at.held)-slack:
				w.violate("held for: %s says that %s has held for %v at most, and it has for %v", g.name, c.Znode, c.HeldAtMost, now.Sub(at.held))
			}
		}
	}
}

// clocksMoved is by how much the clocks of all lives of gateways were moved.
func (g *gateways) clocksMoved() (by time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.all {
		by += one.clock.Moved()
	}
	return by
}

// enqueued is when a lease's gateway says that it was queued; when its contender was made where it does not.
func (c *contender) enqueued() time.Time {
	var record struct {
		Enqueued int64 `json:"enqueued_ms"`
	}
	if json.Unmarshal([]byte(c.data), &record) != nil || record.Enqueued == 0 {
		return c.made
	}
	return time.UnixMilli(record.Enqueued)
}
