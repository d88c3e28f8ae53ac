package manager

import (
	"context"
	"errors"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
)

// An administrator ends what is not his. A lease of this gateway ends like any
// other, by m.end: its client is told why. The contenders of another gateway's
// lease are deleted, all of them in one transaction; that gateway is sent the event
// and tells its client that the lease was removed, or why when it has heard (notices.go), while this one remembers
// it. Another program's contender is deleted at the version that was looked at.
// No lock delay follows any of it.

// verdict is why an administrator ends something, and in what words.
type verdict struct {
	reason locks.Reason
	words  string
	trace  string // traceparent of his request
}

// ends reports whether an administrator's end has that reason. Others decide how a lease ends: what time ends, for
// example, a heartbeat may revive.
func (v *verdict) ends() bool {
	return v.reason == locks.ReasonRevoked || v.reason == locks.ReasonDestroyed
}

// endBy ends a lease of this gateway as an administrator wants it.
func (m *Manager) endBy(l *lease, v verdict) {
	l.rare().words, l.rareFields.trace = v.words, v.trace
	l.end(m, v.reason, m.clock.Now().Boot())
}

// blow is an administrator's end of one lease, or of one contender that is no
// lease of this gateway's, on its way.
type blow struct {
	verdict
	l       *lease // of this gateway; else:
	at      queues.Location
	version int32 // of at, as it was looked at; -1: any
	paths   []string
	answer  chan zk.Result
	gone    map[string]bool // contenders that were gone already
	unnoted bool            // the outbox has it already, or cannot take it
	blind   bool            // what stands before it may not be looked at
	notify  string          // of at: its notify_url
}

// readBefore reads the record of a blow's contender when that is another gateway's. Only the record tells whether its lease has
// ended already; then the blow frees a place and ends no lease. The blow deletes the version that was read. The record of a
// lease that this gateway has just taken over has its notify_url. The monitor is held, and released meanwhile.
func (m *Manager) readBefore(ctx context.Context, b *blow) error {
	if b.l != nil {
		return m.readOwn(ctx, b.l)
	}
	if !b.at.Contender.Ours || b.at.Contender.Unknown || m.delays.byID[b.at.Contender.LeaseID] != nil {
		return nil
	}
	b.at = m.replica.Record(b.at)
	session := m.port.Session()
	if session == nil {
		return unavailable()
	}
	data, stat, err := m.getOutside(ctx, session, b.at.Path())
	switch {
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrNoNode):
		return nil // it cannot be known; or is gone, and the event follows
	case err != nil:
		return unavailableFor(err)
	}
	b.version = stat.Version
	r, ok := record.Parse(data)
	if b.notify = ""; ok {
		b.notify = r.NotifiesOfEnd()
	}
	if ok && r.Closed != nil {
		b.at.Queue.SetNode(b.at.Contender.Name, data, stat)
		b.verdict = verdict{reason: r.EndedFor()}
	}
	return nil
}

// strike hands a blow over; the monitor is held.
func (m *Manager) strike(b *blow) {
	if b.l != nil {
		if b.l.phase == waiting || b.l.phase == held {
			m.endBy(b.l, b.verdict)
		}
		return
	}
	w := &zk.Write{Alone: true} // it may fail, and shall fail no bystander
	var parts []queues.Location
	for _, p := range queues.TailFirst(m.replica.Locations(b.at)) {
		if b.gone[p.Path()] || p.Queue.Contenders.Get(p.Contender.Name) != p.Contender {
			continue
		}
		version := int32(-1)
		if p.Contender == b.at.Contender {
			version = b.version
		}
		w.Ops = append(w.Ops, zk.Op{Kind: zk.OpDelete, Path: p.Path(), Version: version})
		parts = append(parts, p)
	}
	b.answer = make(chan zk.Result, 1)
	if len(parts) == 0 {
		b.answer <- zk.Result{Outcome: zk.NotDone, Err: zk.ErrNoNode, Culprit: -1}
		return
	}
	n, ready := m.noteTaken(parts, b.verdict, b.notify, b.unnoted)
	if !ready {
		b.answer <- zk.Result{Outcome: zk.Conflict, Err: errOutboxUnknown, Culprit: -1}
		return
	}
	if b.blind {
		n.checks = nil
	}
	ends := len(n.ops) + len(w.Ops)
	w.Ops = slices.Concat(n.ops, w.Ops, n.checks)
	b.paths = b.paths[:0]
	for _, p := range parts {
		b.paths = append(b.paths, p.Path())
		m.verdicts[p.Contender] = b.verdict // the event may come before the answer
	}
	m.tellVerdict(noticeVerdict, b.verdict, parts) // before it is handed over
	m.port.Submit(w, func(res zk.Result) {
		if n.ops != nil {
			m.opt.Outbox.Ended(n.entry, n.ops, res)
		}
		switch {
		case n.culprit(res):
			b.unnoted = true
			res = zk.Result{Outcome: zk.Conflict, Err: res.Err, Culprit: -1}
		case res.Culprit >= ends:
			b.blind = true
			res = zk.Result{Outcome: zk.Conflict, Err: res.Err, Culprit: -1}
		case res.Culprit >= 0:
			res.Culprit -= len(n.ops)
		}
		switch {
		case res.Outcome == zk.Done:
			m.struck(b)
		case res.Outcome == zk.Unknown: // looked for
		case errors.Is(res.Err, zk.ErrNoNode) && len(parts) > 1: // the others go
		default:
			m.acquit(parts)
		}
		b.answer <- res
	})
}

