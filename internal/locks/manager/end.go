package manager

import (
	"context"
	"errors"
	"slices"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

// deleteRetry is when a deletion that ZooKeeper refused is tried again.
const deleteRetry = time.Second

// end hands the deletion of a lease's contender to ZooKeeper. From here on
// the lease is ending: it is never granted, and heartbeats are not answered
// with success, until the outcome is known.
func (m *Manager) end(l *lease, reason locks.Reason, now time.Duration) {
	if l.phase == ending || l.phase == ended {
		return
	}
	m.endFor(l, postmortem.CauseOf(reason))
}

// endFor is end for a lease that has not begun to end.
func (m *Manager) endFor(l *lease, why postmortem.Cause) {
	m.beginEnding(l, why)
	m.submitDelete(l)
}

func (m *Manager) beginEnding(l *lease, why postmortem.Cause) {
	if l.access != accessFull {
		l.setAccess(m, accessRefused) // the ACL may have been restored
	}
	m.setPhase(l, ending)
	l.why = why
	m.deadlines.remove(l)
	m.touch(l)
}

// submitDelete sends the deletion. What time decided, and what force ends, deletes only the version
// that was seen: a heartbeat, or a withdrawal, that another gateway wrote meanwhile wins. What
// the client asked for deletes any version.
func (m *Manager) submitDelete(l *lease) {
	if l.replacing() {
		return // the name to delete is not certain; replaced goes on
	}
	if now := m.clock.Now().Boot(); l.timed() && l.deadline > now {
		// It was sent before, or waited, and a heartbeat was read meanwhile: the
		// version that came with it would swallow it.
		m.revive(l, now)
		return
	} else if l.forced() && l.forceAt() == 0 {
		m.reviveForced(l, now) // the revocation was withdrawn while the end waited
		return
	}
	n, ready := m.noteEnd(l)
	if !ready {
		m.holdUp(l)
		return
	}
	version := int32(-1)
	if l.timed() || l.forced() && !fault.On("force-withdrawn") {
		version = l.dataVersion()
		m.expiring++
	}
	term, timed, closes := l.term, version != -1, l.closes()
	if fault.On("seen-version") {
		version = -1
	}
	w := &zk.Write{DeletesLast: len(n.ops) > 0 && !closes}
	if closes {
		w.Ops = slices.Concat(n.ops, m.closing(l, version))
	} else {
		w.Ops = l.deletions(n.ops, version)
	}
	if len(n.ops) > 0 {
		l.noteHandedOver(m)
	}
	if closes {
		l.setChange(m, changeClosing)
	} else {
		l.setChange(m, changeDeleting)
	}
	m.port.Submit(w, func(res zk.Result) {
		if timed {
			m.expiring--
		}
		m.noted(l, n, res)
		switch {
		case l.term != term: // adoption has decided anew
		case n.culprit(res):
			if l.phase == ending {
				m.resubmitDelete(l)
			}
		default:
			m.deleted(l, w, closes, res)
		}
	})
}

// deletions are the operations that delete what there is of a lease; the first
// slot's contender at the given version, which its record has. What belongs before them
// stands before them.
func (l *lease) deletions(before []zk.Op, version int32) []zk.Op {
	ops := append(make([]zk.Op, 0, len(before)+l.width()), before...)
	for s := range l.slots {
		if s.presence.gone() || s.name() == "" {
			continue
		}
		v := int32(-1)
		if s == &l.slot {
			v = version
		}
		ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: s.path(), Version: v})
	}
	slices.Reverse(ops[len(before):]) // the record, which can fail, counts last; members of one queue go from its tail
	return ops
}

