package manager

import (
	"context"
	"errors"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// A lease's record in ZooKeeper: read, applied, and written.

// load reads an adopted lease's contender: its czxid, and what its data tells.
func (l *lease) load(m *Manager) {
	if l.name() == "" || l.Ended() {
		return
	}
	if !l.BeginRead(m.leases) {
		m.port.Hasten(l.readPlace, l.path()) // a takeover of many leases has all of them read, and this one is asked for
		return
	}
	term := l.term
	l.readPlace = m.port.Read(l.path(), l.known().least, func(data []byte, stat wire.Stat, err error) { l.loaded(m, term, data, stat, err) })
}

func (l *lease) loaded(m *Manager, term locks.Term, data []byte, stat wire.Stat, err error) {
	if l.term != term {
		return // read again since
	}
	if l.Record().Writing() { // it was read ahead of others, too
		l.SetRecord(m.leases, lifecycle.RecordContested)
		return
	}
	if errors.Is(err, zk.ErrNoAuth) {
		l.hidden(m, term)
		return
	}
	assumed := l.Record().Assumed()
	l.UnreadRecord(m.leases)
	now := m.clock.Now().Boot()
	if l.Change().Fate() && l.readAgain(m, term, err) {
		return
	}
	if l.Ended() || term != m.port.Term() {
		return
	}
	if err != nil {
		if !errors.Is(err, zk.ErrNoNode) { // whose deleted event follows
			m.log.Warn("an adopted lease could not be read", "lease_id", l.id(), "err", err)
		}
		return // the clock asks again before it ends anything
	}
	if stat.Czxid == l.recordFrom() && stat.Version < l.dataVersion() && !fault.On("old-read") {
		return // that server has not taken this gateway's own write yet, whose event has the record read again
	}
	l.SetRecord(m.leases, lifecycle.RecordCurrent)
	m.deadlocks.parties.MarkStale() // its owner may be another one
	l.czxid = stat.Czxid
	if first := l.contender.FirstCzxid; first != 0 && !fault.On("downgrade-token") {
		l.czxid, l.rare().visibleFrom = first, stat.Czxid
	}
	behind := stat.Version - l.dataVersion()
	l.setDataVersion(stat.Version) // and what follows from the data, before anything acts upon it
	r, ok := record.Parse(data)
	if ok {
		l.learnMore(data)
		l.enqueued = record.EnqueuedAt(r.Enqueued, stat.Ctime)
		l.learnRecord(m, r, assumed, now)
	} else {
		l.learnNoRecord(m, data, behind, assumed, now)
		if assumed {
			l.enqueued = record.EnqueuedAt(0, stat.Ctime)
		}
	}
	if ok && r.Closed != nil && !fault.On("closed-read") {
		if r.Closed.By != "" {
			l.rare().cause = &reports.Cause{Reason: r.Closed.Reason, By: r.Closed.By}
		}
		l.closed(m, *r.Closed, now)
		return
	}
	l.actOnRecord(m, now)
	if !ok && data != nil {
		l.restore(m)
	}
}

// learnRecord applies what a lease's record says. assumed: it is read for the first time.
func (l *lease) learnRecord(m *Manager, r record.Record, assumed bool, now time.Duration) {
	l.acknowledgedElsewhere(m.leases, r)
	if l.learn(m.leases, r) && !assumed {
		m.publisher.updated(l) // by a write that was lost, or by another gateway or program
	}
	l.recorded = r.LeaseTTL()
	moved := l.learnReserve(m, r.Reserve, assumed, now)
	if assumed {
		l.learnNotify(r)
		l.learnTrace(r)
		l.ttl = l.recorded
		l.deadline = max(now, l.grace) + l.waitingClock()
		if l.Grant() != lifecycle.GrantNone {
			l.deadline = max(now, l.grace) + l.ttl
		}
	}
	if assumed || moved {
		l.reschedule(m)
	}
	if !fault.On("written-heard") {
		l.beaten(m, r, now)
	}
	l.learnGrant(&r)
	l.holdsSinceGrant(m, now)
	m.leases.charge(l, r.Principal)
	m.leases.weigh(l, 0)
	l.revoked(m, r.Revoke, r.RevokeRound, now)
}

// learnNoRecord applies data that is no record, after so many writes since the last that was read. One of them may have been a
// heartbeat, or a withdrawal.
func (l *lease) learnNoRecord(m *Manager, data []byte, behind int32, assumed bool, now time.Duration) {
	if !assumed && behind > 1 {
		if !fault.On("written-over") {
			l.beatenUnread(m, now)
		}
		l.withdrawnUnread(m)
	}
	m.leases.weigh(l, 0)
	l.askedOutside(m, data, now)
}

// actOnRecord goes on with a lease whose record is current.
func (l *lease) actOnRecord(m *Manager, now time.Duration) {
	if l.Change().Fate() {
		l.notClosed(m, now)
	}
	l.place(m, now)
	if l.abandoned && l.Settled() {
		l.end(m, locks.ReasonCancelled, now)
		return
	}
	m.leases.touch(l)
	l.touchQueues(m)
	l.letIn(m, l.q, now) // it alone: what the read tells makes no difference to the others in its queues
	m.deliveries.grant(l)
}

// place makes a created lease a waiting one once its position is certain.
func (l *lease) place(m *Manager, now time.Duration) {
	if !l.Creating() || !l.positionKnown() {
		return
	}
	m.leases.setPhase(l, lifecycle.Waiting)
	l.extend(m, now, l.waitingClock())
	m.leases.touch(l)
	if l.abandoned {
		l.end(m, locks.ReasonCancelled, now)
	} else if l.known().failsOnDeadlock && !l.turn() {
		m.deadlocks.failing++
		m.deadlocks.kick()
	}
}

// recordChanged has the record read: now, or when the write that is under way has been answered.
func (l *lease) recordChanged(m *Manager) {
	if l.Record().Writing() {
		l.SetRecord(m.leases, lifecycle.RecordContested)
		return
	}
	l.StaleRecord(m.leases)
	l.load(m)
}

// readAgain reports whether a read does not tell what became of an end: it failed, or was answered from before the write.
func (l *lease) readAgain(m *Manager, term locks.Term, err error) bool {
	switch {
	case l.term != m.port.Term():
		l.SetChange(m.leases, lifecycle.ChangePaused)
		return false
	case errors.Is(err, zk.ErrNoNode):
		return false // its deleted event follows
	case err != nil:
		time.AfterFunc(deleteRetry, func() {
			m.do(func() {
				if l.Change().Fate() && l.term == term && term == m.port.Term() {
					l.load(m)
				}
			})
		})
		return true
	case l.Change() == lifecycle.ChangeRereading:
		l.SetChange(m.leases, lifecycle.ChangeReading)
		l.load(m)
		return true
	}
	return false
}

// hidden continues a lease whose record may not be read.
func (l *lease) hidden(m *Manager, term locks.Term) {
	l.shutOut(m, "reading")
	session, path := m.port.Session(), l.path()
	if session == nil || l.Ended() || l.term != m.port.Term() {
		l.UnreadRecord(m.leases)
		return
	}
	m.applyDeltas(m.replica.Hide(l.q, l.name()), m.clock.Now().Boot())
	l.BeginRead(m.leases)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
		defer cancel()
		stat, err := session.Exists(ctx, path)
		m.do(func() {
			switch {
			case l.term != term:
			case err != nil || stat == nil:
				l.UnreadRecord(m.leases) // the clock asks again; a listing tells that the node is gone
			default:
				l.loadedHidden(m, term, *stat)
			}
		})
	}()
}