// acquit takes back what was noted of contenders that were not ended after all.
func (m *Manager) acquit(parts []queues.Location) {
	for _, p := range parts {
		delete(m.verdicts, p.Contender)
	}
	m.tellVerdict(noticeAcquitted, verdict{}, parts)
}

// struck remembers why a lease of another gateway was ended: who asks here is told.
func (m *Manager) struck(b *blow) {
	c := b.at.Contender
	if !c.Ours || c.LeaseID == "" || m.leases.byID[c.LeaseID] != nil {
		return
	}
	p := postmortem.End{Why: postmortem.CauseOf(b.reason), Words: b.words, At: m.clock.Now().Boot(), NS: b.at.Queue.Namespace.Name, Lock: b.at.Queue.Name(), Mode: c.Mode}
	if m.replica.Observed(c).Holds {
		p.FencingToken = m.tokenOf(b.at.Queue, c)
	}
	if i := b.at.Queue.Node(c.Name); i != nil {
		p.TTL = i.Record.LeaseTTL()
	}
	p.Struck = true
	m.history.Add(c.LeaseID, p)
	m.tell(notice{kind: noticeStruck, lease: c.LeaseID, at: b.at, why: b.verdict})
}

// errOutboxUnknown: it is not known yet who wants to be told.
var errOutboxUnknown = errors.New("those who want to be told of it are not known yet")

// errEnded: it had ended, or ended for another reason meanwhile.
var errEnded = errors.New("it has ended")

// follow waits for what becomes of a blow: nil when it is done and the replica
// shows it; errEnded; zk.ErrBadVersion when it was changed since it was looked at; or why it was not
// done. What was lost is looked for in the replica, after a barrier, and done again if
// it is there. The monitor is held, and released while it waits.
func (m *Manager) follow(ctx context.Context, b *blow) error {
	if b.l != nil {
		return m.followOwn(ctx, b)
	}
	for range adminAttempts + locks.MaxGroup {
		var res zk.Result
		m.outside(func() {
			select {
			case res = <-b.answer:
			case <-ctx.Done():
			case <-time.After(settleWithin):
			}
		})
		switch {
		case res.Outcome == 0 && ctx.Err() != nil:
			return cancelled(ctx)
		case res.Outcome == 0:
			return outcomeUnknown()
		case res.Outcome == zk.Done:
			m.outside(func() { m.show(ctx, res.Zxid) })
			return nil
		case res.Outcome == zk.NotDone && errors.Is(res.Err, zk.ErrNoNode):
			if res.Culprit < 0 || len(b.paths) == 1 {
				return errEnded
			}
			if b.gone == nil {
				b.gone = map[string]bool{}
			}
			b.gone[b.paths[res.Culprit]] = true // a part of it; the others go
		case res.Outcome == zk.Unknown, res.Outcome == zk.Conflict, errors.Is(res.Err, zk.ErrNotApplied), errors.Is(res.Err, zk.ErrSessionGone):
			var err error
			if m.outside(func() { err = m.barrier(ctx) }); err != nil {
				return outcomeUnknown()
			}
		default:
			return res.Err
		}
		lost := res.Outcome == zk.Unknown
		if lost && b.at.Queue.Contenders.Get(b.at.Contender.Name) != b.at.Contender {
			m.struck(b) // it was done
			return nil
		}
		if errors.Is(res.Err, errOutboxUnknown) {
			m.awaitOutbox(ctx)
		}
		m.strike(b)
	}
	return outcomeUnknown()
}

// followOwn waits for the end of a lease of this gateway. An end that time had
// decided and that was not done is followed by this one.
func (m *Manager) followOwn(ctx context.Context, b *blow) error {
	l := b.l
	var meanwhile error
	late := m.untilDone(ctx, outcomeUnknown, func() (*lease, *locks.Error) {
		switch {
		case l.phase == ended && l.failure() != nil:
			return nil, l.failure()
		case l.phase == ended:
			if l.reason() != b.reason {
				meanwhile = errEnded
			}
			return nil, nil
		case l.term == m.port.Term() && m.port.Session() != nil:
			m.strike(b)
		}
		return l, nil
	})
	if late != nil {
		return late
	}
	return meanwhile
}

