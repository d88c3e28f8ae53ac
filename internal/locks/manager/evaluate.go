package manager

import (
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/idempotency"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/locks/settings"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk/wire"
)

// What a change of a queue means for its leases and contenders: who holds now, and what has ended.

func (m *Manager) applyDeltas(deltas []queues.Delta, now time.Duration) {
	for _, d := range deltas {
		switch q := d.Queue; d.Kind {
		case queues.Added:
			if c := d.Contender; c.Ours && c.LeaseID != "" {
				m.members.CountContender(c.LeaseID.Gateway(), 1)
			}
			if appeared(m.leases, &m.history, m.replica, q, d.Contender) {
				m.publisher.queued(q, d.Contender)
			}
		case queues.Removed:
			if c := d.Contender; c.Ours && c.LeaseID != "" {
				m.members.CountContender(c.LeaseID.Gateway(), -1)
			}
			m.orphans.leave(d.Contender)
			m.reports.Removed(d.Contender)
		case queues.HazardBegins:
			m.publisher.hazard(events.LockHazard, q, d.Hazard)
		case queues.HazardEnds:
			m.publisher.hazard(events.LockHazardCleared, q, d.Hazard)
		case queues.Evaluate:
			m.evaluate(q, now)
		case queues.ReadDir:
			readDir(m.port, m.replica, q)
		case queues.ReadLimit:
			m.readLimit(q, d.Limit)
		case queues.LookSoon:
			m.stream.lookSoon(m, q)
		case queues.SettingsBegin:
			m.leases.quota.Add(quota.Settings, 1)
		case queues.SettingsEnd:
			m.leases.quota.Add(quota.Settings, -1)
		}
	}
}

func (m *Manager) addContender(q *queues.Queue, c *recipe.Contender, listed bool, now time.Duration) {
	m.applyDeltas(m.replica.Add(q, c, listed, now), now)
}

// removeContender does nothing when the queue has no contender with that name.
func (m *Manager) removeContender(q *queues.Queue, name string, now time.Duration) {
	m.applyDeltas(m.replica.Remove(q, name, now), now)
}

// list asks the observer for the children of the queue's directory.
func (m *Manager) list(q *queues.Queue) {
	if q.BeginListing() {
		path := q.Path
		m.effect(func() { m.port.Watcher.List(path) })
	}
}

// evaluate grants what can be granted, and records holders of other gateways and programs. Its cost does not grow with
// the queue: Holders stops at the first contender that does not hold.
func (m *Manager) evaluate(q *queues.Queue, now time.Duration) { m.evaluateAfter(q, now, false) }

func (m *Manager) evaluateAfter(q *queues.Queue, now time.Duration, listed bool) {
	if m.replica.Incomplete(q) {
		return
	}
	blocked := false // nothing more of this gateway is granted for now
	for c := range q.Contenders.Holders() {
		var l *lease
		if c.Ours {
			l = m.leases.lease(c.LeaseID)
		}
		if l == nil {
			if !q.Awaits(c) {
				m.seenHolding(q, c, now, listed)
			}
			continue
		}
		if !blocked {
			blocked = l.letIn(m, q, now)
		}
	}
}

// letIn grants a waiting lease of this gateway when it is next in q and in all its other queues. It reports whether
// nothing more of this gateway is granted in q for now.
func (l *lease) letIn(m *Manager, q *queues.Queue, now time.Duration) (blocked bool) {
	switch {
	case !l.Waiting(), l.term != m.port.Term():
		return false
	case !l.positionKnown() && !l.asksWhetherAcknowledged(m):
		return false // being next would have no effect
	case !l.turn():
		l.moment = momentUnwritten // the directory was made anew meanwhile, or another program wrote the record
		return false
	}
	l.mayBeAcknowledged(m, now)
	switch {
	case !l.positionKnown():
		return false
	case !l.certainToHold(m):
		return q.Blocked()
	case !m.trusted():
		m.replica.Defer(q)
		return true
	case !l.once().admitted(m, l):
		return true
	}
	l.becomeHeld(m, now)
	return false
}

// certainToHold reports whether the queues show for certain that the lease holds. It requests the listings that are
// missing; the last of them evaluates again.
func (l *lease) certainToHold(m *Manager) bool {
	all := true
	for s := range l.slots {
		certain, list := m.replica.Certain(s.q, s.contender)
		if list {
			m.list(s.q)
		}
		all = all && certain
	}
	return all
}

// settleDeferred evaluates the queues whose grants waited for trust.
func (m *Manager) settleDeferred(now time.Duration) {
	for _, q := range m.replica.Deferred() {
		m.replica.Undefer(q)
		m.evaluate(q, now)
	}
}

