package waitfor

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
)

var rounds = flag.Int("waitfor.rounds", 1000, "random graphs of the property tests")

// builder makes graphs: parties are letters.
type builder struct {
	g      Graph
	queues map[string]int
	number int32
}

// take puts a contender of a new lease behind the others of each lock.
func (b *builder) take(party byte, mode recipe.Mode, permits, limit int32, locks ...string) (lease int) {
	lease = len(b.g.Leases)
	b.g.Leases = append(b.g.Leases, Lease{Party: int(party - 'A'), Born: int64(lease + 1)})
	b.g.Parties = max(b.g.Parties, int(party-'A')+1)
	for _, lock := range locks {
		q, there := b.queues[lock]
		if !there {
			q = len(b.g.Queues)
			b.g.Queues = append(b.g.Queues, nil)
			if b.queues == nil {
				b.queues = map[string]int{}
			}
			b.queues[lock] = q
		}
		b.number++
		b.g.Queues[q] = append(b.g.Queues[q], Entry{Lease: lease, Contender: &recipe.Contender{Name: fmt.Sprintf("c-%010d", b.number), LeaseID: recipe.LeaseID(fmt.Sprintf("l%d", lease)),
			Number: b.number, Mode: mode, Permits: permits, Limit: limit, Ours: true, Member: 1, Members: 1}})
	}
	return lease
}

func (b *builder) excl(party byte, locks ...string) int {
	return b.take(party, recipe.Exclusive, 0, 0, locks...)
}

func (b *builder) shared(party byte, lock string) int {
	return b.take(party, recipe.Shared, 0, 0, lock)
}

// named are the cycles as text: certain ones end with an exclamation mark.
func (b *builder) named() (list []string) {
	cycles, _ := b.g.Cycles(b.g.Stuck(), DefaultLimits)
	for _, c := range cycles {
		s := ""
		for _, e := range c.Edges {
			s += string(rune('A' + e.From))
		}
		if c.Certain {
			s += "!"
		}
		list = append(list, s)
	}
	return list
}

func TestCyclesAreNamedAndClassified(t *testing.T) {
	for name, c := range map[string]struct {
		play func(b *builder)
		want []string
	}{
		"a queue is none":     {func(b *builder) { b.excl('A', "1"); b.excl('B', "1"); b.excl('C', "1") }, nil},
		"two locks crosswise": {func(b *builder) { b.excl('A', "1"); b.excl('B', "2"); b.excl('A', "2"); b.excl('B', "1") }, []string{"AB!"}},
		"three locks": {func(b *builder) {
			b.excl('A', "1")
			b.excl('B', "2")
			b.excl('C', "3")
			b.excl('A', "2")
			b.excl('B', "3")
			b.excl('C', "1")
		}, []string{"ABC!"}},
		"a party that waits for itself": {func(b *builder) { b.excl('A', "1"); b.excl('A', "1") }, []string{"A!"}},
		"two waits, of which one can be granted": {func(b *builder) {
			b.excl('A', "1")
			b.excl('B', "2")
			b.excl('A', "2")
			b.excl('B', "1")
			b.excl('C', "3")
			b.excl('A', "3")
		}, []string{"AB"}},
		"one of two permits is held by a party that waits for nothing": {func(b *builder) {
			b.take('A', recipe.Permit, 1, 2, "s")
			b.take('B', recipe.Permit, 1, 2, "s")
			b.excl('C', "1")
			b.take('C', recipe.Permit, 1, 2, "s")
			b.excl('A', "1")
		}, []string{"AC"}},
		"both permits are held by parties that wait for the waiter": {func(b *builder) {
			b.take('A', recipe.Permit, 1, 2, "s")
			b.take('B', recipe.Permit, 1, 2, "s")
			b.excl('C', "1")
			b.take('C', recipe.Permit, 1, 2, "s")
			b.excl('A', "1")
			b.excl('B', "1")
		}, []string{"AC!", "BC!"}},
		"one of several readers is enough": {func(b *builder) {
			b.shared('A', "1")
			b.shared('B', "1")
			b.excl('C', "2")
			b.excl('C', "1")
			b.excl('A', "2")
		}, []string{"AC!"}},
		"a waiter in between is not named": {func(b *builder) {
			b.excl('A', "1")
			b.excl('B', "2")
			b.excl('C', "1")
			b.excl('B', "1")
			b.excl('A', "2")
		}, []string{"AB!"}},
		"fairness: a reader behind a writer that waits": {func(b *builder) {
			b.shared('A', "1")
			b.excl('B', "2")
			b.excl('B', "1")   // a writer waits for the reader
			b.shared('C', "1") // a reader waits behind the writer
			b.excl('C', "3")
			b.excl('A', "2") // A waits for B
		}, []string{"AB!"}},
		"farther waiters are reached by way of those directly ahead": {func(b *builder) {
			b.excl('D', "1") // goes on
			b.excl('A', "2")
			b.excl('B', "1") // B waits in 1, behind D
			b.excl('E', "1") // goes on: its other wait can be granted
			b.excl('A', "1") // A waits in 1, behind B and E
			b.excl('F', "4")
			b.excl('E', "4")
			b.excl('B', "2") // B also waits for A, and is first in 1: it goes on
		}, []string{"AEB"}},
		"a lease of several locks": {func(b *builder) {
			b.excl('B', "2")
			b.excl('A', "1", "2") // first in 1, waits in 2
			b.excl('B', "1")
		}, []string{"AB!"}},
	} {
		t.Run(name, func(t *testing.T) {
			var b builder
			c.play(&b)
			assert.That(t, slices.Equal(b.named(), c.want), "named %q, want %q", b.named(), c.want)
		})
	}
}

