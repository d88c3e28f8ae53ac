package manager

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// target is a lease, or another program's contender, that is to be ended.
type target struct {
	at      queues.Location // a contender of it
	l       *lease          // nil: not of this gateway
	version int32           // of the node at which at is deleted; -1: any
	close   []byte          // the record that says that the lease has ended: it is written, and nothing is deleted
	ops     []zk.Op
	parts   []queues.Location
	gone    map[string]bool
	begun   bool         // this call has made its lease ending
	noting  noting       // the outbox operations before ops
	unnoted bool         // the outbox has the end already, or cannot take it
	blind   bool         // the operations before ops may not be checked
	notify  string       // the notify_url of another gateway's lease
	looked  bool         // its record was read
	ended   locks.Reason // of another gateway's lease that ended and whose contender remains
	endedBy string       // of the same: the administrator who ended it
	lost    bool         // an attempt had an unknown outcome
	zxid    int64        // of the transaction that ended it
	over    bool         // nothing is left to do
	err     error        // over: why this call did not end it; errEnded, zk.ErrBadVersion, ...
}

// errEnded: it had ended, or ended for another reason meanwhile.
var errEnded = errors.New("it has ended")

// why returns the reason for a target's end. A lease that has ended already keeps its reason when its contender is
// deleted.
func (t *target) why(c reports.Cause) reports.Cause {
	if t.ended != "" {
		return reports.Cause{Reason: t.ended, By: t.endedBy}
	}
	return c
}

// size is an upper bound of the bytes that a target adds to a batch.
func (t *target) size() (bytes int) {
	for _, ops := range [][]zk.Op{t.noting.ops, t.ops, t.noting.checks} {
		for i := range ops {
			bytes += len(ops[i].Path) + len(ops[i].Data) + opOverhead
		}
	}
	return bytes
}

// fail makes a target over that cannot be ended.
func (t *target) fail(m *Manager, err error) {
	t.over, t.err = true, err
	m.reports.NotTerminated(t.parts)
}

// targetOf is a contender as a target: its lease, when this gateway runs that. The monitor is held.
func (m *Manager) targetOf(at queues.Location) *target {
	t := &target{at: at, version: -1}
	if l, s := m.leases.slotOf(at.Queue, at.Contender); s != nil {
		t.l = l
	}
	return t
}

// distinct yields a queue's contenders from the tail on, of each lease one.
func distinct(q *queues.Queue) func(yield func(*recipe.Contender) bool) {
	return func(yield func(*recipe.Contender) bool) {
		seen := map[recipe.LeaseID]bool{}
		for i := q.Contenders.Len() - 1; i >= 0; i-- {
			c := q.Contenders.At(i)
			if c.Ours && c.LeaseID != "" {
				if seen[c.LeaseID] {
					continue
				}
				seen[c.LeaseID] = true
			}
			if !yield(c) {
				return
			}
		}
	}
}

// unread reports whether the record of a lease of this gateway is still to be read: it has just been taken over.
func (d *deliveries) unread(l *lease) bool {
	return l.term == d.port.Term() && l.Record().Assumed() && l.Settled()
}

// readTargets reads the records of targets, reapChunk at a time: only a record tells whether the lease has ended already, and its
// notify_url. When reads take too long, after a takeover for example, it is CodeUnavailable. A record that may not be read stops
// nothing. The caller has passed a barrier, so the session reads the present. The monitor is free.
func (m *Manager) readTargets(ctx context.Context, targets []*target) error {
	answers := make(chan struct{}, reapChunk)
	for from := 0; from < len(targets); from += reapChunk {
		asked := 0
		m.do(func() {
			for _, t := range targets[from:min(from+reapChunk, len(targets))] {
				if m.readTarget(t, func() { answers <- struct{}{} }) {
					asked++
				}
			}
		})
		if err := m.answered(ctx, answers, asked); err != nil {
			return err
		}
	}
	return nil
}

// readTarget begins to read a target's record; false when that is known. The monitor is held.
func (m *Manager) readTarget(t *target, answered func()) bool {
	switch l := t.l; {
	case l != nil && m.deliveries.unread(l):
		term := l.term
		m.port.Read(l.path(), l.known().least, func(data []byte, stat wire.Stat, err error) {
			l.loaded(m, term, data, stat, err)
			answered()
		})
		return true
	case l != nil, t.looked, !t.at.Contender.Ours, t.at.Contender.Unknown, m.delays.byID[t.at.Contender.LeaseID] != nil:
		return false
	}
	t.at = m.replica.Record(t.at)
	m.port.Read(t.at.Path(), 0, func(data []byte, stat wire.Stat, err error) {
		if err == nil {
			t.learn(lookedAt(t.at, data, stat), stat)
		}
		answered()
	})
	return true
}

