package manager

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/zk"
)

// Break ends one lease or contender, Destroy a whole lock.

// Break ends one lease, waiting or held, of this gateway or of another, what its lock delay keeps of it, or another
// program's contender by the name of its znode. Repeated: nil again for a lease that was revoked; one that ended
// otherwise is CodeEnded. A contender that is not in the queue is CodeNoContender.
func (m *Manager) Break(ctx context.Context, req locks.BreakRequest) error {
	if err := req.Check(); err != nil {
		return err
	}
	find := m.leaseToBreak
	if req.ID == "" {
		find = m.contenderToBreak
		if err := may(req.Principal, access.Operate, &req.NS, &req.Lock); err != nil {
			return err
		}
	}
	c := reports.Cause{Reason: locks.ReasonRevoked, Words: req.Reason, By: req.Principal.By(req.Client), Trace: locks.TraceParentOf(ctx)}
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
func (m *Manager) terminate(ctx context.Context, c reports.Cause, t *target) (again, err error) {
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
		if err := m.answers.mayBreak(req.Principal, id); err != nil {
			return nil, err
		}
		if l := m.leases.lease(id); l != nil {
			if err := m.endUnderWay(ctx, l); err != nil {
				return nil, err
			}
		}
		if err := m.usable(); err != nil {
			return nil, err
		}
		l := m.leases.lease(id)
		switch p, known := m.history.Get(id); {
		case l != nil:
			return &target{l: l, version: -1}, nil
		case known && m.delays.byID[id] == nil && p.Reason() == locks.ReasonRevoked:
			return nil, nil
		case known && m.delays.byID[id] == nil:
			return nil, endedError(p.Reason()).Because(p.Words, byOf(&p, req.Principal.Rules))
		}
		if req.AtOwner {
			if err := m.absent(id); err.Code == locks.CodeNotOwner {
				return nil, err
			}
		}
		at, found := m.replica.FindLease(id, m.clock.Now().Boot())
		if found {
			if err := mayEnd(req.Principal, placesOf(m.replica.Locations(at))); err != nil {
				return nil, err
			}
		}
		switch {
		case found:
			return &target{at: at, version: -1}, nil
		case again:
			return nil, endedError(locks.ReasonUnknown)
		}
		return nil, notFound() // the replica shows every lease that was acknowledged before the barrier
	})
}

// mayBreak refuses a principal that may not break the lease that this gateway runs or remembers.
func (a *answers) mayBreak(p locks.Principal, id recipe.LeaseID) *locks.Error {
	if l := a.leases.lease(id); l != nil {
		var places []postmortem.Place
		for s := range l.slots {
			places = append(places, postmortem.Place{NS: s.q.Namespace.Name, Lock: s.q.Name()})
		}
		return mayEnd(p, places)
	}
	if past, ok := a.history.Get(id); ok {
		return mayEnd(p, []postmortem.Place{{NS: past.NS, Lock: past.Lock}})
	}
	return nil
}

func placesOf(lease []queues.Location) (places []postmortem.Place) {
	for _, at := range lease {
		places = append(places, postmortem.Place{NS: at.Queue.Namespace.Name, Lock: at.Queue.Name()})
	}
	return places
}

// mayEnd refuses a principal that has the verb operate for none of a lease's locks. For one is enough: a lease of several
// locks stands in the way of the operator of each. One who may read none of them does not find the lease.
func mayEnd(p locks.Principal, places []postmortem.Place) *locks.Error {
	err := notFound()
	for _, at := range places {
		switch {
		case p.Rules.May(access.Operate, at.NS, at.Lock):
			return nil
		case err.Code == locks.CodeNotFound && p.Rules.May(access.Read, at.NS, at.Lock):
			err = p.Check(access.Operate, at.NS, at.Lock)
		}
	}
	return err
}

