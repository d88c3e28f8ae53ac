package manager

import (
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
)

// When a lease was granted stands in its record, so that a successor, a restart and other gateways can tell how long it has held.
// No grant waits for that, and a short hold costs no write:
//
//   - A lease that is granted at once needs none. Its create has a number in the record (at_once), from which every reader learns
//     whether the contender had to wait: record.GrantedAt says how.
//   - Of a lease that waited the time is written once it has held for grantAfter, when the clock loop comes upon it anyway: within
//     half a minute of the grant. Each other write of the record has it too.
//
// The time is that of the wall clock of the gateway that granted the lease. It is shown and remembered, and decides nothing: no
// deadline, no delay and no order follows from it.

const (
	// grantAfter is for how long a lease has held before the time of its grant is written. Most holds are shorter.
	grantAfter = 5 * time.Second
	// grantsASecond bounds these writes: after a takeover very many leases may be due together. A lease that finds none left tries
	// again when its deadline is looked at the next time.
	grantsASecond = 500
)

// moment is whether a lease's record says when the lease was granted.
type moment uint8

const (
	momentUnwritten moment = iota
	momentAtOnce           // by its number: when it was queued
	momentWritten          // rare.granted
)

// atOnce is what the record of a lease that is created says of its number: see record.Record. 0: the lease waits, or has several
// contenders, or the replica cannot tell. found is compose's.
func (l *lease) atOnce(r *queues.Replica, found map[*queues.Queue]bool) uint32 {
	if l.width() > 1 {
		return 0
	}
	if there, told := found[l.q]; told && !there || !told && !l.q.Exists {
		return 1 // a new directory, in the same transaction
	}
	if next, known := r.NextNumber(l.q); known && l.q.Contenders.WouldHold(l.contender) {
		return uint32(next) + 1
	}
	return 0
}

// firstData is what a slot's contender has in it when it is created.
func (l *lease) firstData(s *slot, atOnce uint32) []byte {
	if s != &l.slot || atOnce == 0 {
		return l.data(s, l.ttl)
	}
	r := l.contents(l.ttl)
	r.AtOnce = int64(atOnce)
	return r.Encode()
}

// numbered compares the number that ZooKeeper has given to the lease's contender with the one in its record.
func (l *lease) numbered(atOnce uint32) {
	if number, ok := recipe.Number(l.name()); ok && atOnce != 0 && (int64(number)+1 == int64(atOnce) || fault.On("granted-number")) {
		l.moment = momentAtOnce
	}
}

// grantedAt is when the lease was granted, by the wall clock: what its record has, or is to have. 0: that is not known.
func (l *lease) grantedAt() time.Duration {
	if l.moment == momentAtOnce {
		return l.enqueued
	}
	return l.known().granted
}

// noteGrant has the next write of the record say when the lease was granted, if this gateway saw that.
func (l *lease) noteGrant(m *Manager) {
	if l.moment != momentUnwritten || !l.Held() || l.observed != observedHeld || l.known().granted != 0 {
		return
	}
	now := m.clock.Now()
	l.rare().granted = now.Wall() - (now.Boot() - l.seenAt)
}

// learnGrant takes over what a record of the lease says of its grant.
func (l *lease) learnGrant(r *record.Record) {
	at, known := r.GrantedAt(l.contender.Number, l.enqueued)
	switch {
	case !known:
	case at == l.enqueued:
		l.moment = momentAtOnce // without rare fields
	default:
		l.rare().granted, l.moment = at, momentWritten
	}
}

// holdsSinceGrant makes a lease that was taken over one that has been seen to hold since its grant, if its record has that.
func (l *lease) holdsSinceGrant(m *Manager, boot time.Duration) {
	if l.grace == 0 || !l.Held() || l.moment == momentUnwritten {
		return
	}
	began := boot - (m.clock.Now().Wall() - l.grantedAt())
	for s := range l.slots {
		o := s.observation()
		o.Since, o.SinceBefore = min(o.Since, began), false // it was seen to hold, whatever the clock of its former gateway said
		s.setObservation(o)
		s.q.Mark()
	}
}

// grantDue is when the time of the grant is written; 0: it need not be, or it is tried whenever the lease's deadline is looked at.
func (l *lease) grantDue(now time.Duration) time.Duration {
	if at := l.since + grantAfter; l.moment == momentUnwritten && l.Held() && at > now {
		return at
	}
	return 0
}

// writeGrant writes the time of the grant of a lease that has held for a while. It may wait for another write to share a transaction.
func (l *lease) writeGrant(m *Manager, now time.Duration) {
	switch {
	case l.moment != momentUnwritten || !l.Held() || l.observed != observedHeld || now-l.since < grantAfter:
	case l.ephemeral(): // it ends with this session
	case l.Grant() != lifecycle.GrantClaimed || l.deadline-now < l.ttl/3: // it may be about to end, and its end would wait for the write
	case l.term != m.port.Term() || l.Record() != lifecycle.RecordCurrent || l.rewriting() || l.Access() != lifecycle.AccessFull:
	case !m.timers.grants.take(now):
	default:
		l.submitRecord(m, &zk.Write{MayWait: true}, func(*record.Record) {}, nil)
	}
}

// grantBudget counts the writes of a second.
type grantBudget struct {
	second time.Duration // boot
	taken  int
}

func (b *grantBudget) take(now time.Duration) bool {
	if now-b.second >= time.Second {
		*b = grantBudget{second: now}
	}
	b.taken++
	return b.taken <= grantsASecond
}

// heldFor shows for how long a contender has held: as this gateway has seen, as its record says, or else between which bounds.
func (a *answers) heldFor(q *queues.Queue, c *recipe.Contender, v *locks.Contender, now zk.Instant) {
	s := a.observedOf(q, c)
	if !s.Holds {
		return // its grant is under way
	}
	v.HeldFor, v.HeldLonger = max(now.Boot()-s.Since, 0), s.SinceBefore
	if !s.SinceBefore {
		return
	}
	queued, granted, known := a.momentsOf(q, c)
	switch {
	case known:
		v.HeldFor, v.HeldLonger = max(v.HeldFor, now.Wall()-granted), false
	case queued != 0 && c.FirstCzxid == 0: // it cannot have held for longer than it has stood there; one that was downgraded stood before
		v.HeldAtMost = max(now.Wall()-queued, v.HeldFor)
	}
}

// momentsOf is when a contender came, 0 where that is not known, and when its lease was granted, as its record says.
func (a *answers) momentsOf(q *queues.Queue, c *recipe.Contender) (queued, granted time.Duration, known bool) {
	if l := a.leases.leaseOf(q, c); l != nil {
		return max(l.enqueued, 0), l.grantedAt(), l.moment != momentUnwritten
	}
	at := queues.Location{Queue: q, Contender: c}
	if c.Ours && !c.Unknown {
		at = a.replica.Record(at)
	}
	i := at.Node()
	switch {
	case i == nil:
	case c.Ours && i.IsRecord:
		queued = record.EnqueuedAt(i.Record.Enqueued, i.Created.Milliseconds())
		granted, known = i.Record.GrantedAt(at.Contender.Number, queued)
	case c.FirstCzxid == 0:
		queued = i.Created // the node of a lease that was downgraded is younger than the lease
	}
	return queued, granted, known
}
