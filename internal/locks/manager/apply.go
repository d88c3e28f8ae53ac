package manager

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// The observer's changes, in ZooKeeper's order.

var _ zk.Sink = (*Manager)(nil)

// Apply takes the observer's changes in ZooKeeper's order. It implements
// zk.Sink and is called from the observer's goroutine alone.
func (m *Manager) Apply(changes []zk.Change) {
	m.do(func() {
		instant := m.clock.Now()
		now := instant.Boot()
		m.stream.heard = time.Unix(0, int64(instant.Wall())).UTC()
		defer func() { m.stream.heard = time.Time{} }()
		for i := range changes {
			c := &changes[i]
			switch c.Kind {
			case zk.Lost:
				m.stream.synced = false
				m.timers.trusted = false
				m.publisher.connection()
			case zk.Synced:
				if !m.stream.synced {
					m.stream.synced = true
					m.stream.groupsHold(m, now)
				}
				m.stream.loadedOnce = true // the first tree read publishes nothing
				m.stream.namespaceLoaded(m, c.Root)
				m.publisher.connection()
				m.stream.afterSync(m, now)
				if m.opt.Outbox != nil {
					m.opt.Outbox.Look() // the observer may have missed changes
				}
				for _, changed := range m.opt.Follow {
					changed("")
				}
				m.deliveries.adopt()
			case zk.Current:
				m.settleDeferred(now)
				m.considerTakeovers(now)
			default:
				m.stream.applyNode(m, c, now)
			}
		}
	})
}

func (st *stream) applyNode(m *Manager, c *zk.Change, now time.Duration) {
	below, ours := strings.CutPrefix(c.Root.Path, m.opt.Root)
	if !ours {
		below = "" // a lock root elsewhere
	}
	switch below {
	case "/gateways":
		m.publisher.node(c, nil)
		st.applyRegistration(m, c, now)
	case "/succession":
		m.publisher.node(c, nil)
		st.applySuccession(m, c, now)
	case zk.NodeNamespaces:
		m.publisher.node(c, nil)
		m.stream.applyNamespace(m, c, now)
	case zk.NodeSettings:
		m.applySettings(c, now)
	case outboxNode:
		m.opt.Outbox.Look()
	default:
		if s := m.replica.NamespaceAt(c.Root.Path); s != nil {
			st.suppressEvents = !s.Whole
			st.applyLock(m, s, c, now)
			st.suppressEvents = false
		} else if changed := m.opt.Follow[below]; changed != nil {
			changed(c.Node)
		}
	}
}

func (st *stream) applyLock(m *Manager, s *queues.Namespace, c *zk.Change, now time.Duration) {
	q := m.replica.QueueOf(s, c, now)
	m.publisher.node(c, q) // before its consequences
	switch c.Kind {
	case zk.NodeAdded:
		st.applyAdded(m, q, c, now)
	case zk.NodeRemoved:
		st.applyRemoved(m, q, c, now)
	case zk.NodeChanged:
		st.applyChanged(m, q, c)
	case zk.DirRemoved:
		m.plainGone(q, now)
		m.applyDeltas(m.replica.ApplyDir(q, c, now), now)
	case zk.DirListed:
		if listed := m.replica.ApplyDir(q, c, now); len(listed) > 0 {
			m.stands(q, c.Stat, now, true)
			m.evaluateAfter(q, now, true)
		}
	default:
		m.applyDeltas(m.replica.ApplyDir(q, c, now), now)
	}
	m.applyDeltas(m.replica.ReviewMarker(q), now)
}

func (st *stream) applyAdded(m *Manager, q *queues.Queue, c *zk.Change, now time.Duration) {
	if c.Node == queues.RemovalProbe {
		return // gone again with its directory
	}
	m.plainGone(q, now) // an ephemeral node has no children: it was replaced unobserved
	parsed, ok := q.Namespace.Naming.Parse(m.fleet.id, c.Node)
	if !ok {
		m.applyDeltas(m.replica.AddUnnumbered(q, c.Listed), now)
		return
	}
	contender := m.leases.entry(q, &parsed)
	m.addContender(q, contender, c.Listed, now)
	if contender.Ours {
		m.reports.Reappeared(q, contender) // a lagging server did not show it
	}
	if !contender.Ours || contender.Unknown {
		if c.Listed {
			st.probe(m, q, contender.Name)
		} else if q.Contenders.Holds(contender.Name) && !q.Awaits(contender) {
			m.seenHolding(q, contender, now, false)
		}
		return
	}
	l := m.leases.lease(contender.LeaseID)
	switch {
	case l == nil:
		m.adoptIfOwned(q, contender, now)
	default:
		if s := l.slotAt(q, contender); s != nil && s.presence == lifecycle.Unseen {
			s.contender = contender
			s.presence.Set(m.leases, &l.State, lifecycle.Seen)
			m.leases.counts.recount(l)
			l.place(m, now)
		}
	}
	if !c.Listed {
		m.evaluate(q, now)
	}
}