// loadedHidden is loaded for a record of which only the node's stat is known.
func (l *lease) loadedHidden(m *Manager, term locks.Term, stat wire.Stat) {
	moved := !l.Record().Assumed() && stat.Czxid == l.recordFrom() && stat.Version > l.dataVersion()
	if l.Change() == lifecycle.ChangeReading && moved {
		// The version is that of the record that ends it, or of a write that cannot be read: it stays ended.
		l.SetRecord(m.leases, lifecycle.RecordCurrent)
		l.setDataVersion(stat.Version)
		now := m.clock.Now()
		l.closed(m, record.Closed{Reason: l.reason(), By: l.cause().By, At: now.Wall().Milliseconds(), Stays: l.stays(now.Boot()).Milliseconds()}, now.Boot())
		return
	}
	if moved {
		l.beatenUnread(m, m.clock.Now().Boot())
	}
	l.loaded(m, term, nil, stat, nil)
}

// writeRecord writes the contender's record with a change, at the version that was seen.
// Until the outcome is known the shorter of the two TTLs counts, so no client relies on a TTL that a successor may not
// find. then, if not nil, gets whether the write was done, unless only a read of the record can tell.
// The caller has checked that the lease is loaded and that no other write of it is in flight.
func (l *lease) writeRecord(m *Manager, change func(*record.Record), then func(error)) {
	l.submitRecord(m, &zk.Write{}, change, then)
}

