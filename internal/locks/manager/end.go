package manager

import (
	"context"
	"errors"
	"slices"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// end submits the deletion of a lease's contenders. From here until the outcome is known the lease is ending: it is
// never granted, and heartbeats do not succeed.
func (l *lease) end(m *Manager, reason locks.Reason, now time.Duration) {
	if l.Ending() || l.Ended() {
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
	if l.Access() != lifecycle.AccessFull {
		l.SetAccess(m.leases, lifecycle.AccessRefused) // the ACL may have been restored
	}
	m.leases.setPhase(l, lifecycle.Ending)
	l.why = why
	m.timers.deadlines.remove(l)
	m.leases.touch(l)
}

// submitDelete submits the deletion. An end by time or by force deletes only the version that was read, so a heartbeat
// or withdrawal that another gateway wrote meanwhile wins. An end that the client requested deletes any version.
//
// A lease of a former session may be another gateway's by now, which this gateway does not know until its replica shows the
// succession. Adoption resumes its end; if another gateway has the lease, nothing is deleted here.
func (l *lease) submitDelete(m *Manager) {
	if l.replacing() {
		return // the name to delete is not certain; replaced resumes, or adoption
	}
	if m.port.Session() == nil || l.term != m.port.Term() {
		l.SetChange(m.leases, lifecycle.ChangePaused)
		return
	}
	if l.endOvertaken(m) {
		return
	}
	n, ready := m.deliveries.end(l)
	if !ready {
		l.holdUp(m)
		return
	}
	mark, ready := l.once().marking(m, l)
	if !ready {
		return
	}
	version := int32(-1)
	if l.timed() || l.forced() && !fault.On("force-withdrawn") {
		version = l.dataVersion()
		m.timers.expiring++
	}
	stays := l.stays(m.clock.Now().Boot())
	term, timed, closes := l.term, version != -1, stays > 0
	var closed record.Closed
	if fault.On("seen-version") {
		version = -1
	}
	w := &zk.Write{DeletesLast: len(n.ops)+len(mark) > 0 && !closes, Awaited: l.blocks()}
	if closes {
		closed = record.Closed{Reason: l.reason(), By: l.cause().By, At: m.clock.Now().Wall().Milliseconds(), Stays: stays.Milliseconds()}
		w.Ops = slices.Concat(n.ops, mark, l.closing(closed, version))
	} else {
		w.Ops = l.deletions(version, n.ops, mark)
	}
	if len(n.ops) > 0 {
		l.NoteHandedOver(m.leases)
	}
	if closes {
		l.SetChange(m.leases, lifecycle.ChangeClosing)
	} else {
		l.SetChange(m.leases, lifecycle.ChangeDeleting)
	}
	if len(mark) > 0 {
		l.once().Try()
	}
	m.port.Submit(w, func(res zk.Result) {
		if timed {
			m.timers.expiring--
		}
		m.deliveries.ended(l, n, res)
		if o := l.once(); o != nil {
			o.mark = nil // of another attempt it is decided anew
			o.markTried(m, l, res.Outcome)
		}
		switch {
		case l.term != term: // adoption has decided anew
		case n.culprit(res), res.Outcome == zk.NotDone && res.Culprit >= len(n.ops) && res.Culprit < len(n.ops)+len(mark):
			if l.Ending() {
				l.submitAgain(m, closes)
			}
		default:
			l.deleted(m, w, closed, closes, res)
		}
	})
}

// endOvertaken reports whether the lease is not to be deleted now, and does what is due instead.
func (l *lease) endOvertaken(m *Manager) bool {
	switch {
	case l.timed():
		if now := m.clock.Now().Boot(); l.deadline > now {
			// A heartbeat was read after an earlier attempt, or while the end waited. Deleting at the version read with it
			// would discard the heartbeat.
			l.revive(m, now)
			return true
		}
	case l.forced() && l.forceAt() == 0:
		l.reviveForced(m, m.clock.Now().Boot()) // the revocation was withdrawn while the end waited
		return true
	}
	if _, all := l.gonePart(); all {
		l.finish(m, l.reason(), m.clock.Now().Boot())
		return true
	}
	return false
}

func (l *lease) deleted(m *Manager, w *zk.Write, closed record.Closed, closes bool, res zk.Result) {
	if !l.Ending() {
		return
	}
	now := m.clock.Now().Boot()
	timed := l.timed()
	switch {
	case res.Outcome == zk.Done && closes:
		l.closed(m, closed, now)
	case res.Outcome == zk.Done:
		l.finish(m, l.reason(), now)
	case res.Outcome == zk.Unknown:
		l.resolve(m)
	case res.Outcome == zk.Conflict:
		l.submitAgain(m, closes) // more events must be noted with the end
	case errors.Is(res.Err, zk.ErrNoNode):
		if timed || l.yields(m.reports, closes) {
			l.why = postmortem.CauseOf(l.removedBy(m)) // another client deleted it first, and its period is not done
		}
		l.SetChange(m.leases, lifecycle.ChangePaused)
		for s := range l.slots {
			if res.Culprit < 0 || s.path() == w.Ops[res.Culprit].Path {
				s.presence.Delete(m.leases, &l.State)
			}
		}
		l.lost(m, now)
	case l.endRefused(m, res.Err, closes) && closes:
		l.submitDelete(m)
	case timed:
		// The deletion was definitely not done: the lease continues as after a heartbeat.
		l.revive(m, now)
		if errors.Is(res.Err, zk.ErrBadVersion) {
			l.recordChanged(m)
		}
	case l.forced() && errors.Is(res.Err, zk.ErrBadVersion):
		// The record was written after it was read, perhaps to withdraw the revocation: force is decided again.
		l.reviveForced(m, now)
		l.recordChanged(m)
	case errors.Is(res.Err, zk.ErrSessionGone):
		l.SetChange(m.leases, lifecycle.ChangePaused)
		m.leases.touch(l) // resumes under the next session
	case errors.Is(res.Err, zk.ErrNotApplied):
		l.submitAgain(m, closes)
	default:
		// Refused: no permission, a child node, or a full queue. An end that the client requested is retried after
		// deleteRetry.
		if !errors.Is(res.Err, zk.ErrNoAuth) {
			m.log.Warn("a lease's contender could not be deleted", "lease_id", l.id(), "err", res.Err)
		}
		l.pauseEnd(m)
	}
}

// yields reports whether an end takes the reason of another client that deleted the contenders, where the write of this gateway
// was not done. The wish of the lease's own client stays the reason.
func (l *lease) yields(x *reports.Exchange, closes bool) bool {
	return closes && !l.wished() || l.once().marks(l) || l.contested(x)
}

// submitAgain submits an end again whose write was not done. Another client may have deleted the contenders meanwhile.
func (l *lease) submitAgain(m *Manager, closes bool) {
	if _, all := l.gonePart(); all && l.yields(m.reports, closes) {
		l.why = postmortem.CauseOf(l.removedBy(m))
	}
	l.submitDelete(m)
}

// pauseEnd retries a refused end after deleteRetry.
func (l *lease) pauseEnd(m *Manager) {
	l.SetChange(m.leases, lifecycle.ChangePaused)
	term := l.term
	time.AfterFunc(deleteRetry, func() {
		m.do(func() {
			if l.Ending() && l.term == term {
				l.submitDelete(m)
			}
		})
	})
}

// revive returns an ending lease to its former phase; a lease that has lost a contender meanwhile ends.
func (l *lease) revive(m *Manager, now time.Duration) {
	if some, _ := l.gonePart(); some {
		l.lost(m, now)
		return
	}
	l.unend(m)
	if l.Held() {
		l.extend(m, now, l.ttl)
	} else {
		l.extend(m, now, l.waitingClock())
	}
	m.leases.touch(l)
	l.evaluateAll(m, now)
}

// reviveForced is revive for a lease that force was ending.
func (l *lease) reviveForced(m *Manager, now time.Duration) {
	l.rareFields.cause = nil
	l.revive(m, now)
}

// unend returns an ending lease to the phase that its grant implies.
func (l *lease) unend(m *Manager) {
	if l.Grant().Granted() {
		m.leases.setPhase(l, lifecycle.Held)
	} else {
		m.leases.setPhase(l, lifecycle.Waiting)
	}
	l.why = 0
	l.NoteTakenBack(m.leases)
}

// lost ends the whole of a lease that has lost a contender.
func (l *lease) lost(m *Manager, now time.Duration) {
	_, all := l.gonePart()
	switch {
	case all && l.undecided(m.reports):
		return
	case all:
		l.finish(m, l.lossReason(m), now)
	case l.Ending():
		l.submitDelete(m)
	case !fault.On("group-whole"):
		l.end(m, l.lossReason(m), now)
	}
}

// contested reports whether another gateway may be ending a lease at the same time: the lease is ending by time, and another
// gateway has announced that it ends it; or it is ending by force, and its client may release it at another gateway.
func (l *lease) contested(x *reports.Exchange) bool {
	return l.Ending() && (byTime(l.reason()) && x.Ordered(reports.LeaseOrPath(l.id())) != nil || l.why == postmortem.Forced)
}

// undecided reports whether only the reply to the write that ends a lease tells which of two ends was done. A write that closes
// the record deletes nothing, so another client has deleted a contender that is gone meanwhile, before that write or after it.
func (l *lease) undecided(x *reports.Exchange) bool {
	return l.Change() == lifecycle.ChangeClosing || l.Change() == lifecycle.ChangeDeleting && l.contested(x)
}

// holdUp has an end wait until the outbox knows its webhooks.
func (l *lease) holdUp(m *Manager) {
	l.SetChange(m.leases, lifecycle.ChangeHeldUp)
	if !byTime(l.reason()) {
		return
	}
	term := l.term
	time.AfterFunc(settleWithin, func() {
		m.do(func() {
			if l.Change() == lifecycle.ChangeHeldUp && l.term == term && term == m.port.Term() {
				l.revive(m, m.clock.Now().Boot())
			}
		})
	})
}

// OutboxChanged decides the ends anew that waited for the Outbox, which knows its webhooks now.
func (m *Manager) OutboxChanged() {
	m.do(func() {
		if m.deliveries.wake != nil {
			m.wake(m.deliveries.wake)
			m.deliveries.wake = nil
		}
		if m.leases.counts.heldUp == 0 {
			return
		}
		for _, l := range m.leases.inOrder(func(l *lease) bool { return l.Change() == lifecycle.ChangeHeldUp }) {
			l.submitDelete(m)
		}
	})
}

// Another program with ADMIN on a lease's contender, or on the lock's directory, can hide the record from this gateway, or keep
// the gateway from deleting the contender. Each lease logs that once.
//
//   - A hidden record does not stop the lease's clock. exists needs no permission and returns the version at which an end by time
//     deletes the contender. If the version has moved, the lease gets its TTL once more: a heartbeat may have been written.
//   - ZooKeeper sends no events about a hidden node. Its directory is listed once a second, and so is one where the event of this
//     gateway's own deletion is missing.
//   - A lock delay needs the record. If ZooKeeper refuses to write it, the lease ends without its delay.
//   - If the contender cannot be deleted, a release is answered with the reason.

// shutOut records that ZooKeeper refuses access to a lease's contender, and logs it the first time.
func (l *lease) shutOut(m *Manager, what string) {
	if l.Access() != lifecycle.AccessFull {
		return
	}
	l.SetAccess(m.leases, lifecycle.AccessRefused)
	m.log.Warn("an ACL shuts this gateway out of a lease's contender", "doing", what, "lease_id", l.id(), "lock", l.q.Name(), "znode", l.path(),
		"hint", "restore the ACL of the node, or of the lock's directory; ZooKeeper's super user can")
}

// endRefused records the refusal of an end, and reports whether an ACL was the cause.
func (l *lease) endRefused(m *Manager, err error, closes bool) bool {
	if !errors.Is(err, zk.ErrNoAuth) {
		return false
	}
	l.shutOut(m, "ending")
	if closes {
		l.SetAccess(m.leases, lifecycle.AccessNoWrite)
	} else {
		l.SetAccess(m.leases, lifecycle.AccessNoDelete)
	}
	return true
}

// refusedEnd is the answer to a release that ZooKeeper refuses for good; nil when it may still be done.
func (l *lease) refusedEnd() *locks.Error {
	if l.Access() != lifecycle.AccessNoDelete {
		return nil
	}
	return &locks.Error{Code: locks.CodeUnavailable, Err: zk.ErrNoAuth,
		Detail: "the lease has not ended: the ACL of the lock's directory forbids this gateway to delete the contender; restore that ACL, and the lease ends"}
}

const (
	// resolveWithin bounds one attempt to bring the replica as far as the writer.
	resolveWithin = 5 * time.Second
	resolvePause  = 250 * time.Millisecond
)

// resolve settles a lease whose create or delete has an unknown outcome while the session lives on. The write can no longer
// commit, so the replica shows the outcome once it has come as far as the writer.
func (l *lease) resolve(m *Manager) {
	m.leases.touch(l)
	session, term := m.port.Session(), m.port.Term()
	if session == nil || l.term != term {
		if l.Ending() && !l.replacing() {
			l.SetChange(m.leases, lifecycle.ChangePaused)
		}
		return // the session is gone: adoption settles it
	}
	if !l.replacing() {
		l.SetChange(m.leases, lifecycle.ChangeVerifying)
	}
	m.effect(func() {
		go func() { // ends when the session does, at the latest
			for !caughtUp(m.port, session) {
				select {
				case <-session.Done():
					return
				case <-time.After(resolvePause):
				}
			}
			m.do(func() {
				if m.port.Term() == term && m.port.Session() == session && l.term == term && (l.Change() == lifecycle.ChangeVerifying || l.replacing()) {
					l.resolved(m)
				}
			})
		}()
	})
}

func caughtUp(port *term.Port, session term.Session) bool {
	ctx, cancel := context.WithTimeout(context.Background(), resolveWithin)
	defer cancel()
	return port.Watcher.Reached(ctx, session.LastZxid()) == nil
}

// resolved goes on with a lease whose last write was lost, as the replica shows it.
func (l *lease) resolved(m *Manager) {
	now := m.clock.Now().Boot()
	switch {
	case !l.seenWhole() && (l.Creating() || l.Ending()):
		l.endAbsent(m, now)
	case l.replacing():
		l.replaced(m) // the replica shows whether it was done
	case l.Creating():
		l.StaleRecord(m.leases)
		l.load(m) // its czxid places it
	case l.Ending() && l.mayClose():
		// Whether it has ended is in its record, which this read brings.
		if l.Record().Reading() {
			l.SetChange(m.leases, lifecycle.ChangeRereading)
		} else {
			l.SetChange(m.leases, lifecycle.ChangeReading)
		}
		l.StaleRecord(m.leases)
		l.load(m)
	case l.Ending() && byTime(l.reason()):
		l.revive(m, now)
	case l.Ending():
		l.submitDelete(m)
	}
}

// deletions returns the operations before, and then those that delete the lease's remaining contenders. The first slot's
// contender, which has the record, is deleted at the given version.
func (l *lease) deletions(version int32, before ...[]zk.Op) []zk.Op {
	first := 0
	for _, some := range before {
		first += len(some)
	}
	ops := make([]zk.Op, 0, first+l.width())
	for _, some := range before {
		ops = append(ops, some...)
	}
	for s := range l.slots {
		if s.presence.Gone() || s.name() == "" {
			continue
		}
		v := int32(-1)
		if s == &l.slot {
			v = version
		}
		ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: s.path(), Version: v})
	}
	slices.Reverse(ops[first:]) // from the queue's tail on; the record's deletion can fail, so it is last
	return ops
}