// entry returns the queue entry for a name that the replica shows: that of an own lease not seen yet, else a new one.
func (t *leaseTable) entry(q *queues.Queue, parsed *recipe.Contender) *recipe.Contender {
	if parsed.Ours && !parsed.Unknown {
		if l := t.lease(parsed.LeaseID); l != nil {
			if s := l.slotAt(q, parsed); s != nil && s.presence == lifecycle.Unseen && (s.name() == "" || s.name() == parsed.Name) {
				*s.contender = *parsed
				return s.contender
			}
		}
	}
	c := *parsed
	if fault.On("limit-name") && c.Ours && c.Mode == recipe.Permit {
		if n, _ := q.Limit(); n > 0 {
			c.Limit = int32(n)
		}
	}
	return &c
}

func (st *stream) applyRemoved(m *Manager, q *queues.Queue, c *zk.Change, now time.Duration) {
	if c.Node == queues.RemovalProbe {
		return
	}
	contender, ok := q.Namespace.Naming.Parse(m.fleet.id, c.Node)
	if !ok {
		m.applyDeltas(m.replica.RemoveUnnumbered(q), now)
		return
	}
	if c.Listed {
		// The end of a lease grants no other yet: the next contender may be missing from the listing too.
		// DirListed or DirRemoved follows.
		m.replica.BeginPart(q)
		defer m.replica.EndPart()
	}
	l, s := m.leases.slotOf(q, &contender)
	next := q.Replacement(&contender)
	switch {
	case s != nil && next != nil:
		l.succeeded(m, s, next)
	case s != nil:
		l.lostContender(m, s, c, now)
	case next != nil && l == nil:
		m.inherited(q, q.Contenders.Get(contender.Name), next)
	default:
		m.deliveries.taken(q, contender.Name)
		m.tellRemoved(q, contender.Name)
		m.observeEnd(q, contender.Name, now)
	}
	q.ShowEnd(contender.Name)
	m.delays.removed(q, &contender, c.Listed)
	m.removeContender(q, contender.Name, now)
	m.reports.Gone(q, &contender)
	m.passOn(q, now)
	if !c.Listed {
		m.evaluate(q, now)
	}
}

// lostContender handles the disappearance of an own contender from the
// replica. A deleted event always counts. Absence from a listing counts only
// when the listing is not older than the contender: a lagging server may not show it yet.
func (l *lease) lostContender(m *Manager, s *slot, c *zk.Change, now time.Duration) {
	if c.Listed && (l.Creating() && l.czxid == 0 || c.Zxid < l.visibleFrom()) && !fault.On("absence") {
		s.presence.Hide(m.leases, &l.State)
		return // the reply or the takeover decides
	}
	s.presence.Set(m.leases, &l.State, lifecycle.Gone)
	if l.replacing() {
		l.replacedWhole(m)
	}
	// The next lease there is granted before this one has ended. What a listing lacks may be shown again, unless it was a part.
	if unsure := l.undecided(m.reports); unsure && !c.Listed || l.width() > 1 {
		m.tellSlotEnded(l, s, l.lossReason(m), unsure)
	}
	if _, all := l.gonePart(); all || !l.Ending() && (!l.Creating() || l.czxid != 0) {
		l.lost(m, now) // if it is ending, the event came before the reply to our delete
	}
}

func (st *stream) applyChanged(m *Manager, q *queues.Queue, c *zk.Change) {
	contender, ok := q.Namespace.Naming.Parse(m.fleet.id, c.Node)
	if !ok {
		return
	}
	q.DropNode(contender.Name)
	m.deadlocks.parties.Changed(q.Contenders.Get(contender.Name))
	l := m.leases.lease(contender.LeaseID)
	switch {
	case !contender.Ours || l == nil || l.term != m.port.Term() || l.name() != contender.Name:
		// The first slot has the lease's record.
		m.replica.Touch(q)
		if l != nil && l.term == m.port.Term() {
			l.changedLabel(m, q, &contender)
		}
		if one := m.delays.byID[contender.LeaseID]; one != nil && one.path == q.NodeOf(contender.Name) {
			one.restore(m)
		}
	default:
		l.recordChanged(m)
	}
}

// probe checks whether the gateway may read a contender that a listing showed.
func (st *stream) probe(m *Manager, q *queues.Queue, name string) {
	m.port.Read(q.NodeOf(name), 0, func(data []byte, stat wire.Stat, err error) {
		switch {
		case err == nil:
			q.SetNode(name, data, stat)
		case errors.Is(err, zk.ErrNoAuth):
			m.applyDeltas(m.replica.Hide(q, name), m.clock.Now().Boot())
		}
	})
}

