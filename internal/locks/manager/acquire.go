package manager

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
)

// Acquire takes a lock, stands in line for it, or tries. It blocks for at most
// req.Wait and a moment. When ctx ends, the caller has gone away: the lease is
// given up, unless an idempotency key lets the caller find it again.
func (m *Manager) Acquire(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
	if err := req.Normalize(); err != nil {
		return locks.AcquireResult{}, err
	}
	if err := m.checkNotify(&req); err != nil {
		return locks.AcquireResult{}, err
	}
	if req.Token != "" {
		return m.addHold(ctx, &req)
	}
	if req.DryRun {
		return m.dryRun(ctx, req)
	}
	begun := m.clock.Now().Boot()
	waited := false // for a plain node to go
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
		m.do(func() { res, place, err = m.attempt(ctx, &attempt) })
		var e *locks.Error
		switch {
		case errors.As(err, &e) && e.Code == codePlainNode:
			continue
		case place != nil:
			waited = true
		case !waited || !m.undecided(err):
			return res, err
		}
		if err := m.awaitPlace(ctx, &attempt, place, begun); err != nil {
			return locks.AcquireResult{}, err
		}
	}
}

// attempt takes a lock, or finds the lock in whose place a plain node stands: the acquire has to
// wait for it with awaitPlace. codePlainNode: a plain node was in the way, and the caller
// tries again at once. The monitor is held, and released while it waits.
func (m *Manager) attempt(ctx context.Context, req *locks.AcquireRequest) (locks.AcquireResult, *queues.Queue, error) {
	fail := func(err error) (locks.AcquireResult, *queues.Queue, error) { return locks.AcquireResult{}, nil, err }
	wants, key, err := m.prepareAcquire(ctx, req)
	switch {
	case err != nil:
		return fail(err)
	case key != nil && key.lease != "":
		res, err := m.replay(ctx, req, key)
		return res, nil, err
	}
	q, code := m.inTheWay(wants), locks.CodeHeldByOther
	if s := m.semaphoreAmong(wants); s != nil {
		q, code = s, locks.CodeForeignSemaphore
	}
	if s := m.invalidAmong(wants); s != nil {
		q, code = s, locks.CodeLockInvalid
	}
	never := code != locks.CodeHeldByOther // no lease stands there, waiting or not
	place := m.firstObstructed(wants)
	if q == nil {
		q = place
	}
	if q != nil && (never || req.Wait == 0 && (!req.Async || place != nil)) {
		if key != nil {
			// The key may be older than this process: it is looked for before
			// the repeat of a granted acquire is told that the lock is taken.
			q.Polls++
			entry, err := m.olderKey(ctx, key)
			q.Polls--
			switch {
			case err != nil:
				m.replica.Forget(q)
				return fail(err)
			case entry != nil:
				m.replica.Forget(q)
				res, err := m.replay(ctx, req, entry)
				return res, nil, err
			}
		}
		if never || place == nil || !place.Extras().Suspect {
			return locks.AcquireResult{}, nil, m.heldByOther(ctx, req, q, code)
		}
		// It is not known yet what stands there: a try waits for that, too.
	}
	if refused := m.room(req, wants, q != nil); refused != nil {
		res, err := m.refuse(ctx, req, key, refused)
		return res, nil, err
	}
	if place != nil {
		if err := m.obstruct(place); err != nil {
			return fail(err)
		}
		return locks.AcquireResult{}, place, nil
	}
	l, err := m.newLease(wants, req)
	if err != nil {
		return fail(err)
	}
	if key != nil {
		l.rare().key, key.lease = key.hash, l.id()
		m.keys.add(key)
	}
	m.create(l, key, req, 0)
	res, err := m.await(ctx, req, l, false)
	return res, nil, err
}

