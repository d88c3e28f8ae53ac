package manager

import (
	"context"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// dryRun answers what the acquire would find now. It refuses what the acquire would
// refuse, and that is all it does: nothing is written, no id is made, no place
// taken, and an idempotency key is not looked for, because it tells of another request.
// The answer is a forecast from the replica: who is on the way into the queue
// is not known to it.
func (m *Manager) dryRun(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
	req.IdempotencyKey = ""
	return locked2(m, func() (locks.AcquireResult, error) {
		wants, _, err := m.prepareAcquire(ctx, &req)
		if err != nil {
			return locks.AcquireResult{}, err
		}
		if err := m.room(&req, wants, m.inTheWay(wants) != nil); err != nil {
			return locks.AcquireResult{}, err
		}
		found := &locks.DryRun{State: locks.Held}
		for i := range wants {
			q := m.spaces[wants[i].NS].find(wants[i].Lock)
			if q == nil {
				continue
			}
			found.QueueLength = max(found.QueueLength, q.contenders.Waiting())
			if q.contenders.WouldHold(contenderOf(&wants[i])) {
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

// describeHolders are those who hold a lock, in full, at most so many. mu is
// held, and released meanwhile.
func (m *Manager) describeHolders(ctx context.Context, q *queue, most int) []locks.Contender {
	q.polls++ // keeps the queue
	var list []*recipe.Contender
	if most > 0 {
		m.describe(ctx, q, q.holders(most))
		list = q.holders(most)
	}
	views := make([]locks.Contender, 0, len(list))
	for _, c := range list {
		views = append(views, m.viewContender(q, c, 0))
	}
	q.polls--
	m.forget(q)
	return views
}
