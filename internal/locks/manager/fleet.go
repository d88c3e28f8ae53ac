package manager

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks/cluster"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// The other gateways, and the namespaces: registrations, successions, takeovers and guards.

func (st *stream) applyRegistration(m *Manager, c *zk.Change, now time.Duration) {
	id, err := recipe.ParseGatewayID(c.Node)
	if err != nil {
		return
	}
	switch c.Kind {
	case zk.NodeAdded:
		joined := m.members.Register(id)
		m.stream.readRegistration(m, id)
		if joined {
			m.reports.Joined(id, now)
			m.publisher.gateway(events.GatewayJoined, id)
		}
	case zk.NodeRemoved:
		if announced, deposed := m.members.Unregister(id, now); announced {
			m.publisher.gatewayLeft(id, deposed)
		}
		m.abandon(id)
		m.reports.Left(id)
		if !fault.On("hooks-gone") {
			m.deliveries.adopt() // any gateway may now adopt its outbox
		}
		m.considerTakeovers(now)
	}
}

func (st *stream) applySuccession(m *Manager, c *zk.Change, now time.Duration) {
	if c.Kind == zk.DirListed {
		// An entry that was swept and created again while there was no connection has the name that is known.
		for _, id := range m.members.ReadEntries() {
			m.stream.readSuccession(m, id)
		}
		return
	}
	id, err := recipe.ParseGatewayID(c.Node)
	if err != nil {
		return
	}
	switch c.Kind {
	case zk.NodeAdded, zk.NodeChanged:
		m.members.AddEntry(id)
		m.stream.readSuccession(m, id)
		m.abandon(id)
	case zk.NodeRemoved:
		m.members.RemoveEntry(id)
	}
}

