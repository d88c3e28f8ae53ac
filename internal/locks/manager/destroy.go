package manager

import (
	"context"
	"errors"
	"slices"

	"lockkeeper/internal/events"
	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// destroyRounds bounds the rounds of Destroy: contenders that arrive during a round are ended in the next.
const destroyRounds = 5

// Destroy ends every contender of a lock, waiting or held, of any gateway or program, from the tail of the queue on
// (fell.go). It then removes the lock: its settings and, in the default namespace, its directory. Contenders that keep
// arriving after destroyRounds make it CodeLockInUse; the answer then says how many were ended. After any error, what
// was done stays done, and the request may be repeated.
func (m *Manager) Destroy(ctx context.Context, req locks.DestroyRequest) (locks.DestroyAnswer, error) {
	var answer locks.DestroyAnswer
	if err := req.Check(); err != nil {
		return answer, err
	}
	if err := locks.CheckPlace(&req.NS, &req.Lock); err != nil {
		return answer, err
	}
	v := verdict{locks.ReasonDestroyed, req.Reason, locks.TraceParentOf(ctx)}
	for range destroyRounds {
		trees, err := locked2(m, func() ([]*tree, error) {
			q, err := m.lockAt(ctx, req.NS, req.Lock)
			if err != nil {
				return nil, err
			}
			defer m.leaveQueue(q)
			return m.wholeQueue(q), nil
		})
		if err != nil {
			return answer, err
		}
		if err := m.readBeforeAll(ctx, trees); err != nil {
			return answer, err
		}
		err = m.fell(ctx, v, trees, func(error) bool { return true })
		m.do(func() {
			for _, t := range trees {
				if t.over && t.err == nil {
					answer.Ended++
					if !t.at.Contender.Ours {
						answer.Foreign++
					}
				}
			}
		})
		if err != nil {
			return answer, err
		}
		err = m.Remove(ctx, req.Principal, req.NS, req.Lock)
		var e *locks.Error
		switch {
		case err == nil:
			m.destroyed(&req)
			return answer, nil
		case errors.As(err, &e) && e.Code == locks.CodeLockInUse: // contenders that arrived meanwhile
		default:
			return answer, err
		}
	}
	return answer, &locks.Error{Code: locks.CodeLockInUse, RetryAfter: retryAfter,
		Detail: "newcomers go on coming to the lock, or its directory has a child that is no contender; who was there has been ended. Repeat the request, or stop those who come"}
}

// wholeQueue returns all contenders of a queue, each lease once, from the tail on.
func (m *Manager) wholeQueue(q *queues.Queue) (trees []*tree) {
	seen := map[recipe.LeaseID]bool{}
	for i := q.Contenders.Len() - 1; i >= 0; i-- {
		t := &tree{at: queues.Location{Queue: q, Contender: q.Contenders.At(i)}, version: -1}
		if id := t.at.Contender.LeaseID; t.at.Contender.Ours && id != "" {
			if seen[id] {
				continue
			}
			seen[id] = true
			if l, s := m.leases.slotOf(q, t.at.Contender); s != nil {
				t.l = l
			}
		}
		trees = append(trees, t)
	}
	if fault.On("tail-pieces") {
		slices.Reverse(trees)
	}
	return trees
}

// destroyed publishes here, and sends to the other gateways, that a lock was destroyed.
func (m *Manager) destroyed(req *locks.DestroyRequest) {
	m.do(func() {
		m.tellDestroyed(req)
		ns := req.NS
		if ns == "" {
			ns = locks.DefaultNamespace
		}
		m.tell(notice{kind: noticeDestroyed, lock: postmortem.Place{NS: ns, Lock: req.Lock}, why: verdict{reason: locks.ReasonDestroyed, words: req.Reason}, zxid: m.port.LastZxid()})
	})
}

// tellDestroyed publishes that a lock was destroyed, after the ends of its contenders. The monitor is held.
func (m *Manager) tellDestroyed(req *locks.DestroyRequest) {
	ns := req.NS
	if ns == "" {
		ns = locks.DefaultNamespace
	}
	if s := m.replica.Namespaces[ns]; s != nil && m.telling() {
		e := m.event(events.LockDestroyed, s.Path(req.Lock), "")
		e.NS, e.Lock, e.Detail = ns, req.Lock, req.Reason
		m.publish(e)
	}
}
