package waitfor

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
)

// crowded makes a graph of few parties that have many contenders, of all ages, in few queues.
func crowded(r *rand.Rand) *builder {
	var b builder
	parties, locks := 1+r.IntN(6), 1+r.IntN(3)
	limit, usual, others := 1+r.Int32N(20), r.IntN(4), []int{0, 3, 10}[r.IntN(3)]
	for range 10 + r.IntN(60) {
		p, lock := byte('A'+r.IntN(parties)), r.IntN(locks)
		kind := (usual + lock) % 4 // a queue has contenders of one kind most of all
		if r.IntN(20) < others {
			kind = r.IntN(4)
		}
		for range 1 + r.IntN(4)*r.IntN(4) { // those of one kind often stand beside each other
			switch kind {
			case 0:
				b.shared(p, fmt.Sprint(lock))
			case 1:
				l := limit
				if r.IntN(8) == 0 {
					l += r.Int32N(200) // another limit may let it hold before waiters that are ahead of it
				}
				b.take(p, recipe.Permit, 1+r.Int32N(3), l, fmt.Sprint(lock))
			case 2:
				b.excl(p, fmt.Sprint(lock), fmt.Sprint(r.IntN(locks))) // of one lease, perhaps both in one queue
			default:
				b.excl(p, fmt.Sprint(lock))
			}
			if r.IntN(3) == 0 {
				p = byte('A' + r.IntN(parties))
			}
		}
	}
	ages := 1 + r.Int64N(int64(len(b.g.Leases)))
	for l := range b.g.Leases {
		if b.g.Leases[l].Born = r.Int64N(ages); r.IntN(10) == 0 {
			b.g.Leases[l].Born = 0
		}
	}
	for _, entries := range b.g.Queues {
		for _, e := range entries {
			e.Contender.Ours = r.IntN(20) > 0
		}
	}
	return &b
}

// merged has contenders of one party belong to one lease here and there, also such that hold and such that wait.
func (b *builder) merged(r *rand.Rand) *builder {
	for _, entries := range b.g.Queues {
		for i := range entries {
			if other := entries[r.IntN(len(entries))].Lease; b.g.Leases[other].Party == b.g.Leases[entries[i].Lease].Party && r.IntN(2) == 0 {
				entries[i].Lease = other
			}
		}
	}
	return b
}

// eachEdge is Graph.digraph as it would be if it looked at each edge, in the order of Graph.Edges.
func eachEdge(g *Graph, component []int, most int) (d *digraph, more bool) {
	d = &digraph{out: map[int][]int{}, edge: map[[2]int]Edge{}}
	for e := range g.Edges {
		if component[e.From] < 0 || component[e.From] != component[e.To] {
			continue
		}
		key := [2]int{e.From, e.To}
		known, there := d.edge[key]
		if !there && len(d.edge) == most {
			more = true
			break
		}
		if !there {
			d.out[e.From] = append(d.out[e.From], e.To)
		}
		if !there || g.compare(known, e) > 0 {
			d.edge[key] = e
		}
	}
	for p, c := range component {
		if c >= 0 {
			d.parties = append(d.parties, p)
			slices.Sort(d.out[p])
		}
	}
	return d, more
}

// waitsForItself are the parties with a contender behind another one of theirs, as each run says when it is walked.
func waitsForItself(g *Graph) []bool {
	self := make([]bool, g.Parties)
	for q, entries := range g.Queues {
		l := g.layout(q)
		for _, i := range l.waiters {
			p := g.party(q, i)
			if l.places[i].blockedByHold {
				self[p] = self[p] || slices.ContainsFunc(l.holders, func(h int) bool { return g.party(q, h) == p })
			}
			l.run(entries, i, func(b int) bool {
				self[p] = self[p] || g.party(q, b) == p
				return true
			})
		}
	}
	return self
}

// checkEdges compares what the search looks at with what it would be if it looked at each edge.
func checkEdges(t *testing.T, g *Graph) (pairs int) {
	t.Helper()
	component, self, alone := g.sparseComponents(), waitsForItself(g), map[int]int{}
	for _, c := range component {
		alone[c]++
	}
	for p, c := range component {
		assert.That(t, c < 0 && !self[p] || c >= 0 && (self[p] || alone[c] > 1), "party %d is in component %d, and waits for itself: %t", p, c, self[p])
	}
	all, _ := eachEdge(g, component, 1_000_000)
	for most := range len(all.edge) + 2 {
		want, wantMore := eachEdge(g, component, most)
		got, more := g.digraph(most)
		assert.That(t, more == wantMore, "at most %d edges: more %t, want %t", most, more, wantMore)
		assert.That(t, slices.Equal(got.parties, want.parties), "at most %d edges: parties %v, want %v", most, got.parties, want.parties)
		assert.That(t, maps.Equal(got.edge, want.edge), "at most %d edges: %v, want %v", most, got.edge, want.edge)
		assert.That(t, maps.EqualFunc(got.out, want.out, slices.Equal), "at most %d edges: neighbours %v, want %v", most, got.out, want.out)
	}
	return len(all.edge)
}

func TestManyContendersOfFewPartiesAreAsEachEdgeSays(t *testing.T) {
	t.Parallel()
	pairs, rounds := 0, *rounds/4 // each takes as long as many of few contenders
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 11))
		b := crowded(r)
		pairs += checkEdges(t, &b.g)
		left, _ := b.g.only(b.g.Stuck())
		checkEdges(t, left)
		if seed%10 == 0 {
			check(t, &b.g)
		}
		checkEdges(t, &b.merged(r).g)
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, b.text())
		}
	}
	assert.That(t, pairs > 4*rounds, "%d pairs of neighbours in %d graphs", pairs, rounds)
}