// random makes a small graph of all kinds of contenders.
func random(r *rand.Rand) *builder {
	var b builder
	parties, locks := 2+r.IntN(5), 1+r.IntN(4)
	for range 2 + r.IntN(12) {
		p, lock := byte('A'+r.IntN(parties)), fmt.Sprint(r.IntN(locks))
		switch r.IntN(6) {
		case 0:
			b.shared(p, lock)
		case 1:
			b.take(p, recipe.Permit, 1+r.Int32N(2), 2+r.Int32N(2), lock)
		case 2:
			other := fmt.Sprint(r.IntN(locks))
			if other != lock {
				b.excl(p, lock, other)
				continue
			}
			fallthrough
		default:
			b.excl(p, lock)
		}
	}
	return &b
}

// canHold asks the recipe itself which leases hold when only the given parties are there.
func canHold(g *Graph, there func(party int) bool) (waiting map[int]bool) {
	waiting = map[int]bool{}
	for _, entries := range g.Queues {
		var q recipe.Queue
		for _, e := range entries {
			if there(g.Leases[e.Lease].Party) {
				q.Insert(e.Contender)
			}
		}
		for _, e := range entries {
			if there(g.Leases[e.Lease].Party) && !q.Holds(e.Contender.Name) {
				waiting[e.Lease] = true
			}
		}
	}
	return waiting
}

// oracle tries every order in which parties may go on.
func oracle(g *Graph) []bool {
	stuck := make([]bool, g.Parties)
	for p := range stuck {
		stuck[p] = true
	}
	began := canHold(g, func(int) bool { return true })
	waits := func(p int) (any bool) {
		for l := range began {
			any = any || g.Leases[l].Party == p
		}
		return any
	}
	seen := map[int]bool{}
	var try func(gone int)
	try = func(gone int) {
		if seen[gone] {
			return
		}
		seen[gone] = true
		waiting := canHold(g, func(p int) bool { return gone>>p&1 == 0 })
		for p := range g.Parties {
			if gone>>p&1 == 1 {
				stuck[p] = false
				continue
			}
			goes := !waits(p)
			for l := range began {
				goes = goes || g.Leases[l].Party == p && !waiting[l]
			}
			if goes {
				stuck[p] = false
				try(gone | 1<<p)
			}
		}
	}
	try(0)
	return stuck
}