// submitRecord is writeRecord by a write that has no operations yet.
func (l *lease) submitRecord(m *Manager, w *zk.Write, change func(*record.Record), then func(error)) {
	before, term := l.recorded, l.term
	l.noteGrant(m)
	r := l.contents(before)
	change(&r)
	l.SetRecord(m.leases, lifecycle.RecordWriting)
	l.rare().outgoing = before
	l.recorded = min(before, r.LeaseTTL())
	m.leases.weigh(l, r.TextBytes())
	w.Ops = []zk.Op{{Kind: zk.OpSetData, Path: l.path(), Data: r.Encode(), Version: l.dataVersion()}}
	m.port.Submit(w, func(res zk.Result) {
		if l.Ended() || l.term != term {
			return // adoption reads it again
		}
		contested := l.EndWrite(m.leases)
		switch {
		case res.Outcome == zk.Done:
			l.setDataVersion(res.Versions[0])
			l.recorded, l.rareFields.outgoing = r.LeaseTTL(), 0
			l.learnGrant(&r)
			news := l.learn(m.leases, r)
			if l.learnReserve(m, r.Reserve, false, m.clock.Now().Boot()) {
				l.reschedule(m)
				news = true
			}
			if news {
				l.touchQueues(m)
			}
			if then != nil {
				then(nil)
			}
		case res.Outcome == zk.Unknown, errors.Is(res.Err, zk.ErrBadVersion):
			if m.port.Session() != nil {
				// The write can no longer commit from here on. A server that lags may show the data before it.
				l.rareFields.least = m.port.Session().LastZxid()
			}
			contested = true
		default:
			l.recorded = before
			m.leases.weigh(l, 0)
			if then != nil {
				then(res.Err)
			}
		}
		if contested {
			// One of the events may be that of this write, and another that of another writer.
			l.StaleRecord(m.leases)
			l.load(m)
		}
		m.leases.touch(l)
	})
}

// replaced ends a downgrade, done or not, and resumes the operation that waited for it.
func (l *lease) replaced(m *Manager) {
	if !l.replacing() {
		return
	}
	l.SetChange(m.leases, lifecycle.ChangeNone)
	if l.Ending() {
		l.submitDelete(m)
	} else {
		l.load(m)
	}
}

// endAbsent ends a lease of a former session that has lost contenders, with those that are left.
func (l *lease) endAbsent(m *Manager, now time.Duration) {
	if l.seenAny() {
		l.term = m.port.Term()
		l.ForgetChange(m.leases)
		for s := range l.slots {
			if !s.presence.Seen() {
				s.presence.Set(m.leases, &l.State, lifecycle.Gone)
			}
		}
		l.lost(m, now)
		return
	}
	switch l.Phase() {
	case lifecycle.Creating:
		l.rare().failure = unavailable()
		l.dropCreate(m, m.keys.Get(l.key()), now)
	default:
		l.finish(m, l.lossReason(m), now)
	}
}

// beaten applies the heartbeats that other gateways have written into a record since it was last read. They were sent before,
// so the TTL counts from now.
func (l *lease) beaten(m *Manager, r record.Record, now time.Duration) {
	if r.Beats == l.known().beats {
		return
	}
	l.rare().beats = r.Beats
	l.renewAcknowledged(m, r.LeaseTTL(), now)
}

// beatenUnread does the same for a record that another program wrote over before it was read: it may have had beats, which
// promised the TTL of that record.
func (l *lease) beatenUnread(m *Manager, now time.Duration) {
	l.Acknowledge(m.leases)
	l.renewAcknowledged(m, max(l.recorded, l.rare().outgoing), now)
}

func (l *lease) renewAcknowledged(m *Manager, ttl, now time.Duration) {
	l.beat = now
	switch {
	case l.Held():
		l.claim(m, now)
		l.extend(m, now, ttl)
	case l.Waiting() && l.Grant() == lifecycle.GrantAcknowledged:
		l.extend(m, now, ttl)
	case l.Waiting():
		l.extend(m, now, min(ttl, waitingClock))
	case l.Ending() && l.replacing() && byTime(l.reason()):
		// Its deletion has not been handed over, and would name the version that was read now.
		l.revive(m, now)
		l.extend(m, now, ttl)
	case l.Ending(): // by time, or it makes no difference: its deletion comes too late, or is not sent again, and revives it
		if l.Grant() == lifecycle.GrantNone {
			ttl = min(ttl, waitingClock)
		}
		l.deadline = max(l.deadline, max(now, l.grace)+ttl)
	}
	if at := l.shrinkAt(); at != 0 {
		l.rareFields.shrinkAt = max(at, l.deadline)
	}
}