// Break ends one lease, waiting or held, of this gateway or of another, what its
// lock delay keeps of it, or another program's contender by the name of its znode. Repeated: nil again for a
// lease that was taken back; one that ended otherwise is CodeEnded. A contender that is not
// in the queue is CodeNoContender.
func (m *Manager) Break(ctx context.Context, req locks.BreakRequest) error {
	if err := req.Check(); err != nil {
		return err
	}
	v := verdict{locks.ReasonRevoked, req.Reason, locks.TraceParentOf(ctx)}
	return locked(m, func() error {
		if req.ID != "" {
			return m.breakLease(ctx, req.ID, v, req.AtOwner)
		}
		return m.breakContender(ctx, &req, v)
	})
}

func (m *Manager) breakLease(ctx context.Context, name string, v verdict, atOwner bool) error {
	last := errEnded
	missing := error(notFound()) // the replica holds everybody who was told of a place in line
	for range adminAttempts {
		var err error
		if m.outside(func() { err = m.barrier(ctx) }); err != nil {
			return err
		}
		id, err := recipe.ParseLeaseID(name)
		if err != nil || id.Fleet() != m.fleet.id {
			return notFound()
		}
		if err := m.usable(); err != nil {
			return err
		}
		if p, ok := m.history.Get(id); ok && m.leases.byID[id] == nil && m.delays.byID[id] == nil {
			return brokenBefore(p)
		}
		b := &blow{verdict: v, l: m.leases.byID[id], version: -1}
		if b.l == nil {
			if atOwner {
				if err := m.absent(id); err.Code == locks.CodeNotOwner {
					return err
				}
			}
			at, found := m.replica.FindLease(id, m.clock.Now().Boot())
			if !found {
				return missing
			}
			b.at = at
		}
		if err := m.readBefore(ctx, b); err != nil {
			return err
		}
		m.strike(b)
		err = m.follow(ctx, b)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, zk.ErrBadVersion): // written since it was read
			last, missing = err, endedError(locks.ReasonUnknown)
			continue
		case !errors.Is(err, errEnded):
			return refusedBlow(err)
		}
		// Or its gateway has downgraded it, and it has another name: it is looked for again.
		last, missing = errEnded, endedError(locks.ReasonUnknown)
	}
	return refusedBlow(last)
}

// brokenBefore is the answer to a break of a lease that has ended.
func brokenBefore(p postmortem.End) error {
	if p.Reason() == locks.ReasonRevoked {
		return nil
	}
	return endedError(p.Reason()).Because(p.Words)
}

// refusedBlow turns why something could not be ended into the error to answer.
func refusedBlow(err error) error {
	var e *locks.Error
	if errors.As(err, &e) {
		return e
	}
	return &locks.Error{Code: locks.CodeUnavailable, Detail: "not ended: " + obstacle(err), Err: err}
}

func (m *Manager) breakContender(ctx context.Context, req *locks.BreakRequest, v verdict) error {
	for range adminAttempts {
		q, err := m.lockAt(ctx, req.NS, req.Lock)
		if err != nil {
			return err
		}
		c := q.Contenders.Get(req.Name)
		if c == nil && (req.Name == q.Name() || req.Name == q.Dir()) {
			c = q.Plain() // the last part of its path is the lock's name
		}
		czxid := q.Extras().PlainCzxid
		b := &blow{verdict: v, version: -1}
		if c != nil {
			b.at = queues.Location{Queue: q, Contender: c}
			if l, s := m.leases.slotOf(q, c); s != nil {
				b.l = l
			}
		}
		session := m.port.Session()
		m.leaveQueue(q)
		if c == nil {
			return noContender()
		}
		if !c.Ours || c.Unknown {
			var stat *zk.Stat
			m.outside(func() {
				looking, cancel := context.WithTimeout(ctx, answerWithin)
				defer cancel()
				stat, err = session.Exists(looking, b.at.Path())
			})
			switch {
			case err != nil:
				return unavailableFor(err)
			case stat == nil:
				return noContender()
			case c.Name == interop.PlainNode && stat.Czxid != czxid:
				continue // another one has taken its place
			}
			b.version = stat.Version
		}
		if err := m.readBefore(ctx, b); err != nil {
			return err
		}
		m.strike(b)
		err = m.follow(ctx, b)
		switch {
		case errors.Is(err, zk.ErrBadVersion): // written since it was looked at
			continue
		case errors.Is(err, errEnded):
			return noContender()
		case err != nil:
			return refusedBlow(err)
		}
		return nil
	}
	return refusedBlow(zk.ErrBadVersion)
}

func noContender() *locks.Error {
	return &locks.Error{Code: locks.CodeNoContender, Detail: "no contender of that name is in the lock's queue"}
}