// neighbours are the pairs of parties with an edge, as Edges has them.
func neighbours(g *Graph) map[[2]int]bool {
	pairs := map[[2]int]bool{}
	for e := range g.Edges {
		pairs[[2]int{e.From, e.To}] = true
	}
	return pairs
}

// minimalCycles tries every sequence of parties.
func minimalCycles(n int, pairs map[[2]int]bool) (list []string) {
	var found [][]int
	var walk func(path []int)
	walk = func(path []int) {
		last := path[len(path)-1]
		if len(path) > 1 && pairs[[2]int{last, path[0]}] {
			found = append(found, slices.Clone(path))
		}
		for next := path[0] + 1; next < n; next++ {
			if pairs[[2]int{last, next}] && !slices.Contains(path, next) {
				walk(append(slices.Clone(path), next))
			}
		}
	}
	for p := range n {
		if pairs[[2]int{p, p}] {
			list = append(list, fmt.Sprint([]int{p}))
		}
		walk([]int{p})
	}
	set := func(c []int) (bits int) {
		for _, p := range c {
			bits |= 1 << p
		}
		return bits
	}
	for _, c := range found {
		if !slices.ContainsFunc(found, func(other []int) bool { return set(other) != set(c) && set(other)&^set(c) == 0 }) {
			list = append(list, fmt.Sprint(c))
		}
	}
	slices.Sort(list)
	return list
}

func partiesOf(c Cycle) (list []int) {
	for _, e := range c.Edges {
		list = append(list, e.From)
	}
	return list
}

// check compares a graph with the oracles.
func check(t *testing.T, g *Graph) {
	t.Helper()
	stuck := g.Stuck()
	if want := oracle(g); !slices.Equal(stuck, want) {
		t.Errorf("stuck %v, the oracle says %v", stuck, want)
		return
	}
	left, _ := g.only(stuck)
	want := map[string]bool{} // certain or not
	for _, c := range minimalCycles(g.Parties, neighbours(left)) {
		want[c] = true
	}
	cycles, more := g.Cycles(stuck, DefaultLimits)
	assert.Must(t, !more, "there are more cycles")
	var got []string
	for _, c := range cycles {
		name := fmt.Sprint(partiesOf(c))
		got = append(got, name)
		certain, there := want[name]
		for i, e := range c.Edges {
			assert.That(t, e.To == c.Edges[(i+1)%len(c.Edges)].From, "cycle %s is not closed", name)
			assert.That(t, g.party(e.Queue, e.Waiter) == e.From && g.party(e.Queue, e.Blocker) == e.To && e.Blocker < e.Waiter, "cycle %s has an edge of other entries: %+v", name, e)
		}
		if c.Certain {
			assert.That(t, there && certain, "cycle %s is not certain", name)
		} else {
			assert.That(t, slices.ContainsFunc(partiesOf(c), func(p int) bool { return !stuck[p] }), "cycle %s is certain", name)
			want[name] = false
		}
	}
	full := minimalCycles(g.Parties, neighbours(g))
	for _, name := range full {
		var parties []int
		for p := range g.Parties {
			if slices.Contains(partiesIn(name), p) {
				parties = append(parties, p)
			}
		}
		if slices.ContainsFunc(parties, func(p int) bool { return !stuck[p] }) {
			assert.That(t, slices.Contains(got, name), "the possible cycle %s is missing of %v", name, got)
			want[name] = false
		}
	}
	assert.That(t, len(got) == len(want), "%v, want %v", got, slices.Sorted(maps.Keys(want)))
	rest := g.Rest(stuck, DefaultLimits)
	for p, is := range stuck {
		for l := range g.Leases {
			c, closed := rest.Through(l)
			if g.Leases[l].Party != p || !closed {
				continue
			}
			assert.That(t, is, "party %d is not stuck, and lease %d closes a cycle", p, l)
			assert.That(t, slices.ContainsFunc(c.Edges, func(e Edge) bool { return g.WaiterOf(e) == l }), "the lease %d is not in its cycle", l)
		}
	}
	for _, c := range cycles { // each wait of a certain cycle is found from its lease
		for _, e := range c.Edges {
			if c.Certain {
				_, closed := rest.Through(g.WaiterOf(e))
				assert.That(t, closed, "no cycle through the lease %d", g.WaiterOf(e))
			}
		}
	}
}

