package manager

import (
	"context"
	"math"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/parties"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk/wire"
)

// What is asked of the wait-for graph: parts of it by requests, and by the pages of viewers what one contender waits for.

// Graph shows the wait-for graph, in the locks that the principal may read. What it says follows from these locks alone.
func (m *Manager) Graph(ctx context.Context, req locks.GraphRequest) (locks.WaitGraph, error) {
	if err := req.Check(); err != nil {
		return locks.WaitGraph{}, err
	}
	if req.Lock != "" {
		if err := req.Principal.Check(access.Read, req.NS, req.Lock); err != nil {
			return locks.WaitGraph{}, err
		}
	} else if req.NS != "" {
		if err := req.Principal.CheckIn(access.Read, req.NS); err != nil {
			return locks.WaitGraph{}, err
		}
	}
	if err := locked(m, func() error { return known(&m.stream, m.replica, req.NS) }); err != nil {
		return locks.WaitGraph{}, err
	}
	select {
	case m.deadlocks.showing <- struct{}{}:
		defer func() { <-m.deadlocks.showing }()
	case <-ctx.Done():
		return locks.WaitGraph{}, cancelled(ctx)
	}
	s := m.deadlocks.scanRead(m, ctx, func(q *queues.Queue) bool { return readable(q, req.Principal.Rules) }, nil)
	if ctx.Err() != nil {
		return locks.WaitGraph{}, cancelled(ctx)
	}
	return parties.NewWaits(s).Answer(&req), nil
}

// Waits looks once at the wait-for graph, in the locks that the principal may read, from memory. What it says follows from these
// locks alone. Contenders of other gateways whose owners are not known yet are parties of their own; the look for deadlocks has
// them read within a second or two.
func (m *Manager) Waits(_ context.Context, p locks.Principal) (locks.Waits, error) {
	if err := locked(m, func() error { return known(&m.stream, m.replica, "") }); err != nil {
		return nil, err
	}
	return parties.NewWaits(m.deadlocks.scan(m, func(q *queues.Queue) bool { return readable(q, p.Rules) }, nil)), nil
}

// What stands in the queues that the replica has is copied in chunks under the monitor (parties.Scan), and looked at without it.

// Bounds of what a look at the graph reads of contenders. The owners of others are not known until a later look.
const (
	maxGraphReads  = 1024
	maxGraphRounds = 4
)

// graphChunk bounds the contenders that are copied under one hold of the monitor, but for the last queue, which is copied whole.
const graphChunk = 1024

// scan copies the contended queues that may be looked at, and those of wants. The monitor is not held: it is taken for one chunk after the
// other. What is in one chunk was so at one moment.
func (d *deadlocks) scan(m *Manager, may func(*queues.Queue) bool, wants []locks.Want) *parties.Scan {
	s := parties.NewScan()
	var all []*queues.Queue
	also := map[*queues.Queue]bool{}
	m.do(func() {
		all = m.replica.Contended()
		for i := range wants {
			if q := m.replica.FindWant(&wants[i]); q != nil && !also[q] {
				also[q] = true
				if q.Contenders.Len() < 2 {
					all = append(all, q)
				}
			}
		}
	})
	for len(all) > 0 {
		m.do(func() {
			for n := 0; len(all) > 0 && n < graphChunk; all = all[1:] {
				q := all[0]
				many := q.Contenders.Len()
				if n += max(many, 1); many < 2 && !also[q] || !q.Contenders.Ordered() || q.NoLock() || !may(q) {
					continue
				}
				s.Copy(q, m.answers.standing)
			}
		})
	}
	s.Link()
	return s
}

// standing is what is known of a contender; read: enough.
func (a *answers) standing(q *queues.Queue, c *recipe.Contender) (s parties.Standing, read bool) {
	if l := a.leases.leaseOf(q, c); l != nil {
		s = parties.Standing{Party: parties.OfOwner(l.owner, l.id()), Born: l.czxid, Fails: l.known().failsOnDeadlock, Own: true}
		if s.Born == 0 {
			s.Born = math.MaxInt64 - 1 // its create's reply is under way
		}
		if l.Ending() || l.Ended() || l.abandoned || a.delays.byID[l.id()] != nil {
			s.Party = parties.OfLease(l.owner, l.id()) // it goes by itself
		}
		return s, true // an adopted lease whose record has not been read is a party of its own until it has
	}
	if c.Ours && a.delays.byID[c.LeaseID] != nil {
		return parties.Standing{Party: parties.OfLease("", c.LeaseID)}, true
	}
	return a.parties.Find(q, c)
}

// read has the contenders read, some of them, and calls done, with the monitor held, when all have been.
func (d *deadlocks) read(m *Manager, unread []queues.Location, done func()) {
	unread = unread[:min(len(unread), maxGraphReads)]
	left := len(unread)
	if left == 0 {
		done()
	}
	for _, at := range unread {
		m.port.Read(at.Path(), 0, func(data []byte, stat wire.Stat, err error) {
			if c := at.Contender; err == nil && at.Queue.Contenders.Get(c.Name) == c {
				d.parties.Learn(at.Queue, c, data, stat)
				at.Queue.Mark()
			}
			if left--; left == 0 {
				done()
			}
		})
	}
}

// scanRead is scan, again after what was not known has been read, for at most describeWithin.
func (d *deadlocks) scanRead(m *Manager, ctx context.Context, may func(*queues.Queue) bool, wants []locks.Want) *parties.Scan {
	ctx, cancel := context.WithTimeout(ctx, describeWithin)
	defer cancel()
	for round := 1; ; round++ {
		s := d.scan(m, may, wants)
		if len(s.Unread) == 0 || round == maxGraphRounds || ctx.Err() != nil {
			return s
		}
		answered := make(chan struct{})
		m.do(func() { d.read(m, s.Unread, func() { m.wake(answered) }) })
		select {
		case <-answered:
		case <-ctx.Done():
		}
	}
}
