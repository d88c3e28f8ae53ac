package manager

import (
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// peer is what the replica knows of a gateway id, this one's own included.
type peer struct {
	registered bool
	seen       bool // it was registered at some time, as the replica showed
	told       bool // its registration is one that events tell of
	contenders int  // contenders in the replica that carry the id
	entry      bool // /succession has an entry for it
	successor  recipe.GatewayID
	reading    bool          // the entry is being read, or makes no sense
	taking     bool          // our takeover is under way
	takenAt    time.Duration // boot: when the entry that names us was seen
	entered    int64         // the zxid of the reply by which the entry was read
	about      *introduction // what its registration says; nil until it has been read
	asking     bool          // the registration is being read
	vigil      vigil         // of its guard; see depose.go
}

func (m *Manager) peer(id recipe.GatewayID) *peer {
	p := m.peers[id]
	if p == nil {
		p = &peer{}
		m.peers[id] = p
	}
	return p
}

// peerLeft notes that a contender with the id is gone.
func (m *Manager) peerLeft(id recipe.GatewayID) {
	if p := m.peers[id]; p != nil {
		p.contenders--
		m.forgetPeer(id, p)
	}
}

func (m *Manager) forgetPeer(id recipe.GatewayID, p *peer) {
	if p.contenders <= 0 && !p.registered && !p.entry && !p.taking {
		delete(m.peers, id)
	}
}

func (m *Manager) applyRegistration(c *zk.Change, now time.Duration) {
	id, err := recipe.ParseGatewayID(c.Node)
	if err != nil {
		return
	}
	switch c.Kind {
	case zk.NodeAdded:
		p := m.peer(id)
		p.registered = true
		m.readRegistration(id)
		if !p.entry { // else a takeover makes it, to make sure that there was none, and deletes it
			p.seen, p.told = true, true
			m.joinedSource(id, now)
			m.tellGateway(events.GatewayJoined, id)
		}
	case zk.NodeRemoved:
		p := m.peer(id)
		if p.told {
			m.tellGatewayLeft(id, p)
		}
		p.registered, p.told, p.about, p.vigil = false, false, nil, vigil{}
		m.abandon(id)
		m.leftSource(id)
		m.forgetPeer(id, p)
		if !fault.On("hooks-gone") {
			m.adoptOutbox() // what it has left may be anybody's now
		}
		m.considerTakeovers(now)
	}
}

func (m *Manager) applySuccession(c *zk.Change, now time.Duration) {
	id, err := recipe.ParseGatewayID(c.Node)
	if err != nil {
		return
	}
	switch c.Kind {
	case zk.NodeAdded:
		m.peer(id).entry = true
		m.readSuccession(id)
		m.abandon(id)
	case zk.NodeRemoved:
		p := m.peer(id)
		p.entry, p.successor, p.reading, p.entered = false, "", false, 0
		m.forgetPeer(id, p)
	}
}

// readSuccession learns who took a gateway over. The reply has its place in
// the stream after the entry, so from there on the replica holds everything
// that the dead gateway ever wrote, and deadlines count from there.
func (m *Manager) readSuccession(id recipe.GatewayID) {
	m.peer(id).reading = true
	path := m.opt.Root + "/succession/" + string(id)
	m.effect(func() {
		m.port.Watcher.Get(path, func(data []byte, _ wire.Stat, zxid int64, err error) {
			m.do(func() {
				p := m.peer(id)
				if err != nil || !p.entry {
					p.reading = false // gone, or the connection is: the clock asks again
					m.forgetPeer(id, p)
					return
				}
				successor, err := recipe.ParseGatewayID(string(data))
				if err != nil {
					m.log.Error("a succession entry names no gateway", "gateway", id, "err", err)
					return
				}
				p.successor, p.entered = successor, zxid
				now := m.clock.Now().Boot()
				if p.takenAt == 0 {
					p.takenAt = now
				}
				m.wakeArrivals()
				switch {
				case !m.synced:
				case m.owns(id):
					m.adoptAll(now)
					m.adoptOutbox()
				default:
					m.disown(now)
				}
			})
		})
	})
}

// ownerOf follows the succession to the gateway id whose clock a lease runs
// on. known is false while an entry on the way has not been read.
func (m *Manager) ownerOf(id recipe.GatewayID) (owner recipe.GatewayID, known bool) {
	for range len(m.peers) + 1 {
		p := m.peers[id]
		if p == nil || !p.entry {
			return id, true
		}
		if p.successor == "" {
			return id, false
		}
		id = p.successor
	}
	return id, false // a cycle: nobody's
}

// owns reports whether the leases of a gateway id are this session's to run.
func (m *Manager) owns(id recipe.GatewayID) bool {
	if m.port.Session() == nil {
		return false
	}
	owner, known := m.ownerOf(id)
	return known && string(owner) == m.port.Session().ID()
}

// takenAt is when the chain from id came to end here: the clock readings of
// adopted leases count from it. 0 for this session's own id.
func (m *Manager) takenAt(id recipe.GatewayID) time.Duration {
	var at time.Duration
	for range len(m.peers) + 1 {
		p := m.peers[id]
		if p == nil || !p.entry {
			break
		}
		at = max(at, p.takenAt)
		id = p.successor
	}
	return at
}

// considerTakeovers succeeds gateways that are gone and have left contenders.
// An id with neither registration nor succession is claimed only while a
// contender with it exists, so that an invented id claims nothing; the ids of
// this process's own ended sessions also while it has leases to settle; the end of a
// chain also while there is the chain, whose entries nobody else would sweep.
// In which order, and how many at once: see takeovers.go.
func (m *Manager) considerTakeovers(now time.Duration) {
	if !m.trusted() || m.draining {
		return
	}
	m.readNamespaces()
	m.readRegistrations()
	for id := range m.former {
		m.considerTakeover(id)
	}
	var unread []recipe.GatewayID
	for id, p := range m.peers {
		if p.entry && p.successor == "" && !p.reading {
			unread = append(unread, id)
		}
		if p.contenders > 0 || p.entry {
			m.considerTakeover(id)
		}
	}
	slices.Sort(unread)
	for _, id := range unread {
		m.readSuccession(id)
	}
	for _, v := range m.takeovers.next(now) {
		m.takeOver(v.id, m.peer(v.id), nil)
	}
	m.takeovers.tell(m.log, now)
}

// considerTakeover puts the gateway that runs the leases of a gateway id into the line of
// those that are to be succeeded, if it is gone.
func (m *Manager) considerTakeover(id recipe.GatewayID) {
	owner, known := m.ownerOf(id)
	if !known || string(owner) == m.port.Session().ID() || !m.replica.KnowsAll() {
		return
	}
	v := vacancy{id: owner, standing: unknown}
	if end := m.peers[owner]; end != nil {
		if end.registered || end.taking {
			return
		}
		v.contenders = end.contenders
		if end.seen {
			v.standing = seen
		}
	}
	if owner != id {
		v.standing = seen // a gateway wrote the succession
	} else if _, ours := m.ids[owner]; ours && v.standing == unknown {
		v.standing = own
	}
	m.takeovers.wait(v)
}

// takeOver begins a takeover: of a gateway that is gone, or of one that is deaf and
// has the polled guard. It is in m.takeovers.underWay.
func (m *Manager) takeOver(id recipe.GatewayID, p *peer, polled *zk.Guard) {
	p.taking = true
	m.port.Takeover(string(id), polled, func(res zk.Result) { m.tookOver(id, polled != nil, res) })
}

func (m *Manager) tookOver(id recipe.GatewayID, deaf bool, res zk.Result) {
	p := m.peer(id)
	p.taking = false
	line := m.takeovers.ended(id, res)
	switch {
	case res.Outcome == zk.Done:
		m.metrics.Takeover()
		if deaf {
			m.metrics.Deposed()
		}
		if line {
			m.log.Info("took over a gateway's leases", "from", id, "zxid", res.Zxid)
		}
	default:
		// Another gateway was quicker, or the next tick tries again.
		if line {
			m.log.Info("takeover not done", "from", id, "err", res.Err)
		}
		if deaf && notDeaf(res.Err) {
			p.vigil = vigil{} // it has written after all
		}
	}
	m.takeovers.tell(m.log, m.clock.Now().Boot())
	m.forgetPeer(id, p)
}

// afterSync runs when the replica holds the whole tree.
func (m *Manager) afterSync(now time.Duration) {
	m.replica.DropNotes() // the tree read may follow a gap in the stream: what is needed, for a fence check above all, is read again
	m.adoptAll(now)
	if m.port.Session() == nil {
		for _, ns := range slices.Sorted(maps.Keys(m.replica.Namespaces)) {
			m.replica.Namespaces[ns].Queues.Scan(func(q *queues.Queue) bool {
				m.evaluate(q, now) // who holds elsewhere
				return true
			})
		}
	}
	for _, l := range m.inOrder(func(l *lease) bool { return !l.seenWhole() }) {
		m.checkUnseen(l)
	}
	m.recheck()
	m.considerTakeovers(now)
	m.settleDeferred(now)
}