func (m *Manager) deleted(l *lease, w *zk.Write, closes bool, res zk.Result) {
	if l.phase != ending {
		return
	}
	now := m.clock.Now().Boot()
	timed := l.timed()
	switch {
	case res.Outcome == zk.Done && closes:
		m.closed(l, l.reason(), now)
	case res.Outcome == zk.Done:
		m.finish(l, l.reason(), now)
	case res.Outcome == zk.Unknown:
		m.resolve(l)
	case res.Outcome == zk.Conflict:
		m.resubmitDelete(l) // others want to be told
	case errors.Is(res.Err, zk.ErrNoNode):
		if timed {
			l.why = postmortem.CauseOf(m.takenBy(l)) // another hand was quicker
		}
		for s := range l.slots {
			if res.Culprit < 0 || s.path() == w.Ops[res.Culprit].Path {
				s.delete(m, l)
			}
		}
		m.lost(l, now)
	case m.endRefused(l, res.Err, closes) && closes:
		m.resubmitDelete(l)
	case timed:
		// Definitely not done: it goes on as if its client had just spoken.
		m.revive(l, now)
		if errors.Is(res.Err, zk.ErrBadVersion) {
			m.recordChanged(l)
		}
	case l.forced() && errors.Is(res.Err, zk.ErrBadVersion):
		// Its record was written since it was read, perhaps to withdraw the revocation: force is decided again.
		m.reviveForced(l, now)
		m.recordChanged(l)
	case errors.Is(res.Err, zk.ErrSessionGone):
		l.setChange(m, changePaused)
		m.touch(l) // goes on under the next session
	case errors.Is(res.Err, zk.ErrNotApplied):
		m.resubmitDelete(l)
	default:
		// Refused: no permission, a child below it, a full line. What the client
		// asked for goes on, at a pace.
		if !errors.Is(res.Err, zk.ErrNoAuth) {
			m.log.Warn("a lease's contender could not be deleted", "lease_id", l.id(), "err", res.Err)
		}
		m.pauseEnd(l)
	}
}

// pauseEnd has an end that was refused tried again later.
func (m *Manager) pauseEnd(l *lease) {
	l.setChange(m, changePaused)
	term := l.term
	time.AfterFunc(deleteRetry, func() {
		m.do(func() {
			if l.phase == ending && l.term == term {
				m.resubmitDelete(l)
			}
		})
	})
}

// resubmitDelete goes on with an end that a client asked for.
func (m *Manager) resubmitDelete(l *lease) {
	if m.port.Session() == nil || l.term != m.port.Term() {
		l.setChange(m, changePaused)
		return // adoption resumes it
	}
	m.submitDelete(l)
}

// timed reports whether it is time that decides an end, and a heartbeat may take it back: not when
// the lease has lost a part.
func (l *lease) timed() bool {
	some, _ := l.gonePart()
	return !some && byTime(l.reason())
}

// revive makes an ending lease what it was before; one that has lost a part meanwhile ends
// whole.
func (m *Manager) revive(l *lease, now time.Duration) {
	if some, _ := l.gonePart(); some {
		m.lost(l, now)
		return
	}
	m.unend(l)
	if l.phase == held {
		m.extend(l, now, l.ttl)
	} else {
		m.extend(l, now, l.waitingClock())
	}
	m.touch(l)
	m.evaluateAll(l, now)
}

// unend makes an ending lease what its grant says that it was.
func (m *Manager) unend(l *lease) {
	if l.grant.granted() {
		m.setPhase(l, held)
	} else {
		m.setPhase(l, waiting)
	}
	l.why = 0
	if l.endNote == noteSubmitted {
		l.setNote(m, noteNone)
	}
}

// Release ends a lease: lets go of the lock, or leaves the queue. It may be
// repeated: nil again. A lease that ended otherwise is CodeEnded.
func (m *Manager) Release(ctx context.Context, p locks.Principal, id, token string) error {
	named, err := m.bearer(p, id, token)
	if err != nil {
		return err
	}
	return locked(m, func() error {
		l, err := m.findOwn(ctx, named)
		switch {
		case err == nil:
			return m.letGo(ctx, l)
		case err.Code == locks.CodeEnded && isLetGo(err.Reason):
			return nil
		}
		return err
	})
}

