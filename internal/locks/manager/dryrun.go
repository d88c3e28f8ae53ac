package manager

import (
	"context"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
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

// describeHolders are those who hold a lock, in full, at most so many. The monitor is
// held, and released meanwhile.
func (m *Manager) describeHolders(ctx context.Context, q *queues.Queue, most int) []locks.Contender {
	q.Polls++ // keeps the queue
	var list []*recipe.Contender
	if most > 0 {
		m.describe(ctx, q, q.Holders(most))
		list = q.Holders(most)
	}
	views := make([]locks.Contender, 0, len(list))
	for _, c := range list {
		views = append(views, m.viewContender(q, c, 0))
	}
	q.Polls--
	m.replica.Forget(q)
	return views
}
