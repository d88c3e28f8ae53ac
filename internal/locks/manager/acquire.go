package manager

import (
	"context"
	"crypto/hmac"
	"errors"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/settings"
	"lockkeeper/internal/zk"
)

// An acquire, from its first attempt to its answer.

// Acquire takes a lock, queues for it, or tries once. It blocks for little longer than req.Wait.
// When ctx ends, the manager ends the lease, unless the client can find it again by its idempotency key.
func (m *Manager) Acquire(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
	if err := req.Normalize(); err != nil {
		return locks.AcquireResult{}, err
	}
	if err := m.deliveries.check(&req); err != nil {
		return locks.AcquireResult{}, err
	}
	if req.DryRun {
		return m.dryRun(ctx, req)
	}
	begun := m.clock.Now().Boot()
	res, err := m.acquire(ctx, req, begun)
	stampWaited(&res.Lease, begun)
	return res, err
}

// stampWaited sets Waited of a lease whose TTL began after its client's request had arrived.
func stampWaited(l *locks.Lease, arrived time.Duration) {
	if l.State == locks.Held && l.TTLFrom >= arrived {
		l.Waited = new(l.TTLFrom - arrived)
	}
}

// acquire makes attempts until one is answered.
func (m *Manager) acquire(ctx context.Context, req locks.AcquireRequest, begun time.Duration) (locks.AcquireResult, error) {
	if req.Token != "" {
		return m.addHold(ctx, &req)
	}
	waited := false // for a plain node's deletion
	for again := false; ; again = true {
		attempt := req
		if again && req.Wait > 0 && req.Wait != locks.WaitForever {
			attempt.Wait = max(req.Wait-(m.clock.Now().Boot()-begun), 1)
		}
		var (
			res   locks.AcquireResult
			place *queues.Queue
			err   error
		)
		m.do(func() {
			a := acquisition{m: m, ctx: ctx, req: &attempt}
			res, place, err = a.attempt()
		})
		var e *locks.Error
		switch {
		case errors.As(err, &e) && e.Code == codePlainNode:
			continue
		case place != nil:
			waited = true
		case !waited || !onlyForNow(m.life.draining, err):
			return res, err
		}
		if err := m.awaitPlace(ctx, &attempt, place, begun); err != nil {
			return locks.AcquireResult{}, err
		}
	}
}

// acquisition is one attempt of an acquire. It owns what the attempt has found out about the request. Its methods are
// called with the monitor held, and release it while they wait.
type acquisition struct {
	m     *Manager
	ctx   context.Context
	req   *locks.AcquireRequest
	wants []locks.Want // one for each lock
	key   *keyEntry    // the request's idempotency key: a known one with its lease, a new one, or nil
}

// attempt takes a lock. It returns a queue if a plain node occupies that lock's path: the caller waits with awaitPlace.
// The error codePlainNode means that a plain node was in the way; the caller tries again at once.
func (a *acquisition) attempt() (locks.AcquireResult, *queues.Queue, error) {
	m, req := a.m, a.req
	err := a.prepare()
	switch {
	case err != nil:
		return locks.AcquireResult{}, nil, err
	case a.key != nil && a.key.lease != "":
		res, err := m.replay(a.ctx, req, a.key)
		return res, nil, err
	}
	q, code := m.obstacleOf(a.wants, locks.CodeHeldByOther)
	never := code != locks.CodeHeldByOther // no lease may queue there
	place := firstObstructed(m.replica, a.wants)
	if q == nil {
		q = place
	}
	if q != nil && (never || req.Wait == 0 && (!req.Async || place != nil)) {
		older, err := a.keyBefore(q)
		switch {
		case err != nil:
			return locks.AcquireResult{}, nil, err
		case older != nil:
			res, err := m.replay(a.ctx, req, older)
			return res, nil, err
		case never || place == nil || !place.Extras().Unidentified:
			return locks.AcquireResult{}, nil, m.heldByOther(a.ctx, req, q, code)
		}
		// The node's kind is not known yet: even a try waits for it.
	}
	if refused := m.room(req, a.wants, q != nil); refused != nil {
		res, err := m.refuse(a.ctx, req, a.key, refused)
		return res, nil, err
	}
	if place != nil {
		if err := m.requests.obstruct(place); err != nil {
			return locks.AcquireResult{}, nil, err
		}
		return locks.AcquireResult{}, place, nil
	}
	l, err := a.newLease()
	if err != nil {
		return locks.AcquireResult{}, nil, err
	}
	if a.key != nil {
		l.rare().key, a.key.lease = a.key.hash, l.id()
		m.keys.add(a.key)
	}
	l.create(m, a.key, req, 0, nil)
	res, err := m.await(a.ctx, req, l, false)
	return res, nil, err
}

