package manager

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/cluster"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/wire"
)

// Deliveries to webhooks and notify_urls. The transaction that ends a held lease writes the outbox entry, so there is no end
// without an entry and no entry without an end. The Outbox says which operations that needs. They stand before those that end
// the lease, so a client that sees the end may rely on the entry.
//
//   - Each such transaction also checks that the webhooks have not changed (attack 19). If they have, the end is decided
//     again. While the Outbox does not know them, ends wait; an expiry that waits for too long has the lease held again.
//   - An end that no transaction of a gateway has, because another client deleted the contender, is delivered by the gateway that
//     ran the lease. One of the registered gateways delivers that of another program.
//   - The end of a lease that only waited is written for its notify_url alone, unless no client was given the lease.
//   - A grant is written for the notify_url in a transaction of its own and may be missed: the names alone decide which contender
//     holds. It checks the contender, so it never comes after the end. A successor writes it again, under the same name.
//   - The signing secret is derived from the fleet's key and the lease's id, and is not stored.
//
// Only the bearer of the lease's token is shown the notify_url: its query may have secrets. It is in no event, list, page or log.

// Outbox writes the entries. The manager calls its methods with its lock held, except CheckURL; they return at once.
type Outbox interface {
	// Ending returns the operations that belong before those that end a held lease, and what to pass to Ended. notify:
	// the lease has a notify_url. ready is false while the webhooks are not known: Manager.OutboxChanged says when to
	// try again. The operations are not changed, so several ends may share them. Ending calls describe, if at all,
	// before it returns.
	Ending(notify bool, describe func() *Ending) (ops []zk.Op, entry any, ready bool)
	// Notify returns the operation that tells a lease's notify_url alone that the lease was granted, or ended before it
	// held; none when the outbox cannot take it.
	Notify(*Ending) (ops []zk.Op, entry any)
	// CheckURL says what is wrong with a notify_url.
	CheckURL(url string) error
	// Ended reports the outcome of a transaction with such operations.
	Ended(entry any, ops []zk.Op, res zk.Result)
	// Gone reports an end that no transaction of this gateway had.
	Gone(*Ending)
	// Look reports that the webhooks may have changed.
	Look()
	// Adopt reports that this gateway may have more to deliver than it knows.
	Adopt()
}

// Ending is a lease that ends, or another program's contender that is gone.
type Ending struct {
	LeaseID   string
	Part      int   // of a lease of several locks, from 1 on, when it is delivered alone; 0: the whole lease
	Czxid     int64 // of another program's contender, 0 when it has not been read
	Reason    locks.Reason
	Words     string // of the administrator that ended it
	By        string // that administrator; "" for a lease of several locks, as in events (reports.Cause.Explain)
	Owner     string
	Principal string // that took it
	Purpose   string // the reason of its acquire
	Gateway   string // that tells it
	At        time.Time
	Trace     string // traceparent of the request that ended it
	Notify    string // its notify_url; "": none
	Granted   bool   // it does not end: it was granted
	Waiting   bool   // it never held: for Notify alone
	Parts     []EndingPart
}

// by sets who ended a lease, one of whose contenders is c.
func (e *Ending) by(administrator string, c *recipe.Contender) {
	if c.Groups <= 1 {
		e.By = administrator
	}
}

// EndingPart is one of the locks that are released.
type EndingPart struct {
	NS, Lock, Znode, Program string
	Mode                     locks.Mode
	FencingToken             int64
}

// deliveries writes into the outbox that leases end and are granted. The monitor guards it.
type deliveries struct {
	outbox  Outbox        // nil: no guaranteed deliveries
	wake    chan struct{} // closed by OutboxChanged; nil without waiters
	fleet   *fleet
	stream  *stream
	leases  *leaseTable
	replica *queues.Replica
	members *cluster.Members
	answers *answers
	reports *reports.Exchange
	port    *term.Port
	clock   zk.Clock
	log     *slog.Logger
	do      func(func()) // under the monitor
}

const outboxNode = "/webhooks"

// outboxRoot is the directory of the webhooks; changes below it are watched.
func (f *fleet) outboxRoot() string { return f.root + outboxNode }

// noting is the outbox's part of a transaction.
type noting struct {
	ops    []zk.Op
	entry  any
	checks []zk.Op // after the ends: that a waiting contender still waits; see queues.StillWaits
}

// culprit reports whether a transaction was refused for good because of the outbox's part. A transaction that is too large
// is so because of its entry.
func (n noting) culprit(res zk.Result) bool {
	return res.Outcome == zk.NotDone && (res.Culprit >= 0 && res.Culprit < len(n.ops) || len(n.ops) > 1 && errors.Is(res.Err, zk.ErrTooLarge))
}

