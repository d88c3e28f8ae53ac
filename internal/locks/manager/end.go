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

// deleteRetry is the pause before a refused deletion is tried again.
const deleteRetry = time.Second

// end submits the deletion of a lease's contenders. From here until the outcome is known the lease is ending: it is
// never granted, and heartbeats do not succeed.
func (l *lease) end(m *Manager, reason locks.Reason, now time.Duration) {
	if l.phase == ending || l.phase == ended {
		return
	}
	l.endFor(m, postmortem.CauseOf(reason))
}

// endFor is end for a lease that has not begun to end.
func (l *lease) endFor(m *Manager, why postmortem.Cause) {
	l.beginEnding(m, why)
	l.submitDelete(m)
}

func (l *lease) beginEnding(m *Manager, why postmortem.Cause) {
	if l.access != accessFull {
		l.setAccess(m.leases, accessRefused) // the ACL may have been restored
	}
	m.leases.setPhase(l, ending)
	l.why = why
	m.timers.deadlines.remove(l)
	m.leases.touch(l)
}

// submitDelete submits the deletion. An end by time or by force deletes only the version that was read, so a heartbeat
// or withdrawal that another gateway wrote meanwhile wins. An end that the client requested deletes any version.
func (l *lease) submitDelete(m *Manager) {
	if l.replacing() {
		return // the name to delete is not certain; replaced resumes
	}
	if now := m.clock.Now().Boot(); l.timed() && l.deadline > now {
		// A heartbeat was read after an earlier attempt, or while the end waited. Deleting at the version read with it
		// would discard the heartbeat.
		l.revive(m, now)
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
		m.timers.expiring++
	}
	term, timed, closes := l.term, version != -1, l.closes()
	if fault.On("seen-version") {
		version = -1
	}
	w := &zk.Write{DeletesLast: len(n.ops) > 0 && !closes}
	if closes {
		w.Ops = slices.Concat(n.ops, l.closing(m, version))
	} else {
		w.Ops = l.deletions(n.ops, version)
	}
	if len(n.ops) > 0 {
		l.noteHandedOver(m.leases)
	}
	if closes {
		l.setChange(m.leases, changeClosing)
	} else {
		l.setChange(m.leases, changeDeleting)
	}
	m.port.Submit(w, func(res zk.Result) {
		if timed {
			m.timers.expiring--
		}
		m.noted(l, n, res)
		switch {
		case l.term != term: // adoption has decided anew
		case n.culprit(res):
			if l.phase == ending {
				l.resubmitDelete(m)
			}
		default:
			l.deleted(m, w, closes, res)
		}
	})
}

// deletions returns before, and then the operations that delete the lease's remaining contenders. The first slot's
// contender, which has the record, is deleted at the given version.
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
	slices.Reverse(ops[len(before):]) // from the queue's tail on; the record's deletion can fail, so it is last
	return ops
}

func (l *lease) deleted(m *Manager, w *zk.Write, closes bool, res zk.Result) {
	if l.phase != ending {
		return
	}
	now := m.clock.Now().Boot()
	timed := l.timed()
	switch {
	case res.Outcome == zk.Done && closes:
		l.closed(m, l.reason(), now)
	case res.Outcome == zk.Done:
		l.finish(m, l.reason(), now)
	case res.Outcome == zk.Unknown:
		l.resolve(m)
	case res.Outcome == zk.Conflict:
		l.resubmitDelete(m) // more events must be noted with the end
	case errors.Is(res.Err, zk.ErrNoNode):
		if timed {
			l.why = postmortem.CauseOf(m.takenBy(l)) // another client deleted it first
		}
		for s := range l.slots {
			if res.Culprit < 0 || s.path() == w.Ops[res.Culprit].Path {
				s.delete(m.leases, l)
			}
		}
		l.lost(m, now)
	case l.endRefused(m, res.Err, closes) && closes:
		l.resubmitDelete(m)
	case timed:
		// The deletion was definitely not done: the lease continues as after a heartbeat.
		l.revive(m, now)
		if errors.Is(res.Err, zk.ErrBadVersion) {
			l.recordChanged(m)
		}
	case l.forced() && errors.Is(res.Err, zk.ErrBadVersion):
		// The record was written after it was read, perhaps to withdraw the revocation: force is decided again.
		m.reviveForced(l, now)
		l.recordChanged(m)
	case errors.Is(res.Err, zk.ErrSessionGone):
		l.setChange(m.leases, changePaused)
		m.leases.touch(l) // resumes under the next session
	case errors.Is(res.Err, zk.ErrNotApplied):
		l.resubmitDelete(m)
	default:
		// Refused: no permission, a child node, or a full queue. An end that the client requested is retried after
		// deleteRetry.
		if !errors.Is(res.Err, zk.ErrNoAuth) {
			m.log.Warn("a lease's contender could not be deleted", "lease_id", l.id(), "err", res.Err)
		}
		l.pauseEnd(m)
	}
}