// appeared records a contender that the replica now shows, and reports whether an event is due. None is due when the
// contender reappears after a lagging server's listing, when another program has made up the name of one that is gone,
// when another contender reports its lease, or when the lease ended before the replica showed it.
func appeared(leases *leaseTable, history *postmortem.Log, replica *queues.Replica, q *queues.Queue, c *recipe.Contender) bool {
	var l *lease
	var s *slot
	if c.Ours {
		if l = leases.lease(c.LeaseID); l != nil {
			s = l.slotAt(q, c)
		}
	}
	switch {
	case s != nil && (s.name() == "" || s.name() == c.Name) && c.Member <= 1:
		news := !s.shown && !s.presence.Gone()
		s.shown = s.shown || news
		return news
	case s != nil && s.name() == c.Name:
		return false // the lease's first contender there reports it
	case l != nil, c.Member > 1, q.Replaces(c), c.Ours && history.Has(c.LeaseID):
		replica.Observe(c, queues.Observed{SuppressEvents: true})
		return false
	}
	return true
}

// seenHolding records and reports that a contender of another owner holds by the queue's names. listed: a listing
// shows it, so it may have held for a while. The same is true while the tree is being read.
func (m *Manager) seenHolding(q *queues.Queue, c *recipe.Contender, now time.Duration, listed bool) {
	several := c.Ours && !c.Unknown && queues.OneOfSeveral(c)
	if !m.stream.synced && (!listed || several) {
		return // the replica may lack contenders before it until the listing arrives; several locks have several listings: see groupsHold
	}
	s := m.replica.Observed(c)
	if s.Holds || c.Ours && !c.Unknown && (!m.replica.LeaseHolds(q, c) || m.replica.AwaitsElsewhere(c)) {
		return
	}
	var others []queues.Location // of a lease of several
	if several {
		others = m.replica.Group(c.LeaseID).Whole()
		for _, at := range others {
			if m.replica.Incomplete(at.Queue) {
				return // the check repeats when the listing is complete
			}
		}
	}
	m.granted(q, c, nil, now)
	tell := s.Begin(now, listed || !m.stream.synced)
	m.replica.Observe(c, s)
	q.Mark()
	m.deliveries.foreignHolds(q, c)
	if tell {
		m.publisher.granted(q, c, nil)
	}
	for _, at := range others { // the last queue to grant it reports all of them
		m.seenHolding(at.Queue, at.Contender, now, listed)
	}
}

// groupsHold records the holders among other gateways' leases of several locks once the tree has been read. Before that, one
// queue may be shown as it is, and another as it was before the connection broke.
func (st *stream) groupsHold(m *Manager, now time.Duration) {
	for _, at := range m.replica.WholeGroups() {
		if m.leases.lease(at.Contender.LeaseID) == nil {
			m.seenHolding(at.Queue, at.Contender, now, true)
		}
	}
}

// mayBeAcknowledged records that a lease's contender holds by its place in the queue. If it may have held before its former
// owner's last possible answer (grace), its client may have been told so: the lease counts as claimed. A trusted replica is at
// most a promise window behind, so only a look after grace and a window shows that it did not hold then.
func (l *lease) mayBeAcknowledged(m *Manager, now time.Duration) {
	if l.asksWhetherAcknowledged(m) {
		l.SetGrant(m.leases, lifecycle.GrantAcknowledged)
		l.extend(m, now, l.ttl)
	}
}

// asksWhetherAcknowledged reports whether mayBeAcknowledged has something to find out.
func (l *lease) asksWhetherAcknowledged(m *Manager) bool {
	return l.grace != 0 && l.Grant() == lifecycle.GrantNone && m.timers.lastTrusted < l.grace+m.fleet.layout.PromiseWindow
}

// extend moves the deadline to now + span, never back, and never before the end of a former owner's promises.
func (l *lease) extend(m *Manager, now, span time.Duration) {
	l.deadline = l.bound(max(l.deadline, max(now, l.grace)+span))
	m.timers.schedule(l)
	if c := &m.timers; c.lastTrusted == 0 && m.trusted() {
		// The clock loop has not run yet. If trust is lost before it does, that period must not count as the time
		// before the first trust.
		c.trusted, c.lastTrusted = true, now
	}
}