// keyBefore looks for an idempotency key that may be older than this process; nil means none.
// Otherwise the repeat of a granted acquire could be refused because its own lease holds the lock. q stays meanwhile.
func (a *acquisition) keyBefore(q *queues.Queue) (*keyEntry, error) {
	if a.key == nil {
		return nil, nil
	}
	q.Polls++
	older, err := a.m.olderKey(a.ctx, a.key)
	q.Polls--
	if err != nil || older != nil {
		a.m.replica.Forget(q)
	}
	if err != nil {
		return nil, err
	}
	return older, nil
}

// prepare finds the request's wants and its key. It refuses a want that contradicts a lock's settings only after a
// barrier, and only if no older process wrote the key.
func (a *acquisition) prepare() error {
	m, req := a.m, a.req
	for met := false; ; met = true {
		if err := m.usable(); err != nil {
			return err
		}
		a.wants = req.Wants()
		if err := nameable(m.replica, req, a.wants); err != nil {
			return err
		}
		if req.IdempotencyKey != "" {
			hash := m.fleet.tokens.Names.Name(req)
			if a.key = m.keys.byHash[hash]; a.key != nil {
				return nil
			}
			a.key = &keyEntry{hash: hash, fingerprint: record.Fingerprint(req)}
		}
		wants, wrong := settings.Sized(m.replica, req, a.wants)
		switch {
		case wrong == nil:
			a.wants = wants
			return nil
		case met && a.key == nil:
			return wrong
		case met:
			entry, err := m.olderKey(a.ctx, a.key)
			switch {
			case err != nil:
				return err
			case entry != nil:
				a.key = entry
				return nil
			}
			return wrong
		}
		var err error
		if m.outside(func() { err = m.barrier(a.ctx) }); err != nil {
			return err
		}
	}
}

// obstacleOf returns the queue that blocks the wants, or nil, and the error code for it.
// That is code, or the code of another program's semaphore or mark, which no lease can join.
func (m *Manager) obstacleOf(wants []locks.Want, code locks.Code) (*queues.Queue, locks.Code) {
	if q := invalidAmong(m.replica, wants, m.clock.Now().Boot()); q != nil {
		return q, locks.CodeLockInvalid
	}
	if q := semaphoreAmong(m.replica, wants); q != nil {
		return q, locks.CodeForeignSemaphore
	}
	return inTheWay(m.replica, wants), code
}

// notGranted returns the code for an acquire that left the queue without a grant.
// An acquire without a wait gets CodeHeldByOther, even if it had to queue to find the lock taken.
func notGranted(req *locks.AcquireRequest) locks.Code {
	if req.Wait == 0 {
		return locks.CodeHeldByOther
	}
	return locks.CodeWaitElapsed
}

// acquiringLease is an acquire that waits for the state of its lease that answers it.
type acquiringLease struct {
	m        *Manager
	ctx      context.Context
	req      *locks.AcquireRequest
	l        *lease
	replayed bool          // an idempotent repeat: the lease existed before
	begun    time.Duration // boot

	// over: its wait has elapsed. gone: its client has disconnected. draining: the gateway drains.
	over, gone, draining bool

	result locks.AcquireResult
	err    error
}

// await waits until the lease's state answers the request. The caller holds the monitor; await releases it while it waits.
func (m *Manager) await(ctx context.Context, req *locks.AcquireRequest, l *lease, replayed bool) (locks.AcquireResult, error) {
	a := acquiringLease{m: m, ctx: ctx, req: req, l: l, replayed: replayed, begun: m.clock.Now().Boot()}
	l.listeners++
	m.requests.acquiring++
	var elapsed <-chan time.Time
	if req.Wait > 0 && req.Wait != locks.WaitForever {
		timer := time.NewTimer(req.Wait)
		defer timer.Stop()
		elapsed = timer.C
	}
	stall := time.NewTimer(answerWithin)
	defer stall.Stop()
	for {
		if a.answer(m.clock.Now().Boot()) {
			return a.result, a.err
		}
		if !l.positionKnown() || !l.recordState.loaded() || l.phase == ending || a.over || req.Wait == 0 {
			stall.Reset(answerWithin/4 + 1)
		}
		wake, stuck := l.changed(), false
		m.outside(func() {
			select {
			case <-wake:
			case <-elapsed:
				a.over = true
			case <-ctx.Done():
				a.gone = true
			case <-m.life.drain:
				a.draining = true
			case <-stall.C:
				stuck = true
			}
		})
		if stuck {
			l.checkUnseen(m)
		}
	}
}

