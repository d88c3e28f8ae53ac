package manager

import (
	"container/heap"
	"context"
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
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// The clock loop: what time ends.

// run ends leases whose time is over. Time ends nothing anywhere else.
func (t *timers) run(m *Manager, ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.wake:
		case <-timer.C:
		}
		m.do(func() {
			now := m.clock.Now()
			sleep := t.tick(m, now.Boot())
			t.expected = now.Boot() + sleep
			timer.Reset(sleep)
		})
	}
}

// tick does what is due at now and tells how long to sleep.
func (t *timers) tick(m *Manager, now time.Duration) time.Duration {
	c := t
	late := now - c.expected
	c.beat = now
	m.publisher.connection()
	m.reports.ReleaseDue(now)
	if !m.trusted() {
		c.trusted = false
		return t.soonest(m, clockTick, now)
	}
	switch {
	case !c.trusted && c.lastTrusted != 0:
		if !fault.On("blind-time") {
			t.forgive(m, now, now-c.lastTrusted)
		}
	case late > lateWake && c.expected != 0:
		t.forgive(m, now, late)
	}
	c.trusted, c.lastTrusted = true, now
	m.considerTakeovers(now)
	m.port.PumpReads()
	m.settleDeferred(now)
	if m.life.draining {
		return t.soonest(m, clockTick, now)
	}
	m.delays.endDue(m, now)
	for t.expiring < expiryWindow {
		l := t.deadlines.pop(now)
		if l == nil {
			break
		}
		l.atDeadline(m, now)
	}
	if t.expiring >= expiryWindow {
		return expiryPause
	}
	sleep := clockTick
	if next, ok := t.deadlines.next(); ok {
		sleep = min(sleep, max(next-now, 0))
	}
	if next, ok := m.delays.next(); ok {
		sleep = min(sleep, max(next-now, 0))
	}
	return t.soonest(m, sleep, now)
}

// soonest is how long to sleep so that no event is held back for too long.
func (t *timers) soonest(m *Manager, sleep, now time.Duration) time.Duration {
	if next, ok := m.reports.Next(); ok {
		return min(sleep, max(next-now, 0))
	}
	return sleep
}

// forgive moves every deadline by the time in which heartbeats could not be received, and blindGrace, once per blind interval.
func (t *timers) forgive(m *Manager, now, blind time.Duration) {
	m.log.Info("deadlines moved: heartbeats could not be received", "blind_ms", blind.Milliseconds(), "leases", m.leases.byID.Len())
	for l := range m.leases.byID.All() {
		if l.Settled() {
			// Never further than a heartbeat would, so that dead clients expire in spite of many blind intervals.
			moved := l.deadline + blind + min(l.ttl, blindGrace)
			l.deadline = l.bound(max(l.deadline, min(moved, max(now, l.grace)+l.clock())))
			if l.shrinkAt() != 0 {
				l.rareFields.shrinkAt = max(l.shrinkAt(), l.deadline)
			}
		}
	}
}

// atDeadline handles a lease that left the heap because something was due.
func (l *lease) atDeadline(m *Manager, now time.Duration) {
	l.tickReservation(m, now)
	switch {
	case l.shrinkAt() == 0 || l.shrinkAt() > now || l.deadline <= now:
	case l.term != m.port.Term() || !l.Record().Loaded() || l.rewriting():
		l.rareFields.shrinkAt = now + loadRetry
	default:
		l.rareFields.shrinkAt = 0
		l.writeRecord(m, func(r *record.Record) { r.SetTTL(l.ttl) }, nil)
	}
	if l.takeBack(m, now) {
		return
	}
	switch {
	case l.deadline > now: // a heartbeat moved it since
		l.writeGrant(m, now)
	case l.term != m.port.Term():
		// Its session is gone; the takeover sets a new deadline.
		l.deadline = now + clockTick
	case l.Waiting() && l.listeners > 0 && !l.reservation().ended(now):
		l.deadline = l.bound(now + l.waitingClock())
	case l.Record() != lifecycle.RecordCurrent:
		// Closed, held longer, ...: what the data says is read before the end.
		l.load(m)
		l.deadline = now + loadRetry
	case l.Held() && l.Grant() == lifecycle.GrantUnclaimed && fault.On("unclaimed-ends"):
		l.deadline = now + clockTick
	case l.Held() && l.Grant() == lifecycle.GrantUnclaimed:
		l.end(m, locks.ReasonUnclaimed, now)
		return
	default:
		l.end(m, locks.ReasonExpired, now)
		return
	}
	m.timers.schedule(l)
}