func partiesIn(name string) (list []int) {
	for _, f := range name {
		if f >= '0' && f <= '9' {
			list = append(list, int(f-'0'))
		}
	}
	return list
}

func TestRandomGraphsAreAsTheOraclesSay(t *testing.T) {
	t.Parallel()
	cyclic := 0
	for seed := range uint64(*rounds) {
		r := rand.New(rand.NewPCG(seed, 7))
		b := random(r)
		check(t, &b.g)
		if cycles, _ := b.g.Cycles(b.g.Stuck(), DefaultLimits); len(cycles) > 0 {
			cyclic++
		}
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, b.text())
		}
	}
	assert.That(t, cyclic > *rounds/10 && cyclic < *rounds, "%d of %d graphs have cycles", cyclic, *rounds)
}

func (b *builder) text() (s string) {
	for q, entries := range b.g.Queues {
		s += fmt.Sprintf("\nlock %d:", q)
		for _, e := range entries {
			s += fmt.Sprintf(" %c/%d %v(%d of %d)", 'A'+b.g.Leases[e.Lease].Party, e.Lease, e.Contender.Mode, e.Contender.Permits, e.Contender.Limit)
		}
	}
	return s
}

func FuzzGraphs(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		check(t, &random(rand.New(rand.NewPCG(a, b))).g)
	})
}

// A queue is a path as long as it has waiters: what is asked of it must not take the square of that.
func TestALongQueueIsLookedAtOnce(t *testing.T) {
	t.Parallel()
	b := manyWaiters(50_000)
	stuck := b.g.Stuck()
	assert.That(t, stuck[0] && stuck[len(stuck)-1] && stuck[5], "the parties go on")
	cycles, more := b.g.Cycles(stuck, DefaultLimits)
	assert.That(t, len(cycles) == 1 && !more && len(cycles[0].Edges) == 2, "%d cycles, more %t", len(cycles), more)
}

// manyWaiters is a queue whose holder waits for its last waiter.
func manyWaiters(n int) *builder {
	var b builder
	take := func(party int, lock string) {
		lease := b.excl('A', lock)
		b.g.Leases[lease].Party = party
		b.g.Parties = max(b.g.Parties, party+1)
	}
	take(0, "long")
	take(n, "other")
	for p := range n {
		take(p+1, "long")
	}
	take(0, "other")
	return &b
}

func TestASearchSaysWhenThereMayBeMore(t *testing.T) {
	var b builder // each of eight parties holds a lock and waits for those of all others
	for p := byte('A'); p < 'I'; p++ {
		b.excl(p, string(p))
	}
	for p := byte('A'); p < 'I'; p++ {
		for l := byte('A'); l < 'I'; l++ {
			if l != p {
				b.excl(p, string(l))
			}
		}
	}
	stuck := b.g.Stuck()
	all, more := b.g.Cycles(stuck, DefaultLimits)
	assert.That(t, len(all) == 28 && !more, "%d cycles, more %t", len(all), more)
	for _, l := range []Limits{{Cycles: 3, Edges: 1000, Steps: 1000}, {Cycles: 100, Edges: 1000, Steps: 1}, {Cycles: 100, Edges: 10, Steps: 1000}} {
		some, more := b.g.Cycles(stuck, l)
		assert.That(t, more && len(some) <= l.Cycles && (l.Edges < 28 || len(some) > 0), "%+v: %d cycles, more %t", l, len(some), more)
	}
}

func BenchmarkTenThousandWaiters(b *testing.B) {
	g := &manyWaiters(10_000).g
	for b.Loop() {
		stuck := g.Stuck()
		g.Cycles(stuck, DefaultLimits)
	}
}