// becomeHeld makes a waiting lease held. The caller has checked that all its contenders hold in the replica, and that the
// replica is trusted.
func (l *lease) becomeHeld(m *Manager, now time.Duration) {
	waited := now - l.since
	l.known().trace.granted(m, l)
	m.leases.setPhase(l, lifecycle.Held)
	l.since = now
	acknowledged := l.Grant() == lifecycle.GrantAcknowledged
	if r := l.reservation(); l.listeners > 0 || acknowledged || r != nil && r.asked.Stays || fault.On("unclaimed-counts") {
		l.SetGrant(m.leases, lifecycle.GrantClaimed)
	} else {
		l.SetGrant(m.leases, lifecycle.GrantUnclaimed)
	}
	l.grantReservation(m, now)
	l.extend(m, now, l.clock())
	m.opt.Metrics.LeaseGranted(waited)
	for s := range l.slots {
		if s.observed == observedNot {
			m.granted(s.q, s.contender, l, now)
		}
		if s.observeHold(now, acknowledged) {
			m.publisher.granted(s.q, s.contender, l)
		}
		if s.q.Freed {
			m.opt.Metrics.Handover(now - s.q.Since)
			s.q.Freed = false
		}
		m.replica.Touch(s.q)
	}
	l.holdsSinceGrant(m, now)
	m.leases.touch(l)
	m.deliveries.grant(l)
}

// claim records that the client knows of its grant.
func (l *lease) claim(m *Manager, now time.Duration) {
	if l.Held() && l.Grant() == lifecycle.GrantUnclaimed {
		l.SetGrant(m.leases, lifecycle.GrantClaimed)
		l.extend(m, now, l.ttl)
		m.leases.touch(l)
		l.touchQueues(m)
	}
}

// unlisten ends an open request of the lease's client, which l.listeners++ began. A waiting lease keeps its position
// for its clock from here on.
func (l *lease) unlisten(m *Manager, now time.Duration) {
	l.listeners--
	if l.listeners == 0 && l.Phase().Waits() {
		m.leases.makeTicket(l)
	}
	if l.Waiting() {
		l.extend(m, now, l.waitingClock())
	}
}

// touchQueues marks a visible change in each of the lease's queues.
func (l *lease) touchQueues(m *Manager) {
	for s := range l.slots {
		m.replica.Touch(s.q)
	}
}

// evaluateAll evaluates each of the lease's queues.
func (l *lease) evaluateAll(m *Manager, now time.Duration) {
	for s := range l.slots {
		m.evaluate(s.q, now)
	}
}

// lookSoon has a new directory listed when it stays without a child: one that has had a child is no plain ephemeral node.
func (st *stream) lookSoon(m *Manager, q *queues.Queue) {
	if st.unlooked = append(st.unlooked, q); len(st.unlooked) > 1 {
		return
	}
	time.AfterFunc(lookAfter, func() {
		m.do(func() {
			for _, q := range st.unlooked {
				if q.NeverUsed() {
					m.list(q)
				}
			}
			st.unlooked = nil
		})
	})
}

// Plain nodes. In the oldest recipe the ephemeral node <root>/<lock> is the lock: its creator holds it. It stands in the place of
// the lock's directory and is the lock's only contender: exclusive, foreign, the holder, with the empty name.
//
// A created event does not tell a plain node from a directory. So a new directory that has no child a moment later is listed. A
// create that is refused because its parent is ephemeral shows it at once.

// lookAfter is how long a new directory may be without a child before it is listed. A gateway's own has one at once: both are
// created in one transaction.
const lookAfter = 21371 * time.Microsecond

// readDir reads the data of a lock's directory.
func readDir(port *term.Port, r *queues.Replica, q *queues.Queue) {
	port.Read(q.Path, 0, func(data []byte, stat wire.Stat, err error) {
		if err != nil || !q.Exists || stat.Ephemeral() {
			return
		}
		r.SetDirData(q, data)
	})
}

// maxDirData is the longest data of a lock's directory that is read.
const maxDirData = 64

// readLimit reads whether an acquire made a limit.
func (m *Manager) readLimit(q *queues.Queue, n int) {
	m.port.Read(m.fleet.settings.Limit(q, n), 0, func(data []byte, _ wire.Stat, err error) {
		m.replica.SetAgreed(q, n, err == nil && settings.Agreed(data))
	})
}

// finish makes a lease ended: its contenders are gone for certain, or never existed.
func (l *lease) finish(m *Manager, reason locks.Reason, now time.Duration) {
	l.conclude(m, reason, now, false)
}

