package manager

import (
	"context"

	"lockkeeper/internal/locks"
)

// dryRun forecasts from the replica what the acquire would find now, and refuses what the acquire would refuse. It
// writes nothing, makes no id, takes no position, and does not look up the idempotency key, which belongs to another
// request. Contenders whose create is still under way are not counted.
func (m *Manager) dryRun(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
	req.IdempotencyKey = ""
	return locked2(m, func() (locks.AcquireResult, error) {
		a := acquisition{m: m, ctx: ctx, req: req}
		if err := a.prepare(); err != nil {
			return locks.AcquireResult{}, err
		}
		wants := a.wants
		if err := m.room(&a.req, wants, inTheWay(m.replica, wants) != nil); err != nil {
			return locks.AcquireResult{}, err
		}
		found := &locks.DryRun{State: locks.Held}
		for i := range wants {
			q := m.replica.Namespaces[wants[i].NS].Find(wants[i].Lock)
			if q == nil {
				continue
			}
			found.QueueLength = max(found.QueueLength, q.Contenders.Waiting())
			if q.Contenders.WouldHold(contenderOf(&wants[i])) {
				continue
			}
			found.State = locks.Waiting
			found.Holders = append(found.Holders, m.describeHolders(ctx, q, maxHolders-len(found.Holders))...)
		}
		text := textBudget(dryRunText)
		text.trim(found.Holders)
		return locks.AcquireResult{DryRun: found}, nil
	})
}
