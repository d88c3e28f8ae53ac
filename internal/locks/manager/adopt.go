package manager

import (
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk/wire"
)

// Leases that this gateway takes over, gives up, or reads again.

// adoptAll adopts every contender whose owner this session has become, and ends leases of former sessions whose contender is gone.
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
		// The stream contains the succession entry, thus everything that the former session wrote.
		l.endAbsent(m, now)
	}
	m.disown(now)
	if adopted > 0 {
		m.log.Info("adopted leases", "leases", adopted)
	}
}

// disown gives up the leases of former sessions that another gateway took over first.
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
		m.keys.Forget(l.key())
		m.leases.setPhase(l, lifecycle.Ended)
		l.rare().failure = m.notOwner(l.id())
		m.timers.deadlines.remove(l)
		m.leases.byID.Delete(l)
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

// adoptIfOwned makes a contender that the replica shows a lease of this session, when the succession says so.
func (m *Manager) adoptIfOwned(q *queues.Queue, c *recipe.Contender, now time.Duration) bool {
	if m.port.Session() == nil || !m.stream.synced || !q.Namespace.Whole || c.Unknown || !m.members.Owns(c.LeaseID.Gateway()) {
		return false
	}
	l := m.leases.lease(c.LeaseID)
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
		if s == nil || s.presence.Gone() || s.presence.Seen() && s.name() != c.Name {
			return false // another program made up the name, or it is a replacement's
		}
		s.contender = c
		s.presence.Set(m.leases, &l.State, lifecycle.Seen)
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
	l := &lease{heapIndex: -1, taker: t.takers.one("", nil), ttl: locks.MaxTTL, recorded: locks.MaxTTL, since: now, State: lifecycle.New(lifecycle.Waiting, lifecycle.RecordUnread), abandoned: own}
	if len(list) > 1 {
		l.rare().rest = make([]slot, len(list)-1)
	}
	i := 0
	for s := range l.slots {
		s.q, s.contender, s.presence = list[i].Queue, list[i].Contender, lifecycle.Seen
		noted := r.Observed(s.contender)
		s.setObservation(noted)
		s.shown = !noted.SuppressEvents
		r.Observe(s.contender, queues.Observed{})
		s.q.Leases++
		i++
	}
	t.byID.Put(l)
	t.counts.enter(l)
	t.makeTicket(l)
	return l
}

// adopt runs a lease under the present session: what was under way under a former one is forgotten, its record is read, and its
// clock begins anew.
func (l *lease) adopt(m *Manager, now time.Duration) {
	l.term = m.port.Term()
	l.StaleRecord(m.leases) // what was under way was so under the former term
	l.UnreadRecord(m.leases)
	l.ForgetChange(m.leases)
	l.grace = m.members.TakenAt(l.id().Gateway()) + m.fleet.layout.LargestWindow
	if fault.On("window") {
		l.grace -= m.fleet.layout.LargestWindow
	}
	switch l.Phase() {
	case lifecycle.Creating:
		m.leases.setPhase(l, lifecycle.Waiting)
	case lifecycle.Ending:
		// No client was told of the end. An expiry is decided again; an end that a client requested goes on.
		if byTime(l.reason()) {
			l.unend(m) // it was not done
		} else {
			l.submitDelete(m)
		}
	}
	if l.Held() {
		l.SetGrant(m.leases, lifecycle.GrantClaimed)
		l.extend(m, now, l.ttl)
	} else if l.Waiting() {
		l.extend(m, now, l.waitingClock())
	}
	m.leases.touch(l)
	l.load(m)
}

// recheck has the records of this gateway's leases read again after a gap in the stream: another gateway may have written one.
// Until then the lease goes on as it was; an end by time names the version that was seen, so no write is lost.
func (st *stream) recheck(m *Manager) {
	st.again = nil
	m.delays.restoreAll(m)
	if m.port.Session() == nil {
		return // the adoption by the next session reads them all
	}
	for _, ns := range slices.Sorted(maps.Keys(m.replica.Namespaces)) {
		m.replica.Namespaces[ns].Queues.Scan(func(q *queues.Queue) bool {
			for _, c := range q.Contenders.All() {
				if l := m.leases.lease(c.LeaseID); c.Ours && l != nil && l.contender == c && l.Record().Loaded() {
					st.again = append(st.again, l)
				}
			}
			return true
		})
	}
	m.port.PumpReads()
}

// recheckNext puts the next lease that is to be read again into the line.
func (st *stream) recheckNext(m *Manager) {
	for len(st.again) > 0 {
		l := st.again[0]
		st.again[0] = nil
		if st.again = st.again[1:]; len(st.again) == 0 {
			st.again = nil
		}
		if l.Ended() || !l.Record().Loaded() || l.term != m.port.Term() {
			continue
		}
		term, path := l.term, l.path()
		m.port.Read(path, 0, func(data []byte, stat wire.Stat, err error) {
			switch {
			case err != nil || l.term != term || l.path() != path || !l.Record().Loaded() || l.Ended() || stat.Version <= l.dataVersion():
			default:
				l.loaded(m, term, data, stat, nil)
			}
		})
		return
	}
}

// checkUnseen reads a contender that was created and is not in the replica. If another program deleted it while the observer had
// no connection, no event and no listing names it.
func (l *lease) checkUnseen(m *Manager) {
	if l.czxid == 0 || l.Ending() || l.Ended() || m.port.Session() == nil || l.term != m.port.Term() {
		return
	}
	for s := range l.slots {
		if !s.presence.Seen() && s.name() != "" {
			l.checkSlot(m, s)
		}
	}
}

func (l *lease) checkSlot(m *Manager, s *slot) {
	path, term := s.path(), m.port.Term()
	m.effect(func() {
		m.port.Watcher.Get(path, func(_ []byte, _ wire.Stat, zxid int64, err error) {
			m.do(func() {
				if l.term == term && !s.presence.Seen() && s.path() == path && !l.Ending() && !l.Ended() && isNoNode(err) && zxid >= l.visibleFrom() {
					s.presence.Set(m.leases, &l.State, lifecycle.Gone)
					l.lost(m, m.clock.Now().Boot())
				}
			})
		})
	})
}
