package waitfor

import (
	"cmp"
	"slices"
)

// Cycle is a minimal cycle: Edges[i] leads from its party i to the next one, the last to the first. The first party is the
// lowest.
type Cycle struct {
	Edges   []Edge
	Certain bool
}

// Limits bound a search for cycles.
type Limits struct {
	Cycles int // that are returned
	Edges  int // between the parties of all cycles
	Steps  int // for each set of parties that reach each other
}

// DefaultLimits find every cycle of some hundred parties that lock as programs do.
var DefaultLimits = Limits{Cycles: 100, Edges: 200_000, Steps: 20_000}

// Cycles are the minimal cycles, those of one party first, then by their parties. more: there may be others. Each set of
// parties that reach each other has at least one cycle in it, as long as the limits on cycles and edges are not reached.
//
// Certain ones are those that are left when all has gone that can go on. Possible ones have a party that can.
func (g *Graph) Cycles(stuck []bool, most Limits) (cycles []Cycle, more bool) {
	left, entries := g.only(stuck)
	cycles, more = left.cycles(most, func([]int) bool { return true })
	for i := range cycles {
		cycles[i].Certain = true
		original(cycles[i].Edges, entries)
	}
	most.Cycles -= len(cycles)
	possible, others := g.cycles(most, func(parties []int) bool { return slices.ContainsFunc(parties, func(p int) bool { return !stuck[p] }) })
	cycles = append(cycles, possible...)
	slices.SortFunc(cycles, compareCycles)
	return cycles, more || others
}

// cycles are those whose parties are as asked.
func (g *Graph) cycles(most Limits, are func(parties []int) bool) (cycles []Cycle, more bool) {
	d, more := g.digraph(most.Edges)
	for _, p := range d.parties {
		if e, own := d.edge[[2]int{p, p}]; own && are([]int{p}) {
			if len(cycles) >= most.Cycles {
				return cycles, true
			}
			cycles = append(cycles, Cycle{Edges: []Edge{e}})
		}
	}
	for _, set := range d.components(d.parties) {
		if !are(set) {
			continue
		}
		s := search{d: d, are: are, most: most.Cycles - len(cycles), steps: most.Steps}
		s.within(set)
		if shortest := d.shortest(set); len(s.found) == 0 && s.over && s.most > 0 && are(shortest) {
			s.found = [][]int{shortest}
		}
		more = more || s.over
		for _, parties := range s.found {
			cycles = append(cycles, canonical(d.edgesOf(append(slices.Clone(parties), parties[0]))))
		}
	}
	return cycles, more
}

// only is the graph without the contenders of other parties, and by queue and entry the index of the entry in this graph.
func (g *Graph) only(parties []bool) (left *Graph, entries [][]int) {
	left = &Graph{Leases: g.Leases, Queues: make([][]Entry, len(g.Queues)), Parties: g.Parties, looked: g.looked}
	entries = make([][]int, len(g.Queues))
	for q := range g.Queues {
		for i, e := range g.Queues[q] {
			if parties[g.Leases[e.Lease].Party] {
				left.Queues[q], entries[q] = append(left.Queues[q], e), append(entries[q], i)
			}
		}
	}
	return left, entries
}

// original gives edges the indices that the entries have in the graph from which some were left out.
func original(edges []Edge, entries [][]int) {
	for i := range edges {
		e := &edges[i]
		e.Waiter, e.Blocker = entries[e.Queue][e.Waiter], entries[e.Queue][e.Blocker]
	}
}

func compareCycles(a, b Cycle) int {
	return cmp.Or(cmp.Compare(min(len(a.Edges), 2), min(len(b.Edges), 2)),
		slices.CompareFunc(a.Edges, b.Edges, func(a, b Edge) int { return cmp.Compare(a.From, b.From) }))
}

// Rest is what is left when all has gone that can go on.
type Rest struct {
	g       *Graph
	entries [][]int // by queue and entry of g: the index in the whole graph
	d       *digraph
	most    Limits
}

// Rest prepares for Through.
func (g *Graph) Rest(stuck []bool, most Limits) *Rest {
	left, entries := g.only(stuck)
	d, _ := left.digraph(most.Edges)
	return &Rest{left, entries, d, most}
}

// Through is a shortest certain cycle in which that lease waits; false when there is none.
func (r *Rest) Through(lease int) (Cycle, bool) {
	from := r.g.Leases[lease].Party
	if _, in := slices.BinarySearch(r.d.parties, from); !in {
		return Cycle{}, false
	}
	var first []Edge
	for q, entries := range r.g.Queues {
		if slices.ContainsFunc(entries, func(e Entry) bool { return e.Lease == lease }) {
			r.g.queueEdges(q, func(i int) bool { return entries[i].Lease == lease }, func(e Edge) bool {
				first = append(first, e)
				return len(first) < r.most.Edges
			})
		}
	}
	slices.SortFunc(first, r.g.compare)
	var best []Edge
	seen := map[int]bool{}
	for _, e := range first {
		if e.To == from {
			best = []Edge{e}
			break
		}
		if seen[e.To] {
			continue
		}
		seen[e.To] = true
		if way := r.d.path(e.To, from, r.d.parties); way != nil && (best == nil || len(way) < len(best)) {
			best = append([]Edge{e}, r.d.edgesOf(way)...)
		}
	}
	if best == nil {
		return Cycle{}, false
	}
	c := canonical(best)
	c.Certain = true
	original(c.Edges, r.entries)
	return c, true
}

