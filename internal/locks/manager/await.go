package manager

import (
	"context"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/zk"
)

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
	view := a.m.viewOwn(a.l)
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

// obstacleOf returns the queue that blocks the wants, or nil, and the error code for it.
// That is code, or the code of another program's semaphore or mark, which no lease can join.
func (m *Manager) obstacleOf(wants []locks.Want, code locks.Code) (*queues.Queue, locks.Code) {
	if q := m.invalidAmong(wants); q != nil {
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

// keyed reports whether the client can find the lease again by repeating the request.
func (l *lease) keyed() bool { return l.key() != "" }

// giveUp ends a lease that no client wants, now or as soon as the gateway knows that its contender exists.
func (l *lease) giveUp(m *Manager, reason locks.Reason, now time.Duration) {
	if l.phase == waiting || l.phase == held {
		l.end(m, reason, now)
		return
	}
	l.abandoned = true
}