// takeBack ends a lease whose force is due. It reports false when that is later.
func (l *lease) takeBack(m *Manager, now time.Duration) bool {
	at := l.forceAt()
	if at == 0 || at > now {
		return false
	}
	if l.term != m.port.Term() || l.Record() != lifecycle.RecordCurrent {
		// Its takeover comes first, and what its record says.
		l.load(m)
		l.rareFields.revoke.forceAt = now + loadRetry
		return false
	}
	asked := l.revocation().asked
	l.rare().cause = &reports.Cause{Reason: locks.ReasonRevoked, Words: asked.Reason, By: asked.By}
	l.endFor(m, postmortem.Forced)
	return true
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

// What is due when: the leases' deadlines, and the lock delays of those that have ended.

const (
	// clockTick is the longest that the clock loop sleeps: how soon it notices that the gateway is trusted again.
	clockTick = 500 * time.Millisecond
	// lateWake is how late the loop may wake before the time that it slept through counts as blind: heartbeats may wait
	// unread in their sockets.
	lateWake = time.Second
	// blindGrace is what each deadline gets besides the blind time, at most and at most the TTL, so that waiting heartbeats
	// are received first. It is small, so that dead clients expire on a machine that is often late.
	blindGrace = 15 * time.Second
	// loadRetry is when an adopted lease whose data could not be read is read again.
	loadRetry = time.Second
	// expiryWindow bounds the deletions under way that time decided: when very many leases end together, ZooKeeper still takes
	// the writes of clients, and no expiry is refused, which would give it a whole TTL more.
	expiryWindow = 2048
	expiryPause  = 20 * time.Millisecond
)

// timers are the leases' deadlines, and what the clock loop remembers between ticks.
type timers struct {
	deadlines
	expiring    int           // deletions of expired or unclaimed leases in flight
	trusted     bool          // at the last look
	lastTrusted time.Duration // boot: the last time the gateway could speak
	expected    time.Duration // boot: when the loop meant to wake
	beat        time.Duration // boot: when it last turned, for Alive
	wake        chan struct{} // capacity 1
	grants      grantBudget
}

// deadlines is a heap of leases by due time.
type deadlines struct{ leaseHeap[byDue] }

// next is the earliest due time.
func (d *deadlines) next() (due time.Duration, ok bool) {
	if d.Len() == 0 {
		return 0, false
	}
	return d.leases[0].due, true
}

// pop removes and returns the earliest lease when it is due.
func (d *deadlines) pop(now time.Duration) *lease {
	if due, ok := d.next(); !ok || due > now {
		return nil
	}
	return heap.Pop(d).(*lease)
}

// byDue orders leases by their due time. Leases that are due at one instant go by their ids, so that the order in which
// they came does not matter.
type byDue struct{}

func (byDue) less(a, b *lease) bool { return a.due < b.due || a.due == b.due && a.id() < b.id() }

func (byDue) index(l *lease) *int32 { return &l.heapIndex }

// wakeAt wakes the loop when something is due earlier than it means to wake.
func (t *timers) wakeAt(due time.Duration) {
	if due >= t.expected {
		return
	}
	select {
	case t.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// schedule puts the lease's next due time into the heap. A heartbeat only moves the deadline; the heap is updated when
// the earlier time is due.
func (t *timers) schedule(l *lease) {
	due := l.deadline
	if l.shrinkAt() != 0 {
		due = min(due, l.shrinkAt())
	}
	if at := l.forceAt(); at != 0 {
		due = min(due, at)
	}
	if at := l.reservationDue(); at != 0 {
		due = min(due, at)
	}
	switch {
	case !l.Settled():
		t.deadlines.remove(l)
	case l.heapIndex < 0:
		if at := l.grantDue(t.beat); at != 0 {
			due = min(due, at)
		}
		l.due = due
		t.deadlines.push(l)
		t.wakeAt(due)
	case due < l.due:
		l.due = due
		t.deadlines.fix(l)
		t.wakeAt(due)
	}
}

// deleteRetry is the pause before a refused deletion is tried again.
const deleteRetry = time.Second

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

// orphan is an ephemeral lease of a gateway that this one has succeeded.
type orphan struct {
	at    []queues.Location
	ttl   time.Duration // the longest TTL until the record has been read
	asked time.Duration // boot; last request of its deletion, 0: none
}

type orphans map[recipe.LeaseID]*orphan

// add records a contender of an orphan.
func (o orphans) add(port *term.Port, q *queues.Queue, c *recipe.Contender) {
	one := o[c.LeaseID]
	if one == nil {
		one = &orphan{ttl: locks.MaxTTL}
		o[c.LeaseID] = one
		port.Read(q.Path+"/"+c.Name, 0, func(data []byte, _ wire.Stat, err error) {
			if r, ok := record.Parse(data); err == nil && ok {
				one.ttl = r.LeaseTTL()
			}
		})
	}
	if !slices.ContainsFunc(one.at, func(at queues.Location) bool { return at.Contender == c }) {
		one.at = append(one.at, queues.Location{Queue: q, Contender: c})
	}
}

func (o orphans) leave(c *recipe.Contender) {
	one := o[c.LeaseID]
	if one == nil {
		return
	}
	one.at = slices.DeleteFunc(one.at, func(at queues.Location) bool { return at.Contender == c })
	if len(one.at) == 0 {
		delete(o, c.LeaseID)
	}
}