// leave unsubscribes the request from its lease.
func (a *acquiringLease) leave(now time.Duration) {
	a.l.unlisten(a.m, now)
	a.m.requests.acquiring--
}

func (a *acquiringLease) fail(err error, now time.Duration) (done bool) {
	a.leave(now)
	a.err = err
	return true
}

// succeed answers with the lease as it is and its token.
func (a *acquiringLease) succeed(now time.Duration) (done bool) {
	a.leave(now)
	a.l.claim(a.m, now) // a client with the token knows of the grant
	if a.replayed && a.l.phase == held {
		a.l.renew(a.m, now) // its client counts the TTL from this request
	}
	view := a.m.answers.own(a.l)
	view.Token = a.m.fleet.tokens.Make(a.l.id())
	if view.NotifyURL != "" {
		a.l.rareFields.telling.given, view.NotifySecret = true, notifySecret(a.m.fleet.layout.Keys[0], a.l.id())
	}
	a.result = locks.AcquireResult{Lease: view, Replayed: a.replayed}
	return true
}

// lost reports whether no client can ever get the lease's token: no other request waits on it, and it has no key.
func (a *acquiringLease) lost() bool { return a.l.listeners == 1 && !a.l.keyed() }

// giveUpLost ends a lease whose token no client can ever get.
func (a *acquiringLease) giveUpLost(now time.Duration) {
	if a.lost() {
		a.l.giveUp(a.m, locks.ReasonCancelled, now)
	}
}

// answer reports whether the acquire can be answered now. If so, it sets result or err and calls leave.
func (a *acquiringLease) answer(now time.Duration) (done bool) {
	l := a.l
	if a.replayed && (l.phase == waiting || l.phase == held) {
		if done, wait := a.checkReplay(now); done || wait {
			return done
		}
	}
	switch {
	case l.phase == ended:
		return a.answerEnded(now)
	case l.phase == held:
		if a.gone && a.lost() {
			l.end(a.m, locks.ReasonCancelled, now)
			return a.fail(cancelled(a.ctx), now)
		}
		return a.succeed(now)
	case a.gone:
		a.giveUpLost(now)
		return a.fail(cancelled(a.ctx), now)
	case a.draining:
		if l.phase == waiting && (l.keyed() || a.req.Async) {
			return a.succeed(now) // its contender outlives this gateway
		}
		a.giveUpLost(now) // else a successor would grant it the lock
		return a.fail(a.m.usable(), now)
	case l.phase == creating, l.phase == ending:
		if !a.m.stalled(a.begun, now) {
			return false
		}
		if l.phase == creating {
			a.giveUpLost(now) // it ends as soon as the replica shows it
		}
		return a.fail(outcomeUnknown(), now)
	}
	return a.answerWaiting(now)
}

// checkReplay decides whether the lease's present state may answer a repeated acquire. It loads the lease's record first.
func (a *acquiringLease) checkReplay(now time.Duration) (done, wait bool) {
	loaded := a.l.recordState.loaded()
	switch {
	case !loaded && a.m.overdue(a.begun, now):
		return a.fail(unavailable(), now), false
	case !loaded:
		a.l.load(a.m)
		return false, true
	case slices.Contains(a.l.releasedNames(), a.req.Hold):
		return a.fail(holdReleased(a.req.Hold), now), false // a late repeat adds no hold
	}
	return false, false
}

// answerEnded answers an acquire whose lease has ended.
func (a *acquiringLease) answerEnded(now time.Duration) (done bool) {
	l, failure := a.l, a.l.failure()
	switch {
	case failure != nil && failure.Code == codeKeyTaken:
		a.leave(now)
		a.result, a.err = a.m.replayTaken(a.ctx, a.req)
		return true
	case failure != nil && failure.Code == locks.CodeNotOwner && a.lost():
		a.m.port.Submit(&zk.Write{Ops: l.deletions(nil, -1)}, func(zk.Result) {})
		return a.fail(&locks.Error{Code: locks.CodeNotOwner, RetryAfter: retryAfter,
			Detail: "another gateway has taken over this gateway's leases, and the place in line was given up; repeat the request"}, now)
	case failure != nil:
		return a.fail(failure, now)
	case l.reason() == locks.ReasonWaitElapsed:
		a.leave(now)
		q, code := a.m.obstacleOf(a.req.Wants(), notGranted(a.req))
		if q == nil {
			q = l.q // the lock was released at this moment
		}
		a.err = a.m.heldByOther(a.ctx, a.req, q, code)
		return true
	case l.reason() == locks.ReasonGatewayLeft && !l.grant.granted() && !l.keyed():
		return a.fail(unavailable(), now) // its contender was deleted with the session
	}
	return a.fail(endedError(l.reason()).Because(l.words()), now)
}