// end returns the outbox's part of the end of a lease; not ready: the end has to wait.
func (d *deliveries) end(l *lease) (n noting, ready bool) {
	switch {
	case d.outbox == nil || l.Note() == lifecycle.NoteDone:
	case l.Grant() != lifecycle.GrantNone:
		n.ops, n.entry, ready = d.outbox.Ending(l.notifyURL() != "", func() *Ending { return d.ending(l) })
		return n, ready
	case l.tellsWaiting():
		n.ops, n.entry = d.outbox.Notify(d.ending(l))
	}
	return n, true
}

// ending describes a lease of this gateway that ends.
func (d *deliveries) ending(l *lease) *Ending {
	e := d.endingOf(l.id(), l.reason(), l.cause().Words)
	e.by(l.cause().By, l.contender)
	e.Owner, e.Principal, e.Purpose, e.Trace, e.Notify, e.Waiting = l.owner, l.account.Principal(), l.purpose(), l.cause().Trace, l.notifyURL(), l.Grant() == lifecycle.GrantNone
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

// endTaken returns the outbox's part of the end of contenders that this gateway does not run and whose lease held, or has
// a notify_url. unnoted: it is in the outbox already.
func (d *deliveries) endTaken(parts []queues.Location, v reports.Cause, notify string, unnoted bool) (n noting, ready bool) {
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
		e := d.endingOf(parts[0].Contender.LeaseID, v.Reason, v.Words)
		e.by(v.By, parts[0].Contender)
		e.Trace, e.Notify, e.Waiting = v.Trace, notify, !held
		for _, p := range parts {
			if p.Contender.Member > 1 {
				continue
			}
			if i := p.Queue.Node(p.Contender.Name); i != nil && e.Owner == "" {
				e.Owner, e.Principal, e.Purpose = i.Record.Owner, i.Record.Principal, i.Record.Purpose
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

// ended reports to the outbox the outcome of a lease's ending transaction.
func (d *deliveries) ended(l *lease, n noting, res zk.Result) {
	if n.ops == nil {
		return
	}
	d.outbox.Ended(n.entry, n.ops, res)
	if res.Outcome == zk.NotDone || res.Outcome == zk.Conflict {
		l.NoteTakenBack(d.leases)
		if l.Ended() {
			d.gone(l) // another client deleted its contender
		}
	}
	if n.culprit(res) {
		// It is in the outbox already, or cannot be: the lock is released all the same.
		d.log.Warn("a lease's end is not noted for webhooks once more", "lease_id", l.id(), "err", res.Err)
		l.SetNote(d.leases, lifecycle.NoteDone)
	}
}

// changed returns a channel that is closed at the next OutboxChanged.
func (d *deliveries) changed() <-chan struct{} {
	if d.wake == nil {
		d.wake = make(chan struct{})
	}
	return d.wake
}

// gone reports the end of a lease of this gateway that none of its transactions had.
func (d *deliveries) gone(l *lease) {
	if d.outbox == nil || l.Grant() == lifecycle.GrantNone && !l.tellsWaiting() || l.Note() != lifecycle.NoteNone || !l.Ended() {
		return
	}
	if d.reports.Ordered(reports.LeaseOrPath(l.id())) != nil && !fault.On("hooks-termination") {
		return // the gateway whose administrator ended it has written the entry
	}
	l.SetNote(d.leases, lifecycle.NoteSubmitted) // once
	d.outbox.Gone(d.ending(l))
}

// foreignHolds reads the node of another program's contender that holds, where this gateway would deliver its end.
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

// taken reports the end of a contender that held and is no lease of this gateway, when this gateway delivers it. The
// contender is about to leave the replica.
func (d *deliveries) taken(q *queues.Queue, name string) {
	c := q.Contenders.Get(name)
	if d.outbox == nil || !d.stream.loadedOnce || d.stream.suppressEvents || c == nil {
		return
	}
	s := d.replica.Observed(c)
	foreign := !c.Ours || c.Unknown
	// The nodes of a gateway that died go with its session, and it delivers nothing.
	orphan := !foreign && c.Member <= 1 && !s.SuppressEvents && lossOf(d.members, c) == locks.ReasonGatewayLeft
	if !s.Holds || !foreign && !orphan || !d.members.Appointed(q.Path+"/"+name) {
		return
	}
	e := d.endingOf("", locks.ReasonRemoved, "")
	if orphan {
		e.LeaseID, e.Reason = string(c.LeaseID), locks.ReasonGatewayLeft
		if c.Groups > 1 {
			e.Part = int(c.Group) // another gateway may deliver the others
		}
	}
	if v := d.reports.Ending(c); v != nil {
		e.Reason, e.Words, e.Trace = v.Reason, v.Words, v.Trace
		e.by(v.By, c)
	} else if v := d.reports.Ordered(reports.LeaseOrPath(q.Path + "/" + name)); v != nil {
		e.Reason, e.Words = v.Reason, v.Words
		e.by(v.By, c)
	}
	p := EndingPart{NS: q.Namespace.Name, Lock: q.Name(), Znode: q.Path + "/" + name, Mode: locks.ModeOf(c.Mode), FencingToken: d.fleet.tokenOf(q, c)}
	if foreign {
		p.Program = interop.Program(name)
	}
	if i := q.Node(name); i != nil {
		e.Czxid, e.Owner, e.Principal, e.Purpose = i.Czxid, i.Record.Owner, i.Record.Principal, i.Record.Purpose
	}
	e.Parts = []EndingPart{p}
	d.outbox.Gone(e)
}

// adopt makes the outbox look for entries that this gateway delivers from now on.
func (d *deliveries) adopt() {
	if d.outbox != nil && d.port.Session() != nil {
		d.outbox.Adopt()
	}
}

// notifySecretPrefix and notifySecretBytes are Standard Webhooks' form of a secret.
const (
	notifySecretPrefix = "whsec_"
	notifySecretBytes  = 32
)

// notifySecret is the secret that signs the messages to a lease's notify_url.
func notifySecret(key layout.TokenKey, id recipe.LeaseID) string {
	secret, err := hkdf.Key(sha256.New, key.Key, nil, "lockkeeper notify_url "+string(id), notifySecretBytes)
	if err != nil {
		panic("deriving a secret: " + err.Error()) // only of more bytes than there can be
	}
	return notifySecretPrefix + base64.StdEncoding.EncodeToString(secret)
}

// check refuses a notify_url that nothing would be delivered to.
func (d *deliveries) check(r *locks.AcquireRequest) error {
	const field = "notify_url"
	switch {
	case r.NotifyURL == "":
		return nil
	case d.outbox == nil:
		return locks.Invalid(field, "this gateway delivers no notifications; leave it out")
	case r.Ephemeral:
		return locks.Invalid(field, "an ephemeral lease goes with its gateway's session, and its notify_url with it; leave one of them out")
	}
	if err := d.outbox.CheckURL(r.NotifyURL); err != nil {
		return locks.Invalid(field, err.Error())
	}
	return nil
}

// learnNotify takes the notify_url from the record of a lease that was taken over.
func (l *lease) learnNotify(r record.Record) {
	if url := r.NotifyURL(); url != "" {
		l.rare().telling = &telling{url: strings.Clone(url), given: true}
	}
}

// tellsWaiting reports whether the end of a lease that never held is delivered.
func (l *lease) tellsWaiting() bool {
	if l.notifyURL() == "" || l.failure() != nil {
		return false
	}
	reason := l.reason()
	return l.rareFields.telling.given || reason != locks.ReasonWaitElapsed && reason != locks.ReasonCancelled && reason != locks.ReasonWouldDeadlock && reason != locks.ReasonDone
}

// grant writes into the outbox that a lease was granted, for its notify_url.
func (d *deliveries) grant(l *lease) {
	if d.outbox == nil || !l.Held() || l.term != d.port.Term() || d.port.Session() == nil || l.notifyURL() == "" {
		return
	}
	to := l.rareFields.telling
	if to.note == lifecycle.NoteDone || to.note == lifecycle.NoteSubmitted && to.term == l.term {
		return
	}
	e := d.ending(l)
	e.Granted, e.Reason = true, ""
	ops, entry := d.outbox.Notify(e)
	if ops == nil {
		to.note = lifecycle.NoteDone // the outbox is full
		return
	}
	to.note, to.term = lifecycle.NoteSubmitted, l.term
	term := l.term
	version := int32(-1)
	if l.mayStay() {
		version = l.dataVersion() // its end may leave the contender where it is, and write it
	}
	w := &zk.Write{Ops: append([]zk.Op{{Kind: zk.OpCheck, Path: l.path(), Version: version}}, ops...)}
	d.port.Submit(w, func(res zk.Result) {
		d.outbox.Ended(entry, w.Ops, res)
		if to.note == lifecycle.NoteSubmitted && to.term == term {
			to.note = lifecycle.NoteNone
		}
		switch {
		case res.Outcome == zk.Done, errors.Is(res.Err, zk.ErrNodeExists):
			to.note = lifecycle.NoteDone
			return
		case errors.Is(res.Err, zk.ErrNoAuth), errors.Is(res.Err, zk.ErrNoNode) && res.Culprit > 0:
			d.log.Warn("a lease's grant cannot be noted for its notify_url", "lease_id", l.id(), "err", res.Err)
			to.note = lifecycle.NoteDone
			return
		}
		// Lost, or refused for now. Where its contender is gone, so is the lease in a moment; where it was replaced, it has
		// another name by then.
		time.AfterFunc(deleteRetry, func() {
			d.do(func() {
				if l.term == term {
					d.grant(l)
				}
			})
		})
	})
}

// own is the lease as its own client sees it; the monitor is held.
func (a *answers) own(l *lease) locks.Lease {
	v := a.lease(l, access.Everything())
	v.NotifyURL = l.notifyURL()
	return v
}
