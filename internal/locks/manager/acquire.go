package manager

import (
	"cmp"
	"context"
	"crypto/hmac"
	"errors"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/idempotency"
	"lockkeeper/internal/locks/periods"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
)

// An acquire, from its first attempt to its answer.

// Acquire takes a lock, queues for it, or tries once. It blocks for little longer than req.Wait.
// When ctx ends, the manager ends the lease, unless the client can find it again by its idempotency key.
func (m *Manager) Acquire(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
	ttlGiven := req.TTL != 0
	if err := req.Normalize(); err != nil {
		return locks.AcquireResult{}, err
	}
	if req.Token == "" { // a lease's token allows another hold
		if err := req.Principal.CheckAcquire(&req, ttlGiven); err != nil {
			return locks.AcquireResult{}, err
		}
		if req.Reserves() {
			if err := req.Principal.CheckReserve(&req, m.clock.Now().Calendar()); err != nil {
				return locks.AcquireResult{}, err
			}
		}
	}
	if err := m.deliveries.check(&req); err != nil {
		return locks.AcquireResult{}, err
	}
	if req.OncePer > 0 {
		if req.InPeriod = req.Period; req.Period == "" {
			req.InPeriod = locks.WindowAt(m.clock.Now().Wall(), req.OncePer)
		}
		if done, err := (lockPeriods{m, req.NS, req.Lock}).doneBefore(ctx, &req); err != nil || done != nil {
			return locks.AcquireResult{Done: done}, err
		}
	}
	if req.DryRun {
		forecast := acquisition{m: m, ctx: ctx, req: req}
		return forecast.dryRun()
	}
	begun := m.clock.Now().Boot()
	res, err := m.acquire(ctx, req, begun)
	if e, ok := errors.AsType[*locks.Error](err); ok && req.OncePer > 0 && e.Reason == locks.ReasonDone { // a repeat, whose lease has ended
		if done, _ := (lockPeriods{m, req.NS, req.Lock}).done(ctx, &req); done != nil {
			return locks.AcquireResult{Done: done}, nil
		}
	}
	if err != nil {
		return res, req.Principal.ConcealIn(err)
	}
	if res.Done != nil {
		periods.Conceal(res.Done, req.Principal)
		return res, nil
	}
	stampWaited(&res.Lease, begun)
	return res, nil
}

// acquire makes attempts until one is answered.
func (m *Manager) acquire(ctx context.Context, req locks.AcquireRequest, begun time.Duration) (locks.AcquireResult, error) {
	if req.Token != "" {
		hold := req // req itself stays off the heap
		return m.addHold(ctx, &hold)
	}
	waited := false // for a plain node's deletion
	for again := false; ; again = true {
		a := acquisition{m: m, ctx: ctx, req: req}
		if again && req.Wait > 0 && req.Wait != locks.WaitForever {
			a.req.Wait = max(req.Wait-(m.clock.Now().Boot()-begun), 1)
		}
		var (
			res   locks.AcquireResult
			place *queues.Queue
			err   error
			later bool // the attempt failed only for now
		)
		m.do(func() {
			res, place, err = a.attempt()
			later = onlyForNow(m.life.draining, err)
		})
		e, failed := errors.AsType[*locks.Error](err)
		switch {
		case failed && e.Code == codePlainNode:
			continue
		case place != nil:
			waited = true
		case !waited || !later:
			return res, err
		}
		if err := m.awaitPlace(ctx, &a.req, place, begun); err != nil {
			return locks.AcquireResult{}, err
		}
	}
}

