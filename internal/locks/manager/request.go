package manager

import (
	"context"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// withLease serves a request on a lease that this gateway runs and whose record it has read: it calls step, and again at
// each change of the lease, until step is done or fails. A request that has waited too long for ZooKeeper is answered
// CodeUnavailable. The monitor is held, and released while it waits.
func (m *Manager) withLease(ctx context.Context, id recipe.LeaseID, step func(*lease) (done bool, err *locks.Error)) *locks.Error {
	return m.untilDone(ctx, unavailable, func() (*lease, *locks.Error) {
		l, err := m.findOwn(ctx, id)
		if err != nil {
			return nil, err
		}
		done, err := l.recordKnown(m)
		if done {
			done, err = step(l)
		}
		if done || err != nil {
			return nil, err
		}
		return l, nil
	})
}

// recordKnown reports whether requests on the lease can be served now. Without an error its record is being read.
func (l *lease) recordKnown(m *Manager) (known bool, err *locks.Error) {
	switch err := m.usable(); {
	case err != nil:
		return false, err
	case l.phase == creating, l.phase == ending, l.term != m.port.Term():
		return false, unavailable()
	case (!l.recordState.loaded() || l.czxid == 0) && !fault.On("read-first"):
		l.load(m)
		return false, nil
	}
	return true, nil
}

// untilDone calls step, and again at each change of the lease that step has returned, until step returns none. A request that
// has waited too long for ZooKeeper is answered late(). The monitor is held, and released while it waits.
func (m *Manager) untilDone(ctx context.Context, late func() *locks.Error, step func() (*lease, *locks.Error)) *locks.Error {
	begun := m.clock.Now().Boot()
	for {
		l, err := step()
		if l == nil || err != nil {
			return err
		}
		if m.overdue(begun, m.clock.Now().Boot()) {
			return late()
		}
		if err := m.sleep(ctx, l.changed(), answerWithin/4); err != nil {
			return err
		}
	}
}

// findOwn finds a lease of this gateway, after a sync of the replica when that does not know of the lease's gateway.
func (m *Manager) findOwn(ctx context.Context, id recipe.LeaseID) (l *lease, err *locks.Error) {
	err = m.retryAfterSync(ctx, func() *locks.Error {
		l, err = m.owned(id)
		return err
	})
	return l, err
}

// retryAfterSync asks, and once more after a sync of the replica when the lease's gateway is unknown in it. The replica may be
// as much as a promise window behind, and then it does not know of a gateway that has just started: a client that brings
// the token of one of its leases must not be told that the lease has ended.
func (m *Manager) retryAfterSync(ctx context.Context, ask func() *locks.Error) *locks.Error {
	err := ask()
	if err != nil && err.UnknownGateway {
		if err = m.syncReplica(ctx); err == nil {
			err = ask()
		}
	}
	return err
}

// syncReplica brings the replica up to the moment of the call, within answerWithin: others' heartbeats may wait in the same
// request. The monitor is held, and released meanwhile.
func (m *Manager) syncReplica(ctx context.Context) (failed *locks.Error) {
	m.outside(func() {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		if err := m.barrier(ctx); err != nil {
			failed = unavailableFor(err)
		}
	})
	return failed
}

// unsure is the error of a request whose write may have been done.
func unsure(err *locks.Error) *locks.Error {
	if err.Code == locks.CodeEnded || err.Code == locks.CodeCancelled {
		return err
	}
	unknown := outcomeUnknown()
	unknown.Err = err
	return unknown
}

// barrier returns once everything that was acknowledged before the call is in the replica; see term.Port. The monitor is free.
func (m *Manager) barrier(ctx context.Context) error {
	_, err := m.barrierUnder(ctx)
	return err
}

// barrierUnder is barrier, and tells under which session.
func (m *Manager) barrierUnder(ctx context.Context) (*term.Ref, error) {
	ref, err := m.port.Barrier(ctx)
	switch {
	case err == nil:
		return ref, nil
	case ctx.Err() != nil:
		return nil, cancelled(ctx)
	}
	return nil, unavailableFor(err)
}

// getOutside reads a node under the session, within answerWithin. The monitor is held, and released meanwhile.
func (m *monitor) getOutside(ctx context.Context, session term.Session, path string) (data []byte, stat zk.Stat, err error) {
	m.outside(func() {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		data, stat, err = session.Get(ctx, path)
	})
	return data, stat, err
}
