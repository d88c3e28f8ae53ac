package manager

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/cluster"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// Some want to be told for certain that a lock was let go. That they will be is
// written down in the transaction by which a held lease ends, so there is no end without
// the note and no note without the end. The Outbox says what belongs into the transaction;
// what it says stands before the operations that end the lease, because whoever sees the end
// may rely on the note.
//
// Who wants to be told may have changed without this gateway knowing (attack 19). So each
// such transaction checks that nobody has, also when nobody is to be told. When somebody
// has, the lease stays ending and its end is decided anew; while the Outbox does not
// know whom to tell, ends wait. What time decided still deletes only the version that was seen, and
// goes back to being held when it would wait for too long.
//
// The end of a lease whose contender another hand has removed, and of another program's contender that
// held, is in no transaction of ours. It is told as well as that can be done: by the gateway that ran the lease, and of another
// program's by one gateway of those that are registered.

// Outbox is asked about those who want to be told that a lock was let go. Its
// methods are called with the manager's lock held; they return at once.
type Outbox interface {
	// Ending gives the operations that belong before those that end a lease that
	// held, and what to hand to Ended. notify: it has a notify_url. ready is false while it is not known who wants to be told:
	// Manager.OutboxChanged says when to try again. The operations are not changed, so those of several ends
	// may be the same ones. describe is called, if at all, before Ending returns.
	Ending(notify bool, describe func() *Ending) (ops []zk.Op, entry any, ready bool)
	// Notify gives the operation that notes for a lease's notify_url alone that it was granted, or has
	// ended before it held; none when that cannot be noted.
	Notify(*Ending) (ops []zk.Op, entry any)
	// CheckURL says what is wrong with a notify_url. It is called without the manager's lock.
	CheckURL(url string) error
	// Ended tells what became of a transaction with such operations.
	Ended(entry any, ops []zk.Op, res zk.Result)
	// Gone tells of an end that has happened by another hand.
	Gone(*Ending)
	// Look tells that those who want to be told may be others.
	Look()
	// Adopt tells that this gateway may have more to deliver than it knows.
	Adopt()
}

// Ending is a lease that ends, or another program's contender that is gone.
type Ending struct {
	LeaseID string
	Part    int   // of a lease of several locks, from 1 on, when it is told by itself: 0: the whole lease
	Czxid   int64 // of another program's contender, 0 when nobody had looked at it
	Reason  locks.Reason
	Words   string // of the administrator who ended it
	Owner   string
	Gateway string // that tells it
	At      time.Time
	Trace   string // traceparent of the request that ended it
	Notify  string // its notify_url; "": none
	Granted bool   // it does not end: it was granted
	Waiting bool   // it never held: for Notify alone
	Parts   []EndingPart
}

// EndingPart is one of the locks that are let go.
type EndingPart struct {
	NS, Lock, Znode, Program string
	Mode                     locks.Mode
	FencingToken             int64
}

// deliveries writes into the outbox that leases end and are granted. The monitor guards it.
type deliveries struct {
	outbox   Outbox        // nil: no guaranteed deliveries
	wake     chan struct{} // closed by OutboxChanged; nil without waiters
	fleet    *fleet
	stream   *stream
	leases   *leaseTable
	replica  *queues.Replica
	members  *cluster.Members
	answers  *answers
	verdicts map[*recipe.Contender]cause
	ordered  func(subject) *cause // the end that an administrator of another gateway ordered; nil: none
	port     *term.Port
	clock    zk.Clock
	log      *slog.Logger
	do       func(func()) // under the monitor
}

// outboxRoot is where those are who want to be told; changes below it are watched.
func (f *fleet) outboxRoot() string { return f.root + "/webhooks" }

// noting is the part of a transaction that is the outbox's.
type noting struct {
	ops    []zk.Op
	entry  any
	checks []zk.Op // behind the ends: that what waits does still; see blockers.go
}

// culprit reports whether it was the outbox's part for which a transaction was refused for good. One that
// is too large is so by what is noted in it.
func (n noting) culprit(res zk.Result) bool {
	return res.Outcome == zk.NotDone && (res.Culprit >= 0 && res.Culprit < len(n.ops) || len(n.ops) > 1 && errors.Is(res.Err, zk.ErrTooLarge))
}