// attempt takes a lock. It returns a queue if a plain node occupies that lock's path: the caller waits with awaitPlace.
// The error codePlainNode means that a plain node was in the way; the caller tries again at once.
func (a *acquisition) attempt() (locks.AcquireResult, *queues.Queue, error) {
	m, req := a.m, &a.req
	err := a.prepare()
	switch {
	case err != nil:
		return locks.AcquireResult{}, nil, err
	case a.key != nil && a.key.Lease != "":
		res, err := a.replay(a.key)
		return res, nil, err
	}
	q, code := a.obstacle(a.wants, locks.CodeHeldByOther)
	never := code != locks.CodeHeldByOther // no lease may queue there
	place := m.replica.FirstObstructed(a.wants)
	if q == nil {
		q = place
	}
	if q != nil && (never || req.Wait == 0 && (!req.Async || place != nil)) {
		older, err := a.keyBefore(q)
		switch {
		case err != nil:
			return locks.AcquireResult{}, nil, err
		case older != nil:
			res, err := a.replay(older)
			return res, nil, err
		case never || place == nil || !place.Extras().Unidentified:
			return locks.AcquireResult{}, nil, m.heldByOther(a.ctx, req, q, code)
		}
		// The node's kind is not known yet: even a try waits for it.
	}
	if refused := m.room(req, a.wants, q != nil); refused != nil {
		res, err := a.refuse(refused)
		return res, nil, err
	}
	if q != nil && place == nil && a.asksFirst() {
		if refused := a.ask(); refused != nil {
			res, err := a.refuse(refused)
			return res, nil, err
		}
		return a.attempt()
	}
	if place != nil {
		if err := m.requests.obstruct(place); err != nil {
			return locks.AcquireResult{}, nil, err
		}
		return locks.AcquireResult{}, place, nil
	}
	if refused := m.keepsTerms(req); refused != nil {
		return locks.AcquireResult{}, nil, refused
	}
	if over := locks.CheckUntil(req.Until, m.clock.Now().Calendar()); over != nil {
		return locks.AcquireResult{}, nil, over
	}
	l, err := a.newLease()
	if err != nil {
		return locks.AcquireResult{}, nil, err
	}
	if a.key != nil {
		l.rare().key, a.key.Lease = a.key.Hash, l.id()
		m.keys.Add(a.key)
	}
	l.create(m, a.key, req, 0, nil)
	res, err := a.await(l, false)
	return res, nil, err
}

// obstacle returns the queue that blocks the wants, or nil, and the error code for it.
// That is code, or the code of another program's semaphore or mark, which no lease can join.
func (a *acquisition) obstacle(wants []locks.Want, code locks.Code) (*queues.Queue, locks.Code) {
	if w := a.m.replica.FirstMarked(wants); w != nil {
		return a.m.replica.Queue(a.m.replica.Namespaces[w.NS], w.Lock, a.m.clock.Now().Boot()), locks.CodeLockInvalid
	}
	if q := a.m.replica.FirstSemaphore(wants); q != nil {
		return q, locks.CodeForeignSemaphore
	}
	return a.m.replica.InTheWay(wants), code
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
	*acquisition
	l        *lease
	replayed bool          // an idempotent repeat: the lease existed before
	begun    time.Duration // boot
	ending   time.Duration // boot: when it was first seen to be ending; 0: it was not

	// over: its wait has elapsed. gone: its client has disconnected. draining: the gateway drains.
	over, gone, draining bool

	result locks.AcquireResult
	err    error
}

// await waits until the lease's state answers the request.
func (a *acquisition) await(l *lease, replayed bool) (locks.AcquireResult, error) {
	now := a.m.clock.Now().Boot()
	w := acquiringLease{acquisition: a, l: l, replayed: replayed, begun: now}
	m, ctx, req := a.m, a.ctx, &a.req
	l.listeners++
	m.requests.acquiring++
	var elapsed <-chan time.Time // nil until the lease waits: most acquires are answered before
	for {
		if w.answer(now) {
			return w.result, w.err
		}
		if elapsed == nil && !l.Creating() && req.Wait > 0 && req.Wait != locks.WaitForever {
			timer := time.NewTimer(max(w.begun+req.Wait-now, 0))
			defer timer.Stop()
			elapsed = timer.C
		}
		var beat <-chan struct{} // nil where only a change of the lease makes an answer
		if !l.positionKnown() || !l.Record().Loaded() || l.Ending() || w.over || req.Wait == 0 {
			beat = m.beats()
		}
		wake, stuck := l.changed(), false
		m.outside(func() {
			select {
			case <-wake:
			case <-elapsed:
				w.over = true
			case <-ctx.Done():
				w.gone = true
			case <-m.life.drain:
				w.draining = true
			case <-beat:
				stuck = true
			}
		})
		now = m.clock.Now().Boot()
		if stuck && now-w.begun >= beatPause {
			l.checkUnseen(m)
		}
	}
}

// leave unsubscribes the request from its lease.
func (w *acquiringLease) leave(now time.Duration) {
	w.l.unlisten(w.m, now)
	w.m.requests.acquiring--
}

func (w *acquiringLease) fail(err error, now time.Duration) (done bool) {
	w.leave(now)
	w.err = err
	return true
}

// succeed answers with the lease as it is and its token.
func (w *acquiringLease) succeed(now time.Duration) (done bool) {
	w.leave(now)
	w.l.claim(w.m, now) // a client with the token knows of the grant
	if w.replayed && w.l.Held() {
		w.l.renew(w.m, now) // its client counts the TTL from this request
	}
	view := w.m.answers.own(w.l)
	view.Token = w.m.fleet.ring.Tokens().Make(w.l.id())
	if view.NotifyURL != "" {
		w.l.rareFields.telling.given, view.NotifySecret = true, notifySecret(w.m.fleet.keyring.Keys()[0], w.l.id())
	}
	w.result = locks.AcquireResult{Lease: view, Replayed: w.replayed}
	return true
}

