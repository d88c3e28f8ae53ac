package manager

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/recipe"
)

// lease is a lease that this gateway owns. The monitor guards every field except the immutable ones.
type lease struct {
	slot // the first slot; most leases have only one

	// State.
	phase       phase
	recordState recordState
	grant       grantState
	change      change
	endNote     noteState
	access      accessState
	why         postmortem.Cause // ending and ended: the reason
	kind        kind             // counted as this kind

	// Clock, and the contender's data.
	abandoned bool       // no client can use it: it is ended once it is known
	term      locks.Term // of the session under which the clock runs
	listeners int32      // open requests with its token
	heapIndex int32      // in Manager.deadlines, -1: none
	lineIndex int32      // in counts.line, -1: none
	ticket    bool       // waiting without an open acquire
	text      uint16     // bytes counted as its texts

	// All readings but enqueued are of the boot clock.
	ttl      time.Duration // what a heartbeat renews
	recorded time.Duration // longest TTL that may be promised: the contender's record is known to have it
	deadline time.Duration
	grace    time.Duration // takeover + promise window: a TTL later the old owner's promises end; 0: own
	due      time.Duration // its time in the heap
	since    time.Duration // when it was queued; after the grant, when it was granted
	beat     time.Duration // last heartbeat, 0: none
	enqueued time.Duration // wall clock, since the Unix epoch; 0: not known

	czxid      int64 // of the contender; 0 until known
	owner      string
	rareFields *rare

	rev  uint64
	wake chan struct{} // closed at the next visible change; nil while no request waits
}

func (l *lease) id() recipe.LeaseID { return l.contender.LeaseID }

// named takes the name from the create's reply.
func (s *slot) named(name string) {
	if s.name() == name {
		return
	}
	c := s.q.Contenders.Get(name) // the replica showed it under another name: another client created one with its id
	if c == nil {
		unseen := *s.contender
		unseen.Name = name
		c = &unseen
	}
	s.contender = c
}

// positionKnown reports whether the lease's position is certain: the replica shows its contenders and their czxid is
// known.
func (l *lease) positionKnown() bool { return l.czxid != 0 && l.seenWhole() }

// changed returns a channel that is closed at the lease's next visible change.
func (l *lease) changed() <-chan struct{} {
	if l.wake == nil {
		l.wake = make(chan struct{})
	}
	return l.wake
}

// clock returns how long the lease lives after its client's last request, in its present phase.
func (l *lease) clock() time.Duration {
	switch {
	case l.phase == waiting:
		return l.waitingClock()
	case l.phase == held && l.grant == grantUnclaimed:
		return min(l.ttl, unclaimedClock)
	}
	return l.ttl
}

// waitingClock returns how long a lease stays in the queue after its client's last request.
func (l *lease) waitingClock() time.Duration { return min(l.ttl, waitingClock) }

// visibleFrom is the zxid before which no listing shows all of the lease's contenders.
func (l *lease) visibleFrom() int64 {
	if l.rareFields != nil && l.rareFields.visibleFrom != 0 {
		return l.rareFields.visibleFrom
	}
	return l.czxid
}

// leaseTable has the leases that this gateway owns and that have not ended, and counts them. It is not safe for
// concurrent use.
type leaseTable struct {
	byID   map[recipe.LeaseID]*lease
	counts counts
	owners names
	quota  *quota.Quota
	log    *slog.Logger
	wake   func(chan struct{}) // closes a channel once the monitor is free
	rev    uint64              // of the last visible change
	nonce  string              // makes revs of different processes differ
}

func newLeaseTable(q *quota.Quota, log *slog.Logger, wake func(chan struct{})) *leaseTable {
	var nonce [4]byte
	_, _ = rand.Read(nonce[:]) // never fails (crypto/rand, Go 1.24)
	return &leaseTable{byID: map[recipe.LeaseID]*lease{}, quota: q, log: log, wake: wake, nonce: fmt.Sprintf("%x", nonce)}
}

// touch marks a visible change and wakes the requests that wait for one.
func (t *leaseTable) touch(l *lease) {
	t.rev++
	l.rev = t.rev
	if l.wake != nil {
		t.wake(l.wake)
		l.wake = nil
	}
}

// inOrder returns the leases that match, sorted by id, so that writes about them do not have a map's random order.
func (t *leaseTable) inOrder(match func(*lease) bool) []*lease {
	var matching []*lease
	for _, l := range t.byID {
		if match(l) {
			matching = append(matching, l)
		}
	}
	slices.SortFunc(matching, func(a, b *lease) int { return cmp.Compare(a.id(), b.id()) })
	return matching
}