// conclude makes a lease ended. Its contenders are gone, or stay for its lock delay.
func (l *lease) conclude(m *Manager, reason locks.Reason, now time.Duration, stay bool) {
	if l.Ended() {
		return
	}
	m.leases.setPhase(l, lifecycle.Ended)
	l.why = postmortem.CauseOf(reason)
	m.tellEnded(l) // before the next grant
	m.timers.deadlines.remove(l)
	m.leases.byID.Delete(l)
	for s := range l.slots {
		s.q.Leases--
		if stay {
			if s.presence.Seen() { // the end is published: the later deletion publishes nothing
				m.replica.Observe(s.contender, queues.Observed{Since: s.seenAt, Holds: l.Grant().Granted(), SinceBefore: s.observed == observedLate, SuppressEvents: true})
			}
			continue
		}
		if s.presence.Seen() && !fault.On("early-end") {
			s.q.Ended(s.contender)
		}
		if s.name() != "" {
			m.removeContender(s.q, s.name(), now)
		}
		if l.Access() != lifecycle.AccessFull && s.presence.Seen() {
			m.awaitUntold(s.q)
		}
	}
	m.deliveries.gone(l)
	m.remember(l, now)
	l.forgetEphemerals(m)
	if l.Grant().Granted() {
		m.opt.Metrics.LeaseEnded(string(reason), now-l.since)
		l.known().trace.held(m, l, string(reason))
	} else {
		l.known().trace.waited(m, l, string(reason))
		m.opt.Metrics.LeaseEnded(string(reason), 0)
	}
	m.leases.touch(l)
	l.evaluateAll(m, now)
}

// dropCreate ends a lease whose create was definitely not done. It never existed, so nothing remembers it.
func (l *lease) dropCreate(m *Manager, key *idempotency.Key, now time.Duration) {
	m.keys.Drop(key)
	if l.rareFields != nil {
		l.rareFields.key, l.rareFields.trace = "", nil
	}
	l.finish(m, locks.ReasonUnknown, now)
	m.history.Drop(l.id())
	for s := range l.slots {
		m.replica.Forget(s.q)
	}
}

// forgetEphemerals removes an ended lease's contenders from the count of the session's ephemeral nodes, in case
// another client deleted them.
func (l *lease) forgetEphemerals(m *Manager) {
	session := m.port.Session()
	if !l.ephemeral() || session == nil || session.ID() != string(l.id().Gateway()) {
		return
	}
	for s := range l.slots {
		if s.name() != "" {
			path := s.path()
			m.effect(func() { session.ForgetEphemeral(path) })
		}
	}
}

// lossReason returns why a lease ended whose contender is gone: the end that is under way here, else what another client did.
// Once a session has been succeeded, none of its writes is done any more. From then on only the wish of the lease's own client
// counts as the reason of an end under way: the successor decides all others anew, and may come to another one.
//
// A release that makes a period done is told as that only when its own transaction may have been: no other end makes it done.
func (l *lease) lossReason(m *Manager) locks.Reason {
	if l.Ending() && !l.once().missedMark(l) && (l.wished() || !m.members.Succeeded(l.id().Gateway())) {
		return l.reason()
	}
	lives := m.port.Session() != nil && m.port.Session().ID() == string(l.id().Gateway()) && m.port.Session().Connected() && m.members.Registered(l.id().Gateway())
	if l.ephemeral() && !lives {
		return locks.ReasonGatewayLeft
	}
	return l.removedBy(m)
}

// wished reports whether the lease's own client has asked for the end that is under way, or let its wait elapse, or asked for it
// in a deadlock.
func (l *lease) wished() bool {
	switch l.reason() {
	case locks.ReasonReleased, locks.ReasonCancelled, locks.ReasonWaitElapsed, locks.ReasonWouldDeadlock:
		return true
	}
	return false
}

// byTime reports whether it is time that decides such an end.
func byTime(reason locks.Reason) bool {
	return reason == locks.ReasonExpired || reason == locks.ReasonUnclaimed
}

// awaitUntold has a queue's directory listed until a listing lacks the contender that this gateway has deleted.
// ZooKeeper sends no event about the end of a hidden node, and the contenders behind it wait for that end.
func (m *Manager) awaitUntold(q *queues.Queue) {
	m.replica.Poll(q)
	m.list(q)
}

// removedBy returns why a contender of the lease is gone that this gateway did not delete. The reason is what another
// gateway's administrator announced, else ReasonRemoved.
func (l *lease) removedBy(m *Manager) locks.Reason {
	why := m.reports.Ordered(reports.LeaseOrPath(l.id()))
	if why == nil {
		if l.why == postmortem.Forced {
			l.rareFields.cause = nil // the words of the revocation tell nothing of this end
		}
		return locks.ReasonRemoved
	}
	l.rare().cause = why
	return why.Reason
}

// blocks reports whether others wait for the end of a lease that holds.
func (l *lease) blocks() bool {
	if l.Grant() == lifecycle.GrantNone {
		return false
	}
	for s := range l.slots {
		if s.q.Contenders.Waiting() > 0 {
			return true
		}
	}
	return false
}
