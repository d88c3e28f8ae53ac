package manager

import (
	"context"
	"errors"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

// Break ends one lease, waiting or held, of this gateway or of another, what its lock delay keeps of it, or another
// program's contender by the name of its znode. Repeated: nil again for a lease that was revoked; one that ended
// otherwise is CodeEnded. A contender that is not in the queue is CodeNoContender.
func (m *Manager) Break(ctx context.Context, req locks.BreakRequest) error {
	if err := req.Check(); err != nil {
		return err
	}
	find := m.contenderToBreak
	if req.ID != "" {
		find = m.leaseToBreak
	}
	c := cause{locks.ReasonRevoked, req.Reason, locks.TraceParentOf(ctx)}
	last := error(nil)
	for range adminAttempts {
		t, err := find(ctx, &req, last != nil)
		if t == nil || err != nil {
			return err
		}
		if last, err = m.terminate(ctx, c, t); err != nil || last == nil {
			return err
		}
	}
	return refusedTermination(last)
}

// terminate ends one target. again is errEnded or zk.ErrBadVersion when it is not what the caller has seen: it may have
// been written, or have another name after a downgrade. After success the replica shows the end. The monitor is free.
func (m *Manager) terminate(ctx context.Context, c cause, t *target) (again, err error) {
	targets := []*target{t}
	if err := m.readTargets(ctx, targets); err != nil {
		return nil, err
	}
	err = m.terminateAll(ctx, c, targets, true)
	switch {
	case errors.Is(t.err, errEnded), errors.Is(t.err, zk.ErrBadVersion):
		return t.err, nil
	case err == nil && t.zxid != 0:
		show(m.port, ctx, t.zxid)
	}
	return nil, err
}

// leaseToBreak finds a lease; again: it was found before, and has ended since or been changed. Without a target and an
// error it has been revoked.
func (m *Manager) leaseToBreak(ctx context.Context, req *locks.BreakRequest, again bool) (*target, error) {
	id, err := recipe.ParseLeaseID(req.ID)
	if err != nil {
		return nil, notFound()
	}
	if err := m.barrier(ctx); err != nil {
		return nil, err
	}
	return locked2(m, func() (*target, error) {
		if id.Fleet() != m.fleet.id {
			return nil, notFound()
		}
		if l := m.leases.byID[id]; l != nil {
			if err := m.endUnderWay(ctx, l); err != nil {
				return nil, err
			}
		}
		if err := m.usable(); err != nil {
			return nil, err
		}
		l := m.leases.byID[id]
		switch p, known := m.history.Get(id); {
		case l != nil:
			return &target{l: l, version: -1}, nil
		case known && m.delays.byID[id] == nil && p.Reason() == locks.ReasonRevoked:
			return nil, nil
		case known && m.delays.byID[id] == nil:
			return nil, endedError(p.Reason()).Because(p.Words)
		}
		if req.AtOwner {
			if err := m.absent(id); err.Code == locks.CodeNotOwner {
				return nil, err
			}
		}
		at, found := m.replica.FindLease(id, m.clock.Now().Boot())
		switch {
		case found:
			return &target{at: at, version: -1}, nil
		case again:
			return nil, endedError(locks.ReasonUnknown)
		}
		return nil, notFound() // the replica shows every lease that was acknowledged before the barrier
	})
}

// endUnderWay waits until the create, downgrade or end of a lease that is under way is done, or was not done: an expiry
// that comes too late does not save the lease from an administrator. The monitor is held, and released meanwhile.
func (m *Manager) endUnderWay(ctx context.Context, l *lease) error {
	err := m.untilDone(ctx, outcomeUnknown, func() (*lease, *locks.Error) {
		switch {
		case l.phase == ended && l.failure() != nil:
			return nil, l.failure()
		case l.phase == ended, (l.phase == waiting || l.phase == held) && !l.replacing() && l.term == m.port.Term():
			return nil, nil
		}
		return l, nil
	})
	if err != nil {
		return err
	}
	return nil
}

// contenderToBreak finds a contender by the name of its znode.
func (m *Manager) contenderToBreak(ctx context.Context, req *locks.BreakRequest, _ bool) (*target, error) {
	for range adminAttempts {
		var t *target
		var czxid int64
		err := locked(m, func() error {
			q, err := m.lockAt(ctx, req.NS, req.Lock)
			if err != nil {
				return err
			}
			defer m.leaveQueue(q)
			c := q.Contenders.Get(req.Name)
			if c == nil && (req.Name == q.Name() || req.Name == q.Dir()) {
				c = q.Plain() // the last part of its path is the lock's name
			}
			if c == nil {
				return noContender()
			}
			t, czxid = m.targetOf(queues.Location{Queue: q, Contender: c}), q.Extras().PlainCzxid
			return nil
		})
		switch {
		case err != nil:
			return nil, err
		case t.l != nil:
			return t, locked(m, func() error { return m.endUnderWay(ctx, t.l) })
		case t.at.Contender.Ours && !t.at.Contender.Unknown:
			return t, nil
		}
		stat, err := m.statOutside(ctx, t.at.Path())
		switch {
		case err != nil:
			return nil, err
		case stat == nil:
			return nil, noContender()
		case t.at.Contender.Name == interop.PlainNode && stat.Czxid != czxid:
			continue // another one has taken its place
		}
		t.version = stat.Version
		return t, nil
	}
	return nil, refusedTermination(zk.ErrBadVersion)
}

// statOutside reads a node's stat within answerWithin; nil when there is no such node. The monitor is free.
func (m *Manager) statOutside(ctx context.Context, path string) (*zk.Stat, error) {
	session := locked(m, m.port.Session)
	if session == nil {
		return nil, unavailableFor(nil)
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	stat, err := session.Exists(ctx, path)
	if err != nil {
		return nil, unavailableFor(err)
	}
	return stat, nil
}

// refusedTermination turns why something could not be ended into the error to answer.
func refusedTermination(err error) error {
	var e *locks.Error
	if errors.As(err, &e) {
		return e
	}
	return &locks.Error{Code: locks.CodeUnavailable, Detail: "not ended: " + obstacle(err), Err: err}
}

func noContender() *locks.Error {
	return &locks.Error{Code: locks.CodeNoContender, Detail: "no contender of that name is in the lock's queue"}
}