// isLetGo reports whether an end is what a release asks for. Of a lease that is
// gone for a reason that nobody knows, it is.
func isLetGo(reason locks.Reason) bool {
	return reason == locks.ReasonReleased || reason == locks.ReasonCancelled || reason == locks.ReasonUnknown
}

// letGo releases a lease, and follows it until that is known. The monitor is held, and released while it waits.
func (m *Manager) letGo(ctx context.Context, l *lease) error {
	sent := false
	late := func() *locks.Error {
		if sent || l.phase == ending {
			return outcomeUnknown()
		}
		return m.unavailable()
	}
	err := m.untilDone(ctx, late, func() (*lease, *locks.Error) {
		switch l.phase {
		case waiting, held:
			switch {
			case m.draining:
				return nil, m.usable()
			case l.term != m.port.Term() || m.port.Session() == nil:
				return nil, m.unavailable()
			case !l.recordState.loaded():
				// Of a lease that was taken over: it may have ended, and a lock delay may follow.
				m.load(l)
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
			m.end(l, reason, m.clock.Now().Boot())
			if l.phase == ending && m.port.Session() == nil {
				return nil, outcomeUnknown()
			}
		case creating:
			return nil, m.unavailable()
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

// bearer tells which lease a token speaks for; id, when not empty, is the one
// that the caller means. It needs no lock: checking costs a hash.
func (m *Manager) bearer(_ locks.Principal, id, token string) (recipe.LeaseID, *locks.Error) {
	select {
	case <-m.ready:
	default:
		return "", m.unavailable()
	}
	if token == "" {
		return "", &locks.Error{Code: locks.CodeTokenMissing, Detail: "give the lease's token: in the Lease-Token header, or as an entry of tokens"}
	}
	named, genuine := m.tokens.Check(token)
	if !genuine || (id != "" && id != string(named)) {
		return named, &locks.Error{Code: locks.CodeTokenWrong, Detail: "the Lease-Token is not the one of this lease"}
	}
	return named, nil
}

// owned finds a lease that this gateway owns. An ended one is CodeEnded with
// its reason.
func (m *Manager) owned(id recipe.LeaseID) (*lease, *locks.Error) {
	if l := m.leases[id]; l != nil {
		return l, nil
	}
	return nil, m.absent(id)
}

// absent tells why there is no lease with that id.
func (m *Manager) absent(id recipe.LeaseID) *locks.Error {
	if past, ok := m.history.Get(id); ok {
		return endedError(past.Reason()).Because(past.Words)
	}
	if seen, ok := m.witnessed.Get(id); m.orphans[id] != nil || ok && !seen.Heard && seen.Reason() == locks.ReasonGatewayLeft {
		return endedError(locks.ReasonGatewayLeft)
	}
	if !m.trusted() {
		return m.unavailable()
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
		return m.unavailable() // a takeover is on its way
	case m.replica.HasNewer(id) && !away:
		return needsNewer()
	case owner == m.members.Self():
		return m.heardGone(id)
	case away:
		return m.notOwner(id)
	case m.members.Contenders(owner) > 0, m.members.Contenders(id.Gateway()) > 0:
		return m.unavailable() // its gateway is gone; it is being taken over
	}
	gone := m.heardGone(id)
	gone.UnknownGateway = !m.members.IsOwn(id.Gateway()) && m.members.Get(id.Gateway()) == nil
	return gone
}

// needsNewer is the answer about a lease whose contenders have names of a later release. Such a contender stands in its queue,
// counts as exclusive, and is shown. A gateway that has succeeded its gateway does nothing about it, and does not say that it has
// ended: a later release's gateway that succeeds this one adopts it, with takeover + promise window + TTL.
func needsNewer() *locks.Error {
	return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter,
		Detail: "a later release made this lease, and this gateway, which has taken it over, does not understand it; it stays until a gateway of that release succeeds this one: upgrade this one"}
}
