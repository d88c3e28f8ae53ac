package manager

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/waitfor"
)

// Deadlocks: they are looked for once a second where something has changed, and at once where an acquire asks (deadlock=fail).
// One goroutine looks (deadlocks.run). It holds the monitor for single chunks, so that no acquire waits for it.
//
// An acquire with deadlock=fail that would wait is looked at before its contender is created, as if it stood last, and is
// refused when that closes a cycle. Two acquires at two gateways may pass that at the same time. So each gateway looks again
// when its contender is placed. ZooKeeper orders the two creates. The gateway of the later contender has seen the earlier one,
// and everything that both wait for, before it sees its own: it finds the cycle. Of the waits of a cycle with deadlock=fail
// the youngest ends. All gateways order them alike, by the czxid of the contenders, so each ends its own leases alone.

const (
	// deadlockPeriod is how often it is looked whether something has changed.
	deadlockPeriod = 1_003_117 * time.Microsecond
	// deadlockShare bounds the time that looking takes: after a look it rests for as many times as long.
	deadlockShare = 4
	// maxAsking bounds the acquires that wait to be looked at before their create. Others are looked at when they are placed.
	maxAsking = 1024
)

// deadlocks is what is known of cycles. The monitor guards it.
type deadlocks struct {
	wake    chan struct{}
	moves   uint64 // of the replica at the last look
	looks   uint64
	failing int // leases of this gateway with deadlock=fail in contended queues, at the last look or since
	asking  []*deadlockQuestion
	present map[string]*locks.Cycle // certain ones of several parties that no wait ends by itself, by their ids
	// Contenders whose owners were not known at the last look: one that stays so long is read.
	unknown map[*recipe.Contender]struct{}
}

// deadlockQuestion asks whether a wait would close a cycle.
type deadlockQuestion struct {
	wants    []locks.Want
	owner    string
	answered chan struct{}
	done     bool         // the monitor guards it
	cycle    *locks.Cycle // the answer, once done; nil: none
}

// kick has the loop look at once.
func (d *deadlocks) kick() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run looks for deadlocks until ctx ends.
func (d *deadlocks) run(m *Manager, ctx context.Context) error {
	timer := time.NewTimer(deadlockPeriod)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.wake:
		case <-timer.C:
		}
		began := m.clock.Now().Boot()
		d.look(m, ctx)
		if took := m.clock.Now().Boot() - began; took > time.Millisecond {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(min(deadlockShare*took, deadlockPeriod)):
			}
		}
		timer.Reset(deadlockPeriod)
	}
}

// look looks once, unless nothing has changed.
func (d *deadlocks) look(m *Manager, ctx context.Context) {
	var asking []*deadlockQuestion
	var urgent, idle bool
	m.do(func() {
		asking, d.asking = d.asking, nil
		urgent = len(asking) > 0 || d.failing > 0
		changed := d.moves != m.replica.Counts.Moves || m.parties.stale
		idle = !m.stream.synced || len(asking) == 0 && (!changed || !m.replica.IsContended() && len(d.present) == 0 && len(m.parties.known) == 0)
		if !idle {
			d.moves, m.parties.stale, d.failing = m.replica.Counts.Moves, false, 0
			d.looks++
		}
	})
	if !idle {
		d.search(m, ctx, asking, urgent)
	}
	m.do(func() {
		for _, q := range asking {
			q.done = true
			m.wake(q.answered)
		}
	})
}

// search finds the cycles, publishes what is new of them, ends waits, and answers what is asked.
func (d *deadlocks) search(m *Manager, ctx context.Context, asking []*deadlockQuestion, urgent bool) {
	var wants []locks.Want
	for _, q := range asking {
		wants = append(wants, q.wants...)
	}
	all := func(*queues.Queue) bool { return true }
	var s *waitScan
	if urgent {
		s = m.scanRead(ctx, all, wants)
	} else {
		s = m.scanWaits(all, wants)
	}
	stuck := s.graph.Stuck()
	cycles, _ := s.graph.Cycles(stuck, waitfor.DefaultLimits)
	for _, q := range asking {
		q.cycle = s.closes(q)
	}
	ends := s.toEnd(stuck)
	m.do(func() {
		d.endWaits(m, s, ends)
		d.publish(m, s, cycles)
		d.learn(m, s)
		maps.DeleteFunc(m.parties.known, func(_ *recipe.Contender, known standing) bool { return known.look < d.looks })
	})
}