// prepareAcquire looks up what a request needs: what it wants of each lock, and
// its key: a known one, with its lease, or a new one, or nil. What contradicts a
// lock's settings is refused only after the replica has come up to the present, and
// when the key, which may be older than this process, is not there. The monitor is held, and
// released meanwhile.
func (m *Manager) prepareAcquire(ctx context.Context, req *locks.AcquireRequest) (wants []locks.Want, key *keyEntry, err error) {
	for met := false; ; met = true {
		if err := m.usable(); err != nil {
			return nil, nil, err
		}
		wants = req.Wants()
		if err := m.nameable(req, wants); err != nil {
			return nil, nil, err
		}
		if req.IdempotencyKey != "" {
			hash := m.tokens.Names.Name(req)
			if known := m.keys.byHash[hash]; known != nil {
				return nil, known, nil
			}
			key = &keyEntry{hash: hash, fingerprint: record.Fingerprint(req)}
		}
		wants, wrong := m.sized(req, wants)
		switch {
		case wrong == nil:
			return wants, key, nil
		case met && key == nil:
			return nil, nil, wrong
		case met:
			entry, err := m.olderKey(ctx, key)
			switch {
			case err != nil:
				return nil, nil, err
			case entry != nil:
				return nil, entry, nil
			}
			return nil, nil, wrong
		}
		if m.outside(func() { err = m.barrier(ctx) }); err != nil {
			return nil, nil, err
		}
	}
}

func (m *Manager) newLease(wants []locks.Want, req *locks.AcquireRequest) (*lease, error) {
	now := m.clock.Now()
	id, err := recipe.NewLeaseID(m.fleet, recipe.GatewayID(m.port.Session().ID()), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a lease id: %w", err)
	}
	l := &lease{
		phase: creating, ttl: req.TTL, recorded: req.TTL, term: m.port.Term(), recordState: recordCurrent,
		owner:    m.owners.one(req.Owner),
		enqueued: now.Wall(), since: now.Boot(), heapIndex: -1,
	}
	if req.Metadata != "" {
		l.rare().metadata = strings.Clone(req.Metadata)
	}
	if req.NotifyURL != "" {
		l.rare().telling = &telling{url: strings.Clone(req.NotifyURL)}
	}
	if req.LockDelay > 0 {
		// In whole milliseconds, as it is written.
		l.rare().lockDelay, l.rare().lockDelayOn = (req.LockDelay + time.Millisecond - 1).Truncate(time.Millisecond), req.LockDelayOn
	}
	if req.Hold != "" {
		l.rare().holds = []string{strings.Clone(req.Hold)}
	}
	var slots []slot
	for i := range wants {
		space := m.replica.Namespaces[wants[i].NS]
		c := contenderOf(&wants[i])
		c.LeaseID, c.Ephemeral = id, req.Ephemeral
		if len(wants) > 1 {
			c.Group, c.Groups = uint8(i+1), uint8(len(wants))
		}
		q := m.replica.Queue(space, wants[i].Lock, now.Boot())
		if space.Naming.Dialect() == recipe.Native && len(wants) == 1 {
			l.slot = slot{q: q, contender: c} // nearly all leases: without a slice of one
			break
		}
		for _, member := range space.Naming.Contenders(*c) {
			slots = append(slots, slot{q: q, contender: &member})
		}
	}
	if len(slots) > 0 {
		l.slot = slots[0]
	}
	if len(slots) > 1 {
		l.rare().rest = slots[1:]
	}
	for s := range l.slots {
		s.q.Leases++
	}
	m.leases[id] = l
	m.counts.enter(l)
	m.weigh(l, 0)
	if req.Async {
		m.makeTicket(l)
	}
	m.rev++
	l.rev = m.rev
	return l, nil
}

// dropCreate ends a lease whose create definitely did not happen. It never
// existed, so nothing remembers it.
func (m *Manager) dropCreate(l *lease, key *keyEntry, now time.Duration) {
	m.keys.drop(key)
	if l.rareFields != nil {
		l.rareFields.key = ""
	}
	m.finish(l, locks.ReasonUnknown, now)
	m.history.Drop(l.id())
	for s := range l.slots {
		m.replica.Forget(s.q)
	}
}

func createFailure(err error) *locks.Error {
	e := &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter, Err: err,
		Detail: "ZooKeeper did not take the contender; nothing was done, repeat the request"}
	switch {
	case errors.Is(err, zk.ErrTooLarge):
		e.Code, e.Field, e.RetryAfter = locks.CodeInvalid, "metadata", 0
		e.Detail = "owner and metadata are larger than one ZooKeeper transaction may be"
	case errors.Is(err, zk.ErrNoNode):
		e.Detail = "the lock root of the namespace is not there: the programs that share it may create it, or do it by hand; nothing was done"
	case errors.Is(err, zk.ErrNoAuth):
		e.RetryAfter, e.Detail = 0, "the ACL of the lock's directory, or of the lock root, forbids this gateway to create a contender; nothing was done. Check those ACLs and --zk-auth-file"
	case errors.Is(err, zk.ErrQueueFull):
		e.Code, e.Detail = locks.CodeTooManyWaiters, "too many writes wait for ZooKeeper; nothing was done, repeat the request"
	case errors.Is(err, zk.ErrEphemeralCap):
		e.Code, e.Detail = locks.CodeEphemeralCap, "this gateway's ZooKeeper session has as many ephemeral nodes as it may (256 KiB of paths): more could keep a ZooKeeper server from starting again; leave ephemeral out, or use another gateway"
	}
	return e
}