// applySettings takes a change of the settings.
func (m *Manager) applySettings(c *zk.Change, now time.Duration) {
	if q := m.replica.SettingsOf(c, now); q != nil {
		m.publisher.node(c, q)
		m.applyDeltas(m.replica.ApplySettings(q, c), now)
	}
}

// changedLabel looks at what was written to a lease's contender that does not have
// its record: a Curator client asks whichever of the names it knows.
func (l *lease) changedLabel(m *Manager, q *queues.Queue, c *recipe.Contender) {
	s := l.slotAt(q, c)
	if s == nil || s.name() != c.Name || s.presence.Gone() {
		return
	}
	term, path := l.term, s.path()
	m.port.Read(path, 0, func(data []byte, stat wire.Stat, err error) {
		if _, ours := record.Parse(data); err != nil || ours || l.term != term || !l.Settled() || l.rare().restored >= maxRestores {
			return
		}
		l.rareFields.restored++
		label := &zk.Write{Ops: []zk.Op{{Kind: zk.OpSetData, Path: path, Data: l.label(l.recorded), Version: stat.Version}}}
		ask, asks := asksOutside(data)
		if !asks {
			m.port.Submit(label, func(zk.Result) {})
			return
		}
		// The record first: what is asked must not be lost.
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), settleWithin)
			defer cancel()
			if _, _, err := m.reviseOwn(ctx, l, ask.After); err != nil {
				return // it has ended, or ZooKeeper is away: the data still says it
			}
			m.do(func() {
				if l.term == term && l.Settled() {
					m.port.Submit(label, func(zk.Result) {})
				}
			})
		}()
	})
}

// suspectPause is when a lock is tried again in whose place something ephemeral stands that may not be read.
const suspectPause = time.Second

// look makes certain what stands in the place of a lock whose directory is so new that it has not been read. The monitor is
// held, and released meanwhile; q stays.
func (m *Manager) look(ctx context.Context, q *queues.Queue) {
	if !q.Empty() || !q.Listing() && !slices.Contains(m.stream.unlooked, q) {
		return
	}
	m.suspect(q)
	begun := m.clock.Now().Boot()
	for left := answerWithin; q.Extras().Unidentified && left > 0; left = answerWithin - (m.clock.Now().Boot() - begun) {
		if m.sleep(ctx, q.Changed(), left) != nil {
			return
		}
	}
}

// suspect reads what stands in a lock's place, after a create was refused because it is ephemeral. The server that answers has
// come as far as the writer.
func (m *Manager) suspect(q *queues.Queue) {
	if q.Extras().Unidentified || q.Plain() != nil {
		return
	}
	q.MakeExtras().Unidentified = true
	q.Polls++ // keeps the queue
	settle := func() {
		q.MakeExtras().Unidentified = false
		q.Trim()
		q.Polls--
		m.replica.Touch(q)
		m.replica.Forget(q)
	}
	var least int64
	if m.port.Session() != nil {
		least = m.port.Session().LastZxid()
	}
	m.port.Read(q.Path, least, func(data []byte, stat wire.Stat, err error) {
		switch {
		case errors.Is(err, zk.ErrNoAuth):
			time.AfterFunc(suspectPause, func() {
				m.do(func() { settle() })
			})
			return
		case err == nil:
			q.Exists = true
			m.stands(q, &stat, m.clock.Now().Boot(), false)
			if q.Plain() != nil {
				q.SetNode(interop.PlainNode, data, stat)
			}
		}
		settle()
	})
}

// stands takes what a listing or a read has shown in the place of the lock's directory; stat is nil for a directory.
func (m *Manager) stands(q *queues.Queue, stat *wire.Stat, now time.Duration, listed bool) {
	if stat != nil && !stat.Ephemeral() && 0 < stat.DataLength && stat.DataLength <= maxDirData {
		readDir(m.port, m.replica, q)
	}
	if q.Replaced(stat) {
		m.plainGone(q, now)
	}
	if c := q.NewPlain(stat); c != nil {
		m.addContender(q, c, listed, now)
		m.seenHolding(q, c, now, listed)
	}
}

// plainGone takes a plain node out of the queue: it is deleted, or another node stands in its place.
func (m *Manager) plainGone(q *queues.Queue, now time.Duration) {
	if q.Plain() == nil {
		return
	}
	m.tellRemoved(q, interop.PlainNode)
	m.removeContender(q, interop.PlainNode, now)
}

// passOn removes a directory that goes when it is empty. The sweeper repeats it after a failure.
func (m *Manager) passOn(q *queues.Queue, now time.Duration) {
	if q.Contenders.Len() > 0 || !q.Extras().Temporary || q.Leases > 0 || q.Extras().Unnumbered > 0 || !m.trusted() || m.life.draining {
		return
	}
	q.Since = now
	m.port.Submit(&zk.Write{Alone: true, Ops: queues.RemoveDir(q.Path)}, func(zk.Result) {})
}
