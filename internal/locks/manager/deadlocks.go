package manager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/parties"
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
	failing int    // leases of this gateway with deadlock=fail in contended queues, at the last look or since
	asking  []*deadlockQuestion
	present map[string]*locks.Cycle // certain ones of several parties that no wait ends by itself, by their ids
	// Contenders whose owners were not known at the last look: one that stays so long is read.
	unknown map[*recipe.Contender]struct{}
	parties *parties.Known // whose the contenders of other gateways and programs are
	// showing has room for one request that is shown the graph: each copies all queues in which something waits. The others wait
	// for it until their clients go away. Not guarded.
	showing chan struct{}
}

func newDeadlocks() deadlocks {
	return deadlocks{wake: make(chan struct{}, 1), present: map[string]*locks.Cycle{}, parties: parties.NewKnown(), showing: make(chan struct{}, 1)}
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
		changed := d.moves != m.replica.Counts.Moves || d.parties.Stale()
		idle = !m.stream.synced || len(asking) == 0 && (!changed || !m.replica.IsContended() && len(d.present) == 0 && d.parties.Len() == 0)
		if !idle {
			d.moves, d.failing = m.replica.Counts.Moves, 0
			d.parties.BeginLook()
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
	var s *parties.Scan
	if urgent {
		s = d.scanRead(m, ctx, all, wants)
	} else {
		s = d.scan(m, all, wants)
	}
	stuck := s.Stuck()
	cycles, _ := s.Cycles(stuck)
	for _, q := range asking {
		q.cycle = s.Closes(q.owner, q.wants)
	}
	ends := s.Ends(stuck, maxDeadlockEnds)
	m.do(func() {
		d.endWaits(m, s, ends)
		d.publish(m, s, cycles)
		d.learn(m, s)
		d.parties.EndLook()
	})
}

// learn has those contenders read whose owners were not known a look ago either. Most waits are shorter. The monitor is held.
func (d *deadlocks) learn(m *Manager, s *parties.Scan) {
	var long []queues.Location
	unknown := map[*recipe.Contender]struct{}{}
	for _, at := range s.Unread {
		if _, before := d.unknown[at.Contender]; before {
			long = append(long, at)
		}
		unknown[at.Contender] = struct{}{}
	}
	d.unknown = unknown
	if len(unknown) > 0 {
		d.parties.MarkStale() // look again: they may be known by then
	}
	if len(long) > 0 {
		d.read(m, long, d.parties.MarkStale)
	}
}

// maxDeadlockEnds bounds the waits that one look ends. The next look ends others.
const maxDeadlockEnds = 256

// endWaits ends the waits whose cycles are still there. The monitor is held.
func (d *deadlocks) endWaits(m *Manager, s *parties.Scan, ends []parties.End) {
	d.failing += s.Failing()
	if len(ends) == 0 || fault.On("deadlock-placed") {
		return
	}
	d.parties.MarkStale() // look again: a cycle may have another one beside it, or the end may not be done
	if !m.trusted() || m.life.draining {
		return
	}
	now := m.clock.Now().Boot()
	for i := range ends {
		l := m.leases.lease(ends[i].Lease)
		if l == nil || !l.Waiting() || l.term != m.port.Term() || l.turn() || !s.StillStands(&ends[i].Cycle) {
			continue
		}
		view := s.Cycle(&ends[i].Cycle)
		l.rare().cycle = &view
		l.end(m, locks.ReasonWouldDeadlock, now)
	}
}

// publish tells what cycles have come and gone. The monitor is held.
func (d *deadlocks) publish(m *Manager, s *parties.Scan, cycles []waitfor.Cycle) {
	now := s.Deadlocks(cycles)
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
