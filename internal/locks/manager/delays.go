package manager

import (
	"slices"
	"time"

	"github.com/tidwall/btree"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// Lock delay. The end of a held lease that has one is a write of its record: closed. Its client is then answered 410. Its
// contenders stay in their queues for the delay, so that a client that still believes that it holds the lock can finish before
// the next one begins. A gateway that takes it over reads closed first, never revives the lease (attack 27), and gives what the
// record says is left: it may become longer, never shorter (noteLeft). So a record that another program has written over is
// written back. While the outcome of the closing write is not known the lease is ending, and no request is answered with success.

// delay is what is left of a lease whose place stays. Guarded by the monitor.
type delay struct {
	id       recipe.LeaseID
	at       []queues.Location // its contenders that are in the replica
	reason   locks.Reason
	owner    string
	account  *quota.Account // counts its places; nil: none does
	token    int64
	until    time.Duration // boot
	due      time.Duration // boot: when something is to be done about it
	deleting bool
	path     string // of the contender with the record
	record   []byte // what a successor must find there
	restored uint8  // how often it was written back
}

// delays are ordered by when something is to be done about them.
type delays struct {
	byID map[recipe.LeaseID]*delay
	line *btree.BTreeG[*delay]
	// slots are the contenders of all of them.
	slots int
}

func newDelays() delays {
	return delays{byID: map[recipe.LeaseID]*delay{}, line: btree.NewBTreeGOptions(func(a, b *delay) bool {
		return a.due < b.due || a.due == b.due && a.id < b.id
	}, btree.Options{NoLocks: true})}
}

// next is when something is to be done about the first of them.
func (d *delays) next() (due time.Duration, ok bool) {
	if first, ok := d.line.Min(); ok {
		return first.due, true
	}
	return 0, false
}

// put makes it due at a time.
func (d *delays) put(one *delay, due time.Duration) {
	d.line.Delete(one)
	one.due = due
	d.line.Set(one)
}

func (d *delays) drop(one *delay) {
	d.line.Delete(one)
	delete(d.byID, one.id)
	d.slots -= len(one.at)
	one.account.Add(-int64(len(one.at)), 0)
}

// leave takes those of its contenders out of a delay that are gone.
func (d *delays) leave(one *delay, gone func(queues.Location) bool) {
	if d.byID[one.id] != one {
		return // it was dropped, with all of its contenders, while its deletion was under way
	}
	before := len(one.at)
	one.at = slices.DeleteFunc(one.at, gone)
	d.slots -= before - len(one.at)
	one.account.Add(int64(len(one.at)-before), 0)
	if len(one.at) == 0 {
		d.drop(one)
	}
}

// removed notes that a contender has been deleted. What a listing lacks may come back: it stays in the delay until its
// deletion is answered.
func (d *delays) removed(q *queues.Queue, c *recipe.Contender, listed bool) {
	if one := d.byID[c.LeaseID]; one != nil && c.Ours && !listed {
		d.leave(one, func(at queues.Location) bool { return at.Queue.Path == q.Path && at.Contender.Name == c.Name })
	}
}

// mayClose reports whether a write that ends the lease may keep its place: it was held, has all its contenders, and a lock delay
// or at_least may follow this end.
func (l *lease) mayClose() bool {
	if !l.mayStay() || l.Grant() == lifecycle.GrantNone || l.Access() >= lifecycle.AccessNoWrite {
		return false
	}
	some, _ := l.gonePart()
	return !some
}

// stays is for how long the place of the lease stays that ends now: for its lock delay, where that follows this end, and for the
// rest of at_least, in whole milliseconds. The grant of a lease that was taken over is not known: its span then counts from when
// this gateway found that it holds, which is later.
func (l *lease) stays(now time.Duration) (stays time.Duration) {
	if !l.mayClose() {
		return 0
	}
	rest := time.Duration(0)
	if !fault.On("at-least") {
		rest = max(l.atLeast()-(now-l.since), 0)
	}
	switch l.reason() {
	case locks.ReasonExpired, locks.ReasonUnclaimed:
		stays = max(l.lockDelay(), rest)
	case locks.ReasonRevoked:
		if l.why == postmortem.Forced {
			stays = max(l.lockDelay(), rest)
		}
	case locks.ReasonReleased:
		if stays = rest; l.known().lockDelayOn == locks.DelayAlways {
			stays = max(l.lockDelay(), rest)
		}
	case locks.ReasonCancelled, locks.ReasonWaitElapsed: // its client went away with the grant, or has not seen it
		stays = rest
	}
	if fault.On("closed-first") {
		return 0
	}
	return (stays + time.Millisecond - 1).Truncate(time.Millisecond)
}

// closing are the operations that end the lease and keep its place. An end by time names the version that was seen, as a deletion
// does.
func (l *lease) closing(c record.Closed, version int32) []zk.Op {
	r := l.contents(l.recorded)
	r.Closed = &c
	return []zk.Op{{Kind: zk.OpSetData, Path: l.path(), Data: r.Encode(), Version: version}}
}

// closed makes a lease ended whose record certainly says so, and begins its delay.
func (l *lease) closed(m *Manager, c record.Closed, now time.Duration) {
	reason := c.Reason
	if !l.Grant().Granted() && (reason != locks.ReasonCancelled || c.Stays > 0) {
		l.SetGrant(m.leases, lifecycle.GrantClaimed)
	}
	l.NoteHandedOver(m.leases) // the gateway that closed it has noted that
	d := &delay{id: l.id(), reason: reason, owner: l.owner, token: m.fleet.fencingToken(l.czxid), path: l.path(), record: l.kept(c)}
	read := l.Record() == lifecycle.RecordCurrent
	l.conclude(m, reason, now, true)
	for s := range l.slots {
		if c := s.q.Contenders.Get(s.name()); c != nil {
			d.at = append(d.at, queues.Location{Queue: s.q, Contender: c})
		}
		m.replica.Touch(s.q)
	}
	if len(d.at) == 0 {
		return
	}
	m.delays.byID[d.id] = d
	m.delays.slots += len(d.at)
	d.account = m.leases.accounts.Of(l.account.Principal())
	d.account.Add(int64(len(d.at)), 0)
	d.until = now + l.contents(l.recorded).DelayAfter(c)
	m.delays.putNext(d, now)
	m.timers.wakeAt(d.due)
	if !read {
		d.restore(m) // another program may have written meanwhile
	}
}

// kept is the record of a lease that has ended, with what a successor needs of it.
func (l *lease) kept(c record.Closed) []byte {
	r := record.Record{Version: record.Version, Owner: l.owner, Principal: l.account.Principal(), Enqueued: l.enqueued.Milliseconds(), LockDelay: l.lockDelay().Milliseconds(),
		AtLeast: l.atLeast().Milliseconds(), Purpose: l.purpose(), Closed: &c}
	if rare := l.rareFields; rare != nil {
		r.LockDelayOn, r.More = rare.lockDelayOn, rare.more
	}
	r.SetTTL(l.recorded)
	return r.Encode()
}

// notClosed goes on with a lease whose end was lost before it was written.
func (l *lease) notClosed(m *Manager, now time.Duration) {
	if byTime(l.reason()) {
		l.revive(m, now)
		return
	}
	l.submitDelete(m)
}

// endDue deletes the contenders whose lock delay is over, and notes what is left of others. The clock loop calls it.
func (d *delays) endDue(m *Manager, now time.Duration) {
	for noted := 0; m.timers.expiring < expiryWindow && noted < maxNotes; {
		one, ok := d.line.Min()
		if !ok || one.due > now {
			return
		}
		switch {
		case m.members.Elsewhere(one.id.Gateway()):
			d.drop(one) // another gateway has taken it over, and gives its delay
		case !m.members.Owns(one.id.Gateway()) || one.deleting:
			d.put(one, now+deleteRetry)
		case one.until > now:
			noted++
			d.noteLeft(m, one, now)
		default:
			d.end(m, one, now)
		}
	}
}

func (d *delays) end(m *Manager, one *delay, now time.Duration) {
	one.deleting = true
	d.put(one, now+deleteRetry)
	w := &zk.Write{}
	for _, at := range queues.TailFirst(one.at) {
		w.Ops = append(w.Ops, zk.Op{Kind: zk.OpDelete, Path: at.Queue.Path + "/" + at.Contender.Name, Version: -1})
	}
	m.timers.expiring++
	m.port.Submit(w, func(res zk.Result) {
		m.timers.expiring--
		one.deleting = false
		if isNoNode(res.Err) && res.Culprit >= 0 {
			// Another client was quicker; the event follows.
			d.leave(one, func(at queues.Location) bool {
				return at.Queue.Path+"/"+at.Contender.Name == w.Ops[res.Culprit].Path && at.Queue.Contenders.Get(at.Contender.Name) == nil
			})
		}
	})
}

// What is left of a stay. A successor counts it from when it reads the record, by its own clock alone. So the owner writes from time
// to time what is left by then. Otherwise each takeover would begin the whole span anew, and gateways that are restarted once a day
// would keep a place of seven days for good.

const (
	// noteLeftEvery is by how much a takeover lengthens the stay of a place at most, beside its own time.
	noteLeftEvery = 10 * time.Minute
	// maxNotes bounds the notes of one turn of the clock loop. The others follow in the next turn, at once.
	maxNotes = 256
)

// putNext makes a place due when its stay is over, or when what is left of it is noted.
func (d *delays) putNext(one *delay, now time.Duration) {
	d.put(one, min(one.until, now+noteLeftEvery))
}

// noteLeft writes into the record of a lease that has ended for how long its place stays from now on. It names the version that
// it has read: what another gateway or program has written meanwhile stays, and the next note sees it.
func (d *delays) noteLeft(m *Manager, one *delay, now time.Duration) {
	d.putNext(one, now)
	m.port.Read(one.path, 0, func(data []byte, stat wire.Stat, err error) {
		left := one.until - m.clock.Now().Boot()
		if err != nil || d.byID[one.id] != one || one.deleting || left <= 0 || m.port.Session() == nil || !m.members.Owns(one.id.Gateway()) {
			return
		}
		next, err := record.Edit(data, func(r record.Record, members record.Members) bool {
			if r.Closed == nil {
				return false // another program wrote it; restore sees to that
			}
			closed := *r.Closed
			closed.Stays = roundUp(left).Milliseconds()
			members.Set("closed", closed)
			return true
		})
		if err != nil || next == nil {
			return
		}
		m.port.Submit(&zk.Write{Ops: []zk.Op{{Kind: zk.OpSetData, Path: one.path, Data: next, Version: stat.Version}}}, func(zk.Result) {})
	})
}

// restore reads the record of a lease whose place stays, and writes it back when another program has written over it:
// without closed in it a successor would take the lease for a living one. It does so maxRestores times.
func (one *delay) restore(m *Manager) {
	if fault.On("closed-restored") {
		return
	}
	over := func() bool {
		return m.delays.byID[one.id] != one || one.restored >= maxRestores || m.members.Elsewhere(one.id.Gateway())
	}
	again := func() {
		time.AfterFunc(loadRetry, func() {
			m.do(func() {
				if !over() {
					one.restore(m)
				}
			})
		})
	}
	m.port.Read(one.path, 0, func(data []byte, stat wire.Stat, err error) {
		if _, ok := record.Parse(data); ok || err != nil || over() {
			return
		}
		if m.port.Session() == nil || !m.members.Owns(one.id.Gateway()) {
			again() // the next session takes it over
			return
		}
		w := &zk.Write{Ops: []zk.Op{{Kind: zk.OpSetData, Path: one.path, Data: one.record, Version: stat.Version}}}
		m.port.Submit(w, func(res zk.Result) {
			switch {
			case res.Outcome == zk.Done:
				one.restored++
			case !isNoNode(res.Err):
				again()
			}
		})
	})
}

// restoreAll looks at the records of all of them: the stream may have missed what was written.
func (d *delays) restoreAll(m *Manager) {
	d.line.Scan(func(one *delay) bool {
		one.restore(m)
		return true
	})
}

// has reports whether a contender stays for a lock delay, as far as this gateway knows: of another gateway's lease, it
// knows what it has read.
func (d *delays) has(t *leaseTable, r *queues.Replica, q *queues.Queue, c *recipe.Contender) bool {
	if !c.Ours || t.lease(c.LeaseID) != nil {
		return false
	}
	if d.byID[c.LeaseID] != nil {
		return true
	}
	i := r.Record(queues.Location{Queue: q, Contender: c}).Node()
	return i != nil && i.IsRecord && i.Record.Closed != nil
}