// learn has those contenders read whose owners were not known a look ago either. Most waits are shorter. The monitor is held.
func (d *deadlocks) learn(m *Manager, s *waitScan) {
	var long []queues.Location
	unknown := map[*recipe.Contender]struct{}{}
	for _, at := range s.unread {
		if _, before := d.unknown[at.Contender]; before {
			long = append(long, at)
		}
		unknown[at.Contender] = struct{}{}
	}
	d.unknown = unknown
	if len(unknown) > 0 {
		m.parties.stale = true // look again: they may be known by then
	}
	if len(long) > 0 {
		m.readParties(long, func() { m.parties.stale = true })
	}
}

// stillStands reports whether the contenders of a cycle are all still in their queues. What was scanned was not all so at one moment.
func (s *waitScan) stillStands(c *waitfor.Cycle) bool {
	return !slices.ContainsFunc(c.Edges, func(e waitfor.Edge) bool {
		q := &s.queues[e.Queue]
		return slices.ContainsFunc([]int{e.Waiter, e.Blocker}, func(i int) bool {
			return q.at[i] == nil || q.q.Contenders.Get(q.at[i].Name) != q.at[i]
		})
	})
}

// toEnd are this gateway's waits with deadlock=fail that are the youngest such of a certain cycle.
func (s *waitScan) toEnd(stuck []bool) (ends []deadlockEnd) {
	var rest *waitfor.Rest // only where it is needed
	for i, l := range s.leases {
		if !l.own || !l.fails || !stuck[s.graph.Leases[i].Party] {
			continue
		}
		if rest == nil {
			rest = s.graph.Rest(stuck, waitfor.DefaultLimits)
		}
		if c, closed := rest.Through(i); closed && s.youngest(i, &c) {
			if ends = append(ends, deadlockEnd{l.id, c}); len(ends) == maxDeadlockEnds {
				break
			}
		}
	}
	return ends
}

// deadlockEnd is a wait that ends, and the cycle for which it does.
type deadlockEnd struct {
	lease recipe.LeaseID
	cycle waitfor.Cycle
}

// maxDeadlockEnds bounds the waits that one look ends. The next look ends others.
const maxDeadlockEnds = 256

// endWaits ends the waits whose cycles are still there. The monitor is held.
func (d *deadlocks) endWaits(m *Manager, s *waitScan, ends []deadlockEnd) {
	for _, l := range s.leases {
		if l.own && l.fails {
			d.failing++
		}
	}
	if len(ends) == 0 || fault.On("deadlock-placed") {
		return
	}
	m.parties.stale = true // look again: a cycle may have another one beside it, or the end may not be done
	if !m.trusted() || m.life.draining {
		return
	}
	now := m.clock.Now().Boot()
	for i := range ends {
		l := m.leases.lease(ends[i].lease)
		if l == nil || !l.Waiting() || l.term != m.port.Term() || l.turn() || !s.stillStands(&ends[i].cycle) {
			continue
		}
		view := s.cycle(&ends[i].cycle)
		l.rare().cycle = &view
		l.end(m, locks.ReasonWouldDeadlock, now)
	}
}

// youngest reports whether a lease is the youngest of those in a cycle that end in a deadlock.
func (s *waitScan) youngest(lease int, c *waitfor.Cycle) bool {
	born := s.graph.Leases[lease].Born
	return born != 0 && !slices.ContainsFunc(c.Edges, func(e waitfor.Edge) bool {
		other := s.graph.WaiterOf(e)
		return s.leases[other].fails && other != lease && (s.graph.Leases[other].Born > born && !fault.On("deadlock-youngest") || s.graph.Leases[other].Born == 0)
	})
}