func FuzzCrowds(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		r := rand.New(rand.NewPCG(a, b))
		g := crowded(r)
		checkEdges(t, &g.g)
		checkEdges(t, &g.merged(r).g)
	})
}

func TestAWaiterDoesNotWaitForAHolderBehindIt(t *testing.T) {
	var b builder
	lease := b.take('A', recipe.Permit, 2, 4, "semaphore")
	waits := b.take('A', recipe.Permit, 3, 4, "semaphore")
	b.take('A', recipe.Permit, 1, 100, "semaphore") // holds by its limit
	b.g.Queues[0][waits].Lease = lease
	d, _ := b.g.digraph(10)
	assert.That(t, len(d.edge) == 0, "edges %v", d.edge)
	checkEdges(t, &b.g)
}

// own makes a lease one of a party of its own, as one without an owner is.
func (b *builder) own(lease int) {
	b.g.Leases[lease].Party = b.g.Parties
	b.g.Parties++
}

// shapes are what clients can make of n contenders so that there are n*n edges, or as many steps along runs.
var shapes = map[string]func(n int) *builder{
	"one owner waits for permits": func(n int) *builder {
		var b builder
		held := min(n/10, 1000)
		for range held + n {
			b.take('A', recipe.Permit, 1, int32(held), "semaphore")
		}
		return &b
	},
	"readers and writers of two owners": readersAndWriters,
	"readers and writers of two owners who wait for each other": func(n int) *builder {
		b := readersAndWriters(n)
		b.excl('B', "other")
		b.excl('A', "other")
		return b
	},
	"permits behind readers": func(n int) *builder {
		var b builder
		b.excl('A', "lock")
		for range n {
			b.own(b.shared('A', "lock"))
		}
		for range n {
			b.own(b.take('A', recipe.Permit, 1, 1_000_000, "lock"))
		}
		return &b
	},
	"permits behind readers, of two owners who wait for each other": func(n int) *builder {
		var b builder
		b.excl('C', "lock")
		for range n {
			b.shared('A', "lock")
		}
		for range n {
			b.take('B', recipe.Permit, 1, 1_000_000, "lock")
		}
		b.excl('B', "other")
		b.excl('A', "other")
		return &b
	},
	"one owner behind holders who wait for it": func(n int) *builder {
		return oneBehindMany(n, func(b *builder) { b.excl('A', "lock") })
	},
	"one owner behind waiters who wait for it": func(n int) *builder {
		return oneBehindMany(n, func(b *builder) { b.take('A', recipe.Permit, 1, 1_000_000, "lock") }, "lock")
	},
	"holders who go on, before waiters in cycles": func(n int) *builder {
		var b builder
		for range n {
			b.own(b.shared('A', "lock"))
		}
		for i := range n / 2 {
			b.own(b.excl('A', "lock", fmt.Sprint("a", i)))
			b.own(b.excl('A', "lock", fmt.Sprint("b", i)))
			last := len(b.g.Leases) - 1
			for at, lock := range []string{fmt.Sprint("b", i), fmt.Sprint("a", i)} {
				lease := b.excl('A', lock)
				b.g.Leases[lease].Party = b.g.Leases[last-1+at].Party
			}
		}
		return &b
	},
}

// oneBehindMany has one owner wait n times for n readers, who hold or wait, and they for it.
func oneBehindMany(n int, wait func(*builder), taken ...string) *builder {
	var b builder
	b.excl('A', "other")
	for _, lock := range taken {
		b.own(b.excl('A', lock))
	}
	for range n {
		b.own(b.shared('A', "lock"))
		b.g.Leases[b.shared('A', "other")].Party = b.g.Parties - 1
	}
	for range n {
		wait(&b)
	}
	return &b
}

func readersAndWriters(n int) *builder {
	var b builder
	for range n {
		b.shared('A', "lock")
	}
	for range n {
		b.excl('B', "lock")
	}
	return &b
}

// A client may have many contenders in one queue, and one owner's name for all. The edges are then the square of the
// contenders, and what is looked at must not be.
func TestTheWorkGrowsWithTheContenders(t *testing.T) {
	t.Parallel()
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{500, 1000, 2000} {
				g := &shape(n).g
				contenders, looked := 0, 0
				for _, entries := range g.Queues {
					contenders += len(entries)
				}
				g.looked = &looked
				g.Cycles(g.Stuck(), DefaultLimits)
				// It looks at each waiter, and at the run and the holders before it: of all that is stuck, and of all there is.
				assert.That(t, looked > 0 && looked <= 8*contenders, "%d contenders: %d edges were looked at", contenders, looked)
			}
		})
	}
}

// Behind the limit on edges it ends, and goes there twice: once to find the end.
func TestTheWorkIsBoundedByTheLimitOnEdges(t *testing.T) {
	t.Parallel()
	var b builder
	const n, most = 1000, 5000
	for range n {
		b.own(b.shared('A', "lock"))
	}
	for p := range n { // each reader also writes
		b.g.Leases[b.excl('A', "lock")].Party = p + 1
	}
	looked := 0
	b.g.looked = &looked
	d, more := b.g.digraph(most)
	assert.That(t, more && len(d.edge) == most, "%d edges, more %t", len(d.edge), more)
	assert.That(t, looked < 2*most+8*n, "%d edges were looked at", looked)
}

func BenchmarkCrowds(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		for _, n := range []int{2000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				g := &shapes[name](n).g
				stuck := g.Stuck()
				for b.Loop() {
					g.Cycles(stuck, DefaultLimits)
				}
			})
		}
	}
}
