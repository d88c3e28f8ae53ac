package waitfor

import (
	"cmp"

	"lockkeeper/internal/locks/recipe"
)

// Graph is what to look at. Queues must be ordered (recipe.Queue.Ordered).
type Graph struct {
	Leases  []Lease
	Queues  [][]Entry // each lock's contenders in their order
	Parties int       // they are numbered from 0

	looked *int // of tests: counts the edges that are looked at
}

// look counts one edge. A test sees by that what a search costs, whatever the machine does besides.
func (g *Graph) look() {
	if g.looked != nil {
		*g.looked++
	}
}

// Lease is a lease, or another program's contender.
type Lease struct {
	Party int
	Born  int64 // grows with the time at which the lease's contenders were created
}

// Entry is a contender in a queue.
type Entry struct {
	Contender *recipe.Contender
	Lease     int // index in Graph.Leases
}

// Edge says that a contender waits for another one.
type Edge struct {
	From, To        int // parties
	Queue           int
	Waiter, Blocker int  // indices of entries in the queue
	Position        int  // of the waiter among the waiters of the queue, from 1
	Ahead           int  // the same of the blocker, 0 for one that holds
	Holds           bool // the blocker's contender holds: it does not only stand ahead
	Any             bool // the waiter wants permits, and the end of another holder may suffice
}

// place is a contender of a queue as the walk from its front has found it.
type place struct {
	blocked       bool
	permitsBlock  bool // only where it wants permits: those before it leave too few
	ahead         int  // the last waiter before it that it conflicts with, -1 for none
	waiters       int  // number of waiters before it
	front         int  // the first of the waiters beside each other of which it is one: where a run ends
	blockedByHold bool // it conflicts with the holders before it
}

// layout is what Edges and the components need of a queue.
type layout struct {
	g       *Graph
	places  []place
	holders []int // entries that hold
	waiters []int // entries that wait
}

func (g *Graph) layout(q int) *layout {
	entries := g.Queues[q]
	l := &layout{g: g, places: make([]place, len(entries))}
	var ahead recipe.Ahead
	var permits int64 // of all before
	last, lastNonShared, lastNonPermit := -1, -1, -1
	for i, e := range entries {
		c := e.Contender
		p := &l.places[i]
		p.ahead, p.waiters = -1, len(l.waiters)
		p.blocked = ahead.Next(c, 0) != nil
		p.permitsBlock = c.Mode == recipe.Permit && c.Ours && permits+int64(c.Permits) > int64(c.Limit)
		if c.Mode == recipe.Permit {
			permits += int64(c.Permits)
		}
		if !p.blocked {
			l.holders = append(l.holders, i)
			continue
		}
		switch {
		case c.Mode == recipe.Shared:
			p.ahead = lastNonShared
		case c.Mode == recipe.Permit && !p.permitsBlock:
			p.ahead = lastNonPermit
		default:
			p.ahead = last
		}
		if len(l.holders) > 0 {
			p.blockedByHold = conflict(c, p.permitsBlock, entries[l.holders[0]].Contender)
		}
		p.front = i
		if b := l.beside(entries, i); b >= 0 {
			p.front = l.places[b].front
		}
		l.waiters = append(l.waiters, i)
		last = i
		if c.Mode != recipe.Shared {
			lastNonShared = i
		}
		if c.Mode != recipe.Permit {
			lastNonPermit = i
		}
	}
	return l
}

// conflict reports whether a contender cannot hold because of one before it.
func conflict(c *recipe.Contender, permitsBlock bool, before *recipe.Contender) bool {
	switch c.Mode {
	case recipe.Shared:
		return before.Mode != recipe.Shared
	case recipe.Permit:
		return before.Mode != recipe.Permit || permitsBlock
	}
	return true
}

// run yields the waiters directly ahead of a waiter, the last one first: one that it conflicts with, and those before that one
// that do not keep it waiting, such as readers before a reader.
func (l *layout) run(entries []Entry, i int, yield func(int) bool) {
	for at := l.places[i].ahead; at >= 0; at = l.beside(entries, at) {
		if l.g.look(); !yield(at) {
			return
		}
	}
}

// runTo is the run that begins with that waiter, in the queue's order.
func (l *layout) runTo(at int) []int {
	return l.waiters[l.places[l.places[at].front].waiters : l.places[at].waiters+1]
}

// beside is the waiter before a waiter when that one does not wait for it, else -1.
func (l *layout) beside(entries []Entry, i int) int {
	w := l.places[i].waiters - 1
	if w < 0 || conflict(entries[i].Contender, l.places[i].permitsBlock, entries[l.waiters[w]].Contender) {
		return -1
	}
	return l.waiters[w]
}

// EdgesOf yields the edges of a queue from the waiters for which from says so, in the queue's order.
func (g *Graph) EdgesOf(q int, from func(entry int) bool, yield func(Edge) bool) {
	g.queueEdges(q, from, yield)
}

// queueEdges yields the edges of a queue from the waiters for which from says so, in the queue's order.
func (g *Graph) queueEdges(q int, from func(entry int) bool, yield func(Edge) bool) bool {
	entries := g.Queues[q]
	l := g.layout(q)
	for _, i := range l.waiters {
		if !from(i) {
			continue
		}
		p, more := &l.places[i], true
		edge := func(b int, holds bool) bool {
			if entries[b].Lease != entries[i].Lease { // the lease's own other contender goes with it
				more = yield(g.edge(q, l, i, b, holds))
			}
			return more
		}
		if p.blockedByHold {
			for _, h := range l.holders {
				if g.look(); h > i || !edge(h, true) {
					break
				}
			}
		}
		if more {
			l.run(entries, i, func(b int) bool { return edge(b, false) })
		}
		if !more {
			return false
		}
	}
	return true
}

// edge is the edge from a waiter to one that blocks it.
func (g *Graph) edge(q int, l *layout, waiter, blocker int, holds bool) Edge {
	entries, ahead := g.Queues[q], 0
	if !holds {
		ahead = l.places[blocker].waiters + 1
	}
	return Edge{From: g.party(q, waiter), To: g.party(q, blocker), Queue: q, Waiter: waiter, Blocker: blocker,
		Position: l.places[waiter].waiters + 1, Ahead: ahead, Holds: holds,
		Any: entries[waiter].Contender.Mode == recipe.Permit && entries[blocker].Contender.Mode == recipe.Permit}
}

// Edges yields the edges of all waiters, queue by queue.
func (g *Graph) Edges(yield func(Edge) bool) {
	for q := range g.Queues {
		if !g.queueEdges(q, func(int) bool { return true }, yield) {
			return
		}
	}
}

func (g *Graph) party(q, entry int) int { return g.Leases[g.Queues[q][entry].Lease].Party }

// WaiterOf is the lease that waits in an edge.
func (g *Graph) WaiterOf(e Edge) int { return g.Queues[e.Queue][e.Waiter].Lease }

// compare orders the edges between two parties: the youngest waiter first, then holders before others.
func (g *Graph) compare(a, b Edge) int {
	return cmp.Or(cmp.Compare(g.Leases[g.WaiterOf(b)].Born, g.Leases[g.WaiterOf(a)].Born), -compareBool(a.Holds, b.Holds),
		cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Waiter, b.Waiter), cmp.Compare(a.Blocker, b.Blocker))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
