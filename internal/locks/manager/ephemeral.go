package manager

import (
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/cluster"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk/wire"
)

// An ephemeral lease is the plain ZooKeeper recipe: its contender is an ephemeral node of its gateway's session. The
// promise that a held lease is never shortened does not cover it; its expiry is an estimate. It ends with
// ReasonGatewayLeft when its gateway hands over or the session ends. A node that goes while the session's connection
// is lost also gives ReasonGatewayLeft: a deletion by another client looks the same. A session that ZooKeeper ended
// may still look alive when the node's deletion is seen before the registration's; that gives ReasonRemoved.
//
// A successor never runs the ephemeral leases of the gateway that it took over: no grant, no heartbeat. Their nodes
// usually go together with the gateway's registration. One that stays, because the gateway was deposed and its session
// lives, is an orphan. It keeps its position in the queue like another program's contender. The successor deletes it
// at takeover + promise window + TTL, when no client can still have an answer that the lease is held.

const ephemeralWarning = "an ephemeral lease ends with the ZooKeeper session of its gateway, whatever its ttl: expires_in_ms is an estimate"

func (l *lease) ephemeral() bool { return l.contender.Ephemeral }

// warning is the warning that an acquire returns with its lease.
func (l *lease) warning(m *Manager) string {
	switch {
	case l.ephemeral():
		return ephemeralWarning
	case !m.failoverSafe(l.ttl):
		return m.requests.shortTTL
	}
	return ""
}

// shortTTLWarning is the warning about a TTL that does not survive a gateway's crash.
func shortTTLWarning(least time.Duration) string {
	return "a ttl below " + least.String() + " does not ride over the crash of a gateway: its leases can be heartbeaten again when ZooKeeper has noticed"
}

// lossReason returns why a lease ended whose contender is gone without its gateway's doing.
func (l *lease) lossReason(m *Manager) locks.Reason {
	lives := m.port.Session() != nil && m.port.Session().ID() == string(l.id().Gateway()) && m.port.Session().Connected() && m.members.Registered(l.id().Gateway())
	if l.ephemeral() && !lives {
		return locks.ReasonGatewayLeft
	}
	return m.takenBy(l)
}

// lossOf returns the same for a contender of another gateway's lease, as far as this gateway can tell.
func lossOf(members *cluster.Members, c *recipe.Contender) locks.Reason {
	if c.Ours && c.Ephemeral && !members.Registered(c.LeaseID.Gateway()) {
		return locks.ReasonGatewayLeft
	}
	return locks.ReasonUnknown
}

// endEphemerals ends this gateway's ephemeral leases when it hands over. The end of its session would do so a moment
// later.
func (m *Manager) endEphemerals(now time.Duration) {
	for _, l := range m.leases.inOrder((*lease).ephemeral) {
		switch {
		case l.term != m.port.Term():
		case l.phase == creating:
			l.abandoned = true
		default:
			l.end(m, locks.ReasonGatewayLeft, now)
		}
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

// orphan is an ephemeral lease of a gateway that this one has succeeded.
type orphan struct {
	at    []queues.Location
	ttl   time.Duration // the longest TTL until the record has been read
	asked time.Duration // boot; last request of its deletion, 0: none
}

type orphans map[recipe.LeaseID]*orphan

// add records a contender of an orphan.
func (o orphans) add(port *term.Port, q *queues.Queue, c *recipe.Contender) {
	one := o[c.LeaseID]
	if one == nil {
		one = &orphan{ttl: locks.MaxTTL}
		o[c.LeaseID] = one
		port.Read(q.Path+"/"+c.Name, 0, func(data []byte, _ wire.Stat, err error) {
			if r, ok := record.Parse(data); err == nil && ok {
				one.ttl = r.LeaseTTL()
			}
		})
	}
	if !slices.ContainsFunc(one.at, func(at queues.Location) bool { return at.Contender == c }) {
		one.at = append(one.at, queues.Location{Queue: q, Contender: c})
	}
}

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