// Programs that share a queue ask for a release by writing over a contender's data: Curator's Revoker writes __REVOKE__,
// ZooKeeper's recipe for revocable shared locks "unlock".
//
//   - Over a lease's record, either is a revocation without force. The owner then writes the record back with the revocation
//     in it: without the record a successor knows neither TTL nor holds. Other data is written over, too, and asks nothing.
//   - A holder of Curator's listens only if it was made revocable, and then its data is empty. Other data is left alone.
//   - Nothing else is written to. HBase's release, for example, deletes its contender at the version that it made.

// maxRestores is how often the data of one lease is written back. Afterwards a successor takes the longest TTL.
const maxRestores = 16

// asksOutside reads data that is no record.
func asksOutside(data []byte) (ask record.Revocation, asks bool) {
	if !interop.AsksToRelease(data) {
		return record.Revocation{}, false
	}
	return record.Revocation{Reason: "another program asks, by the data " + string(data)}, true
}

// askedOutside notes what another program wrote over a lease's record.
func (l *lease) askedOutside(m *Manager, data []byte, now time.Duration) {
	ask, asks := asksOutside(data)
	if !asks || !l.Settled() && !l.Creating() {
		return
	}
	l.revoked(m, ask.After(l.revocation().record()), l.known().revokeRound, now)
}

// restore writes back a record that another program wrote over.
func (l *lease) restore(m *Manager) {
	switch {
	case l.Phase() == lifecycle.Ending:
		l.StaleRecord(m.leases) // read again when the end's outcome is known
		return
	case !l.Settled(), l.term != m.port.Term(), !l.Record().Loaded():
		return
	case l.rewriting():
		if l.Record().Writing() {
			l.SetRecord(m.leases, lifecycle.RecordContested) // read again after it
		}
		return
	case l.rare().restored >= maxRestores:
		return
	}
	l.rareFields.restored++
	m.log.Info("another program wrote over a lease's record; it is written back", "lease_id", l.id(), "lock", l.q.Name())
	l.writeRecord(m, func(*record.Record) {}, func(err error) {
		if err != nil {
			l.StaleRecord(m.leases) // read, and tried again, before it is acted upon
		}
	})
}

// revoked takes over what the lease's record says of a revocation, and publishes it in each of its queues.
func (l *lease) revoked(m *Manager, r *record.Revocation, round int64, now time.Duration) {
	was := l.revocation()
	if round != l.known().revokeRound && (r == nil || !fault.On("withdraw-round")) {
		// What is known here was withdrawn, also when the record has a new revocation by now.
		l.rare().revoke, l.rareFields.revokeRound = nil, round
		if was != nil {
			m.publisher.withdrawn(l.parts())
			m.timers.schedule(l)
			m.leases.touch(l)
			l.touchQueues(m)
		}
		was = nil
	}
	if r == nil || was != nil && was.asked == *r {
		return
	}
	v := &revocation{asked: *r}
	if r.Force > 0 {
		v.forceAt = max(now, l.grace) + time.Duration(r.Force)*time.Millisecond
	}
	if was != nil && was.forceAt != 0 && (v.forceAt == 0 || was.forceAt < v.forceAt) {
		v.forceAt = was.forceAt
	}
	l.rare().revoke, l.rareFields.revokeRound = v, round
	m.timers.schedule(l)
	for _, p := range l.parts() {
		m.publisher.revokeRequested(p, r)
	}
	m.leases.touch(l)
	l.touchQueues(m)
}

// withdrawnUnread forgets a force when the record was overwritten before it was read: what it replaced may have been
// the withdrawal.
func (l *lease) withdrawnUnread(m *Manager) {
	if v := l.revocation(); v != nil && v.forceAt != 0 {
		l.rareFields.revoke = &revocation{asked: record.Revocation{Reason: v.asked.Reason, By: v.asked.By}}
		m.timers.schedule(l)
		m.leases.touch(l)
		l.touchQueues(m)
	}
}

// acknowledgedElsewhere notes that another gateway has told the lease's client that it holds: the grant needs no claiming.
func (l *lease) acknowledgedElsewhere(t *leaseTable, r record.Record) {
	if r.Told {
		l.rare().acknowledgedByPeer = true
		l.Acknowledge(t)
	}
}