// canonical turns a cycle so that its lowest party comes first.
func canonical(edges []Edge) Cycle {
	first := 0
	for i, e := range edges {
		if e.From < edges[first].From {
			first = i
		}
	}
	return Cycle{Edges: slices.Concat(edges[first:], edges[:first])}
}

// components are the sets of more than one party, out of the given ones, that reach each other within them. Each is ascending,
// and they are in the order of their first parties.
func (d *digraph) components(parties []int) (sets [][]int) {
	index := make(map[int]int, len(parties))
	for i, p := range parties {
		index[p] = i
	}
	of := tarjan(len(parties), func(v int, yield func(int)) {
		for _, to := range d.out[parties[v]] {
			if w, in := index[to]; in {
				yield(w)
			}
		}
	})
	byID := map[int][]int{}
	for i, c := range of {
		byID[c] = append(byID[c], parties[i])
	}
	for _, set := range byID {
		if len(set) > 1 {
			sets = append(sets, set)
		}
	}
	slices.SortFunc(sets, func(a, b []int) int { return cmp.Compare(a[0], b[0]) })
	return sets
}

// path is a shortest way from a party to another one within parties, both included; nil: there is none.
func (d *digraph) path(from, to int, within []int) []int {
	before := map[int]int{from: from}
	for line := []int{from}; len(line) > 0; line = line[1:] {
		if line[0] == to {
			way := []int{to}
			for p := to; p != from; {
				p = before[p]
				way = append(way, p)
			}
			slices.Reverse(way)
			return way
		}
		for _, next := range d.out[line[0]] {
			if _, seen := before[next]; seen {
				continue
			}
			if _, in := slices.BinarySearch(within, next); in {
				before[next] = line[0]
				line = append(line, next)
			}
		}
	}
	return nil
}

// shortest is a shortest cycle through the first party of a set that reaches each other.
func (d *digraph) shortest(set []int) (best []int) {
	for _, next := range d.out[set[0]] {
		if next == set[0] {
			continue
		}
		if way := d.path(next, set[0], set); way != nil && (best == nil || len(way) < len(best)) {
			best = way
		}
	}
	return best
}

// edgesOf are the edges along a way.
func (d *digraph) edgesOf(way []int) (edges []Edge) {
	for i := 1; i < len(way); i++ {
		edges = append(edges, d.edge[[2]int{way[i-1], way[i]}])
	}
	return edges
}

// search finds minimal cycles of two parties or more.
type search struct {
	d     *digraph
	are   func(parties []int) bool // which cycles count
	most  int
	steps int
	over  bool // there may be more than was found
	found [][]int
}

// within searches a set of parties that reach each other: first all cycles through the party with the most neighbours, then,
// without it, what is left. So each cycle is found once.
func (s *search) within(set []int) {
	for work := [][]int{set}; len(work) > 0 && !s.over; work = work[1:] {
		set := work[0]
		in := make(map[int]int, len(set))
		for _, p := range set {
			for _, to := range s.d.out[p] {
				in[to]++
			}
		}
		start := slices.MaxFunc(set, func(a, b int) int {
			return cmp.Or(cmp.Compare(min(len(s.d.out[a]), in[a]), min(len(s.d.out[b]), in[b])), cmp.Compare(in[a], in[b]), cmp.Compare(b, a))
		})
		s.extend(set, []int{start})
		rest := slices.DeleteFunc(slices.Clone(set), func(p int) bool { return p == start })
		work = append(work, s.d.components(rest)...)
	}
}

// extend follows a path from its last party on.
func (s *search) extend(set, path []int) {
	last := path[len(path)-1]
	for _, next := range s.d.out[last] {
		if s.steps--; s.steps < 0 {
			s.over = true
		}
		if s.over {
			return
		}
		if _, in := slices.BinarySearch(set, next); !in || slices.Contains(path, next) || !s.minimal(path, next) {
			continue
		}
		longer := append(slices.Clone(path), next)
		if !s.has(next, path[0]) {
			s.extend(set, longer)
			continue
		}
		if !s.are(longer) {
			continue
		}
		if len(s.found) >= s.most {
			s.over = true
			return
		}
		s.found = append(s.found, longer)
	}
}

// minimal reports whether a cycle may have the path and the party behind it: no other edge between them makes it shorter.
func (s *search) minimal(path []int, next int) bool {
	for i, p := range path {
		if i < len(path)-1 && s.has(p, next) || i > 0 && s.has(next, p) {
			return false
		}
	}
	return true
}

func (s *search) has(from, to int) bool {
	_, there := s.d.edge[[2]int{from, to}]
	return there
}