// answerWaiting answers an acquire whose lease waits in the queue.
func (a *acquiringLease) answerWaiting(now time.Duration) (done bool) {
	l, tried := a.l, a.req.Wait == 0 || a.over
	switch {
	case !a.replayed && !l.turn() && semaphoreAmong(a.m.replica, a.req.Wants()) != nil:
		l.end(a.m, locks.ReasonWaitElapsed, now) // the semaphore appeared while the contender was being created
	case a.req.Async:
		return a.succeed(now)
	case l.turn():
		// The lease is next; the grant waits until the gateway is trusted.
		if tried && a.m.stalled(a.begun, now) {
			a.giveUpLost(now)
			return a.fail(unavailable(), now)
		}
		if tried && now-a.begun-max(a.req.Wait, 0) >= answerWithin && l.listeners == 1 {
			// The gateway cannot list the directory, so it cannot exclude an earlier contender.
			l.end(a.m, locks.ReasonWaitElapsed, now)
		}
	case tried && l.listeners > 1:
		return a.succeed(now) // another request of the same client still waits on this lease
	case tried:
		l.end(a.m, locks.ReasonWaitElapsed, now)
	}
	return false
}

// giveUp ends a lease that no client wants, now or as soon as the gateway knows that its contender exists.
func (l *lease) giveUp(m *Manager, reason locks.Reason, now time.Duration) {
	if l.phase == waiting || l.phase == held {
		l.end(m, reason, now)
		return
	}
	l.abandoned = true
}

// replay answers a repeated request whose key is known. The monitor is held, and released while it waits.
func (m *Manager) replay(ctx context.Context, req *locks.AcquireRequest, key *keyEntry) (locks.AcquireResult, error) {
	if !hmac.Equal([]byte(key.fingerprint), []byte(record.Fingerprint(req))) { // a notify_url in it may be a secret
		return locks.AcquireResult{}, &locks.Error{Code: locks.CodeKeyReused, Field: "Idempotency-Key",
			Detail: "this Idempotency-Key came with other parameters before; use one fresh random key per attempt to do the job"}
	}
	l := m.leases.byID[key.lease]
	switch {
	case l != nil:
	case key.endedAt == 0:
		// The lease runs on another gateway, or is about to be adopted.
		if err := m.retryAfterSync(ctx, func() *locks.Error {
			if l = m.leases.byID[key.lease]; l != nil {
				return nil
			}
			return m.absent(key.lease)
		}); err != nil {
			return locks.AcquireResult{}, err
		}
	case key.reason == locks.ReasonWaitElapsed:
		if q := inTheWay(m.replica, req.Wants()); q != nil {
			return locks.AcquireResult{}, m.heldByOther(ctx, req, q, notGranted(req))
		}
		return locks.AcquireResult{}, &locks.Error{Code: notGranted(req), RetryAfter: retryAfter, Detail: "the lock was not granted to this request, which has left the queue"}
	default:
		return locks.AcquireResult{}, endedError(key.reason)
	}
	return m.await(ctx, req, l, true)
}

// replayTaken reads a key that ZooKeeper has and this gateway does not know, and answers the repeated request. The
// monitor is held, and released while it waits.
func (m *Manager) replayTaken(ctx context.Context, req *locks.AcquireRequest) (locks.AcquireResult, error) {
	session, hash := m.port.Session(), m.fleet.tokens.Names.Name(req)
	if session == nil {
		return locks.AcquireResult{}, unavailable()
	}
	var entry *keyEntry
	var err error
	m.outside(func() { entry, err = m.fleet.readKey(ctx, session, hash) })
	switch {
	case err != nil:
		return locks.AcquireResult{}, err
	case entry == nil: // it was just swept: the repeat is a new request
		return locks.AcquireResult{}, unavailable()
	}
	return m.replay(ctx, req, m.learnKey(entry))
}