// endUnderWay waits until the create, downgrade or end of a lease that is under way is done, or was not done: an expiry
// that comes too late does not save the lease from an administrator. The monitor is held, and released meanwhile.
func (m *Manager) endUnderWay(ctx context.Context, l *lease) error {
	err := m.request(ctx).untilDone(outcomeUnknown, func() (*lease, *locks.Error) {
		switch {
		case l.Ended() && l.failure() != nil:
			return nil, l.failure()
		case l.Ended(), l.Settled() && !l.replacing() && l.term == m.port.Term():
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
			defer m.replica.Leave(q)
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

func noContender() *locks.Error {
	return &locks.Error{Code: locks.CodeNoContender, Detail: "no contender of that name is in the lock's queue"}
}

// destroyRounds bounds the rounds of Destroy: contenders that arrive during a round are ended in the next.
const destroyRounds = 5

// Destroy ends every contender of a lock, waiting or held, of any gateway or program, from the tail of the queue on
// (terminate.go); a create, downgrade or end that is under way it waits for. It then removes the lock: its settings and, in the default namespace, its directory. Contenders that keep
// arriving after destroyRounds make it CodeLockInUse; the answer then says how many were ended. After any error, what
// was done stays done, and the request may be repeated.
//
// CodeHolderChanged: a contender is in the queue that is not Shown. It was not ended; one that came late finds those before it ended.
func (m *Manager) Destroy(ctx context.Context, req locks.DestroyRequest) (locks.DestroyAnswer, error) {
	var answer locks.DestroyAnswer
	if err := req.Check(); err != nil {
		return answer, err
	}
	if err := may(req.Principal, access.Operate, &req.NS, &req.Lock); err != nil {
		return answer, err
	}
	c := reports.Cause{Reason: locks.ReasonDestroyed, Words: req.Reason, By: req.Principal.By(req.Client), Trace: locks.TraceParentOf(ctx)}
	for range destroyRounds {
		again, err := m.destroyAll(ctx, &req, c, &answer)
		switch {
		case err != nil:
			return answer, req.Principal.ConcealIn(err)
		case again:
			continue
		}
		err = m.Remove(ctx, req.Principal, req.NS, req.Lock)
		var e *locks.Error
		switch {
		case err == nil:
			m.destroyed(postmortem.Place{NS: cmp.Or(req.NS, locks.DefaultNamespace), Lock: req.Lock}, c)
			return answer, nil
		case errors.As(err, &e) && e.Code == locks.CodeLockInUse: // contenders that arrived meanwhile
		default:
			return answer, err
		}
	}
	return answer, &locks.Error{Code: locks.CodeLockInUse, RetryAfter: retryAfter,
		Detail: "contenders keep arriving at the lock, or its directory has a child that is no contender; the contenders that were there have ended. Repeat the request, or stop the programs that queue for the lock"}
}

// destroyAll ends the contenders that are in the queue now, and counts them. again: one was written since it was read,
// and everything before it in the queue is still there.
func (m *Manager) destroyAll(ctx context.Context, req *locks.DestroyRequest, c reports.Cause, answer *locks.DestroyAnswer) (again bool, err error) {
	targets, err := locked2(m, func() (targets []*target, err error) {
		q, err := m.lockAt(ctx, req.NS, req.Lock)
		if err != nil {
			return nil, err
		}
		defer m.replica.Leave(q)
		shown := shownBy(&req.Shown)
		for c := range distinct(q) {
			if !shown.means(q, c) {
				return nil, m.tellHolders(q, &locks.Error{Code: locks.CodeHolderChanged,
					Detail: q.NodeOf(c.Name) + " is in the queue, and the request does not name it; it was not ended: look at the lock again, and name those you mean"})
			}
			targets = append(targets, m.targetOf(queues.Location{Queue: q, Contender: c}))
		}
		for _, t := range targets {
			if t.l == nil {
				continue
			}
			if err := m.endUnderWay(ctx, t.l); err != nil && !t.l.Ended() { // an ended one's create was not done
				return nil, err
			}
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
func (m *Manager) destroyed(at postmortem.Place, why reports.Cause) {
	m.do(func() {
		m.publisher.destroyed(at, why)
		m.reports.Tell(reports.Notice{Kind: reports.Destroyed, Lock: at, Why: why, Zxid: m.port.LastZxid()})
	})
}
