package manager

import (
	"context"
	"errors"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/record"
)

// A revocation is withdrawn by a write of the lease's record, at the version that was read, like the
// revocation itself. The record counts withdrawals: its round. Who knows a revocation of an earlier round,
// because it has missed the writes in between, forgets it, also where the record has a new one by now: nothing of
// what was withdrawn, its force above all, goes on in what is asked afterwards.
//
// Force deletes the lease at the version of the record that its owner has applied. So either the withdrawal was
// written first, and the lease stays, or the lease has ended, and the answer says so.

// Withdraw takes back what the holders of a lock were asked, of all of them or of those that are Shown. A holder
// that was asked nothing is in neither list, so a repeat changes nothing. A lease that ended meanwhile is in Not,
// and so is a holder of Curator's that was asked: it cannot be told.
//
// CodeHolderChanged: none of those that are Shown holds.
func (m *Manager) Withdraw(ctx context.Context, req locks.WithdrawRequest) (locks.WithdrawAnswer, error) {
	if err := req.Shown.Check(); err != nil {
		return locks.WithdrawAnswer{}, err
	}
	q, err := locked2(m, func() (*queues.Queue, error) { return m.lockAt(ctx, req.NS, req.Lock) })
	if err != nil {
		return locks.WithdrawAnswer{}, err
	}
	defer m.do(func() { m.leaveQueue(q) })
	only := shownBy(&req.Shown)
	holders, more := locked2(m, func() ([]holder, bool) { return m.holdersAsked(ctx, q, only) })
	if only.none() {
		return locks.WithdrawAnswer{}, m.holderChanged(q, "none of those that were named holds the lock")
	}
	m.reviseAll(ctx, holders, func(*record.Revocation) *record.Revocation { return nil })
	answer := locks.WithdrawAnswer{More: more}
	var failed *locks.Error
	for i := range holders {
		switch h := &holders[i]; {
		case h.err != nil:
			if failed == nil {
				errors.As(h.err, &failed)
			}
			answer.Not = append(answer.Not, locks.Unreached{Contender: h.view, Detail: obstacle(h.err)})
		case h.gone:
			answer.Not = append(answer.Not, locks.Unreached{Contender: h.view, Detail: endedMeanwhile})
		case h.revised:
			h.view.Revoke = nil
			answer.Withdrawn = append(answer.Withdrawn, h.view)
		}
	}
	if len(answer.Withdrawn) == 0 && failed != nil {
		return locks.WithdrawAnswer{}, failed // ZooKeeper is away, or the caller
	}
	text := textBudget(maxText)
	text.trim(answer.Withdrawn)
	text.trimNot(answer.Not)
	return answer, nil
}

// holdersAsked are the holders that are meant and that may have been asked, at most MaxReap. more reports whether some
// had no place. The monitor is held, and released while it waits.
func (m *Manager) holdersAsked(ctx context.Context, q *queues.Queue, only shown) (list []holder, more bool) {
	m.describe(ctx, q, q.Holders(locks.MaxReap))
	for c := range m.holdersOf(q) {
		if !only.means(q, c) || m.delays.has(m.leases, m.replica, q, c) {
			continue
		}
		only.found(q, c)
		if was, read := m.askedOf(q, c); was == nil && (read || !c.Ours) {
			continue
		}
		if len(list) == locks.MaxReap {
			return list, true
		}
		list = append(list, m.newHolder(q, c))
	}
	return list, false
}

var errNotWithdrawn = errors.New("the program has been told already: Curator's recipe has no way to withdraw a revocation")

// tellWithdrawn tells that a holder is not asked to let go any more.
func (m *Manager) tellWithdrawn(parts []queues.Location) {
	if !m.publisher.enabled() {
		return
	}
	for _, p := range parts {
		m.publisher.publish(m.publisher.contenderEvent(events.LeaseRevokeWithdrawn, p.Queue, p.Contender))
	}
}