// lost reports whether no client can ever get the lease's token: no other request waits on it, and it has no key.
func (w *acquiringLease) lost() bool { return w.l.listeners == 1 && !w.l.keyed() }

// giveUpLost ends a lease whose token no client can ever get.
func (w *acquiringLease) giveUpLost(now time.Duration) {
	if w.lost() {
		w.l.giveUp(w.m, locks.ReasonCancelled, now)
	}
}

// answer reports whether the acquire can be answered now. If so, it sets result or err and calls leave.
func (w *acquiringLease) answer(now time.Duration) (done bool) {
	l := w.l
	if w.replayed && l.Settled() {
		if done, wait := w.checkReplay(now); done || wait {
			return done
		}
	}
	switch {
	case l.over(w.m.reports):
		return w.answerEnded(now)
	case l.Held():
		if w.gone && w.lost() {
			l.end(w.m, locks.ReasonCancelled, now)
			return w.fail(cancelled(w.ctx), now)
		}
		return w.succeed(now)
	case w.gone:
		w.giveUpLost(now)
		if l.Creating() {
			return w.fail(outcomeUnknown(), now) // a drain ends ctx, too, and its client still hears the answer
		}
		return w.fail(cancelled(w.ctx), now)
	case w.draining:
		if l.Waiting() && !l.mayHold() && (l.keyed() || w.req.Async) {
			return w.succeed(now) // its contender outlives this gateway
		}
		w.giveUpLost(now) // else a successor would grant it the lock
		if l.Creating() {
			return w.fail(outcomeUnknown(), now) // its contender may still be created
		}
		return w.fail(w.m.usable(), now)
	case l.Creating(), l.Ending():
		since := w.begun
		if l.Ending() { // which another than this request may have begun just now
			w.ending = cmp.Or(w.ending, now)
			since = w.ending
		}
		if !w.m.stalled(since, now) {
			return false
		}
		if l.Creating() {
			w.giveUpLost(now) // it ends as soon as the replica shows it
		}
		return w.fail(outcomeUnknown(), now)
	}
	return w.answerWaiting(now)
}

// checkReplay decides whether the lease's present state may answer a repeated acquire; the record is loaded first.
func (w *acquiringLease) checkReplay(now time.Duration) (done, wait bool) {
	loaded := w.l.Record().Loaded()
	switch {
	case !loaded && w.m.overdue(w.begun, now):
		return w.fail(unavailable(), now), false
	case !loaded:
		w.l.load(w.m)
		return false, true
	case slices.Contains(w.l.releasedNames(), w.req.Hold):
		return w.fail(holdReleased(w.req.Hold), now), false // a late repeat adds no hold
	}
	return false, false
}

// answerEnded answers an acquire whose lease has ended.
func (w *acquiringLease) answerEnded(now time.Duration) (done bool) {
	l, failure := w.l, w.l.failure()
	switch {
	case failure != nil && failure.Code == codeKeyTaken:
		w.leave(now)
		w.result, w.err = w.replayTaken()
		return true
	case failure != nil && failure.Code == locks.CodeNotOwner && w.lost():
		w.m.port.Submit(&zk.Write{Ops: l.deletions(-1)}, func(zk.Result) {})
		return w.fail(&locks.Error{Code: locks.CodeNotOwner, RetryAfter: retryAfter,
			Detail: "another gateway has taken over this gateway's leases, and the place in line was given up; repeat the request"}, now)
	case failure != nil:
		return w.fail(failure, now)
	case l.reason() == locks.ReasonDone && l.once() != nil && l.once().done != nil:
		w.leave(now)
		w.result = locks.AcquireResult{Done: periods.DoneBy(l.q.Namespace.Name, l.q.Name(), l.once().done)}
		return true
	case l.once() != nil && l.once().full:
		return w.fail(periods.TooMany(l.q.Name()), now)
	case l.reason() == locks.ReasonWaitElapsed:
		w.leave(now)
		q, code := w.obstacle(w.req.Wants(), notGranted(&w.req))
		if q == nil {
			q = l.q // the lock was released at this moment
		}
		w.err = w.m.heldByOther(w.ctx, &w.req, q, code)
		return true
	case l.reason() == locks.ReasonWouldDeadlock:
		return w.fail(wouldDeadlock(l.known().cycle), now)
	case l.reason() == locks.ReasonGatewayLeft && !l.Grant().Granted() && !l.keyed():
		return w.fail(unavailable(), now) // its contender was deleted with the session
	}
	return w.fail(l.endedError(l.reason()), now)
}

