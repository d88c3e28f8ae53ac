package manager

import (
	"errors"
	"strings"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// Apply takes the observer's changes in ZooKeeper's order. It implements
// zk.Sink and is called from the observer's goroutine alone.
func (m *Manager) Apply(changes []zk.Change) {
	m.do(func() {
		instant := m.clock.Now()
		now := instant.Boot()
		m.heard = time.Unix(0, int64(instant.Wall())).UTC()
		defer func() { m.heard = time.Time{} }()
		for i := range changes {
			c := &changes[i]
			switch c.Kind {
			case zk.Lost:
				m.synced = false
				m.clockState.trusted = false
				m.lookAtConnection()
			case zk.Synced:
				m.synced, m.loadedOnce = true, true
				m.arrived(c.Root)
				m.lookAtConnection()
				m.afterSync(now)
				if m.opt.Outbox != nil {
					m.opt.Outbox.Look() // changes may have been missed
				}
				m.adoptOutbox()
			case zk.Current:
				m.settleDeferred(now)
				m.considerTakeovers(now)
			default:
				m.applyNode(c, now)
			}
		}
	})
}

func (m *Manager) applyNode(c *zk.Change, now time.Duration) {
	switch c.Root.Path {
	case m.opt.Root + "/gateways":
		m.tellNode(c, nil)
		m.applyRegistration(c, now)
	case m.opt.Root + "/succession":
		m.tellNode(c, nil)
		m.applySuccession(c, now)
	case m.opt.Root + zk.NodeNamespaces:
		m.tellNode(c, nil)
		m.applyNamespace(c)
	case m.settingsRoot():
		m.applySettings(c)
	case m.outboxRoot():
		m.opt.Outbox.Look()
	default:
		if s := m.spaceAt(c.Root.Path); s != nil {
			m.quiet = !s.whole
			m.applyLock(s, c, now)
			m.quiet = false
		}
	}
}

func (m *Manager) applyLock(s *space, c *zk.Change, now time.Duration) {
	q, _ := c.Dir.Value.(*queue)
	if q == nil || q.space != s {
		q = m.queueOf(s, recipe.LockName(c.Dir.Path[strings.LastIndexByte(c.Dir.Path, '/')+1:]))
		q.path = c.Dir.Path // the same: one string in memory, not two
		c.Dir.Value = q
	}
	m.tellNode(c, q) // before what it means
	defer m.seeMarker(q)
	switch c.Kind {
	case zk.DirAdded:
		q.exists, q.idle = true, now
		// A directory whose birth we saw has handed out no number yet.
		q.next, q.known, q.gap = 0, !c.Listed, false
		if !c.Listed {
			m.lookSoon(q)
			if s.hasStood(q.name()) {
				m.readDir(q)
			}
		}
		m.touchQueue(q)
		q.locate(true)
		m.consider(q)
	case zk.DirRemoved:
		m.plainGone(q)
		q.exists, q.known, q.gap, q.listing = false, false, false, false
		q.stray(-q.noted().strays)
		q.placeFreed()
		m.touchQueue(q)
		q.locate(false)
		m.consider(q)
		m.forget(q)
	case zk.DirChanged:
		m.placeChanged(q)
	case zk.DirListed:
		q.listing = false
		if c.Err == nil { // refused: what the directory holds is not known, nothing is granted
			q.next, q.known, q.gap = c.Created, true, false
			m.stands(q, c.Stat, now, true)
			m.evaluateAfter(q, now, true)
		}
	case zk.NodeAdded:
		m.applyAdded(q, c, now)
	case zk.NodeRemoved:
		m.applyRemoved(q, c, now)
	case zk.NodeChanged:
		m.applyChanged(q, c)
	}
}

func (m *Manager) applyAdded(q *queue, c *zk.Change, now time.Duration) {
	if c.Node == removalProbe {
		return // gone again with its directory
	}
	m.plainGone(q) // an ephemeral node has no children: it was replaced while we did not look
	parsed, ok := q.space.naming.Parse(m.fleet, c.Node)
	if !ok {
		q.stray(1)
		m.consider(q)
		if q.known && !c.Listed {
			// It used up a number, or was made without one: a listing tells.
			q.gap = true
		}
		m.touchQueue(q)
		return
	}
	contender := m.entry(q, &parsed)
	m.addContender(q, contender, c.Listed)
	if contender.Ours {
		m.unwitness(q, contender) // a server that lagged lacked it
	}
	if !contender.Ours || contender.Unknown {
		if c.Listed {
			m.probe(q, contender.Name)
		} else if q.contenders.Holds(contender.Name) && !q.awaits(contender) {
			m.seenHolding(q, contender, now, false)
		}
		return
	}
	l := m.leases[contender.LeaseID]
	switch {
	case l == nil:
		m.adoptIfOwned(q, contender, now)
	default:
		if s := l.slotAt(q, contender); s != nil && !s.seen && !s.gone {
			s.seen, s.contender = true, contender
			m.counts.recount(l)
			if s == &l.slot {
				m.leases[l.id()] = l // under the id as it stands in the name: one string in memory, not two
			}
			m.place(l, now)
		}
	}
	m.judge(q, c, now)
}

// entry is what goes into the queue for a name that the replica shows: of a
// lease that has not been seen yet the one that it has, else a new one.
func (m *Manager) entry(q *queue, parsed *recipe.Contender) *recipe.Contender {
	if parsed.Ours && !parsed.Unknown {
		if l := m.leases[parsed.LeaseID]; l != nil {
			if s := l.slotAt(q, parsed); s != nil && !s.seen && !s.gone && (s.name() == "" || s.name() == parsed.Name) {
				*s.contender = *parsed
				return s.contender
			}
		}
	}
	c := *parsed
	if fault.On("limit-name") && c.Ours && c.Mode == recipe.Permit {
		if n, _ := q.limit(); n > 0 {
			c.Limit = int32(n)
		}
	}
	return &c
}

// judge grants what a change lets in. What a listing shows is judged when all
// of it is there (DirListed): it comes in no order of numbers.
func (m *Manager) judge(q *queue, c *zk.Change, now time.Duration) {
	if !c.Listed {
		m.evaluate(q, now)
	}
}

// place makes a created lease a waiting one once its place is certain.
func (m *Manager) place(l *lease, now time.Duration) {
	if l.phase != creating || !l.placed() {
		return
	}
	m.setPhase(l, waiting)
	m.extend(l, now, l.waitingClock())
	m.touch(l)
	if l.abandoned {
		m.end(l, locks.ReasonCancelled, now)
	}
}

func (m *Manager) applyRemoved(q *queue, c *zk.Change, now time.Duration) {
	if c.Node == removalProbe {
		return
	}
	contender, ok := q.space.naming.Parse(m.fleet, c.Node)
	if !ok {
		q.stray(-1)
		m.consider(q)
		m.touchQueue(q)
		return
	}
	if c.Listed {
		// The end of a lease lets nobody in yet: whoever is next may be missing
		// from the listing too. DirListed or DirRemoved follows.
		m.incomplete = q
		defer func() { m.incomplete = nil }()
	}
	l, s := m.slotOf(q, &contender)
	next := q.replacement(&contender)
	switch {
	case s != nil && next != nil:
		m.succeeded(l, s, next)
	case s != nil:
		m.lostContender(l, s, c, now)
	case next != nil && l == nil:
		m.inherited(q, q.contenders.Get(contender.Name), next)
	default:
		m.tellTaken(q, contender.Name)
		m.tellRemoved(q, contender.Name)
		m.witness(q, contender.Name, now)
	}
	q.shown(contender.Name)
	m.removedFromDelay(q, &contender, c.Listed)
	m.removeContender(q, contender.Name)
	m.wordGone(q, &contender)
	m.passOn(q, now)
	m.judge(q, c, now)
}

// lostContender handles the disappearance of an own contender from the
// replica. A deleted event always counts. Absence from a listing counts only
// when the listing is not older than the contender: a server that lags shows
// a past in which it did not exist yet.
func (m *Manager) lostContender(l *lease, s *slot, c *zk.Change, now time.Duration) {
	s.seen = false
	if c.Listed && (l.phase == creating && l.czxid == 0 || c.Zxid < l.born()) && !fault.On("absence") {
		return // the reply, or the takeover, tells what became of it
	}
	s.gone = true
	if l.replacing() {
		m.replacedWhole(l)
	}
	if l.width() > 1 { // whoever is next there is granted before the rest of it has ended
		reason := m.lossReason(l)
		if l.phase == ending {
			reason = l.reason()
		}
		m.tellSlotEnded(l, s, reason)
	}
	if _, all := l.gonePart(); all || l.phase != ending && (l.phase != creating || l.czxid != 0) {
		m.lost(l, now) // when it is ending: the news came before the reply to our delete
	}
}

func (m *Manager) applyChanged(q *queue, c *zk.Change) {
	contender, ok := q.space.naming.Parse(m.fleet, c.Node)
	if !ok {
		return
	}
	delete(q.noted().infos, contender.Name)
	l := m.leases[contender.LeaseID]
	switch {
	case !contender.Ours || l == nil || l.term != m.term || l.name() != contender.Name:
		// The record that counts is the first slot's.
		m.touchQueue(q)
		if l != nil && l.term == m.term {
			m.changedLabel(l, q, &contender)
		}
	default:
		m.recordChanged(l)
	}
}

// probe finds out whether a contender that a listing showed may be read.
func (m *Manager) probe(q *queue, name string) {
	m.read(q.nodeOf(name), func(data []byte, stat wire.Stat, err error) {
		switch {
		case err == nil:
			q.setInfo(name, data, stat)
		case errors.Is(err, zk.ErrNoAuth):
			m.hide(q, name)
		}
	})
}

// pollHidden lists the directories that hold contenders which may not be read:
// no event tells of their end. The sweeper calls it once a second.
func (m *Manager) pollHidden() {
	for _, q := range inOrder(m.hazardous) {
		switch r := q.noted(); {
		case len(r.hidden) > 0:
		case len(r.early) == 0:
			delete(m.hazardous, q)
			continue
		case r.polled != r.early[0]:
			r.polled = r.early[0] // its event may be on its way
			continue
		}
		m.list(q)
	}
}
