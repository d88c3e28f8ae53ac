package manager

import (
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/reports"
)

// Ends: what is remembered of an ended lease for an hour (package postmortem), published, and reported to the other gateways
// (package reports). An entry takes less than 470 bytes, and each of the two memories has at most postmortem.MaxEnds.

// remember keeps what became of a lease for those who ask later.
func (m *Manager) remember(l *lease, now time.Duration) {
	p := postmortem.End{Why: l.why, At: now, NS: l.q.Namespace.Name, Lock: l.q.Name(), TTL: l.ttl, Mode: l.contender.Mode,
		Owner: l.owner, Words: l.words(), Doubtful: l.abandoned && l.czxid == 0}
	// Since it was queued by the wall clock, which a former owner wrote down.
	p.Waited, _ = l.age(m.clock.Now().Wall())
	if l.beat != 0 {
		p.Beat = max(now-l.beat, 1)
	}
	if l.Grant().Granted() {
		p.FencingToken = m.fleet.fencingToken(l.czxid)
		since := l.since
		if s := l.observation(); s.Holds {
			since = s.Since // also under a former owner, as far as it was seen here
		}
		p.Held = max(now-since, 1)
		p.Waited = max(p.Waited-p.Held, 0)
	}
	m.history.Add(l.id(), p)
	m.reports.Tell(reports.Notice{Kind: reports.Ended, Lease: l.id(), At: queues.Location{Queue: l.q, Contender: l.contender}})
	m.reports.Gone(l.q, l.contender)
	if k := m.keys.byHash[l.key()]; k != nil {
		m.keys.end(k, l.reason(), now)
	}
}

// observeEnd remembers that a contender of another gateway's lease is gone; the
// replica is about to lose it.
func (m *Manager) observeEnd(q *queues.Queue, name string, now time.Duration) {
	c := q.Contenders.Get(name)
	if c == nil {
		return
	}
	s := m.replica.Observed(c)
	if !c.Ours || c.Unknown || s.SuppressEvents || !queues.Leads(c) || !m.stream.loadedOnce || m.leases.byID[c.LeaseID] != nil || m.history.Has(c.LeaseID) {
		return
	}
	p := postmortem.End{Why: postmortem.CauseOf(lossOf(m.members, c)), At: now, NS: q.Namespace.Name, Lock: q.Name(), Mode: c.Mode}
	if i := q.Node(c.Name); i != nil && i.IsRecord {
		p.Owner, p.TTL = m.leases.owners.one(i.Record.Owner), i.Record.LeaseTTL()
		p.Waited = max(m.clock.Now().Wall()-i.Created, 0)
	}
	if s.Holds {
		p.FencingToken, p.Held = m.fleet.tokenOf(q, c), max(now-s.Since, 1)
		p.Waited = max(p.Waited-p.Held, 0)
	}
	m.observedEnds.Add(c.LeaseID, m.reports.Revise(c.LeaseID, p))
}

// granted notes for those who held the lock before that this contender holds
// it now. l is its lease, nil when this gateway does not run it.
func (m *Manager) granted(q *queues.Queue, c *recipe.Contender, l *lease, now time.Duration) {
	at := postmortem.Place{NS: q.Namespace.Name, Lock: q.Name()}
	for _, h := range []*postmortem.Log{&m.history, &m.observedEnds} {
		h.Granted(at, now, func() postmortem.Next {
			next := postmortem.Next{Lease: c.LeaseID, Name: c.Name, Token: m.fleet.tokenOf(q, c)}
			if l != nil {
				next.Owner, next.Token = l.owner, m.fleet.fencingToken(l.czxid)
			} else if i := q.Node(c.Name); i != nil {
				next.Owner = i.Record.Owner
			}
			return next
		})
	}
}

// tellEnded publishes the end of a lease of this gateway, with its reason.
func (m *Manager) tellEnded(l *lease) {
	for s := range l.slots {
		m.tellSlotEnded(l, s, l.reason(), false)
	}
	m.tellDelayed(l)
}

// tellSlotEnded publishes the end of a lease in one of its queues. unsure: its reason is known when the lease has ended.
func (m *Manager) tellSlotEnded(l *lease, s *slot, reason locks.Reason, unsure bool) {
	if !m.publisher.enabled() || !s.shown {
		return
	}
	s.shown = false
	e := m.publisher.slotEvent(reports.EndType(reason), l, s)
	e.Reason, e.Detail = string(reason), l.words()
	if l.Grant().Granted() {
		e.FencingToken = m.fleet.fencingToken(l.czxid)
	}
	if now := m.clock.Now().Boot(); unsure || reason == locks.ReasonRemoved && m.reports.PeerMayExplain(now) {
		m.reports.Delay(e, l.id(), nil, false, now) // another gateway may report which client removed it
		return
	}
	m.reports.Publish(e)
}

// tellDelayed publishes the ends of a lease's slots that were delayed until the lease has ended.
func (m *Manager) tellDelayed(l *lease) {
	if l.reason() != locks.ReasonRemoved {
		m.reports.Explain(l.id(), reports.Cause{Reason: l.reason(), Words: l.words()})
	}
}

// tellRemoved publishes that the replica is about to lose a contender that is not a lease of this gateway. Only the
// lease's gateway and the gateway that ended it can report the reason.
func (m *Manager) tellRemoved(q *queues.Queue, name string) {
	if !m.publisher.enabled() {
		return
	}
	c := q.Contenders.Get(name)
	if c == nil {
		return
	}
	s := m.replica.Observed(c)
	if s.SuppressEvents {
		return
	}
	e := m.publisher.contenderEvent(events.LeaseRemoved, q, c)
	e.Reason = string(lossOf(m.members, c))
	if e.Foreign {
		e.Reason = string(locks.ReasonRemoved)
	}
	var own *reports.Cause
	if v, ok := m.terminations[c]; ok {
		own = &v
	}
	if s.Holds {
		e.FencingToken = m.fleet.tokenOf(q, c)
	}
	m.reports.Lost(e, q.Path+"/"+c.Name, c, own, m.clock.Now().Boot())
}
