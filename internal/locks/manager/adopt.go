package manager

import (
	"errors"
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// adoptAll adopts every contender whose owner this session has become, and
// settles the leases of former sessions whose contender is gone.
func (m *Manager) adoptAll(now time.Duration) {
	if m.port.Session() == nil {
		return
	}
	adopted := 0
	for _, ns := range slices.Sorted(maps.Keys(m.replica.Namespaces)) {
		s := m.replica.Namespaces[ns]
		s.Queues.Scan(func(q *queues.Queue) bool {
			if q.Contenders.Len() == 0 {
				return true
			}
			for _, c := range q.Contenders.All() {
				if c.Ours && m.adoptIfOwned(q, c, now) {
					adopted++
				}
			}
			m.evaluate(q, now)
			return true
		})
	}
	for _, l := range m.leases.inOrder(func(l *lease) bool {
		return l.term != m.port.Term() && !l.seenWhole() && m.members.Owns(l.id().Gateway())
	}) {
		// The stream contains the succession entry, thus everything that the
		// former session ever wrote: what is not there never will be.
		l.endAbsent(m, now)
	}
	m.disown(now)
	if adopted > 0 {
		m.log.Info("adopted leases", "leases", adopted)
	}
}

// disown gives up the leases of former sessions that another gateway took over
// first. That gateway owns them now, and clients are told so.
func (m *Manager) disown(now time.Duration) {
	if m.port.Session() == nil {
		return // the next session's begin does it
	}
	m.members.SettleFormer()
	for _, l := range m.leases.inOrder(func(l *lease) bool { return l.term != m.port.Term() && m.members.Elsewhere(l.id().Gateway()) }) {
		if !l.seenAny() {
			l.endAbsent(m, now) // the stream contains the entry, as above
			continue
		}
		delete(m.keys.byHash, l.key())
		m.leases.setPhase(l, ended)
		l.rare().failure = m.notOwner(l.id())
		m.timers.deadlines.remove(l)
		delete(m.leases.byID, l.id())
		m.leases.touch(l)
		for s := range l.slots {
			s.q.Leases--
			m.replica.Touch(s.q)
			if c := s.q.Contenders.Get(s.name()); c != nil && s.observation() != (queues.Observed{}) {
				m.replica.Observe(c, s.observation()) // the contender stays
			}
		}
		l.evaluateAll(m, now) // it may hold where it is now
	}
}

// endAbsent ends a lease of a former session whose contenders are not all
// there: with those that are.
func (l *lease) endAbsent(m *Manager, now time.Duration) {
	if l.seenAny() {
		l.term = m.port.Term()
		l.forgetChange(m.leases)
		for s := range l.slots {
			if !s.presence.seen() {
				s.setPresence(m.leases, l, slotGone)
			}
		}
		l.lost(m, now)
		return
	}
	switch l.phase {
	case creating:
		l.rare().failure = unavailable()
		l.dropCreate(m, m.keys.byHash[l.key()], now)
	case ending:
		l.finish(m, l.reason(), now)
	default:
		l.finish(m, l.lossReason(m), now)
	}
}

// adoptIfOwned makes a contender that the replica shows a lease of this
// session, when the succession says so.
func (m *Manager) adoptIfOwned(q *queues.Queue, c *recipe.Contender, now time.Duration) bool {
	if m.port.Session() == nil || !m.stream.synced || !q.Namespace.Whole || c.Unknown || !m.members.Owns(c.LeaseID.Gateway()) {
		return false
	}
	l := m.leases.byID[c.LeaseID]
	own := string(c.LeaseID.Gateway()) == m.port.Session().ID()
	past, known := m.history.Get(c.LeaseID)
	if c.Ephemeral && !own && !fault.On("ephemeral") {
		m.orphans.add(m.port, q, c)
		return false
	}
	switch {
	case l != nil && l.term == m.port.Term(), m.delays.byID[c.LeaseID] != nil:
		return false
	case own && l == nil && known && !past.Doubtful:
		return false // the contender is certain to be gone; the event follows
	case l == nil:
		if l = m.leases.newAdopted(m.replica, q, c, own, now); l == nil {
			return false // the others of its contenders follow; else the sweeper ends it
		}
	default:
		s := l.slotAt(q, c)
		if s == nil || s.presence.gone() || s.presence.seen() && s.name() != c.Name {
			return false // another program made up the name, or it is a replacement's
		}
		s.contender = c
		s.setPresence(m.leases, l, slotSeen)
		if !l.seenWhole() {
			return false // the others follow; else endAbsent
		}
	}
	l.adopt(m, now)
	return true
}

// newAdopted makes a lease of the contenders that a former owner left; nil while one is missing.
func (t *leaseTable) newAdopted(r *queues.Replica, q *queues.Queue, c *recipe.Contender, own bool, now time.Duration) *lease {
	list := []queues.Location{{Queue: q, Contender: c}}
	if queues.OneOfSeveral(c) {
		if list = r.Group(c.LeaseID).Whole(); list == nil {
			return nil
		}
	}
	l := &lease{heapIndex: -1, ttl: locks.MaxTTL, recorded: locks.MaxTTL, since: now, phase: waiting, abandoned: own}
	if len(list) > 1 {
		l.rare().rest = make([]slot, len(list)-1)
	}
	i := 0
	for s := range l.slots {
		s.q, s.contender, s.presence = list[i].Queue, list[i].Contender, slotSeen
		noted := r.Observed(s.contender)
		s.setObservation(noted)
		s.shown = !noted.SuppressEvents
		r.Observe(s.contender, queues.Observed{})
		s.q.Leases++
		i++
	}
	t.byID[l.id()] = l
	t.counts.enter(l)
	t.makeTicket(l)
	return l
}

// adopt runs a lease under the present session: what was under way under a former one is forgotten, its record is read, and its
// clock begins anew.
func (l *lease) adopt(m *Manager, now time.Duration) {
	l.term = m.port.Term()
	l.staleRecord(m.leases) // what was under way was so under the former term
	l.unreadRecord(m.leases)
	l.forgetChange(m.leases)
	l.grace = m.members.TakenAt(l.id().Gateway()) + m.fleet.layout.LargestWindow
	if fault.On("window") {
		l.grace -= m.fleet.layout.LargestWindow
	}
	switch l.phase {
	case creating:
		m.leases.setPhase(l, waiting)
	case ending:
		// No client was told that the end happened. An expiry is decided
		// again; an end that a client asked for goes on.
		if byTime(l.reason()) {
			l.unend(m) // it was not done
		} else {
			l.resubmitDelete(m)
		}
	}
	if l.phase == held {
		l.setGrant(m.leases, grantClaimed)
		l.extend(m, now, l.ttl)
	} else if l.phase == waiting {
		l.extend(m, now, l.waitingClock())
	}
	m.leases.touch(l)
	l.load(m)
}

// mayBeAcknowledged notes that a lease's contender holds by its place in the queue. If
// it may have held before its former owner's last possible word (grace), its
// client may have been told, however late this gateway reads the contender or
// may grant: the lease counts as claimed. A replica is at most a promise window
// behind while it is trusted, so only a look after grace and a window can show
// that it did not hold then.
func (l *lease) mayBeAcknowledged(m *Manager, now time.Duration) {
	if l.asksWhetherAcknowledged(m) {
		l.setGrant(m.leases, grantAcknowledged)
		l.extend(m, now, l.ttl)
	}
}

// asksWhetherAcknowledged reports whether mayBeAcknowledged has something to find out.
func (l *lease) asksWhetherAcknowledged(m *Manager) bool {
	return l.grace != 0 && l.grant == grantNone && m.timers.lastTrusted < l.grace+m.fleet.layout.PromiseWindow
}

// load reads an adopted lease's contender: its czxid, and what its data tells.
func (l *lease) load(m *Manager) {
	if l.name() == "" || l.phase == ended {
		return
	}
	if !l.beginRead(m.leases) {
		return
	}
	term := l.term
	m.port.Read(l.path(), l.readableFrom(), func(data []byte, stat wire.Stat, err error) { l.loaded(m, term, data, stat, err) })
}

func (l *lease) loaded(m *Manager, term locks.Term, data []byte, stat wire.Stat, err error) {
	if l.term != term {
		return // read again since
	}
	if l.recordState.writing() { // it was read ahead of others, too
		l.setRecord(m.leases, recordContested)
		return
	}
	if errors.Is(err, zk.ErrNoAuth) {
		l.hidden(m, term)
		return
	}
	assumed := l.recordState.assumed()
	l.unreadRecord(m.leases)
	now := m.clock.Now().Boot()
	if l.change.fate() && l.readAgain(m, term, err) {
		return
	}
	if l.phase == ended || term != m.port.Term() {
		return
	}
	if err != nil {
		if !errors.Is(err, zk.ErrNoNode) { // whose deleted event follows
			m.log.Warn("an adopted lease could not be read", "lease_id", l.id(), "err", err)
		}
		return // the clock asks again before it ends anything
	}
	if stat.Czxid == l.visibleFrom() && stat.Version < l.dataVersion() && !fault.On("old-read") {
		// The observer's server is behind the one that took this gateway's own
		// writes. What was written stays what is known, and the event of that write,
		// which is on its way, has it read again.
		return
	}
	l.setRecord(m.leases, recordCurrent)
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
		l.closed(m, r.Closed.Reason, now)
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
		m.tellUpdated(l) // by a write that was lost, or by another gateway or program
	}
	l.recorded = r.LeaseTTL()
	if assumed {
		l.learnNotify(r)
		l.ttl = l.recorded
		l.deadline = max(now, l.grace) + l.waitingClock()
		if l.grant != grantNone {
			l.deadline = max(now, l.grace) + l.ttl
		}
		m.timers.schedule(l)
	}
	if !fault.On("written-heard") {
		l.beaten(m, r, now)
	}
	m.leases.weigh(l, 0)
	m.revoked(l, r.Revoke, r.RevokeRound, now)
}

// learnNoRecord applies what follows from data that is no record, after so many writes since the last that was read. One of
// them may have been a heartbeat, or a withdrawal.
func (l *lease) learnNoRecord(m *Manager, data []byte, behind int32, assumed bool, now time.Duration) {
	if !assumed && behind > 1 {
		if !fault.On("written-over") {
			l.beatenUnread(m, now)
		}
		m.withdrawnUnread(l)
	}
	m.leases.weigh(l, 0)
	l.askedOutside(m, data, now)
}

// actOnRecord goes on with a lease whose record is current.
func (l *lease) actOnRecord(m *Manager, now time.Duration) {
	if l.change.fate() {
		l.notClosed(m, now)
	}
	l.place(m, now)
	if l.abandoned && (l.phase == waiting || l.phase == held) {
		l.end(m, locks.ReasonCancelled, now)
		return
	}
	m.leases.touch(l)
	l.touchQueues(m)
	m.letIn(l.q, l, now) // it alone: what the read tells makes no difference to the others in its queues
	m.noteGrant(l)
}