// await follows a lease until the request can be answered. The monitor is held, and released while it waits.
func (m *Manager) await(ctx context.Context, req *locks.AcquireRequest, l *lease, replayed bool) (locks.AcquireResult, error) {
	l.listeners++
	m.acquiring++
	begun := m.clock.Now().Boot()
	var elapsed <-chan time.Time
	if req.Wait > 0 && req.Wait != locks.WaitForever {
		timer := time.NewTimer(req.Wait)
		defer timer.Stop()
		elapsed = timer.C
	}
	stall := time.NewTimer(answerWithin)
	defer stall.Stop()
	var over, gone, draining, stuck bool
	for {
		if stuck {
			stuck = false
			m.checkUnseen(l)
		}
		if done, res, err := m.answer(ctx, req, l, replayed, begun, over, gone, draining); done {
			return res, err
		}
		if !l.positionKnown() || !l.recordState.loaded() || l.phase == ending || over || req.Wait == 0 {
			stall.Reset(answerWithin/4 + 1)
		}
		wake := l.changed()
		m.outside(func() {
			select {
			case <-wake:
			case <-elapsed:
				over = true
			case <-ctx.Done():
				gone = true
			case <-m.drain:
				draining = true
			case <-stall.C:
				stuck = true
			}
		})
	}
}

