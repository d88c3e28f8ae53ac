package manager

import (
	"context"
	"errors"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// A gateway that cannot reach the owner of a lease releases the lease in the owner's place, once it has checked the token.
// It writes into the lease's record, at the version that it read, that the lease is closed: from that commit on the lease
// has ended, and this gateway publishes the end. Then the place is freed, unless a lock delay keeps it.
//
//   - The outcome of the closing write is unknown: the record is read again. When it is closed, the release is done,
//     whichever gateway closed it. A repeated release finds the same.
//   - The owner lives and is only cut off from this gateway. It is sent the change, reads that the lease is closed, ends
//     it with that reason and frees the place. This gateway leaves it freePlaceAfter for that: once the node is gone, the
//     owner could only tell its client that the lease was removed. A write of the owner's names the version that it has
//     applied, so of that write and the closing write exactly one is done.
//   - The owner is dead: this gateway frees the place. When it dies first, the successor reads closed before anything else.
//   - A lock delay or at_least applies: the owner or its successor reads closed, keeps the place for the whole of it, and frees it.
//   - A lease of several locks has one record, so one write closes it. Its places are freed in one transaction.
//   - Another program has written over the record: nothing is known of a lock delay, and it is CodeUnavailable.

// freePlaceAfter is how long the owner of a lease that another gateway has closed may take to free the place.
const freePlaceAfter = 250 * time.Millisecond

// ReleaseFor releases a lease that another gateway runs, in its place, when it cannot be reached. Errors are as those of
// Release. A lease that this gateway runs is released as by Release.
func (m *Manager) ReleaseFor(ctx context.Context, p locks.Principal, token string) error {
	id, wrong := m.fleet.bearer(p, "", token)
	if wrong != nil {
		return wrong
	}
	return m.releaseFor(ctx, id)
}

func (m *Manager) releaseFor(ctx context.Context, id recipe.LeaseID) error {
	ctx, cancel := context.WithTimeout(ctx, 2*settleWithin)
	defer cancel()
	for range adminAttempts {
		r, err := m.leaseToRelease(ctx, id)
		if r == nil || err != nil {
			return err
		}
		found, err := r.read(ctx)
		switch {
		case err != nil:
			return err
		case !found:
			continue
		case r.t.close != nil && !fault.On("release-closed"):
			again, err := m.terminate(ctx, r.why, r.t)
			if err != nil {
				return err
			}
			if again != nil {
				continue
			}
		}
		if !r.stays {
			m.freePlace(ctx, r)
		}
		return releasedFor(endedError(r.why.Reason).Because("", r.why.By))
	}
	return outcomeUnknown()
}

// releasing is the release of a lease in the place of its owner.
type releasing struct {
	m       *Manager
	id      recipe.LeaseID
	t       *target
	session term.Session
	held    bool // the replica shows it
	why     reports.Cause
	stays   bool // its place stays for its lock delay
}

// releasedFor is nil for the end of a lease that has the effect of a release, and for any other the error.
func releasedFor(ended *locks.Error) error {
	if ended.Code == locks.CodeEnded && isRelease(ended.Reason) {
		return nil
	}
	return ended
}

// ownerGone reports whether the gateway that runs a lease is known and not registered any more: its takeover is under
// way. The monitor is held.
func (m *Manager) ownerGone(id recipe.LeaseID) bool {
	owner, known := m.members.OwnerOf(id.Gateway())
	return known && m.members.Get(id.Gateway()) != nil && owner != m.members.Self() && !m.members.Registered(owner) && m.trusted()
}

// leaseToRelease finds a lease of another gateway. Without a result and an error it has been released.
func (m *Manager) leaseToRelease(ctx context.Context, id recipe.LeaseID) (*releasing, error) {
	if err := m.barrier(ctx); err != nil {
		return nil, err
	}
	return locked2(m, func() (*releasing, error) {
		if err := m.usable(); err != nil {
			return nil, err
		}
		if l := m.leases.lease(id); l != nil {
			return nil, m.request(ctx).release(l)
		}
		at, found := m.replica.FindLease(id, m.clock.Now().Boot())
		switch {
		case m.history.Has(id), m.orphans[id] != nil, m.members.Owns(id.Gateway()):
			return nil, releasedFor(m.absent(id))
		case found:
		case m.replica.HasNewer(id):
			return nil, needsNewer()
		default: // the replica shows every lease whose token a client had before the barrier
			if err := m.mayMiss(id); err != nil {
				return nil, err
			}
			return nil, releasedFor(reportedGone(&m.observedEnds, id))
		}
		parts := wholeOf(m.replica, at)
		if parts == nil || at.Contender.Unknown || !at.Queue.Namespace.Whole {
			return nil, m.notOwner(id)
		}
		held, sure := m.holdsForSure(parts)
		if !sure {
			return nil, unavailable()
		}
		c := reports.Cause{Reason: locks.ReasonCancelled, Trace: locks.TraceParentOf(ctx)}
		if held {
			c.Reason = locks.ReasonReleased
		}
		return &releasing{m: m, id: id, t: &target{at: at, version: -1}, session: m.port.Session(), held: held, why: c}, nil
	})
}

// read reads the lease's record, and makes of it the one that says that the lease has ended. A record that says so
// already tells why. It reports false when the lease is to be looked for again.
func (r *releasing) read(ctx context.Context) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	data, stat, err := r.session.Get(ctx, r.t.at.Path())
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return false, nil
	case err != nil:
		return false, unavailableFor(err)
	}
	if refused := r.leaveToOwner(ctx, data); refused != nil {
		return false, refused
	}
	var known record.Record
	closed, err := record.Edit(data, func(found record.Record, members record.Members) bool {
		if known = found; known.Closed != nil {
			r.why.Reason, r.why.By = known.Closed.Reason, known.Closed.By
			return false
		}
		members.Set("closed", record.Closed{Reason: r.why.Reason, At: r.m.clock.Now().Wall().Milliseconds()})
		return true
	})
	if err != nil {
		return false, writtenOver()
	}
	r.t.learn(known, stat)
	r.t.close = closed
	r.m.do(func() { r.t.at.Queue.SetNode(r.t.at.Contender.Name, data, stat) }) // for its postmortem
	end := record.Closed{Reason: r.why.Reason}
	if known.Closed != nil {
		end = *known.Closed
	}
	r.stays = known.DelayAfter(end) > 0
	return true, nil
}

