package manager

import (
	"context"
	"errors"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/settings"
)

// Acquire takes a lock, queues for it, or tries once. It blocks for little longer than req.Wait.
// When ctx ends, the manager ends the lease, unless the client can find it again by its idempotency key.
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

// attempt takes a lock. It returns a queue if a plain node occupies that lock's path: the caller waits with awaitPlace.
// The error codePlainNode means that a plain node was in the way; the caller tries again at once.
// The caller holds the monitor; attempt releases it while it waits.
func (m *Manager) attempt(ctx context.Context, req *locks.AcquireRequest) (locks.AcquireResult, *queues.Queue, error) {
	wants, key, err := m.prepareAcquire(ctx, req)
	switch {
	case err != nil:
		return locks.AcquireResult{}, nil, err
	case key != nil && key.lease != "":
		res, err := m.replay(ctx, req, key)
		return res, nil, err
	}
	q, code := m.obstacleOf(wants, locks.CodeHeldByOther)
	never := code != locks.CodeHeldByOther // no lease may queue there
	place := m.firstObstructed(wants)
	if q == nil {
		q = place
	}
	if q != nil && (never || req.Wait == 0 && (!req.Async || place != nil)) {
		older, err := m.keyBefore(ctx, key, q)
		switch {
		case err != nil:
			return locks.AcquireResult{}, nil, err
		case older != nil:
			res, err := m.replay(ctx, req, older)
			return res, nil, err
		case never || place == nil || !place.Extras().Suspect:
			return locks.AcquireResult{}, nil, m.heldByOther(ctx, req, q, code)
		}
		// The node's kind is not known yet: even a try waits for it.
	}
	if refused := m.room(req, wants, q != nil); refused != nil {
		res, err := m.refuse(ctx, req, key, refused)
		return res, nil, err
	}
	if place != nil {
		if err := m.obstruct(place); err != nil {
			return locks.AcquireResult{}, nil, err
		}
		return locks.AcquireResult{}, place, nil
	}
	l, err := m.newLease(wants, req)
	if err != nil {
		return locks.AcquireResult{}, nil, err
	}
	if key != nil {
		l.rare().key, key.lease = key.hash, l.id()
		m.keys.add(key)
	}
	m.create(l, key, req, 0, nil)
	res, err := m.await(ctx, req, l, false)
	return res, nil, err
}

// keyBefore looks for an idempotency key that may be older than this process; nil means none.
// Otherwise the repeat of a granted acquire could be refused because its own lease holds the lock. q stays meanwhile.
func (m *Manager) keyBefore(ctx context.Context, key *keyEntry, q *queues.Queue) (*keyEntry, error) {
	if key == nil {
		return nil, nil
	}
	q.Polls++
	older, err := m.olderKey(ctx, key)
	q.Polls--
	if err != nil || older != nil {
		m.replica.Forget(q)
	}
	if err != nil {
		return nil, err
	}
	return older, nil
}

// prepareAcquire returns the request's want for each lock, and its key: a known one with its lease, a new one, or nil.
// It refuses a want that contradicts a lock's settings only after a barrier, and only if no older process wrote the key.
// The caller holds the monitor; prepareAcquire releases it while it waits.
func (m *Manager) prepareAcquire(ctx context.Context, req *locks.AcquireRequest) (wants []locks.Want, key *keyEntry, err error) {
	for met := false; ; met = true {
		if err := m.usable(); err != nil {
			return nil, nil, err
		}
		wants = req.Wants()
		if err := nameable(m.replica, req, wants); err != nil {
			return nil, nil, err
		}
		if req.IdempotencyKey != "" {
			hash := m.fleet.tokens.Names.Name(req)
			if known := m.keys.byHash[hash]; known != nil {
				return nil, known, nil
			}
			key = &keyEntry{hash: hash, fingerprint: record.Fingerprint(req)}
		}
		wants, wrong := settings.Sized(m.replica, req, wants)
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

func cancelled(ctx context.Context) *locks.Error {
	return &locks.Error{Code: locks.CodeCancelled, Detail: "the caller went away", Err: context.Cause(ctx)}
}

func endedError(reason locks.Reason) *locks.Error {
	return &locks.Error{Code: locks.CodeEnded, Reason: reason, Detail: "the lease has ended: " + string(reason)}
}

func namespaceUnknown(field, ns string) *locks.Error {
	return &locks.Error{Code: locks.CodeNamespaceUnknown, Field: field, Detail: "there is no namespace " + ns}
}
