package waitfor

import (
	"cmp"
	"slices"
)

// digraph has the parties that reach each other, or themselves, and an edge for each pair of neighbours.
type digraph struct {
	parties []int // ascending
	out     map[int][]int
	edge    map[[2]int]Edge // the first one in the order of Graph.compare
}

// digraph has at most so many edges. more: it has fewer than there are. Then it is as if the edges had been taken one by one,
// in the order of Graph.Edges, up to the first one too many.
func (g *Graph) digraph(most int) (d *digraph, more bool) {
	component := g.sparseComponents()
	p := newPairing(g, component, most)
	for q := range g.Queues {
		over := p.queue(q, len(g.Queues[q]))
		if over < 0 {
			continue
		}
		// Edges of waiters behind that one may have been taken. So it begins anew, now that it is known where to end.
		more = true
		p = newPairing(g, component, most)
		for before := range q {
			p.queue(before, len(g.Queues[before]))
		}
		p.queue(q, over)
		g.queueEdges(q, func(i int) bool { return i == over }, func(e Edge) bool { return component[e.From] != component[e.To] || p.add(e) })
		break
	}
	for party, c := range component {
		if c >= 0 {
			p.d.parties = append(p.d.parties, party)
			slices.Sort(p.d.out[party])
		}
	}
	return p.d, more
}

// pairing finds the best edge of each pair of neighbours. One owner may have thousands of contenders in a queue, and each of
// its waiters an edge to each holder. So it does not look at all edges. From a party's waiters it leads to each party once: to
// those that hold, and to those in each run. The youngest of these waiters stands for all, for compare puts it first.
//
// A party and itself are another matter. An edge leads to another lease only, so the youngest waiter may have none where an
// older one has. There each waiter is looked at.
type pairing struct {
	g         *Graph
	component []int // by party
	most      int
	d         *digraph
	slots     []int    // by party: where it is in the crowd that is being made
	behind    []behind // by party: of the queue that is looked at
}

// behind is what is known of a party's waiters behind holders.
type behind struct {
	youngest int   // entry of the youngest one of those looked at; -1: none
	rest     crowd // that hold, of its component, and to which no edge leads yet
	self     member
}

// member is a party in a crowd.
type member struct {
	party, component int
	first, other     int // its first entry, and its first one of another lease than that one's; -1: none
}

// crowd has each party of a list of entries once. They are in the order of their components, then of their first entries.
type crowd []member

var none = member{first: -1, other: -1}

func newPairing(g *Graph, component []int, most int) *pairing {
	return &pairing{g: g, component: component, most: most, d: &digraph{out: map[int][]int{}, edge: map[[2]int]Edge{}},
		slots: make([]int, g.Parties), behind: make([]behind, g.Parties)}
}

// add takes an edge unless there is a better one. It is false when the edge is one too many.
func (p *pairing) add(e Edge) bool {
	d, key := p.d, [2]int{e.From, e.To}
	known, there := d.edge[key]
	switch {
	case !there && len(d.edge) == p.most:
		return false
	case !there:
		d.out[e.From] = append(d.out[e.From], e.To)
	case p.g.compare(known, e) <= 0:
		return true
	}
	d.edge[key] = e
	return true
}

// crowd is made of entries of a queue that are in its order.
func (p *pairing) crowd(q int, list []int) (c crowd) {
	entries := p.g.Queues[q]
	for _, i := range list {
		party := p.g.party(q, i)
		if p.component[party] < 0 {
			continue
		}
		if at := p.slots[party]; at >= len(c) || c[at].party != party {
			p.slots[party] = len(c)
			c = append(c, member{party, p.component[party], i, -1})
		} else if m := &c[at]; m.other < 0 && entries[m.first].Lease != entries[i].Lease {
			m.other = i
		}
	}
	slices.SortStableFunc(c, func(a, b member) int { return cmp.Compare(a.component, b.component) })
	return c
}

// of are those of a component.
func (c crowd) of(component int) crowd {
	find := func(component int) int {
		at, _ := slices.BinarySearchFunc(c, component, func(m member, component int) int { return cmp.Compare(m.component, component) })
		return at
	}
	return c[find(component):find(component+1)]
}

// blocker is the first entry of a member that is not of that lease; -1: none.
func (m *member) blocker(entries []Entry, lease int) int {
	if m.first >= 0 && entries[m.first].Lease == lease {
		return m.other
	}
	return m.first
}

// group are a party's waiters behind one run.
type group struct {
	youngest int
	seen     bool
	self     member
}

// queue takes the edges of a queue's waiters before that entry. It returns the first waiter that has an edge too many, or -1.
func (p *pairing) queue(q, until int) (over int) {
	g, entries := p.g, p.g.Queues[q]
	l := g.layout(q)
	var waiters []int
	for _, i := range l.waiters {
		if party := g.party(q, i); i < until && p.component[party] >= 0 {
			waiters = append(waiters, i)
			p.behind[party].youngest = -1
		}
	}
	if len(waiters) == 0 {
		return -1
	}
	held := p.crowd(q, l.holders)
	born := func(i int) int64 { return g.Leases[entries[i].Lease].Born }
	youngest := make([]int, len(entries)) // by waiter: of its party's, from it on, that wait for holders
	groups := map[[2]int]*group{}         // by party and the run's last waiter; not of runs of one
	for _, i := range slices.Backward(waiters) {
		party, place := g.party(q, i), &l.places[i]
		if place.blockedByHold {
			b := &p.behind[party]
			if b.youngest < 0 {
				b.rest, b.self = held.of(p.component[party]), none
			}
			if b.youngest < 0 || born(i) >= born(b.youngest) {
				b.youngest = i
			}
			youngest[i] = b.youngest
		}
		if a := place.ahead; a >= 0 && l.places[a].front != a {
			key := [2]int{party, a}
			if known := groups[key]; known == nil {
				groups[key] = &group{youngest: i, self: none}
			} else if born(i) >= born(known.youngest) {
				known.youngest = i
			}
		}
	}
	add := func(waiter, blocker int, holds bool) bool {
		g.look()
		return p.add(g.edge(q, l, waiter, blocker, holds))
	}
	crowds := map[int]crowd{} // by the run's last waiter
	for _, i := range waiters {
		party, lease, place := g.party(q, i), entries[i].Lease, &l.places[i]
		if place.blockedByHold {
			b := &p.behind[party]
			for ; len(b.rest) > 0 && b.rest[0].first < i; b.rest = b.rest[1:] {
				if m := b.rest[0]; m.party == party {
					b.self = m
				} else if !add(youngest[i], m.first, true) {
					return i
				}
			}
			if h := b.self.blocker(entries, lease); h >= 0 && h < i && !add(i, h, true) {
				return i
			}
		}
		a := place.ahead
		if a < 0 {
			continue
		}
		one := groups[[2]int{party, a}]
		if one == nil {
			if p.component[g.party(q, a)] == p.component[party] && entries[a].Lease != lease && !add(i, a, false) {
				return i
			}
			continue
		}
		if !one.seen {
			one.seen = true
			run, there := crowds[a]
			if !there {
				run = p.crowd(q, l.runTo(a))
				crowds[a] = run
			}
			for _, m := range run.of(p.component[party]) {
				if m.party == party {
					one.self = m
				} else if !add(one.youngest, m.first, false) {
					return i
				}
			}
		}
		if b := one.self.blocker(entries, lease); b >= 0 && !add(i, b, false) {
			return i
		}
	}
	return -1
}