// end is what belongs before the end of a lease; not ready: it has to wait.
func (d *deliveries) end(l *lease) (n noting, ready bool) {
	switch {
	case d.outbox == nil || l.endNote == noteDone:
	case l.grant != grantNone:
		n.ops, n.entry, ready = d.outbox.Ending(l.notifyURL() != "", func() *Ending { return d.ending(l) })
		return n, ready
	case l.tellsWaiting():
		n.ops, n.entry = d.outbox.Notify(d.ending(l))
	}
	return n, true
}

// ending describes a lease of this gateway that ends.
func (d *deliveries) ending(l *lease) *Ending {
	e := d.endingOf(l.id(), l.reason(), l.words())
	e.Owner, e.Trace, e.Notify, e.Waiting = l.owner, l.trace(), l.notifyURL(), l.grant == grantNone
	for s := range l.slots {
		if s.contender.Member <= 1 {
			e.Parts = append(e.Parts, EndingPart{NS: s.q.Namespace.Name, Lock: s.q.Name(), Znode: s.path(), Mode: locks.ModeOf(s.contender.Mode), FencingToken: d.fleet.fencingToken(l.czxid)})
		}
	}
	return e
}

func (d *deliveries) endingOf(id recipe.LeaseID, reason locks.Reason, words string) *Ending {
	e := &Ending{LeaseID: string(id), Reason: reason, Words: words, At: time.UnixMilli(d.clock.Now().Wall().Milliseconds()).UTC()}
	if d.port.Session() != nil {
		e.Gateway = d.port.Session().ID()
	}
	return e
}

// endTaken is what belongs before the end of contenders that this gateway does not run and whose
// lease held, or has a notify_url. unnoted: it is in the outbox already.
func (d *deliveries) endTaken(parts []queues.Location, v cause, notify string, unnoted bool) (n noting, ready bool) {
	if d.outbox == nil || unnoted {
		return n, true
	}
	held := slices.ContainsFunc(parts, func(p queues.Location) bool {
		return p.Contender.Ours && !p.Contender.Unknown && p.Contender.LeaseID != "" && !d.answers.delays.has(d.leases, d.replica, p.Queue, p.Contender) && (d.replica.Observed(p.Contender).Holds || d.replica.LeaseHolds(p.Queue, p.Contender))
	})
	if !held {
		if p := parts[0]; p.Contender.Ours && !p.Contender.Unknown && p.Contender.LeaseID != "" && !d.answers.delays.has(d.leases, d.replica, p.Queue, p.Contender) {
			n.checks = queues.StillWaits(parts)
		}
		if notify == "" {
			return n, true
		}
	}
	describe := func() *Ending {
		e := d.endingOf(parts[0].Contender.LeaseID, v.reason, v.words)
		e.Trace, e.Notify, e.Waiting = v.trace, notify, !held
		for _, p := range parts {
			if p.Contender.Member > 1 {
				continue
			}
			if i := p.Queue.Node(p.Contender.Name); i != nil && e.Owner == "" {
				e.Owner = i.Record.Owner
			}
			e.Parts = append(e.Parts, EndingPart{NS: p.Queue.Namespace.Name, Lock: p.Queue.Name(), Znode: p.Path(), Mode: locks.ModeOf(p.Contender.Mode), FencingToken: d.fleet.tokenOf(p.Queue, p.Contender)})
		}
		return e
	}
	if !held {
		n.ops, n.entry = d.outbox.Notify(describe())
		return n, true
	}
	n.ops, n.entry, ready = d.outbox.Ending(notify != "", describe)
	return n, ready
}

// ended tells the outbox what became of a lease's ending transaction; the monitor is held.
func (d *deliveries) ended(l *lease, n noting, res zk.Result) {
	if n.ops == nil {
		return
	}
	d.outbox.Ended(n.entry, n.ops, res)
	if res.Outcome == zk.NotDone || res.Outcome == zk.Conflict {
		if l.endNote == noteSubmitted {
			l.setNote(d.leases, noteNone)
		}
		if l.phase == ended {
			d.gone(l) // by another hand, it turns out
		}
	}
	if n.culprit(res) {
		// It is noted already, or cannot be: the lock is let go all the same.
		d.log.Warn("a lease's end is not noted for webhooks once more", "lease_id", l.id(), "err", res.Err)
		l.setNote(d.leases, noteDone)
	}
}

