package manager

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/waitfor"
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
	case m.parties.showing <- struct{}{}:
		defer func() { <-m.parties.showing }()
	case <-ctx.Done():
		return locks.WaitGraph{}, cancelled(ctx)
	}
	s := m.scanRead(ctx, func(q *queues.Queue) bool { return readable(q, req.Principal.Rules) }, nil)
	if ctx.Err() != nil {
		return locks.WaitGraph{}, cancelled(ctx)
	}
	return newWaits(s).Answer(&req), nil
}

// Waits looks once at the wait-for graph, in the locks that the principal may read, from memory. What it says follows from these
// locks alone. Contenders of other gateways whose owners are not known yet are parties of their own; the look for deadlocks has
// them read within a second or two.
func (m *Manager) Waits(_ context.Context, p locks.Principal) (locks.Waits, error) {
	if err := locked(m, func() error { return known(&m.stream, m.replica, "") }); err != nil {
		return nil, err
	}
	return newWaits(m.scanWaits(func(q *queues.Queue) bool { return readable(q, p.Rules) }, nil)), nil
}

// waits is a scan with what follows from it. Nothing changes it any more.
type waits struct {
	*waitScan
	stuck  []bool // by party
	cycles []waitfor.Cycle
	more   bool // there may be other cycles
	// index finds the queues, and each party's contenders; made by the first call of Ahead.
	index func() *waitIndex
}

func newWaits(s *waitScan) *waits {
	w := &waits{waitScan: s, stuck: s.graph.Stuck(), index: sync.OnceValue(s.index)}
	w.cycles, w.more = s.graph.Cycles(w.stuck, waitfor.DefaultLimits)
	return w
}

// Answer is the part of the graph that a request asks for.
func (s *waits) Answer(req *locks.GraphRequest) (v locks.WaitGraph) {
	v.Truncated, v.Unread = s.more, len(s.unread)
	asked := func(e waitfor.Edge) bool {
		q := &s.queues[e.Queue]
		return (req.NS == "" || q.ns == req.NS) && (req.Lock == "" || q.lock == req.Lock) &&
			(req.Owner == "" || s.is(e.From, req.Owner) || s.is(e.To, req.Owner))
	}
	shown := make([]bool, s.graph.Parties)
	seen := map[waitfor.Edge]bool{}
	show := func(e waitfor.Edge) bool {
		switch {
		case seen[e]:
			return true
		case len(v.Waits) == req.Limit:
			v.Truncated = true
			return false
		}
		seen[e], shown[e.From], shown[e.To] = true, true, true
		v.Waits = append(v.Waits, s.wait(e))
		return true
	}
	room := req.Limit // of waits in cycles: these may share some
	for i := range s.cycles {
		c := &s.cycles[i]
		if !slices.ContainsFunc(c.Edges, asked) {
			continue
		}
		if room -= len(c.Edges); room < 0 || slices.ContainsFunc(c.Edges, func(e waitfor.Edge) bool { return !show(e) }) {
			v.Truncated = true
			break
		}
		v.Cycles = append(v.Cycles, s.cycle(c))
	}
	if !req.Cycles {
		for e := range s.graph.Edges {
			if asked(e) && !show(e) {
				break
			}
		}
	}
	s.finish(&v, shown)
	return v
}

// finish adds the parties that are shown, and puts all in order.
func (s *waits) finish(v *locks.WaitGraph, shown []bool) {
	for p, is := range shown {
		if is {
			party := s.parties[p]
			party.Stuck = s.stuck[p]
			v.Parties = append(v.Parties, party)
		}
	}
	slices.SortFunc(v.Parties, func(a, b locks.Party) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(v.Waits, func(a, b locks.GraphWait) int {
		return cmp.Or(cmp.Compare(a.NS, b.NS), cmp.Compare(a.Lock, b.Lock), cmp.Compare(a.Waiter.Position, b.Waiter.Position), cmp.Compare(a.Waiter.Znode, b.Waiter.Znode),
			cmp.Compare(a.Blocker.Znode, b.Blocker.Znode))
	})
	slices.SortFunc(v.Cycles, compareShown)
}

func compareShown(a, b locks.Cycle) int {
	return cmp.Or(-cmp.Compare(certainty(a), certainty(b)), cmp.Compare(len(a.Waits), len(b.Waits)), cmp.Compare(a.Waits[0].From, b.Waits[0].From), cmp.Compare(a.ID, b.ID))
}

// waitIndex finds queues and contenders of a scan.
type waitIndex struct {
	queues map[[2]string]int // by namespace and lock
	at     [][]waitSpot      // by party, in the order of the queues
}

type waitSpot struct{ queue, entry int }

func (s *waitScan) index() *waitIndex {
	x := &waitIndex{queues: make(map[[2]string]int, len(s.queues)), at: make([][]waitSpot, s.graph.Parties)}
	for n := range s.queues {
		x.queues[[2]string{s.queues[n].ns, s.queues[n].lock}] = n
		for i, e := range s.graph.Queues[n] {
			party := s.graph.Leases[e.Lease].Party
			x.at[party] = append(x.at[party], waitSpot{n, i})
		}
	}
	return x
}

// Ahead is what a contender waits for, and what those wait for that block it.
func (s *waits) Ahead(ns, lock, contender string, most int) (v locks.WaitGraph) {
	v.Unread = len(s.unread)
	x := s.index()
	n, there := x.queues[[2]string{ns, lock}]
	if !there {
		return v
	}
	at := slices.IndexFunc(s.graph.Queues[n], func(e waitfor.Entry) bool {
		return e.Contender.Name == contender || contender != "" && string(s.leases[e.Lease].id) == contender
	})
	if at < 0 {
		return v
	}
	first := s.graph.Leases[s.graph.Queues[n][at].Lease].Party
	v.Of = s.parties[first].ID
	shown, next := make([]bool, s.graph.Parties), []int{first}
	reach := func(party int) {
		if !shown[party] {
			shown[party] = true
			next = append(next, party)
		}
	}
	shown[first] = true
	spots := []waitSpot{{n, at}}
	if !s.follow(spots, most, &v, reach) { // it holds: what its party waits for
		next = next[:1]
	} else {
		next = next[1:]
	}
	for len(next) > 0 && !v.Truncated {
		party := next[0]
		next = next[1:]
		s.follow(x.at[party], most, &v, reach)
	}
	s.finish(&v, shown)
	return v
}

// follow adds the waits of contenders, and calls reach for the parties that block them. It reports whether there are some.
func (s *waits) follow(spots []waitSpot, most int, v *locks.WaitGraph, reach func(party int)) (some bool) {
	for _, spot := range spots {
		held := false
		s.graph.EdgesOf(spot.queue, func(entry int) bool { return entry == spot.entry }, func(e waitfor.Edge) bool {
			if held = held || e.Holds; held && !e.Holds {
				return false
			}
			if len(v.Waits) == most {
				v.Truncated = true
				return false
			}
			some = true
			v.Waits = append(v.Waits, s.wait(e))
			reach(e.To)
			return true
		})
	}
	return some
}

func certainty(c locks.Cycle) int {
	if c.Certain {
		return 1
	}
	return 0
}

func (s *waitScan) is(party int, owner string) bool { return s.parties[party].Owner == owner }
