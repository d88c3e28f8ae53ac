package manager

import (
	"context"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// Postmortems: what is remembered of an ended lease, for an hour. The gateway that
// ran it knows why it ended, and tells the others (notices.go). Who has not been told has seen the
// contender go, and says so (reason unknown) when nobody is there any more who knows better. An entry takes
// some 450 bytes (less than 470), and each of the two memories has at most maxHistory of them.

// past is what is remembered of an ended lease.
//
// Not more than 128 bytes: of what is larger, a map keeps each by itself, and the garbage collector looks at each by itself.
type past struct {
	at           time.Duration // boot
	ns, lock     string
	fencingToken int64
	ttl          time.Duration
	owner        string
	words        string        // of the administrator who ended it
	waited, held time.Duration // until it was granted or ended; after that
	beat         time.Duration // from the last heartbeat to the end; 0 when there was none
	next         *heir
	why          cause
	mode         recipe.Mode
	// doubtful: nobody knew when the contender was created, so the listing that
	// lacked it may have come from a server that lags. It may be there again.
	doubtful bool
	struck   bool // another gateway ran it, and this one has ended it
	heard    bool // the gateway that ran it, or that ended it, has told
}

func (p *past) reason() locks.Reason { return causes[p.why] }

// heir is who was granted the lock next.
type heir struct {
	lease recipe.LeaseID // "" when foreign
	name  string         // of its contender
	owner string
	token int64
	after time.Duration
}

// place names a lock.
type place struct{ ns, lock string }

// remember keeps what became of a lease for those who ask later.
func (m *Manager) remember(l *lease, now time.Duration) {
	p := past{why: l.why, at: now, ns: l.q.space.name, lock: l.q.name(), ttl: l.ttl, mode: l.contender.Mode,
		owner: l.owner, words: l.words(), doubtful: l.abandoned && l.czxid == 0}
	// Since it was queued by the wall clock, which a former owner wrote down.
	p.waited, _ = l.age(m.clock.Now().Wall())
	if l.beat != 0 {
		p.beat = max(now-l.beat, 1)
	}
	if l.grant.granted() {
		p.fencingToken = m.fencingToken(l.czxid)
		since := l.since
		if s := l.sight(); s.held {
			since = s.since // also under a former owner, as far as it was seen here
		}
		p.held = max(now-since, 1)
		p.waited = max(p.waited-p.held, 0)
	}
	m.history.add(l.id(), p)
	m.tell(notice{kind: noticeEnded, lease: l.id(), at: part{l.q, l.contender}})
	m.wordGone(l.q, l.contender)
	if k := m.keys[l.key()]; k != nil && l.key() != "" {
		m.keyEnded(k, l.reason())
	}
}

// witness remembers that a contender of another gateway's lease is gone; the
// replica is about to lose it.
func (m *Manager) witness(q *queue, name string, now time.Duration) {
	c := q.contenders.Get(name)
	if c == nil {
		return
	}
	s := m.sights[c]
	if !c.Ours || c.Unknown || s.mute || !leads(c) || !m.loadedOnce || m.leases[c.LeaseID] != nil || m.history.has(c.LeaseID) {
		return
	}
	p := past{why: causeOf(m.lossOf(c)), at: now, ns: q.space.name, lock: q.name(), mode: c.Mode}
	if i := q.noted().infos[c.Name]; i != nil && i.ours {
		p.owner, p.ttl = m.owners.one(i.record.Owner), i.record.LeaseTTL()
		p.waited = max(m.clock.Now().Wall()-i.created, 0)
	}
	if s.held {
		p.fencingToken, p.held = m.tokenOf(q, c), max(now-s.since, 1)
		p.waited = max(p.waited-p.held, 0)
	}
	if w := m.words[subject(c.LeaseID)]; w != nil {
		if w.ended {
			p = w.end // first-hand
		}
		if reason, words := w.outcome(nil); reason != locks.ReasonUnknown {
			p.why, p.words = causeOf(reason), words
		}
	}
	m.witnessed.add(c.LeaseID, p)
}

// granted notes for those who held the lock before that this contender holds
// it now. l is its lease, nil when this gateway does not run it.
func (m *Manager) granted(q *queue, c *recipe.Contender, l *lease, now time.Duration) {
	at := place{q.space.name, q.name()}
	for _, h := range []*history{&m.history, &m.witnessed} {
		for _, id := range h.heirless[at] {
			p, ok := h.byID[id]
			if !ok || id == c.LeaseID {
				continue
			}
			p.next = &heir{lease: c.LeaseID, name: c.Name, after: now - p.at, token: m.tokenOf(q, c)}
			if l != nil {
				p.next.owner, p.next.token = l.owner, m.fencingToken(l.czxid)
			} else if i := q.noted().infos[c.Name]; i != nil {
				p.next.owner = i.record.Owner
			}
			h.byID[id] = p
		}
		delete(h.heirless, at)
	}
}

// Postmortem tells how a lease ended. A lease that lives is CodeNotFound.
func (m *Manager) Postmortem(ctx context.Context, p locks.Principal, id string) (locks.Postmortem, error) {
	named, wrong := m.target(&locks.LeaseRequest{Principal: p, ID: id})
	if wrong != nil {
		return locks.Postmortem{}, wrong
	}
	return locked2(m, func() (locks.Postmortem, error) {
		var found past
		if err := m.retryAfterSync(ctx, func() (err *locks.Error) {
			found, err = m.recall(named)
			return err
		}); err != nil {
			return locks.Postmortem{}, err
		}
		m.describeHeir(ctx, found)
		return m.viewPostmortem(named, found), nil
	})
}

// recall finds what is remembered of an ended lease.
func (m *Manager) recall(id recipe.LeaseID) (past, *locks.Error) {
	if m.leases[id] != nil {
		return past{}, &locks.Error{Code: locks.CodeNotFound, Detail: "this lease has not ended; ask for the lease itself"}
	}
	if p, ok := m.history.get(id); ok {
		return p, nil
	}
	p, seen := m.witnessed.get(id)
	if seen && p.heard {
		return p, nil // from the gateway that ran it
	}
	err := m.absent(id)
	if err.Code == locks.CodeNotOwner {
		return past{}, err // its gateway knows better
	}
	if seen {
		return p, nil
	}
	if err.Code == locks.CodeEnded {
		stranger := err.UnknownGateway
		err = &locks.Error{Code: locks.CodeNotFound, Detail: "nothing is remembered of a lease with that id: an end is remembered for an hour, by the gateway that ran the lease"}
		err.UnknownGateway = stranger
	}
	return past{}, err
}

// describeHeir reads what is not known yet of whoever was granted the lock
// next. It is called with mu held, and holds it on return.
func (m *Manager) describeHeir(ctx context.Context, p past) {
	if p.next == nil || p.next.token != 0 {
		return
	}
	q := m.spaces[p.ns].find(p.lock)
	if q == nil {
		return
	}
	c := q.contenders.Get(p.next.name)
	if c == nil {
		return
	}
	q.polls++
	m.describe(ctx, q, []*recipe.Contender{c})
	q.polls--
	if i := q.noted().infos[c.Name]; i != nil {
		p.next.owner, p.next.token = m.owners.one(i.record.Owner), m.tokenOf(q, c)
	} else if l := m.leases[c.LeaseID]; c.Ours && l != nil {
		p.next.owner, p.next.token = l.owner, m.fencingToken(l.czxid)
	}
	m.forget(q)
}

func (m *Manager) viewPostmortem(id recipe.LeaseID, p past) locks.Postmortem {
	now := m.clock.Now()
	v := locks.Postmortem{LeaseID: string(id), NS: p.ns, Lock: p.lock, Mode: viewMode(p.mode), Owner: p.owner, Reason: p.reason(), Detail: p.words,
		FencingToken: p.fencingToken, EndedAgo: max(now.Boot()-p.at, 0), WaitedFor: p.waited, HeldFor: p.held, TTL: p.ttl, LastHeartbeat: p.beat}
	v.EndedAt = time.Unix(0, int64(now.Wall()-v.EndedAgo)).UTC()
	if p.next != nil {
		v.Next = &locks.Successor{LeaseID: string(p.next.lease), Owner: p.next.owner, FencingToken: p.next.token, After: p.next.after}
	}
	return v
}