// leaveToOwner refuses a release that makes a period done: that is written in the transaction that ends the lease, by its owner or
// the owner's successor.
func (r *releasing) leaveToOwner(ctx context.Context, data []byte) *locks.Error {
	known, ok := record.Parse(data)
	switch {
	case !ok || known.Once == nil || known.Closed != nil:
	case known.Once.DoneOn == locks.DoneOnGrant && locks.IsUndone(ctx):
		return undoneOnGrant()
	case known.Once.DoneOn == locks.DoneOnRelease && r.held && !locks.IsUndone(ctx):
		return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter,
			Detail: "the gateway that runs this lease cannot be reached, and no other gateway can record that the period is done; repeat the request"}
	}
	return nil
}

// undoneOnGrant is the answer to a release that takes back what the grant has made.
func undoneOnGrant() *locks.Error {
	return locks.Invalid("done", "the period was done with the grant, whatever becomes of the work: leave done out, or acquire with done_on=release")
}

// freePlace deletes the contenders of a lease that is closed, unless its owner does. What is left after an error is freed
// by the owner or its successor.
func (m *Manager) freePlace(ctx context.Context, r *releasing) {
	at := r.t.at
	there := func() bool { return at.Queue.Contenders.Get(at.Contender.Name) == at.Contender }
	gone := locked(m, func() bool {
		owner, _ := m.members.OwnerOf(r.id.Gateway())
		for begun := m.clock.Now().Boot(); there() && m.members.Registered(owner) && m.clock.Now().Boot()-begun < freePlaceAfter; {
			if m.sleep(ctx, nil, freePlaceAfter/10) != nil {
				break
			}
		}
		return !there()
	})
	if gone {
		return
	}
	if _, err := m.terminate(ctx, r.why, &target{at: at, version: -1, looked: true, ended: r.why.Reason, endedBy: r.why.By}); err != nil {
		m.log.Warn("the place of a lease that was released for another gateway could not be freed", "lease_id", r.id, "err", err)
	}
}

// Release ends a lease: it releases the lock or leaves the queue. A repeat returns nil again. A lease that ended
// otherwise is CodeEnded.
func (m *Manager) Release(ctx context.Context, p locks.Principal, id, token string) error {
	named, err := m.fleet.bearer(p, id, token)
	if err != nil {
		return err
	}
	return locked(m, func() (failed error) {
		l, err := m.request(ctx).findOwn(named)
		switch {
		case err == nil:
			return m.request(ctx).release(l)
		case err.Code == locks.CodeEnded && isRelease(err.Reason):
			return nil
		case m.ownerGone(named):
			m.outside(func() { failed = m.releaseFor(ctx, named) })
			return failed
		}
		return err
	})
}

// isRelease reports whether an end has the effect of a release. An unknown reason counts as one.
func isRelease(reason locks.Reason) bool {
	return reason == locks.ReasonReleased || reason == locks.ReasonCancelled || reason == locks.ReasonUnknown
}

// release releases a lease and waits until the outcome is known. The monitor is held, and released while it waits.
func (r request) release(l *lease) error {
	m, ctx := r.m, r.ctx
	sent := false
	late := func() *locks.Error {
		if sent || l.Ending() {
			return outcomeUnknown()
		}
		return unavailable()
	}
	err := r.untilDone(late, func() (*lease, *locks.Error) {
		switch l.Phase() {
		case lifecycle.Waiting, lifecycle.Held:
			switch {
			case m.life.draining:
				return nil, m.usable()
			case l.term != m.port.Term() || m.port.Session() == nil:
				return nil, unavailable()
			case !l.Record().Loaded():
				// The record of a lease that was taken over is read first: it may show an end or a lock delay.
				l.load(m)
				return l, nil
			}
			if o := l.once(); o != nil && locks.IsUndone(ctx) {
				if o.On == locks.DoneOnGrant {
					return nil, undoneOnGrant()
				}
				o.undone = true
			}
			reason := locks.ReasonReleased
			if l.Waiting() && l.Grant() == lifecycle.GrantNone {
				reason = locks.ReasonCancelled
			}
			if trace := locks.TraceParentOf(ctx); trace != "" {
				l.rare().cause = &reports.Cause{Trace: trace}
			}
			sent = true
			l.end(m, reason, m.clock.Now().Boot())
			if l.Ending() && m.port.Session() == nil {
				return nil, outcomeUnknown()
			}
		case lifecycle.Creating:
			return nil, unavailable()
		case lifecycle.Ending:
			return l, l.refusedEnd()
		case lifecycle.Ended:
			if o := l.once(); o != nil && o.Open() { // its contender was seen to go: the reply tells whether by this release
				return l, nil
			}
			reason := l.reason()
			if o := l.once(); o != nil && o.Missed() {
				reason = locks.ReasonRemoved
			}
			switch {
			case l.failure() != nil:
				return nil, l.failure()
			case reason == locks.ReasonReleased, reason == locks.ReasonCancelled:
				return nil, nil
			}
			return nil, l.endedError(reason)
		}
		return l, nil
	})
	if err != nil {
		return err
	}
	return nil
}
