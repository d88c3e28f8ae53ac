package manager

import (
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
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

// telling reports whether events are published now: not before the first read is complete, and not while suppressed.
func (m *Manager) telling() bool {
	return m.opt.Events != nil && m.stream.loadedOnce && !m.stream.suppressEvents
}

// event returns a new event about a znode in a directory. Changes that arrived together carry one time, from one
// reading of the clock.
func (m *Manager) event(t events.Type, dir, name string) *events.Event {
	return &events.Event{Type: t, Time: m.stream.heard, Dir: dir, Name: name}
}

// tellNode publishes a change of the watched trees as ZooKeeper's watch reported it. q is the lock's queue, nil
// outside of lock roots.
func (m *Manager) tellNode(c *zk.Change, q *queues.Queue) {
	if !m.telling() {
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
	e := m.event(t, c.Dir.Path, c.Node)
	if q != nil {
		e.NS, e.Lock = q.Namespace.Name, q.Name()
	}
	m.opt.Events.Publish(e)
}

// tellQueued publishes that the replica shows a contender for the first time.
func (m *Manager) tellQueued(q *queues.Queue, c *recipe.Contender) {
	if m.telling() {
		m.publish(m.contenderEvent(events.LeaseQueued, q, c))
	}
}

// tellGranted publishes that a contender holds; l is its lease, nil when this gateway does not run it.
func (m *Manager) tellGranted(q *queues.Queue, c *recipe.Contender, l *lease) {
	if !m.telling() {
		return
	}
	var e *events.Event
	if l != nil {
		e = m.slotEvent(events.LeaseGranted, l, l.slotAt(q, c))
		e.FencingToken = m.fleet.fencingToken(l.czxid)
	} else {
		e = m.contenderEvent(events.LeaseGranted, q, c)
		e.FencingToken = m.tokenOf(q, c)
	}
	m.publish(e)
}

// tellEnded publishes the end of a lease of this gateway, with its reason.
func (m *Manager) tellEnded(l *lease) {
	for s := range l.slots {
		m.tellSlotEnded(l, s, l.reason())
	}
}

// tellSlotEnded publishes the end of a lease in one of its queues.
func (m *Manager) tellSlotEnded(l *lease, s *slot, reason locks.Reason) {
	if !m.telling() || !s.shown {
		return
	}
	s.shown = false
	e := m.slotEvent(endType(reason), l, s)
	e.Reason, e.Detail = string(reason), l.words()
	if l.grant.granted() {
		e.FencingToken = m.fleet.fencingToken(l.czxid)
	}
	if reason == locks.ReasonRemoved && m.hopes() {
		m.holdEnd(e, l.id(), nil, false) // another gateway may report which client removed it
		return
	}
	m.publish(e)
}

// tellUpdated publishes that owner, metadata, TTL or holds of a lease of this gateway have changed.
func (m *Manager) tellUpdated(l *lease) {
	for s := range l.slots {
		m.tellSlotUpdated(l, s)
	}
}

// tellSlotUpdated publishes a change of a lease in one of its queues.
func (m *Manager) tellSlotUpdated(l *lease, s *slot) {
	if !m.telling() || !s.shown || l.phase == ended {
		return
	}
	e := m.slotEvent(events.LeaseUpdated, l, s)
	if l.grant.granted() {
		e.FencingToken = m.fleet.fencingToken(l.czxid)
	}
	m.publish(e)
}

// tellReplaced publishes a downgrade by another gateway.
func (m *Manager) tellReplaced(q *queues.Queue, next *recipe.Contender) {
	if s := m.replica.Observed(next); m.telling() && !s.SuppressEvents {
		e := m.contenderEvent(events.LeaseUpdated, q, next)
		e.FencingToken = m.tokenOf(q, next)
		m.publish(e)
	}
}

func endType(reason locks.Reason) events.Type {
	switch reason {
	case locks.ReasonReleased:
		return events.LeaseReleased
	case locks.ReasonExpired:
		return events.LeaseExpired
	case locks.ReasonCancelled, locks.ReasonWaitElapsed:
		return events.LeaseCancelled
	case locks.ReasonUnclaimed:
		return events.LeaseUnclaimed
	case locks.ReasonRevoked, locks.ReasonDestroyed:
		return events.LeaseRevoked
	}
	return events.LeaseRemoved
}

// tellRemoved publishes that the replica is about to lose a contender that is not a lease of this gateway. Only the
// lease's gateway and the gateway that ended it can report the reason: hearsay.go.
func (m *Manager) tellRemoved(q *queues.Queue, name string) {
	if !m.telling() {
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
	e := m.contenderEvent(events.LeaseRemoved, q, c)
	e.Reason = string(lossOf(m.members, c))
	if e.Foreign {
		e.Reason = string(locks.ReasonRemoved)
	}
	var own *cause
	if v, ok := m.verdicts[c]; ok {
		own = &v
	}
	if s.Holds {
		e.FencingToken = m.tokenOf(q, c)
	}
	m.tellLoss(e, q.Path+"/"+c.Name, c, own)
}

func (m *Manager) tellGateway(t events.Type, id recipe.GatewayID) {
	if m.telling() {
		e := m.event(t, "", "")
		e.Gateway = string(id)
		m.opt.Events.Publish(e)
	}
}

// tellGatewayLeft publishes that a registration is gone. All gateways report alike that a gateway was deposed; other
// reasons are not known.
func (m *Manager) tellGatewayLeft(id recipe.GatewayID, deposed bool) {
	if m.telling() {
		e := m.event(events.GatewayLeft, "", "")
		e.Gateway = string(id)
		if deposed {
			e.Reason = reasonDeposed
		}
		m.opt.Events.Publish(e)
	}
}

// reasonDeposed is the reason of a gateway.left event.
const reasonDeposed = "deposed"

// OutboxDropped publishes that a webhook ("": every webhook) gets no events for n ends since the last such event,
// because the outbox is full. These are ends of this gateway's leases, not changes read from the tree.
func (m *Manager) OutboxDropped(webhook string, n int) {
	m.do(func() {
		if m.opt.Events == nil {
			return
		}
		e := m.event(events.WebhookDropped, "", "")
		e.Webhook, e.Count, e.Detail = webhook, n, "the outbox is full: these ends are told to no webhook; have receivers take what waits, or remove their webhooks"
		if webhook != "" {
			e.Detail = "more waits for this webhook than the outbox has room for: it is not told of these ends; have its receiver take what waits, replay its dead letters, or remove it"
		}
		if m.port.Session() != nil {
			e.Gateway = m.port.Session().ID()
		}
		m.opt.Events.Publish(e)
	})
}

// tellSession publishes a change of this process's own session, also while telling is false.
func (m *Manager) tellSession(t events.Type, session term.Session) {
	if m.opt.Events != nil {
		e := m.event(t, "", "")
		e.Gateway = session.ID()
		m.opt.Events.Publish(e)
	}
}

// lookAtConnection publishes that the session's connection was lost or is back. The clock loop polls it, at most
// clockTick late; the observer's stream also calls it when it breaks or recovers. A loss shorter than that may not be
// published.
func (m *Manager) lookAtConnection() {
	if m.opt.Events == nil || m.port.Session() == nil || m.port.Ending() {
		return
	}
	switch connected, changed := m.port.ConnectionChanged(); {
	case !changed:
	case connected:
		m.tellSession(events.ZooKeeperConnected, m.port.Session())
	default:
		m.tellSession(events.ZooKeeperSuspended, m.port.Session())
	}
}

// slotEvent is an event about a lease of this gateway in one of its queues.
func (m *Manager) slotEvent(t events.Type, l *lease, s *slot) *events.Event {
	e := m.event(t, s.q.Path, s.name())
	e.NS, e.Lock, e.LeaseID, e.Owner, e.Mode = s.q.Namespace.Name, s.q.Name(), string(l.id()), l.owner, string(locks.ModeOf(s.contender.Mode))
	if l.term == m.port.Term() && m.port.Session() != nil {
		e.Gateway = m.port.Session().ID()
	} else {
		e.Gateway = m.runner(l.id())
	}
	return e
}

// contenderEvent returns an event about any contender.
func (m *Manager) contenderEvent(t events.Type, q *queues.Queue, c *recipe.Contender) *events.Event {
	if l, s := m.leases.slotOf(q, c); s != nil {
		return m.slotEvent(t, l, s)
	}
	e := m.event(t, q.Path, c.Name)
	e.NS, e.Lock, e.LeaseID, e.Mode = q.Namespace.Name, q.Name(), string(c.LeaseID), string(locks.ModeOf(c.Mode))
	if !c.Ours {
		e.Foreign, e.Program = true, interop.Program(c.Name)
		return e
	}
	if c.LeaseID != "" {
		e.Gateway = m.runner(c.LeaseID)
	}
	if i := q.Node(c.Name); i != nil {
		e.Owner = i.Record.Owner
	}
	return e
}

// runner returns the id of the gateway whose session runs a lease, as far as the succession is known here.
func (m *Manager) runner(id recipe.LeaseID) string {
	owner, _ := m.members.OwnerOf(id.Gateway())
	return string(owner)
}

// tokenOf returns the fencing token of a contender that this gateway does not run, 0 until its node has been read.
func (m *Manager) tokenOf(q *queues.Queue, c *recipe.Contender) int64 {
	if c.FirstCzxid != 0 {
		return m.fleet.fencingToken(c.FirstCzxid)
	}
	if i := q.Node(c.Name); i != nil {
		return m.fleet.fencingToken(i.Czxid)
	}
	return 0
}

// heldFor returns how long a contender has held, as far as this gateway has seen.
func (m *Manager) heldFor(q *queues.Queue, c *recipe.Contender, now time.Duration) (held time.Duration, longer bool) {
	s := m.observedOf(q, c)
	if !s.Holds {
		return 0, false // its grant is under way
	}
	return max(now-s.Since, 0), s.SinceBefore
}

// tellHazard publishes that a hazard has appeared or cleared.
func (m *Manager) tellHazard(t events.Type, q *queues.Queue, h *interop.Hazard) {
	if !m.telling() {
		return
	}
	e := m.event(t, q.Path, "")
	e.NS, e.Lock, e.Hazard = q.Namespace.Name, q.Name(), &events.Hazard{Code: string(h.Code), Programs: h.Programs}
	if t == events.LockHazard {
		e.Detail = h.Detail
	}
	m.opt.Events.Publish(e)
}
