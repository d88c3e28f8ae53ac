package manager

import (
	"context"
	"errors"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/idempotency"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk/wire"
)

// How a request finds its lease and waits for it, and what is read from ZooKeeper before it is answered.

// request is one request of a client about leases of this gateway. Its methods are called with the monitor held, and
// release it while they wait: until the request's context ends, or for as long as an answer may take.
type request struct {
	m   *Manager
	ctx context.Context
}

func (m *Manager) request(ctx context.Context) request { return request{m, ctx} }

// withLease serves a request on a lease that this gateway runs and whose record it has read: it calls step, and again at
// each change of the lease, until step is done or fails. A request that has waited too long for ZooKeeper is answered
// CodeUnavailable. The monitor is held, and released while it waits.
func (r request) withLease(id recipe.LeaseID, step func(*lease) (done bool, err *locks.Error)) *locks.Error {
	m := r.m
	return r.untilDone(unavailable, func() (*lease, *locks.Error) {
		l, err := r.findOwn(id)
		if err != nil {
			return nil, err
		}
		done, err := l.recordKnown(m)
		switch {
		case done && l.mayHold():
			l.renew(m, m.clock.Now().Boot()) // its client lives, and may count on the lease
			done = false
		case done:
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
	case l.Ending() && l.over(m.reports):
		return false, l.endedError(l.reason())
	case l.Creating(), l.Ending(), l.term != m.port.Term():
		return false, unavailable()
	case (!l.Record().Loaded() || l.czxid == 0) && !fault.On("read-first"):
		l.load(m)
		return false, nil
	}
	return true, nil
}

// mayHold reports whether the client of a lease that was taken over may have been told that it holds, and this gateway cannot say so
// yet: its period, or the queue, is being read. To such a client the lease does not wait.
func (l *lease) mayHold() bool {
	return l.Waiting() && l.Grant() == lifecycle.GrantAcknowledged && l.turn()
}

// untilDone calls step, and again at each change of the lease that step has returned, until step returns none. A request that
// has waited too long for ZooKeeper is answered late(). The monitor is held, and released while it waits.
func (r request) untilDone(late func() *locks.Error, step func() (*lease, *locks.Error)) *locks.Error {
	m, ctx := r.m, r.ctx
	begun := time.Duration(0) // boot; most requests are answered by the first step, and read no clock here
	for {
		l, err := step()
		if l == nil || err != nil {
			return err
		}
		now := m.clock.Now().Boot()
		if begun == 0 {
			begun = now
		}
		if m.overdue(begun, now) {
			return late()
		}
		if err := m.sleepABeat(ctx, l.changed()); err != nil {
			return err
		}
	}
}

// findOwn finds a lease of this gateway, after a sync of the replica when that does not know of the lease's gateway.
func (r request) findOwn(id recipe.LeaseID) (l *lease, err *locks.Error) {
	m := r.m
	err = r.retryAfterSync(func() *locks.Error {
		l, err = m.owned(id)
		return err
	})
	return l, err
}

// retryAfterSync asks, and once more after a sync of the replica when the lease's gateway is unknown in it. The replica may be
// as much as a promise window behind, and then it does not know of a gateway that has just started: a client that brings
// the token of one of its leases must not be told that the lease has ended.
func (r request) retryAfterSync(ask func() *locks.Error) *locks.Error {
	err := ask()
	if err != nil && err.UnknownGateway {
		if err = r.syncReplica(); err == nil {
			err = ask()
		}
	}
	return err
}

// syncReplica brings the replica up to the moment of the call, within answerWithin: others' heartbeats may wait in the same
// request. The monitor is held, and released meanwhile.
func (r request) syncReplica() (failed *locks.Error) {
	m, ctx := r.m, r.ctx
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
	if l := m.leases.lease(id); l != nil {
		return l, nil
	}
	return nil, m.absent(id)
}

// absent returns the error for an id without a lease here.
func (m *Manager) absent(id recipe.LeaseID) *locks.Error {
	if past, ok := m.history.Get(id); ok {
		return endedError(past.Reason()).Because(past.Words, past.By)
	}
	if seen, ok := m.observedEnds.Get(id); m.orphans[id] != nil || ok && !seen.Reported && seen.Reason() == locks.ReasonGatewayLeft {
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
		return reportedGone(&m.observedEnds, id)
	case away:
		return m.notOwner(id)
	case m.members.Contenders(owner) > 0, m.members.Contenders(id.Gateway()) > 0:
		return unavailable() // its gateway is gone; its takeover is under way
	}
	gone := reportedGone(&m.observedEnds, id)
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
		for m.leases.lease(id) == nil && !m.history.Has(id) && !m.members.Owns(id.Gateway()) {
			if m.sleep(ctx, m.members.Changed(), answerWithin) != nil {
				return &locks.Error{Code: locks.CodeNotOwner, Detail: "this gateway does not run that lease; nothing was done, repeat the request"}
			}
		}
		return nil
	})
}

