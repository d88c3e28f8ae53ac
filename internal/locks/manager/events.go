package manager

import (
	"fmt"
	"path"
	"strings"
	"time"
	"unsafe"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/cluster"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// This file publishes all events of the package, with the monitor held. Events therefore have the order of the
// manager's changes (internal/events, doc.go, has the rules). Each method returns at once when nothing is published.
//
// The first read of the tree publishes nothing: it is the initial state, which clients can list. A later read
// publishes each difference as an event.
//
// A contender has three events, each published once:
//
//   - queued, when the replica first shows the contender: lease.shown, appeared.
//   - granted, when the lease is granted, or when the replica shows that another
//     gateway's or another program's contender holds: queues.Observed.
//   - the end, when the lease is finished, or when the replica loses a contender
//     that is not a lease of this gateway.
//
// A lease that the replica never showed has no events: its create failed, or its contender was deleted before the
// observer saw it. The contender of a lease that ended before its created event has none either:
// Observed.SuppressEvents.

// publisher makes events of what happens and hands them to the hub. The monitor guards it.
type publisher struct {
	hub     *events.Hub // nil: no events
	fleet   *fleet
	stream  *stream
	leases  *leaseTable
	replica *queues.Replica
	members *cluster.Members
	port    *term.Port
	reports *reports.Exchange
	room    []events.Event // for the next events: one allocation for many
}

// eventRoom is how many events are allocated together: as many as fit into 4 KiB with the allocator's header. One that is kept for
// long keeps the others.
const eventRoom = (4<<10 - 8) / int(unsafe.Sizeof(events.Event{}))

// enabled reports whether events are published now: not before the first read is complete, and not while suppressed.
func (p *publisher) enabled() bool {
	return p.hub != nil && p.stream.loadedOnce && !p.stream.suppressEvents
}

// event returns a new event about a znode in a directory. Changes that arrived together carry one time, from one
// reading of the clock.
func (p *publisher) event(t events.Type, dir, name string) *events.Event {
	if len(p.room) == 0 {
		p.room = make([]events.Event, eventRoom)
	}
	e := &p.room[0]
	p.room = p.room[1:]
	e.Type, e.Time, e.Dir, e.Name = t, p.stream.heard, dir, name
	return e
}

// node publishes a change of the watched trees as ZooKeeper's watch reported it. q is the lock's queue, nil
// outside of lock roots.
func (p *publisher) node(c *zk.Change, q *queues.Queue) {
	if !p.enabled() {
		return
	}
	var t events.Type
	switch c.Kind {
	case zk.NodeAdded, zk.DirAdded:
		t = events.NodeCreated
	case zk.NodeRemoved, zk.DirRemoved:
		t = events.NodeDeleted
	case zk.NodeChanged:
		t = events.NodeChanged
	default:
		return
	}
	e := p.event(t, c.Dir.Path, c.Node)
	if q != nil {
		e.NS, e.Lock = q.Namespace.Name, q.Name()
	}
	p.hub.Publish(e)
}

// queued publishes that the replica shows a contender for the first time.
func (p *publisher) queued(q *queues.Queue, c *recipe.Contender) {
	if p.enabled() {
		p.reports.Publish(p.contenderEvent(events.LeaseQueued, q, c))
	}
}

// granted publishes that a contender holds; l is its lease, nil when this gateway does not run it.
func (p *publisher) granted(q *queues.Queue, c *recipe.Contender, l *lease) {
	if !p.enabled() {
		return
	}
	var e *events.Event
	if l != nil {
		e = p.slotEvent(events.LeaseGranted, l, l.slotAt(q, c))
		e.FencingToken = p.fleet.fencingToken(l.czxid)
	} else {
		e = p.contenderEvent(events.LeaseGranted, q, c)
		e.FencingToken = p.fleet.tokenOf(q, c)
	}
	p.reports.Publish(e)
}

// updated publishes that owner, metadata, TTL or holds of a lease of this gateway have changed.
func (p *publisher) updated(l *lease) {
	for s := range l.slots {
		p.slotUpdated(l, s)
	}
}

// slotUpdated publishes a change of a lease in one of its queues.
func (p *publisher) slotUpdated(l *lease, s *slot) {
	if !p.enabled() || !s.shown || l.Ended() {
		return
	}
	e := p.slotEvent(events.LeaseUpdated, l, s)
	if l.Grant().Granted() {
		e.FencingToken = p.fleet.fencingToken(l.czxid)
	}
	p.reports.Publish(e)
}

// replaced publishes a downgrade by another gateway.
func (p *publisher) replaced(q *queues.Queue, next *recipe.Contender) {
	if s := p.replica.Observed(next); p.enabled() && !s.SuppressEvents {
		e := p.contenderEvent(events.LeaseUpdated, q, next)
		e.FencingToken = p.fleet.tokenOf(q, next)
		p.reports.Publish(e)
	}
}

func (p *publisher) gateway(t events.Type, id recipe.GatewayID) {
	if p.enabled() {
		e := p.event(t, "", "")
		e.Gateway = string(id)
		p.hub.Publish(e)
	}
}

// gatewayLeft publishes that a registration is gone. All gateways report alike that a gateway was deposed; other
// reasons are not known.
func (p *publisher) gatewayLeft(id recipe.GatewayID, deposed bool) {
	if p.enabled() {
		e := p.event(events.GatewayLeft, "", "")
		e.Gateway = string(id)
		if deposed {
			e.Reason = reasonDeposed
		}
		p.hub.Publish(e)
	}
}

// reasonDeposed is the reason of a gateway.left event.
const reasonDeposed = "deposed"

// session publishes a change of this process's own session, also while it publishes nothing else.
func (p *publisher) session(t events.Type, session term.Session) {
	if p.hub != nil {
		e := p.event(t, "", "")
		e.Gateway = session.ID()
		p.hub.Publish(e)
	}
}

// connection publishes that the session's connection was lost or is back. The clock loop polls it, at most
// clockTick late; the observer's stream also calls it when it breaks or recovers. A loss shorter than that may not be
// published.
func (p *publisher) connection() {
	if p.hub == nil || p.port.Session() == nil || p.port.Ending() {
		return
	}
	switch connected, changed := p.port.ConnectionChanged(); {
	case !changed:
	case connected:
		p.session(events.ZooKeeperConnected, p.port.Session())
	default:
		p.session(events.ZooKeeperSuspended, p.port.Session())
	}
}

// slotEvent is an event about a lease of this gateway in one of its queues.
func (p *publisher) slotEvent(t events.Type, l *lease, s *slot) *events.Event {
	e := p.event(t, s.q.Path, s.name())
	e.NS, e.Lock, e.LeaseID, e.Owner, e.Mode = s.q.Namespace.Name, s.q.Name(), string(l.id()), l.owner, string(locks.ModeOf(s.contender.Mode))
	e.Principal, e.Purpose, e.Permits, e.Queued = l.account.Principal(), l.purpose(), s.contender.Permits, l.enqueued.Milliseconds()
	if l.term == p.port.Term() && p.port.Session() != nil {
		e.Gateway, e.Here = p.port.Session().ID(), true
	} else {
		e.Gateway = p.runner(l.id())
	}
	return e
}

// contenderEvent returns an event about any contender.
func (p *publisher) contenderEvent(t events.Type, q *queues.Queue, c *recipe.Contender) *events.Event {
	if l, s := p.leases.slotOf(q, c); s != nil {
		return p.slotEvent(t, l, s)
	}
	e := p.event(t, q.Path, c.Name)
	e.NS, e.Lock, e.LeaseID, e.Mode, e.Permits = q.Namespace.Name, q.Name(), string(c.LeaseID), string(locks.ModeOf(c.Mode)), c.Permits
	i := q.Node(c.Name)
	if i != nil {
		e.Queued = i.Created.Milliseconds()
	}
	if !c.Ours {
		e.Foreign, e.Program = true, interop.Program(c.Name)
		return e
	}
	if c.LeaseID != "" {
		e.Gateway = p.runner(c.LeaseID)
	}
	if i != nil {
		e.Owner, e.Principal, e.Purpose = i.Record.Owner, i.Record.Principal, i.Record.Purpose
	}
	return e
}

// runner returns the id of the gateway whose session runs a lease, as far as the succession is known here.
func (p *publisher) runner(id recipe.LeaseID) string {
	owner, _ := p.members.OwnerOf(id.Gateway())
	return string(owner)
}

// tokenOf returns the fencing token of a contender that this gateway does not run, 0 until its node has been read.
func (f *fleet) tokenOf(q *queues.Queue, c *recipe.Contender) int64 {
	if c.FirstCzxid != 0 {
		return f.fencingToken(c.FirstCzxid)
	}
	if i := q.Node(c.Name); i != nil {
		return f.fencingToken(i.Czxid)
	}
	return 0
}

// hazard publishes that a hazard has appeared or cleared.
func (p *publisher) hazard(t events.Type, q *queues.Queue, h *interop.Hazard) {
	if !p.enabled() {
		return
	}
	e := p.event(t, q.Path, "")
	e.NS, e.Lock, e.Hazard = q.Namespace.Name, q.Name(), &events.Hazard{Code: string(h.Code), Programs: h.Programs}
	if t == events.LockHazard {
		e.Detail = h.Detail
	}
	p.hub.Publish(e)
}

// deadlock publishes that parties have come to wait for each other, or do no more: for each lock in which one of them waits. A
// reader of one lock may not be one of the others, so each event names those alone that meet in its lock.
func (p *publisher) deadlock(t events.Type, c *locks.Cycle) {
	if !p.enabled() {
		return
	}
	const ownerParty = "owner:" // of the id of a party that has an owner's name
	for _, w := range c.Waits {
		e := p.event(t, "", "")
		e.Dir, e.Name = path.Split(w.Waiter.Znode)
		e.Dir = strings.TrimSuffix(e.Dir, "/")
		e.NS, e.Lock, e.LeaseID, e.Mode, e.Cycle = w.NS, w.Lock, w.Waiter.LeaseID, string(w.Mode), c.ID
		if owner, is := strings.CutPrefix(w.From, ownerParty); is {
			e.Owner = owner
		}
		if t == events.DeadlockDetected {
			e.Detail = fmt.Sprintf("%s waits here for %s, and %d waits make a cycle: GET /v1/graph?cycles=true names them; release or break one", strings.TrimPrefix(w.From, ownerParty), strings.TrimPrefix(w.To, ownerParty), len(c.Waits))
		}
		p.hub.Publish(e)
	}
}

// revokeRequested publishes that a holder has been asked to release, with the reason and the administrator.
func (p *publisher) revokeRequested(at queues.Location, asked *record.Revocation) {
	if p.enabled() {
		e := p.contenderEvent(events.LeaseRevokeRequested, at.Queue, at.Contender)
		e.Detail, e.Here = asked.Reason, e.Here || e.Foreign // no other gateway sees that another program's holder was asked
		if at.Contender.Groups <= 1 {
			e.By = asked.By
		}
		p.reports.Publish(e)
	}
}

// withdrawn publishes that holders are no longer asked to release.
func (p *publisher) withdrawn(parts []queues.Location) {
	if !p.enabled() {
		return
	}
	for _, at := range parts {
		p.reports.Publish(p.contenderEvent(events.LeaseRevokeWithdrawn, at.Queue, at.Contender))
	}
}

// destroyed publishes that a lock was destroyed, after the ends of its contenders. The monitor is held.
func (p *publisher) destroyed(at postmortem.Place, why reports.Cause) {
	if s := p.replica.Namespaces[at.NS]; s != nil && p.enabled() {
		e := p.event(events.LockDestroyed, s.Path(at.Lock), "")
		e.NS, e.Lock, e.Detail, e.By = at.NS, at.Lock, why.Words, why.By
		p.reports.Publish(e)
	}
}

// lossOf returns the same for a contender of another gateway's lease, as far as this gateway can tell.
func lossOf(members *cluster.Members, c *recipe.Contender) locks.Reason {
	if c.Ours && c.Ephemeral && !members.Registered(c.LeaseID.Gateway()) {
		return locks.ReasonGatewayLeft
	}
	return locks.ReasonUnknown
}

// What is remembered of ended leases for an hour (package postmortem): an entry takes less than 360 bytes, and each of the two
// memories has at most postmortem.MaxEnds.

// remember keeps what became of a lease.
func (m *Manager) remember(l *lease, now time.Duration) {
	p := postmortem.End{Why: l.why, At: now, NS: l.q.Namespace.Name, Lock: l.q.Name(), TTL: l.ttl, Purpose: l.purpose(), Mode: l.contender.Mode,
		Owner: l.owner, Words: l.cause().Words, By: l.cause().By, Several: l.contender.Groups > 1, Doubtful: l.abandoned && l.czxid == 0}
	// Since it was queued by the wall clock, which a former owner wrote down.
	p.Waited, _ = l.age(m.clock.Now().Wall())
	if r := l.reservation(); r != nil {
		p.TTL = r.span(l.enqueued)
	}
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
	if k := m.keys.Get(l.key()); k != nil {
		m.keys.End(k, l.reason(), now)
	}
}

// observeEnd remembers that the replica is about to lose a contender of another gateway's lease.
func (m *Manager) observeEnd(q *queues.Queue, name string, now time.Duration) {
	c := q.Contenders.Get(name)
	if c == nil {
		return
	}
	s := m.replica.Observed(c)
	if !c.Ours || c.Unknown || s.SuppressEvents || !queues.Leads(c) || !m.stream.loadedOnce || m.leases.lease(c.LeaseID) != nil || m.history.Has(c.LeaseID) {
		return
	}
	p := postmortem.End{Why: postmortem.CauseOf(lossOf(m.members, c)), At: now, NS: q.Namespace.Name, Lock: q.Name(), Mode: c.Mode, Several: c.Groups > 1}
	if i := q.Node(c.Name); i != nil && i.IsRecord {
		p.Owner, p.TTL, p.Purpose = m.leases.takers.name(i.Record.Owner), i.Record.LeaseTTL(), i.Record.Purpose
		p.Waited = max(m.clock.Now().Wall()-i.Created, 0)
	}
	if s.Holds {
		p.FencingToken, p.Held = m.fleet.tokenOf(q, c), max(now-s.Since, 1)
		p.Waited = max(p.Waited-p.Held, 0)
	}
	m.observedEnds.Add(c.LeaseID, m.reports.Revise(c.LeaseID, p))
}

// granted records of the ended leases of a lock that this contender holds it next. l is its lease, nil when this gateway does not
// run it.
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
	reports.Cause{Reason: reason, Words: l.cause().Words, By: l.cause().By}.Explain(e, s.contender.Groups > 1)
	if l.Grant().Granted() {
		e.FencingToken = m.fleet.fencingToken(l.czxid)
	}
	if now := m.clock.Now().Boot(); unsure || reason == locks.ReasonRemoved && m.reports.PeerMayExplain(now) {
		m.reports.Delay(e, s.contender, nil, false, now) // another gateway may report which client removed it
		return
	}
	m.reports.Publish(e)
}

// tellDelayed publishes the ends of a lease's slots that were delayed until the lease has ended.
func (m *Manager) tellDelayed(l *lease) {
	if l.reason() == locks.ReasonRemoved && m.reports.PeerMayExplain(m.clock.Now().Boot()) {
		m.reports.Unexplained(l.id())
		return
	}
	m.reports.Explain(l.id(), reports.Cause{Reason: l.reason(), Words: l.cause().Words, By: l.cause().By})
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
	if s.Holds {
		e.FencingToken = m.fleet.tokenOf(q, c)
	}
	m.reports.Lost(e, q.Path+"/"+c.Name, c, m.clock.Now().Boot())
}
