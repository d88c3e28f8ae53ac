package manager

import (
	"context"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/term"
)

// How a request finds its lease, waits for it, and ends it.

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

// owned finds a lease that this gateway owns. An ended lease is CodeEnded with its reason.
func (m *Manager) owned(id recipe.LeaseID) (*lease, *locks.Error) {
	if l := m.leases.byID[id]; l != nil {
		return l, nil
	}
	return nil, m.absent(id)
}

// absent returns the error for an id without a lease here.
func (m *Manager) absent(id recipe.LeaseID) *locks.Error {
	if past, ok := m.history.Get(id); ok {
		return endedError(past.Reason()).Because(past.Words)
	}
	if seen, ok := m.witnessed.Get(id); m.orphans[id] != nil || ok && !seen.Heard && seen.Reason() == locks.ReasonGatewayLeft {
		return endedError(locks.ReasonGatewayLeft)
	}
	if !m.trusted() {
		return unavailable()
	}
	owner, known := m.members.OwnerOf(id.Gateway())
	away := m.members.Registered(owner) && owner != m.members.Self()
	if !away {
		if err := m.mayMiss(id); err != nil {
			return err
		}
	}
	switch {
	case !known:
		return unavailable() // its takeover is under way
	case m.replica.HasNewer(id) && !away:
		return needsNewer()
	case owner == m.members.Self():
		return m.heardGone(id)
	case away:
		return m.notOwner(id)
	case m.members.Contenders(owner) > 0, m.members.Contenders(id.Gateway()) > 0:
		return unavailable() // its gateway is gone; its takeover is under way
	}
	gone := m.heardGone(id)
	gone.UnknownGateway = !m.members.IsOwn(id.Gateway()) && m.members.Get(id.Gateway()) == nil
	return gone
}

// mayMiss returns an error when a lease that the replica lacks may be in a namespace that is still loading.
// Leases of the present session cannot be: the session writes only in loaded namespaces.
func (m *Manager) mayMiss(id recipe.LeaseID) *locks.Error {
	if m.replica.KnowsAll() || m.port.Session() != nil && string(id.Gateway()) == m.port.Session().ID() {
		return nil
	}
	return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter,
		Detail: "this gateway is still reading a namespace in which that lease may be; nothing was done, repeat the request"}
}

// Arrive waits until this gateway knows that it runs a lease, for a request that another gateway forwarded.
// zxid is how far that gateway's replica had come (Route.Zxid). Before this replica has come as far, it may not show
// the lease or its owner, so this gateway cannot say that the lease is gone or never existed.
// Arrive returns CodeNotOwner if ctx ends first, and nil if this gateway remembers the lease's end.
func (m *Manager) Arrive(ctx context.Context, lease string, zxid int64) error {
	id, err := recipe.ParseLeaseID(lease)
	if err != nil {
		return notFound()
	}
	if err := m.Reached(ctx, zxid); err != nil {
		e := &locks.Error{Code: locks.CodeNotOwner, Err: err,
			Detail: "this gateway has not seen yet that the lease is its own; nothing was done, repeat the request"}
		if ctx.Err() == nil {
			e.RetryAfter = retryAfter // the request has not waited: too many do, or it has nothing to wait for
		}
		return e
	}
	return locked(m, func() error {
		for m.leases.byID[id] == nil && !m.history.Has(id) && !m.members.Owns(id.Gateway()) {
			if m.sleep(ctx, m.members.Changed(), answerWithin) != nil {
				return &locks.Error{Code: locks.CodeNotOwner, Detail: "this gateway does not run that lease; nothing was done, repeat the request"}
			}
		}
		return nil
	})
}

// Release ends a lease: it releases the lock or leaves the queue. A repeat returns nil again. A lease that ended
// otherwise is CodeEnded.
func (m *Manager) Release(ctx context.Context, p locks.Principal, id, token string) error {
	named, err := m.fleet.bearer(p, id, token)
	if err != nil {
		return err
	}
	return locked(m, func() (failed error) {
		l, err := m.findOwn(ctx, named)
		switch {
		case err == nil:
			return m.letGo(ctx, l)
		case err.Code == locks.CodeEnded && isLetGo(err.Reason):
			return nil
		case m.ownerGone(named):
			m.outside(func() { failed = m.releaseFor(ctx, named) })
			return failed
		}
		return err
	})
}

// isLetGo reports whether an end has the effect of a release. An unknown reason counts as one.
func isLetGo(reason locks.Reason) bool {
	return reason == locks.ReasonReleased || reason == locks.ReasonCancelled || reason == locks.ReasonUnknown
}

// letGo releases a lease and waits until the outcome is known. The monitor is held, and released while it waits.
func (m *Manager) letGo(ctx context.Context, l *lease) error {
	sent := false
	late := func() *locks.Error {
		if sent || l.phase == ending {
			return outcomeUnknown()
		}
		return unavailable()
	}
	err := m.untilDone(ctx, late, func() (*lease, *locks.Error) {
		switch l.phase {
		case waiting, held:
			switch {
			case m.life.draining:
				return nil, m.usable()
			case l.term != m.port.Term() || m.port.Session() == nil:
				return nil, unavailable()
			case !l.recordState.loaded():
				// The record of a lease that was taken over is read first: it may show an end or a lock delay.
				l.load(m)
				return l, nil
			}
			reason := locks.ReasonReleased
			if l.phase == waiting && l.grant == grantNone {
				reason = locks.ReasonCancelled
			}
			if trace := locks.TraceParentOf(ctx); trace != "" {
				l.rare().trace = trace
			}
			sent = true
			l.end(m, reason, m.clock.Now().Boot())
			if l.phase == ending && m.port.Session() == nil {
				return nil, outcomeUnknown()
			}
		case creating:
			return nil, unavailable()
		case ending:
			return l, l.refusedEnd()
		case ended:
			reason := l.reason()
			switch {
			case l.failure() != nil:
				return nil, l.failure()
			case reason == locks.ReasonReleased, reason == locks.ReasonCancelled:
				return nil, nil
			}
			return nil, endedError(reason).Because(l.words())
		}
		return l, nil
	})
	if err != nil {
		return err
	}
	return nil
}