// closes is the cycle that a wait would close; nil: none. It stands last in each queue.
func (s *waitScan) closes(q *deadlockQuestion) *locks.Cycle {
	party := ownerParty(q.owner, "")
	if _, there := s.number[party.ID]; !there {
		return nil // it holds nothing that others wait for
	}
	with := *s
	with.queues, with.graph.Queues = slices.Clone(s.queues), slices.Clone(s.graph.Queues)
	lease := len(s.leases)
	with.leases = append(slices.Clip(s.leases), scannedLease{fails: true})
	with.graph.Leases = append(slices.Clip(s.graph.Leases), waitfor.Lease{Party: s.number[party.ID], Born: math.MaxInt64})
	for i := range q.wants {
		w := &q.wants[i]
		c := queues.ContenderOf(w)
		c.Name, c.LeaseID, c.Ours = fmt.Sprintf("asked-%d", i), "asked", true
		at := slices.IndexFunc(with.queues, func(one scannedQueue) bool { return one.ns == w.NS && one.lock == w.Lock })
		if at < 0 {
			continue // nothing is there
		}
		entry := waitfor.Entry{Contender: c, Lease: lease}
		with.graph.Queues[at] = append(slices.Clip(with.graph.Queues[at]), entry)
		with.queues[at].at = append(slices.Clip(with.queues[at].at), nil)
	}
	c, closed := with.graph.Rest(with.graph.Stuck(), waitfor.DefaultLimits).Through(lease)
	if !closed {
		return nil
	}
	view := with.cycle(&c)
	return &view
}

// publish tells what cycles have come and gone. A wait that ends by itself needs no person, and a party that waits for itself
// is most often two programs with one owner's name: neither is told of. The monitor is held.
func (d *deadlocks) publish(m *Manager, s *waitScan, cycles []waitfor.Cycle) {
	now := map[string]*locks.Cycle{}
	for i := range cycles {
		c := &cycles[i]
		fails := slices.ContainsFunc(c.Edges, func(e waitfor.Edge) bool { return s.leases[s.graph.WaiterOf(e)].fails })
		if !c.Certain || len(c.Edges) < 2 || fails || !s.stillStands(c) {
			continue
		}
		view := s.cycle(c)
		now[view.ID] = &view
	}
	for _, id := range slices.Sorted(maps.Keys(now)) {
		if d.present[id] == nil {
			m.opt.Metrics.Deadlock()
			m.publisher.deadlock(events.DeadlockDetected, now[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.present)) {
		if now[id] == nil {
			m.publisher.deadlock(events.DeadlockCleared, d.present[id])
		}
	}
	d.present = now
}

// asksFirst reports whether it is asked before the create whether the wait of an acquire would close a cycle.
func (a *acquisition) asksFirst() bool {
	return a.req.Deadlock == locks.DeadlockFail && (a.req.Wait > 0 || a.req.Async) && !a.asked && len(a.m.deadlocks.asking) < maxAsking
}

// ask asks whether the wait would close a cycle. The monitor is released while it waits: what the attempt knows is to be found
// out anew. Without an answer in time the wait is looked at when it is placed.
func (a *acquisition) ask() *locks.Error {
	m := a.m
	a.asked = true
	q := &deadlockQuestion{wants: a.wants, owner: a.req.OwnerOf(), answered: make(chan struct{})}
	m.deadlocks.asking = append(m.deadlocks.asking, q)
	m.deadlocks.kick()
	err := m.sleep(a.ctx, q.answered, answerWithin)
	switch {
	case err != nil:
		return err
	case !q.done || q.cycle == nil:
		return nil
	}
	return wouldDeadlock(q.cycle)
}

// wouldDeadlock is the answer to an acquire that closes a cycle; nil: which one is not known any more.
func wouldDeadlock(c *locks.Cycle) *locks.Error {
	e := &locks.Error{Code: locks.CodeWouldDeadlock, Cycle: c, Detail: "the wait was one of a deadlock, and has ended; release what this owner holds, and take all locks at once or in one order"}
	if c != nil && len(c.Waits) == 1 {
		e.Detail = "another lease of this owner holds " + c.Waits[0].Lock + ", or stands before this one: it would wait for itself; release that lease, or use another owner where it belongs to another program"
	} else if c != nil {
		e.Detail = fmt.Sprintf("%d owners would wait for each other: the cycle is in the answer; release what this owner holds, and take all locks at once or in one order", len(c.Waits))
	}
	return e
}