// changed returns a channel that is closed at the next OutboxChanged.
func (d *deliveries) changed() <-chan struct{} {
	if d.wake == nil {
		d.wake = make(chan struct{})
	}
	return d.wake
}

// gone tells the end of a lease of this gateway that no transaction of it has noted.
func (d *deliveries) gone(l *lease) {
	if d.outbox == nil || l.grant == grantNone && !l.tellsWaiting() || l.endNote != noteNone || l.phase != ended {
		return
	}
	if d.ordered(subject(l.id())) != nil && !fault.On("hooks-termination") {
		return // the gateway whose administrator did it has noted it
	}
	l.setNote(d.leases, noteSubmitted) // once
	d.outbox.Gone(d.ending(l))
}

// foreignHolds is told that another program's contender holds: its birth is looked at where its end would be told.
func (d *deliveries) foreignHolds(q *queues.Queue, c *recipe.Contender) {
	if d.outbox == nil || c.Ours && !c.Unknown || q.Node(c.Name) != nil || !d.members.Appointed(q.Path+"/"+c.Name) {
		return
	}
	name := strings.Clone(c.Name)
	d.port.Read(q.NodeOf(name), 0, func(data []byte, stat wire.Stat, err error) {
		if err == nil {
			q.SetNode(name, data, stat)
		}
	})
}

// taken tells that a contender which held and is no lease of this gateway's is about to leave the replica, when that is this gateway's to tell.
func (d *deliveries) taken(q *queues.Queue, name string) {
	c := q.Contenders.Get(name)
	if d.outbox == nil || !d.stream.loadedOnce || d.stream.suppressEvents || c == nil {
		return
	}
	s := d.replica.Observed(c)
	foreign := !c.Ours || c.Unknown
	// The nodes of a gateway that died go with its session, and it can tell nobody.
	orphan := !foreign && c.Member <= 1 && !s.SuppressEvents && lossOf(d.members, c) == locks.ReasonGatewayLeft
	if !s.Holds || !foreign && !orphan || !d.members.Appointed(q.Path+"/"+name) {
		return
	}
	e := d.endingOf("", locks.ReasonRemoved, "")
	if orphan {
		e.LeaseID, e.Reason = string(c.LeaseID), locks.ReasonGatewayLeft
		if c.Groups > 1 {
			e.Part = int(c.Group) // the others may be another gateway's to tell
		}
	}
	if v, ok := d.verdicts[c]; ok {
		e.Reason, e.Words, e.Trace = v.reason, v.words, v.trace
	} else if v := d.ordered(subject(q.Path + "/" + name)); v != nil {
		e.Reason, e.Words = v.reason, v.words
	}
	p := EndingPart{NS: q.Namespace.Name, Lock: q.Name(), Znode: q.Path + "/" + name, Mode: locks.ModeOf(c.Mode), FencingToken: d.fleet.tokenOf(q, c)}
	if foreign {
		p.Program = interop.Program(name)
	}
	if i := q.Node(name); i != nil {
		e.Czxid, e.Owner = i.Czxid, i.Record.Owner
	}
	e.Parts = []EndingPart{p}
	d.outbox.Gone(e)
}

// Delivers reports whether it falls to this gateway to tell what is in the outbox about a
// lease: to the one that runs it, or would; when that one is gone and nobody has succeeded it, to one of those that are there.
func (m *Manager) Delivers(lease string) bool {
	return locked(m, func() bool {
		id, err := recipe.ParseLeaseID(lease)
		if err != nil || m.port.Session() == nil || !m.stream.synced {
			return false
		}
		owner, _ := m.members.OwnerOf(id.Gateway())
		if self := m.members.Self(); owner == self || m.members.Registered(owner) {
			return owner == self
		}
		return m.members.Appointed(lease)
	})
}

// DeliversFor is Delivers for what a gateway has written down about another program's contender.
func (m *Manager) DeliversFor(gateway, what string) bool {
	return locked(m, func() bool {
		if m.port.Session() == nil || !m.stream.synced {
			return false
		}
		if id, self := recipe.GatewayID(gateway), m.members.Self(); id == self || m.members.Registered(id) {
			return id == self
		}
		return m.members.Appointed(what)
	})
}

// adopt has the outbox looked through for what has become this gateway's.
func (d *deliveries) adopt() {
	if d.outbox != nil && d.port.Session() != nil {
		d.outbox.Adopt()
	}
}