func (t *leaseTable) revString(rev uint64) string {
	return t.nonce + "-" + strconv.FormatUint(rev, 36)
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
	switch {
	case l.phase != waiting && l.phase != held:
		t.deadlines.remove(l)
	case l.heapIndex < 0:
		l.due = due
		t.deadlines.push(l)
		t.wakeAt(due)
	case due < l.due:
		l.due = due
		t.deadlines.fix(l)
		t.wakeAt(due)
	}
}

// extend moves the deadline to now + span, never back, and never before the end of a former owner's promises.
func (l *lease) extend(m *Manager, now, span time.Duration) {
	l.deadline = max(l.deadline, max(now, l.grace)+span)
	m.timers.schedule(l)
	if c := &m.timers; c.lastTrusted == 0 && m.trusted() {
		// The clock loop has not run yet. If trust is lost before it does, that period must not count as the time
		// before the first trust.
		c.trusted, c.lastTrusted = true, now
	}
}

// becomeHeld makes a waiting lease held. The caller has checked that all its contenders hold in the replica, and that the
// replica is trusted.
func (l *lease) becomeHeld(m *Manager, now time.Duration) {
	waited := now - l.since
	m.leases.setPhase(l, held)
	l.since = now
	acknowledged := l.grant == grantAcknowledged
	if l.listeners > 0 || acknowledged || fault.On("unclaimed-counts") {
		l.setGrant(m.leases, grantClaimed)
	} else {
		l.setGrant(m.leases, grantUnclaimed)
	}
	l.extend(m, now, l.clock())
	m.metrics.LeaseGranted(waited)
	for s := range l.slots {
		if s.observed == observedNot {
			m.granted(s.q, s.contender, l, now)
		}
		if s.observeHold(now, acknowledged) {
			m.tellGranted(s.q, s.contender, l)
		}
		if s.q.FreedAt != 0 {
			m.metrics.Handover(now - s.q.FreedAt)
			s.q.FreedAt = 0
		}
		m.replica.Touch(s.q)
	}
	m.leases.touch(l)
	m.noteGrant(l)
}

// claim records that the client knows of its grant.
func (l *lease) claim(m *Manager, now time.Duration) {
	if l.phase == held && l.grant == grantUnclaimed {
		l.setGrant(m.leases, grantClaimed)
		l.extend(m, now, l.ttl)
		m.leases.touch(l)
		l.touchQueues(m)
	}
}

// unlisten ends an open request of the lease's client, which l.listeners++ began. A waiting lease keeps its position
// for its clock from here on.
func (l *lease) unlisten(m *Manager, now time.Duration) {
	l.listeners--
	if l.listeners == 0 && l.phase.waits() {
		m.leases.makeTicket(l)
	}
	if l.phase == waiting {
		l.extend(m, now, l.waitingClock())
	}
}

// finish makes a lease ended: its contenders are gone for certain, or never existed.
func (l *lease) finish(m *Manager, reason locks.Reason, now time.Duration) {
	l.conclude(m, reason, now, false)
}

// conclude makes a lease ended. Its contenders are gone, or stay for its lock delay.
func (l *lease) conclude(m *Manager, reason locks.Reason, now time.Duration, stay bool) {
	if l.phase == ended {
		return
	}
	m.leases.setPhase(l, ended)
	l.why = postmortem.CauseOf(reason)
	m.tellEnded(l) // before the next grant
	m.timers.deadlines.remove(l)
	delete(m.leases.byID, l.id())
	for s := range l.slots {
		s.q.Leases--
		if stay {
			if s.presence.seen() { // the end is published: the later deletion publishes nothing
				m.replica.Observe(s.contender, queues.Observed{Since: s.seenAt, Holds: true, SinceBefore: s.observed == observedLate, SuppressEvents: true})
			}
			continue
		}
		if s.presence.seen() && !fault.On("early-end") {
			s.q.Ended(s.contender)
		}
		if s.name() != "" {
			m.removeContender(s.q, s.name(), now)
		}
		if l.access != accessFull && s.presence.seen() {
			m.awaitUntold(s.q)
		}
	}
	m.tellGone(l)
	m.remember(l, now)
	l.forgetEphemerals(m)
	if l.grant.granted() {
		m.metrics.LeaseEnded(string(reason), now-l.since)
	} else {
		m.metrics.LeaseEnded(string(reason), 0)
	}
	m.leases.touch(l)
	l.evaluateAll(m, now)
}

// fencingToken converts a czxid to the number that clients see.
func (f *fleet) fencingToken(czxid int64) int64 {
	if czxid == 0 {
		return 0
	}
	return f.layout.FenceBase + czxid
}