// learn takes in what the record of another gateway's lease says. It is deleted at the version that was read.
func (t *target) learn(r record.Record, stat wire.Stat) {
	t.looked, t.version, t.notify, t.ended = true, stat.Version, r.NotifiesOfEnd(), r.EndedFor()
	if r.Closed != nil {
		t.endedBy = r.Closed.By
	}
}

// lookedAt parses a contender's record. The queue keeps one of a lease that has ended: freeing its place ends no lease.
func lookedAt(p queues.Location, data []byte, stat wire.Stat) record.Record {
	r, ok := record.Parse(data)
	if ok && r.Closed != nil {
		p.Queue.SetNode(p.Contender.Name, data, stat)
	}
	return r
}

// reapChunk is how many contenders are looked at together.
const reapChunk = 256

// answered waits for so many answers, for settleWithin at most; the monitor is free.
func (m *Manager) answered(ctx context.Context, answers <-chan struct{}, asked int) error {
	timer := time.NewTimer(settleWithin)
	defer timer.Stop()
	for range asked {
		select {
		case <-answers:
		case <-timer.C:
			return unavailable()
		case <-ctx.Done():
			return cancelled(ctx)
		}
	}
	return nil
}

func shownBy(s *locks.Shown) shown {
	if !s.Given() {
		return nil
	}
	keys := shown{}
	for _, key := range slices.Concat(s.LeaseIDs, s.Znodes) {
		keys[key] = false
	}
	return keys
}

// means reports whether a contender is meant.
func (s shown) means(q *queues.Queue, c *recipe.Contender) bool {
	if s == nil {
		return true
	}
	_, lease := s[string(c.LeaseID)]
	_, znode := s[q.NodeOf(c.Name)]
	return c.Ours && lease || znode
}

// found records that a meant contender is as it was shown.
func (s shown) found(q *queues.Queue, c *recipe.Contender) {
	if s == nil {
		return
	}
	for _, key := range []string{string(c.LeaseID), q.NodeOf(c.Name)} {
		if _, meant := s[key]; meant {
			s[key] = true
		}
	}
}

// missing is a contender that was shown and not found; "" for none.
func (s shown) missing() string {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if !s[key] {
			return key
		}
	}
	return ""
}

// none reports whether contenders were shown and none of them was found.
func (s shown) none() bool {
	for _, found := range s {
		if found {
			return false
		}
	}
	return s != nil
}

// holderChanged is the error for a named contender that has changed; the monitor is free.
func (m *Manager) holderChanged(q *queues.Queue, why string) *locks.Error {
	return locked(m, func() *locks.Error {
		return m.tellHolders(q, &locks.Error{Code: locks.CodeHolderChanged, Detail: why + "; nothing was done: look at the lock again, and name those you mean"})
	})
}

// tellHolders adds the lock's holders, at most maxHolders, and the number of waiters to an error; the monitor is held.
func (m *Manager) tellHolders(q *queues.Queue, e *locks.Error) *locks.Error {
	e.QueueLength = q.Contenders.Waiting()
	for c := range m.answers.holdersOf(q) {
		if len(e.Holders) == maxHolders {
			break
		}
		e.Holders = append(e.Holders, m.answers.contender(q, c, 0))
	}
	return e
}

// rememberTermination remembers why a lease of another gateway was ended.
func (m *Manager) rememberTermination(t *target, why reports.Cause) {
	at, c := t.at, t.at.Contender
	if !c.Ours || c.LeaseID == "" || m.leases.lease(c.LeaseID) != nil {
		return
	}
	p := postmortem.End{Why: postmortem.CauseOf(why.Reason), Words: why.Words, By: why.By, Several: c.Groups > 1, At: m.clock.Now().Boot(), NS: at.Queue.Namespace.Name, Lock: at.Queue.Name(), Mode: c.Mode}
	if m.replica.Observed(c).Holds {
		p.FencingToken = m.fleet.tokenOf(at.Queue, c)
	}
	if i := at.Queue.Node(c.Name); i != nil {
		p.TTL = i.Record.LeaseTTL()
	}
	if t.close == nil {
		p.Terminated = true
		m.history.Add(c.LeaseID, p)
		m.reports.Tell(reports.Notice{Kind: reports.Confirmed, Lease: c.LeaseID, At: at, Why: why})
		return
	}
	p.Stays = true
	m.history.Add(c.LeaseID, p)
	m.reports.Tell(reports.Notice{Kind: reports.Ended, Lease: c.LeaseID, At: at})
	for _, part := range t.parts {
		m.reports.EndStaying(part.Queue, part.Contender, p)
	}
}