// pauseEnd retries a refused end after deleteRetry.
func (l *lease) pauseEnd(m *Manager) {
	l.setChange(m.leases, changePaused)
	term := l.term
	time.AfterFunc(deleteRetry, func() {
		m.do(func() {
			if l.phase == ending && l.term == term {
				l.resubmitDelete(m)
			}
		})
	})
}

// resubmitDelete continues an end that a client requested.
func (l *lease) resubmitDelete(m *Manager) {
	if m.port.Session() == nil || l.term != m.port.Term() {
		l.setChange(m.leases, changePaused)
		return // adoption resumes it
	}
	l.submitDelete(m)
}

// timed reports whether the lease ends by time, so that a heartbeat may undo the end. A lease that has lost a
// contender always ends.
func (l *lease) timed() bool {
	some, _ := l.gonePart()
	return !some && byTime(l.reason())
}

// revive returns an ending lease to its former phase; a lease that has lost a contender meanwhile ends.
func (l *lease) revive(m *Manager, now time.Duration) {
	if some, _ := l.gonePart(); some {
		l.lost(m, now)
		return
	}
	l.unend(m)
	if l.phase == held {
		l.extend(m, now, l.ttl)
	} else {
		l.extend(m, now, l.waitingClock())
	}
	m.leases.touch(l)
	l.evaluateAll(m, now)
}

// unend returns an ending lease to the phase that its grant implies.
func (l *lease) unend(m *Manager) {
	if l.grant.granted() {
		m.leases.setPhase(l, held)
	} else {
		m.leases.setPhase(l, waiting)
	}
	l.why = 0
	if l.endNote == noteSubmitted {
		l.setNote(m.leases, noteNone)
	}
}

// Release ends a lease: it releases the lock or leaves the queue. A repeat returns nil again. A lease that ended
// otherwise is CodeEnded.
func (m *Manager) Release(ctx context.Context, p locks.Principal, id, token string) error {
	named, err := m.fleet.bearer(p, id, token)
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

// bearer returns the lease of a token; a non-empty id must match it. It needs no lock; the check costs one hash.
func (f *fleet) bearer(_ locks.Principal, id, token string) (recipe.LeaseID, *locks.Error) {
	select {
	case <-f.ready:
	default:
		return "", unavailable()
	}
	if token == "" {
		return "", &locks.Error{Code: locks.CodeTokenMissing, Detail: "give the lease's token: in the Lease-Token header, or as an entry of tokens"}
	}
	named, genuine := f.tokens.Check(token)
	if !genuine || (id != "" && id != string(named)) {
		return named, &locks.Error{Code: locks.CodeTokenWrong, Detail: "the Lease-Token is not the one of this lease"}
	}
	return named, nil
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

// needsNewer is the answer about a lease whose contenders have names of a later release. Such a contender keeps its
// position, counts as exclusive, and is listed. A successor of an earlier release neither changes it nor reports its
// end. A successor of that later release adopts it, with takeover + promise window + TTL.
func needsNewer() *locks.Error {
	return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter,
		Detail: "a later release made this lease, and this gateway, which has taken it over, does not understand it; it stays until a gateway of that release succeeds this one: upgrade this one"}
}
