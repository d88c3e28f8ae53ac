package manager

import (
	"errors"
	"slices"
	"time"

	"github.com/tidwall/btree"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
)

// Lock delay. A held lease that has one is over for its client when its end says
// so, and its contenders stay in their queues for the delay, so that whoever
// still believes to hold the lock can finish before the next one begins.
//
// The end of such a lease is a write of its record: closed. From there on the
// lease is history (its client is answered 410, its end is told), and a delay
// keeps its place until it deletes the contenders. A gateway that takes it over
// reads closed before it does anything, never revives the lease (attack 27), and
// gives the delay again from when it read it: it may become longer that way, never
// shorter. While the fate of that write is not known the lease is ending, and
// nobody is answered with success.

// delay is what is left of a lease whose place stays. Guarded by the monitor.
type delay struct {
	id       recipe.LeaseID
	at       []queues.Location // its contenders that are in the replica
	reason   locks.Reason
	owner    string
	token    int64
	until    time.Duration // boot
	deleting bool
}

// delays are ordered by when they are over.
type delays struct {
	byID map[recipe.LeaseID]*delay
	line *btree.BTreeG[*delay]
	// slots are the contenders of all of them.
	slots int
}

func newDelays() delays {
	return delays{byID: map[recipe.LeaseID]*delay{}, line: btree.NewBTreeGOptions(func(a, b *delay) bool {
		return a.until < b.until || a.until == b.until && a.id < b.id
	}, btree.Options{NoLocks: true})}
}

// next is when the first of them is over.
func (d *delays) next() (until time.Duration, ok bool) {
	if first, ok := d.line.Min(); ok {
		return first.until, true
	}
	return 0, false
}

// put makes it due at a time.
func (d *delays) put(one *delay, until time.Duration) {
	d.line.Delete(one)
	one.until = until
	d.line.Set(one)
}

func (d *delays) drop(one *delay) {
	d.line.Delete(one)
	delete(d.byID, one.id)
	d.slots -= len(one.at)
}

// lockDelay is how long the lease's place stays after its end.
func (l *lease) lockDelay() time.Duration { return l.known().lockDelay }

// closes reports whether the lease that ends keeps its place: it was held, its
// end is one that its lock delay follows, and nobody has taken a part of it away.
func (l *lease) closes() bool {
	if l.lockDelay() == 0 || l.grant == grantNone || l.access >= accessNoWrite || fault.On("closed-first") {
		return false
	}
	if some, _ := l.gonePart(); some {
		return false
	}
	switch l.reason() {
	case locks.ReasonExpired, locks.ReasonUnclaimed:
		return true
	case locks.ReasonRevoked:
		return l.why == postmortem.Forced
	case locks.ReasonReleased:
		return l.rareFields.lockDelayOn == locks.DelayAlways
	}
	return false
}

// closing are the operations that end the lease and keep its place. What time
// decides names the version that was seen, as a deletion does.
func (l *lease) closing(m *Manager, version int32) []zk.Op {
	r := l.contents(l.recorded)
	r.Closed = &record.Closed{Reason: l.reason(), At: m.clock.Now().Wall().Milliseconds()}
	return []zk.Op{{Kind: zk.OpSetData, Path: l.path(), Data: r.Encode(), Version: version}}
}

// closed makes a lease ended of which it is certain that its record says so, and
// begins its delay.
func (l *lease) closed(m *Manager, reason locks.Reason, now time.Duration) {
	if !l.grant.granted() {
		l.setGrant(m.leases, grantClaimed)
	}
	l.noteHandedOver(m.leases) // the gateway that closed it has noted that
	d := &delay{id: l.id(), reason: reason, owner: l.owner, token: m.fleet.fencingToken(l.czxid)}
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
	m.delays.put(d, now+l.lockDelay())
	m.timers.wakeAt(d.until)
}

// readAgain reports whether a read does not tell what became of an end: it failed, or
// it may have been answered by a past in which the write had not come yet.
func (l *lease) readAgain(m *Manager, term locks.Term, err error) bool {
	switch {
	case l.term != m.port.Term():
		l.setChange(m.leases, changePaused)
		return false
	case errors.Is(err, zk.ErrNoNode):
		return false // its deleted event follows
	case err != nil:
		time.AfterFunc(deleteRetry, func() {
			m.do(func() {
				if l.change.fate() && l.term == term && term == m.port.Term() {
					l.load(m)
				}
			})
		})
		return true
	case l.change == changeRereading:
		l.setChange(m.leases, changeReading)
		l.load(m)
		return true
	}
	return false
}

// notClosed goes on with a lease whose end was lost before it was written.
func (l *lease) notClosed(m *Manager, now time.Duration) {
	if byTime(l.reason()) {
		l.revive(m, now)
		return
	}
	l.resubmitDelete(m)
}

// has reports whether a contender stays for a lock delay, as far as this gateway knows: of another gateway's lease, it
// knows what it has read.
func (d *delays) has(t *leaseTable, r *queues.Replica, q *queues.Queue, c *recipe.Contender) bool {
	if !c.Ours || t.byID[c.LeaseID] != nil {
		return false
	}
	if d.byID[c.LeaseID] != nil {
		return true
	}
	i := r.Record(queues.Location{Queue: q, Contender: c}).Node()
	return i != nil && i.IsRecord && i.Record.Closed != nil
}

// view shows that a contender stays for a lock delay.
func (d *delays) view(m *Manager, q *queues.Queue, c *recipe.Contender, v *locks.Contender, now time.Duration) {
	if !d.has(m.leases, m.replica, q, c) {
		return
	}
	v.Delayed = true
	if one := d.byID[c.LeaseID]; one != nil {
		v.Reason, v.Owner, v.ExpiresIn, v.FencingToken = one.reason, one.owner, max(one.until-now, 0), one.token
		return
	}
	v.Reason = m.replica.Record(queues.Location{Queue: q, Contender: c}).Node().Record.Closed.Reason
}

// endDue deletes the contenders whose lock delay is over. The clock loop calls it.
func (d *delays) endDue(m *Manager, now time.Duration) {
	for m.timers.expiring < expiryWindow {
		one, ok := d.line.Min()
		if !ok || one.until > now {
			return
		}
		switch {
		case m.members.Elsewhere(one.id.Gateway()):
			d.drop(one) // another gateway has taken it over, and gives its delay
		case !m.members.Owns(one.id.Gateway()) || one.deleting:
			d.put(one, now+deleteRetry)
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

// leave takes those of its contenders out of a delay that are gone.
func (d *delays) leave(one *delay, gone func(queues.Location) bool) {
	before := len(one.at)
	one.at = slices.DeleteFunc(one.at, gone)
	d.slots -= before - len(one.at)
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