// learnKey keeps a key that was read, unless it is already known or another gateway keeps it.
func (m *Manager) learnKey(entry *idempotency.Key) *idempotency.Key {
	if known := m.keys.Get(entry.Hash); known != nil {
		return known
	}
	if m.leases.lease(entry.Lease) == nil && (m.replica.HasNewer(entry.Lease) || !m.members.Owns(entry.Lease.Gateway())) {
		return entry // its own gateway, or one of a later release, knows when it expires
	}
	m.keys.Add(entry)
	m.attachKey(entry)
	return entry
}

// attachKey connects a key that was read with its lease. When the lease is gone, the key's remaining life begins.
func (m *Manager) attachKey(k *idempotency.Key) {
	if l := m.leases.lease(k.Lease); l != nil {
		l.rare().key = k.Hash
		return
	}
	if past, ok := m.history.Get(k.Lease); ok {
		m.keys.End(k, past.Reason(), m.clock.Now().Boot())
		return
	}
	if m.members.Owns(k.Lease.Gateway()) && m.stream.synced && m.mayMiss(k.Lease) == nil {
		// The lease ended before this gateway could know the reason; keyLife counts from now.
		m.keys.End(k, locks.ReasonUnknown, m.clock.Now().Boot())
	}
}

// describe reads what is not known yet of the named contenders. The monitor is held, and released while it waits.
func (m *Manager) describe(ctx context.Context, q *queues.Queue, contenders []*recipe.Contender) {
	var missing []string
	for _, c := range contenders {
		l := m.leases.leaseOf(q, c)
		_, hidden := q.Extras().Hidden[c.Name]
		known := l != nil && (l.czxid != 0 || l.Creating()) // its own create's reply tells the rest
		if q.Node(c.Name) == nil && !hidden && !known {
			missing = append(missing, c.Name)
		}
	}
	if len(missing) == 0 {
		return
	}
	answered, unread := make(chan struct{}), len(missing)
	for _, name := range missing {
		m.port.Read(q.NodeOf(name), 0, func(data []byte, stat wire.Stat, err error) {
			if err == nil {
				q.SetNode(name, data, stat)
			}
			if unread--; unread == 0 {
				m.wake(answered)
			}
		})
	}
	_ = m.sleep(ctx, answered, describeWithin) // what is not read is shown without it
}

// describeHolders returns at most the given number of a lock's holders, with their records. The monitor is held, and
// released while it reads.
func (m *Manager) describeHolders(ctx context.Context, q *queues.Queue, most int) []locks.Contender {
	q.Polls++ // keeps the queue
	var list []*recipe.Contender
	if most > 0 {
		m.describe(ctx, q, q.Holders(most))
		list = q.Holders(most)
	}
	views := make([]locks.Contender, 0, len(list))
	for _, c := range list {
		views = append(views, m.answers.contender(q, c, 0))
	}
	m.replica.Leave(q)
	return views
}

// heldByOther answers an acquire that found the lock taken: who holds it, in
// full. The monitor is held, and released while it waits.
func (m *Manager) heldByOther(ctx context.Context, req *locks.AcquireRequest, q *queues.Queue, code locks.Code) *locks.Error {
	q.Polls++ // keeps the queue while the monitor is released
	m.describe(ctx, q, q.Holders(maxHolders))
	e := &locks.Error{Code: code, QueueLength: q.Contenders.Waiting(), Detail: q.Name() + " is held; wait=30s waits in its queue"}
	for _, c := range q.Holders(maxHolders) {
		e.Holders = append(e.Holders, m.answers.contender(q, c, 0))
	}
	e.RetryAfter = locks.RetryAfter(e.Holders)
	if code == locks.CodeHeldByOther && m.answers.lockState(q) == locks.LockDelayed {
		e.Code, e.Detail = locks.CodeLockDelayed, "the last lease of "+q.Name()+" has ended, and its lock delay or at_least keeps the lock; wait=30s waits in its queue"
	}
	if q.Plain() != nil {
		e.Detail = "another program holds " + q.Name() + " by an ephemeral node in the place of the lock's directory; wait=30s waits until it is gone"
		if req.Async {
			e.Detail = "another program's ephemeral node stands in the place of " + q.Name() +
				", and nothing can queue behind it, so there is no ticket for an async acquire; send wait=30s in place of async, which waits until it is gone"
		}
	}
	switch code {
	case locks.CodeLockInvalid:
		e.Detail = "a program of bigdata's is destroying the lock: beside it stands the node " + q.Path + queues.InvalidSuffix + "; repeat the request when that is gone, or use another lock"
		if q.Extras().Marker {
			e.Detail = "this is no lock, but a marker by which a program of bigdata's destroys another one"
		}
	case locks.CodeForeignSemaphore:
		e.RetryAfter = 0
		e.Detail = "another program's semaphore stands in this lock's directory; it counts every waiter against its limit, so no lease joins it: use another lock"
	case locks.CodeWaitElapsed:
		e.Detail = "the wait elapsed before " + q.Name() + " was released; the place in line is given up"
	}
	m.replica.Leave(q)
	return e
}