// readSuccession reads which gateway took over. The reply comes after the entry in the stream, so from there on the
// replica holds everything that the dead gateway wrote. Deadlines count from there.
func (st *stream) readSuccession(m *Manager, id recipe.GatewayID) {
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
				case !st.synced:
				case m.members.Owns(id):
					m.adoptAll(now)
					m.deliveries.adopt()
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
	m.stream.readNamespaces(m)
	for _, id := range m.members.UnreadRegistrations() {
		m.stream.readRegistration(m, id)
	}
	for _, id := range m.members.UnreadEntries() {
		m.stream.readSuccession(m, id)
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
		m.opt.Metrics.Takeover()
		if deposed {
			m.opt.Metrics.Deposed()
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

// A lease's owner follows from names alone. The owner's address is in its registration, which is read when it appears.
// So a request at another gateway is routed without a read.

// readRegistration reads the address of a registered gateway.
func (st *stream) readRegistration(m *Manager, id recipe.GatewayID) {
	m.members.BeginReadRegistration(id)
	path := m.opt.Root + "/gateways/" + string(id)
	m.effect(func() {
		m.port.Watcher.Get(path, func(data []byte, _ wire.Stat, _ int64, err error) {
			m.do(func() {
				var about *cluster.About
				if err == nil && m.members.Registered(id) {
					var r Registration
					if err := json.Unmarshal(data, &r); err != nil {
						m.log.Error("a gateway's registration cannot be read", "gateway", id, "err", err)
					}
					about = &cluster.About{Address: r.Address, Version: r.Version, Started: time.UnixMilli(r.Started).UTC(), Seals: r.Seals, Terms: r.Terms}
				}
				if m.members.ReadRegistration(id, about) {
					m.reports.PeersChanged()
				}
			})
		})
	})
}

// applyNamespace applies a change of a namespace's record. A removed record leaves its namespace in place, because
// the namespace may contain leases.
func (st *stream) applyNamespace(m *Manager, c *zk.Change, now time.Duration) {
	switch c.Kind {
	case zk.NodeAdded, zk.NodeChanged:
		if !m.replica.Recorded(c.Node) {
			m.log.Warn("the record of a namespace was written to; what it said first stays in force", "ns", c.Node)
			return
		}
		st.readNamespace(m, c.Node)
	case zk.NodeRemoved:
		if m.replica.Unrecorded(c.Node) {
			m.considerTakeovers(now)
			return
		}
		m.log.Warn("the record of a namespace was removed; this gateway goes on with it until it is restarted", "ns", c.Node)
	}
}

// readNamespaces reads again the records that could not be read.
func (st *stream) readNamespaces(m *Manager) {
	for _, name := range m.replica.Unread() {
		st.readNamespace(m, name)
	}
}

func (st *stream) readNamespace(m *Manager, name string) {
	loading := m.replica.Loading[name]
	loading.Reading = true
	m.effect(func() {
		m.port.Watcher.Get(m.opt.Root+zk.NodeNamespaces+"/"+name, func(data []byte, _ wire.Stat, _ int64, err error) {
			m.do(func() {
				if m.replica.Loading[name] != loading {
					return
				}
				loading.Reading = false
				if err != nil {
					return // the record is gone and an event follows, or the connection is lost and Synced or the clock retries
				}
				known, err := m.replica.Learn(name, m.opt.Root, data)
				switch {
				case err != nil:
					loading.Problem = err.Error()
					m.log.Error("a recorded namespace cannot be used: until that is cured this gateway takes no other gateway's leases over", "ns", name, "err", err)
				case known:
					m.considerTakeovers(m.clock.Now().Boot())
				default:
					st.watchNamespace(m, name, loading)
				}
			})
		})
	})
}

// watchNamespace starts to watch and read the lock root of a namespace.
func (st *stream) watchNamespace(m *Manager, name string, loading *queues.Loading) {
	if !loading.Watch(st.synced) {
		return
	}
	m.effect(func() {
		if err := m.port.Watcher.AddRoot(zk.WatchRoot{Path: loading.Namespace.Root, Depth: 2}); err != nil {
			m.log.Error("a recorded namespace cannot be watched", "ns", name, "err", err)
			m.do(func() { loading.Problem = "its lock root cannot be watched: " + err.Error() })
		}
	})
}

// namespaceLoaded records that one root has been read, or, when root is nil, all watched roots.
func (st *stream) namespaceLoaded(m *Manager, root *zk.WatchRoot) {
	for _, s := range m.replica.Arrived(root) { // afterSync follows
		m.log.Info("a namespace was added", "ns", s.Name, "root", s.Root, "dialect", s.Naming)
	}
	for _, name := range slices.Sorted(maps.Keys(m.replica.Loading)) {
		st.watchNamespace(m, name, m.replica.Loading[name])
	}
	st.readNamespaces(m)
}

// guardWatch reads the other gateways' guards, and deposes a gateway whose guard does not change. It owns the round: which
// gateway was the last.
type guardWatch struct {
	m    *Manager
	last recipe.GatewayID
}

// run reads guards until ctx ends, three times in a promise window.
func (w *guardWatch) run(ctx context.Context) error {
	m := w.m
	pause := m.fleet.layout.PromiseWindow / 3
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		session, ids := locked2(m, func() (term.Session, []string) { return m.port.Session(), m.members.Watched(w.last) })
		if session != nil && len(ids) > 0 {
			w.last = recipe.GatewayID(ids[len(ids)-1])
			round, cancel := context.WithTimeout(ctx, pause)
			guards := session.Guards(round, ids)
			cancel()
			w.saw(session, guards)
		}
		timer.Reset(pause)
	}
}

// saw takes the answers of one round.
func (w *guardWatch) saw(session term.Session, guards map[string]zk.Guard) {
	m := w.m
	m.do(func() {
		if m.port.Session() != session {
			return
		}
		now := m.clock.Now().Boot()
		for _, id := range slices.Sorted(maps.Keys(guards)) {
			if id := recipe.GatewayID(id); m.members.SawGuard(id, guards[string(id)], now) {
				w.considerDeposing(id)
			}
		}
	})
}

// considerDeposing succeeds a gateway that is registered and stalled, with or without leases.
func (w *guardWatch) considerDeposing(id recipe.GatewayID) {
	m := w.m
	now := m.clock.Now()
	open, ok := m.port.TrustedSince(now)
	if !ok || !m.trusted() || m.life.draining || !m.replica.KnowsAll() {
		return
	}
	guard, silent, ok := m.members.Stalled(id, now.Boot(), open, m.fleet.layout.LargestWindow)
	if !ok || !m.members.Depose(id) {
		return
	}
	m.log.Warn("a registered gateway commits nothing; it is deposed", "stalled", id, "silent_ms", silent.Milliseconds())
	if fault.On("depose-polled") {
		m.takeOver(id, nil)
		return
	}
	m.takeOver(id, &guard)
}

// abandon ends the session of this gateway when the replica shows that it was deposed.
func (m *Manager) abandon(id recipe.GatewayID) {
	if session := m.port.Session(); session != nil && string(id) == session.ID() {
		if !m.port.Ending() { // else the session's last transaction has deleted the registration itself
			m.log.Warn("this gateway was deposed; it goes on under a new id", "gateway", id)
		}
		m.effect(session.Abandon)
	}
}

func (st *stream) afterSync(m *Manager, now time.Duration) {
	m.replica.DropNodes() // a gap in the stream may precede this: records are read again
	m.deadlocks.parties.Forget()
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

// News returns the reports after a place that an earlier call returned, "" for all that are remembered; at is the place
// after them. Without lines there are none now, and more is closed when there may be. more is nil when no more follow,
// because this gateway stops.
func (m *Manager) News(since string) (lines [][]byte, at string, more <-chan struct{}) {
	var list []reports.Report
	m.do(func() { list, at, more = m.reports.Since(since, m.clock.Now()) })
	return reports.Encode(list), at, more
}

// Receive applies another gateway's reports in their order. It skips invalid ones: a newer release may have sent them.
func (m *Manager) Receive(from string, lines [][]byte) {
	list := reports.Decode(lines)
	m.do(func() {
		for _, r := range m.reports.Receive(recipe.GatewayID(from), m.fleet.id, list, m.clock.Now()) {
			m.receiveDestroyed(r)
		}
	})
}

// receiveDestroyed publishes that another gateway destroyed a lock, once the replica has lost the lock's contenders.
func (m *Manager) receiveDestroyed(r reports.Report) {
	at, why := postmortem.Place{NS: r.NS, Lock: r.Lock}, reports.Cause{Words: r.Words, By: r.By}
	switch {
	case m.life.ctx.Err() != nil:
		return
	case m.life.destructions == maxDestructions:
		m.publisher.destroyed(at, why)
		return
	}
	m.life.destructions++
	m.life.errands.Add(1)
	m.effect(func() {
		go func() { // for at most destroyWithin; Run waits for it
			defer m.life.errands.Done()
			ctx, cancel := context.WithTimeout(m.life.ctx, destroyWithin)
			defer cancel()
			_ = m.port.Watcher.Reached(ctx, r.Zxid) // it is published in any case
			m.do(func() {
				m.life.destructions--
				m.publisher.destroyed(at, why)
			})
		}()
	})
}

// Following sets whether another gateway's feed is followed now.
func (m *Manager) Following(gateway string, followed bool) {
	m.do(func() { m.reports.Follow(recipe.GatewayID(gateway), followed, m.clock.Now().Boot()) })
}

// PeersChanged returns a channel that is closed when a gateway registers or leaves, or its address becomes known.
func (m *Manager) PeersChanged() <-chan struct{} { return locked(m, m.reports.AwaitPeers) }

const (
	// destroyWithin is how long a report of a destroyed lock waits for the replica.
	destroyWithin = time.Second
	// maxDestructions bounds the reports of destroyed locks that wait; further ones are published at once.
	maxDestructions = 256
)
