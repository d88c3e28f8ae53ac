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
	"lockkeeper/internal/zk"
)

// destroyRounds bounds the rounds of Destroy: contenders that arrive during a round are ended in the next.
const destroyRounds = 5

// Destroy ends every contender of a lock, waiting or held, of any gateway or program, from the tail of the queue on
// (terminate.go). It then removes the lock: its settings and, in the default namespace, its directory. Contenders that keep
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
	c := cause{locks.ReasonDestroyed, req.Reason, locks.TraceParentOf(ctx)}
	for range destroyRounds {
		again, err := m.destroyAll(ctx, &req, c, &answer)
		switch {
		case err != nil:
			return answer, err
		case again:
			continue
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

// destroyAll ends the contenders that are in the queue now, and counts them. again: one was written since it was read,
// and everything before it in the queue is still there.
func (m *Manager) destroyAll(ctx context.Context, req *locks.DestroyRequest, c cause, answer *locks.DestroyAnswer) (again bool, err error) {
	targets, err := locked2(m, func() (targets []*target, err error) {
		q, err := m.lockAt(ctx, req.NS, req.Lock)
		if err != nil {
			return nil, err
		}
		defer m.leaveQueue(q)
		for c := range distinct(q) {
			targets = append(targets, m.targetOf(queues.Location{Queue: q, Contender: c}))
		}
		return targets, nil
	})
	if err != nil {
		return false, err
	}
	if fault.On("tail-batches") {
		slices.Reverse(targets)
	}
	if err := m.readTargets(ctx, targets); err != nil {
		return false, err
	}
	err = m.terminateAll(ctx, c, targets, true)
	m.do(func() {
		for _, t := range targets {
			switch {
			case t.over && t.err == nil:
				answer.Ended++
				if !t.at.Contender.Ours {
					answer.Foreign++
				}
			case errors.Is(t.err, zk.ErrBadVersion):
				again, err = true, nil
			}
		}
	})
	return again, err
}

// destroyed publishes here, and sends to the other gateways, that a lock was destroyed.
func (m *Manager) destroyed(req *locks.DestroyRequest) {
	m.do(func() {
		m.tellDestroyed(req)
		ns := req.NS
		if ns == "" {
			ns = locks.DefaultNamespace
		}
		m.tell(notice{kind: noticeDestroyed, lock: postmortem.Place{NS: ns, Lock: req.Lock}, why: cause{reason: locks.ReasonDestroyed, words: req.Reason}, zxid: m.port.LastZxid()})
	})
}

// tellDestroyed publishes that a lock was destroyed, after the ends of its contenders. The monitor is held.
func (m *Manager) tellDestroyed(req *locks.DestroyRequest) {
	ns := req.NS
	if ns == "" {
		ns = locks.DefaultNamespace
	}
	if s := m.replica.Namespaces[ns]; s != nil && m.publisher.enabled() {
		e := m.publisher.event(events.LockDestroyed, s.Path(req.Lock), "")
		e.NS, e.Lock, e.Detail = ns, req.Lock, req.Reason
		m.publisher.publish(e)
	}
}