// reportedGone is the answer about a lease that no longer exists, whose gateway is gone or was taken over by this one. It
// has the reason when that gateway reported it.
func reportedGone(observed *postmortem.Log, id recipe.LeaseID) *locks.Error {
	if p, ok := observed.Get(id); ok && p.Reported {
		return endedError(p.Reason()).Because(p.Words, p.By)
	}
	return endedError(locks.ReasonUnknown)
}

// An acquire in front of a plain node, another program's ephemeral node in the place of a lock's directory, waits in memory: no
// contender can queue behind that node. No order is promised among such acquires. A try and an async acquire do not wait: a
// ticket would be lost with this gateway.

// codePlainNode marks, inside the package, a create that was refused because a plain node stands in a lock's place.
const codePlainNode locks.Code = "plain_node"

const (
	// maxObstructed bounds the acquires that wait for plain nodes to go. Further ones are refused.
	maxObstructed = 4096
	// obstructedPause is when an acquire that waited tries again after an attempt that decided nothing.
	obstructedPause = 100 * time.Millisecond
)

// obstruct counts an acquire that has to wait until the lock's place is free, and keeps the queue. awaitPlace takes both
// back.
func (r *requests) obstruct(q *queues.Queue) *locks.Error {
	if r.obstructed == maxObstructed {
		return &locks.Error{Code: locks.CodeTooManyWaiters, RetryAfter: retryAfter,
			Detail: "as many requests as may wait on this gateway for other programs' nodes to go; repeat later or on another gateway"}
	}
	q.Polls++
	r.obstructed++
	return nil
}

// onlyForNow reports whether an attempt failed only for now: then an acquire that has waited for a plain node goes on
// waiting.
func onlyForNow(draining bool, err error) bool {
	e, ok := errors.AsType[*locks.Error](err)
	return ok && e.Code == locks.CodeUnavailable && !draining
}

// awaitPlace waits until the lock's place is free, after a call of obstruct. nil q: the last attempt decided nothing, and it
// waits for obstructedPause. A try waits only until the kind of the node is known, at most answerWithin from begun (boot).
func (m *Manager) awaitPlace(ctx context.Context, req *locks.AcquireRequest, q *queues.Queue, begun time.Duration) error {
	return locked(m, func() error {
		atMost := req.Wait
		if req.Wait == 0 {
			atMost = max(answerWithin-(m.clock.Now().Boot()-begun), 1)
		}
		m.requests.acquiring++
		over, err := m.sleepObstructed(ctx, req, q, atMost)
		m.requests.acquiring--
		if q != nil {
			m.requests.obstructed--
			q.Polls--
		}
		switch {
		case over && (req.Wait == 0 || q == nil):
			err = unavailable()
		case over:
			return m.heldByOther(ctx, req, q, locks.CodeWaitElapsed)
		}
		if q != nil {
			m.replica.Forget(q)
		}
		return err
	})
}

// sleepObstructed releases the monitor until the place is free; over: the time was over first.
func (m *Manager) sleepObstructed(ctx context.Context, req *locks.AcquireRequest, q *queues.Queue, atMost time.Duration) (over bool, err error) {
	var elapsed, paused <-chan time.Time
	if atMost != locks.WaitForever {
		timer := time.NewTimer(atMost)
		defer timer.Stop()
		elapsed = timer.C
	}
	if q == nil {
		timer := time.NewTimer(obstructedPause)
		defer timer.Stop()
		paused = timer.C
	}
	for resumed := false; !over && !resumed && err == nil && stillObstructed(req, q); {
		var changed <-chan struct{}
		if q != nil {
			changed = q.Changed()
		}
		m.outside(func() {
			select {
			case <-changed:
			case <-paused:
				resumed = true
			case <-elapsed:
				over = true
			case <-ctx.Done():
				err = cancelled(ctx)
			case <-m.life.drain:
				err = &locks.Error{Code: locks.CodeUnavailable, Detail: "this gateway is shutting down, and the request has no place in line yet; repeat it, another gateway or the restarted one answers"}
			}
		})
	}
	return over, err
}

// stillObstructed reports whether an acquire has to go on waiting in front of a lock's place.
func stillObstructed(req *locks.AcquireRequest, q *queues.Queue) bool {
	switch {
	case q == nil:
		return true
	case req.Wait == 0:
		return q.Extras().Unidentified // then it is known which program holds
	}
	return q.Obstructed()
}
