package manager

import (
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk/wire"
)

// An ephemeral lease is the plain ZooKeeper recipe: its contender is an ephemeral
// node and goes with the session that made it, which is its gateway's. So it
// has no part in the promise that a held lease is never shortened: what it says of
// its time is an estimate. It ends with ReasonGatewayLeft when its gateway hands
// over, or when its session is over. (When its node goes while the session's
// connection is lost nobody can tell that from a deletion by somebody else, and
// ReasonGatewayLeft is said. When ZooKeeper has ended a session that looks alive from
// here, and tells of the node before it tells of the registration, ReasonRemoved is.)
//
// A gateway that succeeds another one never runs its ephemeral leases: no grant, no
// heartbeat. Their nodes usually go at the same moment as the gateway's
// registration. One that stays all the same (the gateway was deposed, and its session
// lives) is an orphan: it stands in the queue like another program's contender, and is
// deleted at takeover + promise window + TTL, when nobody can have been told any
// more that it holds.

const ephemeralWarning = "an ephemeral lease ends with the ZooKeeper session of its gateway, whatever its ttl: expires_in_ms is an estimate"

// ephemeral reports whether the lease goes with its gateway's session.
func (l *lease) ephemeral() bool { return l.contender.Ephemeral }

// warning is what a client should know of a lease it asked for.
func (m *Manager) warning(l *lease) string {
	switch {
	case l.ephemeral():
		return ephemeralWarning
	case !m.failoverSafe(l.ttl):
		return m.shortTTL
	}
	return ""
}

// shortTTLWarning is said of a TTL that does not ride over a gateway's crash.
func shortTTLWarning(least time.Duration) string {
	return "a ttl below " + least.String() + " does not ride over the crash of a gateway: its leases can be heartbeaten again when ZooKeeper has noticed"
}

// lossReason is why a lease has ended whose contender is gone without its gateway's doing.
func (m *Manager) lossReason(l *lease) locks.Reason {
	lives := m.port.Session() != nil && m.port.Session().ID() == string(l.id().Gateway()) && m.port.Session().Connected() && m.members.Registered(l.id().Gateway())
	if l.ephemeral() && !lives {
		return locks.ReasonGatewayLeft
	}
	return m.takenBy(l)
}

// lossOf is that of a contender of another gateway's lease, as far as one can tell.
func (m *Manager) lossOf(c *recipe.Contender) locks.Reason {
	if c.Ours && c.Ephemeral && !m.members.Registered(c.LeaseID.Gateway()) {
		return locks.ReasonGatewayLeft
	}
	return locks.ReasonUnknown
}

// endEphemerals ends this gateway's ephemeral leases when it hands over: its
// session's end would, a moment later.
func (m *Manager) endEphemerals(now time.Duration) {
	for _, l := range m.inOrder((*lease).ephemeral) {
		switch {
		case l.term != m.port.Term():
		case l.phase == creating:
			l.abandoned = true
		default:
			m.end(l, locks.ReasonGatewayLeft, now)
		}
	}
}

// forgetEphemerals takes the contenders of an ended lease off the count of the
// session's ephemeral nodes, should somebody else have deleted them.
func (m *Manager) forgetEphemerals(l *lease) {
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

// orphan is an ephemeral lease of a gateway that this one has succeeded.
type orphan struct {
	at    []queues.Location
	ttl   time.Duration // the longest, until it has been read
	asked time.Duration // boot: when its deletion was last asked for; 0: never
}

// orphans are those leases.
type orphans map[recipe.LeaseID]*orphan

// orphaned notes a contender of such a lease.
func (m *Manager) orphaned(q *queues.Queue, c *recipe.Contender) {
	o := m.orphans[c.LeaseID]
	if o == nil {
		o = &orphan{ttl: locks.MaxTTL}
		m.orphans[c.LeaseID] = o
		m.port.Read(q.Path+"/"+c.Name, 0, func(data []byte, _ wire.Stat, err error) {
			if r, ok := record.Parse(data); err == nil && ok {
				o.ttl = r.LeaseTTL()
			}
		})
	}
	if !slices.ContainsFunc(o.at, func(at queues.Location) bool { return at.Contender == c }) {
		o.at = append(o.at, queues.Location{Queue: q, Contender: c})
	}
}

// leave forgets a contender that leaves the replica.
func (o orphans) leave(c *recipe.Contender) {
	one := o[c.LeaseID]
	if one == nil {
		return
	}
	one.at = slices.DeleteFunc(one.at, func(at queues.Location) bool { return at.Contender == c })
	if len(one.at) == 0 {
		delete(o, c.LeaseID)
	}
}

// sweepOrphans deletes what should have gone with its session long ago.
func (m *Manager) sweepOrphans(now time.Duration) {
	for _, id := range slices.Sorted(maps.Keys(m.orphans)) {
		o := m.orphans[id]
		if !m.members.Owns(id.Gateway()) || now < m.members.TakenAt(id.Gateway())+m.layout.LargestWindow+o.ttl ||
			o.asked != 0 && now-o.asked < m.layout.PromiseWindow {
			continue
		}
		o.asked = now // the events remove it
		m.deleteAll(o.at)
	}
}