// answerWaiting answers an acquire whose lease waits in the queue.
func (w *acquiringLease) answerWaiting(now time.Duration) (done bool) {
	l, tried := w.l, w.req.Wait == 0 || w.over
	switch {
	case l.mayHold(): // never given up: its client may count on it
		return w.m.overdue(w.begun, now) && w.fail(unavailable(), now)
	case !w.replayed && !l.turn() && w.m.replica.FirstSemaphore(w.req.Wants()) != nil:
		l.end(w.m, locks.ReasonWaitElapsed, now) // the semaphore appeared while the contender was being created
	case w.req.Async:
		return w.succeed(now)
	case l.turn():
		// The lease is next; the grant waits until the gateway is trusted.
		if tried && w.m.stalled(w.begun, now) {
			w.giveUpLost(now)
			return w.fail(unavailable(), now)
		}
		if tried && now-w.begun-max(w.req.Wait, 0) >= answerWithin && l.listeners == 1 {
			// The gateway cannot list the directory, so it cannot exclude an earlier contender.
			l.end(w.m, locks.ReasonWaitElapsed, now)
		}
	case tried && l.listeners > 1:
		return w.succeed(now) // another request of the same client still waits on this lease
	case tried:
		l.end(w.m, locks.ReasonWaitElapsed, now)
	}
	return false
}

// giveUp ends a lease that no client wants, now or as soon as the gateway knows that its contender exists.
func (l *lease) giveUp(m *Manager, reason locks.Reason, now time.Duration) {
	if l.Settled() {
		l.end(m, reason, now)
		return
	}
	l.abandoned = true
}

// replay answers a repeated request whose key is known.
func (a *acquisition) replay(key *idempotency.Key) (locks.AcquireResult, error) {
	m, ctx, req := a.m, a.ctx, &a.req
	if !hmac.Equal([]byte(key.Fingerprint), []byte(record.Fingerprint(req))) { // a notify_url in it may be a secret
		return locks.AcquireResult{}, &locks.Error{Code: locks.CodeKeyReused, Field: "Idempotency-Key",
			Detail: "this Idempotency-Key came with other parameters before; use one fresh random key per attempt to do the job"}
	}
	l := m.leases.lease(key.Lease)
	switch {
	case l != nil:
	case key.EndedAt == 0:
		// The lease runs on another gateway, or is about to be adopted.
		if err := m.request(ctx).retryAfterSync(func() *locks.Error {
			if l = m.leases.lease(key.Lease); l != nil {
				return nil
			}
			return m.absent(key.Lease)
		}); err != nil {
			return locks.AcquireResult{}, err
		}
	case key.Reason == locks.ReasonWaitElapsed:
		if q := m.replica.InTheWay(req.Wants()); q != nil {
			return locks.AcquireResult{}, m.heldByOther(ctx, req, q, notGranted(req))
		}
		return locks.AcquireResult{}, &locks.Error{Code: notGranted(req), RetryAfter: retryAfter, Detail: "the lock was not granted to this request, which has left the queue"}
	case key.Reason == locks.ReasonWouldDeadlock:
		return locks.AcquireResult{}, wouldDeadlock(nil)
	default:
		return locks.AcquireResult{}, endedError(key.Reason)
	}
	return a.await(l, true)
}

// replayTaken reads a key that ZooKeeper has and this gateway does not know, and answers the repeated request.
func (a *acquisition) replayTaken() (locks.AcquireResult, error) {
	m, ctx, req := a.m, a.ctx, &a.req
	session, hash := m.port.Session(), m.fleet.ring.Tokens().Names.Name(req)
	if session == nil {
		return locks.AcquireResult{}, unavailable()
	}
	var entry *idempotency.Key
	var err error
	m.outside(func() { entry, err = m.fleet.readKey(ctx, session, hash) })
	switch {
	case err != nil:
		return locks.AcquireResult{}, err
	case entry == nil: // it was just swept: the repeat is a new request
		return locks.AcquireResult{}, unavailable()
	}
	return a.replay(m.learnKey(entry))
}

// refuse answers an acquire that exceeds a bound, unless it repeats an older one.
func (a *acquisition) refuse(refused error) (locks.AcquireResult, error) {
	if a.key != nil {
		entry, err := a.olderKey()
		switch {
		case err != nil:
			refused = err
		case entry != nil:
			return a.replay(entry)
		}
	}
	return locks.AcquireResult{}, refused
}
