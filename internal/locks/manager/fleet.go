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

func (st *stream) applyRegistration(m *Manager, c *zk.Change, now time.Duration) {
	id, err := recipe.ParseGatewayID(c.Node)
	if err != nil {
		return
	}
	switch c.Kind {
	case zk.NodeAdded:
		joined := m.members.Register(id)
		m.readRegistration(id)
		if joined {
			m.joinedSource(id, now)
			m.tellGateway(events.GatewayJoined, id)
		}
	case zk.NodeRemoved:
		if announced, deposed := m.members.Unregister(id); announced {
			m.tellGatewayLeft(id, deposed)
		}
		m.abandon(id)
		m.leftSource(id)
		if !fault.On("hooks-gone") {
			m.adoptOutbox() // any gateway may now adopt its outbox
		}
		m.considerTakeovers(now)
	}
}

func (st *stream) applySuccession(m *Manager, c *zk.Change, now time.Duration) {
	id, err := recipe.ParseGatewayID(c.Node)
	if err != nil {
		return
	}
	switch c.Kind {
	case zk.NodeAdded:
		m.members.AddEntry(id)
		m.readSuccession(id)
		m.abandon(id)
	case zk.NodeRemoved:
		m.members.RemoveEntry(id)
	}
}

// readSuccession reads which gateway took over. The reply comes after the entry in the stream, so from there on the
// replica holds everything that the dead gateway wrote. Deadlines count from there.
func (m *Manager) readSuccession(id recipe.GatewayID) {
	m.members.BeginReadEntry(id)
	path := m.opt.Root + "/succession/" + string(id)
	m.effect(func() {
		m.port.Watcher.Get(path, func(data []byte, _ wire.Stat, zxid int64, err error) {
			m.do(func() {
				if g := m.members.Get(id); err != nil || g == nil || !g.Entry {
					m.members.EntryUnread(id)
					return
				}
				successor, err := recipe.ParseGatewayID(string(data))
				if err != nil {
					m.log.Error("a succession entry names no gateway", "gateway", id, "err", err)
					return
				}
				now := m.clock.Now().Boot()
				m.members.ReadEntry(id, successor, zxid, now)
				switch {
				case !m.stream.synced:
				case m.members.Owns(id):
					m.adoptAll(now)
					m.adoptOutbox()
				default:
					m.disown(now)
				}
			})
		})
	})
}

// considerTakeovers takes over gateways that are gone (cluster.Members.Vacant), and repeats reads that failed before.
func (m *Manager) considerTakeovers(now time.Duration) {
	if !m.trusted() || m.life.draining {
		return
	}
	m.readNamespaces()
	for _, id := range m.members.UnreadRegistrations() {
		m.readRegistration(id)
	}
	for _, id := range m.members.UnreadEntries() {
		m.readSuccession(id)
	}
	if m.replica.KnowsAll() {
		for _, id := range m.members.Vacant(now) {
			m.takeOver(id, nil)
		}
	}
	m.members.LogTakeovers(m.log, now)
}

// takeOver submits a takeover that has begun: of a gateway that is gone, or of a stalled one that has the polled
// guard.
func (m *Manager) takeOver(id recipe.GatewayID, polled *zk.Guard) {
	m.port.Takeover(string(id), polled, func(res zk.Result) { m.tookOver(id, polled != nil, res) })
}

func (m *Manager) tookOver(id recipe.GatewayID, deposed bool, res zk.Result) {
	line := m.members.EndTakeover(id, deposed, res)
	switch {
	case res.Outcome == zk.Done:
		m.metrics.Takeover()
		if deposed {
			m.metrics.Deposed()
		}
		if line {
			m.log.Info("took over a gateway's leases", "from", id, "zxid", res.Zxid)
		}
	case line:
		// Another gateway was faster, or the next tick tries again.
		m.log.Info("takeover not done", "from", id, "err", res.Err)
	}
	m.members.LogTakeovers(m.log, m.clock.Now().Boot())
}

func (st *stream) afterSync(m *Manager, now time.Duration) {
	m.replica.DropNodes() // a gap in the stream may precede this: records are read again
	m.adoptAll(now)
	if m.port.Session() == nil {
		for _, ns := range slices.Sorted(maps.Keys(m.replica.Namespaces)) {
			m.replica.Namespaces[ns].Queues.Scan(func(q *queues.Queue) bool {
				m.evaluate(q, now) // records holders of other gateways
				return true
			})
		}
	}
	for _, l := range m.leases.inOrder(func(l *lease) bool { return !l.seenWhole() }) {
		l.checkUnseen(m)
	}
	st.recheck(m)
	m.considerTakeovers(now)
	m.settleDeferred(now)
}