// answer decides whether an acquire can be answered now; if so it has ended the request's listening.
func (m *Manager) answer(ctx context.Context, req *locks.AcquireRequest, l *lease, replayed bool, begun time.Duration, over, gone, draining bool) (bool, locks.AcquireResult, error) {
	now := m.clock.Now().Boot()
	leave := func() {
		m.unlisten(l, now)
		m.acquiring--
	}
	fail := func(err error) (bool, locks.AcquireResult, error) {
		leave()
		return true, locks.AcquireResult{}, err
	}
	succeed := func() (bool, locks.AcquireResult, error) {
		leave()
		m.claim(l, now) // whoever is given the token has heard of the grant
		view := m.viewOwn(l)
		view.Token = m.tokens.Make(l.id())
		if view.NotifyURL != "" {
			l.rareFields.telling.given, view.NotifySecret = true, notifySecret(m.layout.Keys[0], l.id())
		}
		return true, locks.AcquireResult{Lease: view, Replayed: replayed}, nil
	}
	alone := l.listeners == 1
	if replayed && (l.phase == waiting || l.phase == held) {
		switch {
		case !l.recordState.loaded() && m.overdue(begun, now):
			return fail(m.unavailable())
		case !l.recordState.loaded():
			m.load(l) // what its record says comes before the first answer
			return false, locks.AcquireResult{}, nil
		case slices.Contains(l.releasedNames(), req.Hold):
			return fail(holdReleased(req.Hold)) // a late repeat takes nothing
		}
	}
	switch {
	case l.phase == ended && l.failure() != nil && l.failure().Code == codeKeyTaken:
		leave()
		res, err := m.replayTaken(ctx, req)
		return true, res, err
	case l.phase == ended && l.failure() != nil:
		if l.failure().Code == locks.CodeNotOwner && alone && !m.keyed(l) {
			// Nobody will ever have its token: its place is given up.
			m.port.Submit(&zk.Write{Ops: l.deletions(nil, -1)}, func(zk.Result) {})
			return fail(&locks.Error{Code: locks.CodeNotOwner, RetryAfter: retryAfter,
				Detail: "another gateway has taken over this gateway's leases, and the place in line was given up; repeat the request"})
		}
		return fail(l.failure())
	case l.phase == ended && l.reason() == locks.ReasonWaitElapsed:
		leave()
		q := m.inTheWay(req.Wants())
		if q == nil {
			q = l.q // it was let go this very moment
		}
		code := notGranted(req)
		if s := m.semaphoreAmong(req.Wants()); s != nil {
			q, code = s, locks.CodeForeignSemaphore
		}
		if s := m.invalidAmong(req.Wants()); s != nil {
			q, code = s, locks.CodeLockInvalid
		}
		return true, locks.AcquireResult{}, m.heldByOther(ctx, req, q, code)
	case l.phase == ended && l.reason() == locks.ReasonGatewayLeft && !l.grant.granted() && !m.keyed(l):
		return fail(m.unavailable()) // its place in line went with the session
	case l.phase == ended:
		return fail(endedError(l.reason()).Because(l.words()))
	case l.phase == held:
		if gone && !m.keyed(l) && alone {
			m.end(l, locks.ReasonCancelled, now)
			return fail(cancelled(ctx))
		}
		return succeed()
	case gone:
		if alone && !m.keyed(l) {
			m.giveUp(l, locks.ReasonCancelled, now)
		}
		return fail(cancelled(ctx))
	case draining:
		if l.phase == waiting && (m.keyed(l) || req.Async) {
			return succeed() // its place outlives this gateway
		}
		if alone && !m.keyed(l) {
			// Nobody will ever have its token, and a successor would give it the lock.
			m.giveUp(l, locks.ReasonCancelled, now)
		}
		return fail(m.usable())
	case l.phase == creating, l.phase == ending:
		if !m.stalled(begun, now) {
			return false, locks.AcquireResult{}, nil
		}
		if alone && !m.keyed(l) && l.phase == creating {
			// Nobody will ever have its token: it ends as soon as it is found.
			m.giveUp(l, locks.ReasonCancelled, now)
		}
		return fail(outcomeUnknown())
	case !replayed && !l.turn() && m.semaphoreAmong(req.Wants()) != nil:
		// It came while this was on its way.
		m.end(l, locks.ReasonWaitElapsed, now)
		return false, locks.AcquireResult{}, nil
	case req.Async:
		return succeed()
	case l.turn():
		// Its turn has come; the grant waits for trust.
		if (req.Wait == 0 || over) && m.stalled(begun, now) {
			if alone && !m.keyed(l) {
				m.giveUp(l, locks.ReasonCancelled, now)
			}
			return fail(m.unavailable())
		}
		if (req.Wait == 0 || over) && now-begun-max(req.Wait, 0) >= answerWithin && alone {
			// Whether somebody stands before it cannot be found out: the
			// directory may not be listed.
			m.end(l, locks.ReasonWaitElapsed, now)
		}
		return false, locks.AcquireResult{}, nil
	case req.Wait == 0, over:
		if !alone {
			// Another request of the same client still waits on this lease.
			return succeed()
		}
		m.end(l, locks.ReasonWaitElapsed, now)
		return false, locks.AcquireResult{}, nil
	}
	return false, locks.AcquireResult{}, nil
}

// notGranted is the code for an acquire that left the queue again. Whoever did
// not wait has no wait that elapsed, even when it took a look from within the
// queue to find the lock taken.
func notGranted(req *locks.AcquireRequest) locks.Code {
	if req.Wait == 0 {
		return locks.CodeHeldByOther
	}
	return locks.CodeWaitElapsed
}

// keyed reports whether the lease's client can find it again by repeating the
// request.
func (m *Manager) keyed(l *lease) bool { return l.key() != "" }

// giveUp ends a lease that nobody wants any more, now or as soon as it is
// known to exist.
func (m *Manager) giveUp(l *lease, reason locks.Reason, now time.Duration) {
	if l.phase == waiting || l.phase == held {
		m.end(l, reason, now)
		return
	}
	l.abandoned = true
}

func cancelled(ctx context.Context) *locks.Error {
	return &locks.Error{Code: locks.CodeCancelled, Detail: "the caller went away", Err: context.Cause(ctx)}
}

func endedError(reason locks.Reason) *locks.Error {
	return &locks.Error{Code: locks.CodeEnded, Reason: reason, Detail: "the lease has ended: " + string(reason)}
}

func namespaceUnknown(field, ns string) *locks.Error {
	return &locks.Error{Code: locks.CodeNamespaceUnknown, Field: field, Detail: "there is no namespace " + ns}
}
