package waitfor

import (
	"math"

	"lockkeeper/internal/locks/recipe"
)

// Stuck reports for each party whether it cannot go on; see the package's doc.
func (g *Graph) Stuck() []bool {
	r := newReduction(g)
	for round := r.first(); len(round) > 0; {
		for _, p := range round {
			r.leave(p)
		}
		round = r.grant()
	}
	stuck := make([]bool, g.Parties)
	for p := range stuck {
		stuck[p] = !r.gone[p]
	}
	return stuck
}

// reduction lets parties go on, one round after the other.
type reduction struct {
	g       *Graph
	at      [][]spot // by party: its contenders
	next    [][]int  // by queue and entry: the next one that is there, at entry+1; the first at 0
	prev    [][]int
	holds   [][]bool // by queue and entry
	awaits  []int    // by lease: its contenders that do not hold
	gone    []bool   // parties that went on
	queued  []bool   // parties of the next round
	dirty   []int    // queues to look at
	isDirty []bool
	limit   []int64 // by queue: no permit holds where as many are taken
}

type spot struct{ queue, entry int }

func newReduction(g *Graph) *reduction {
	r := &reduction{g: g, at: make([][]spot, g.Parties), next: make([][]int, len(g.Queues)), prev: make([][]int, len(g.Queues)), holds: make([][]bool, len(g.Queues)),
		awaits: make([]int, len(g.Leases)), gone: make([]bool, g.Parties), queued: make([]bool, g.Parties), isDirty: make([]bool, len(g.Queues)), limit: make([]int64, len(g.Queues))}
	for q, entries := range g.Queues {
		r.next[q], r.prev[q], r.holds[q] = make([]int, len(entries)+1), make([]int, len(entries)+1), make([]bool, len(entries))
		for i, e := range entries {
			r.next[q][i], r.prev[q][i] = i, i-1
			p := g.Leases[e.Lease].Party
			r.at[p] = append(r.at[p], spot{q, i})
			r.awaits[e.Lease]++
			switch {
			case e.Contender.Mode != recipe.Permit:
			case !e.Contender.Ours:
				r.limit[q] = math.MaxInt64 // its limit is not known
			default:
				r.limit[q] = max(r.limit[q], int64(e.Contender.Limit))
			}
		}
		r.next[q][len(entries)] = len(entries)
		r.touch(q)
	}
	return r
}

func (r *reduction) touch(q int) {
	if !r.isDirty[q] {
		r.isDirty[q] = true
		r.dirty = append(r.dirty, q)
	}
}

// first are the parties that wait for nothing.
func (r *reduction) first() (round []int) {
	r.grant()
	waits := make([]bool, r.g.Parties)
	for l, n := range r.awaits {
		waits[r.g.Leases[l].Party] = waits[r.g.Leases[l].Party] || n > 0
	}
	for p, w := range waits {
		r.queued[p] = !w
		if !w {
			round = append(round, p)
		}
	}
	return round
}

// leave takes a party's contenders out of their queues.
func (r *reduction) leave(p int) {
	r.gone[p] = true
	for _, s := range r.at[p] {
		next, prev := r.next[s.queue], r.prev[s.queue]
		after, before := next[s.entry+1], prev[s.entry]
		next[before+1] = after
		prev[after] = before
		r.touch(s.queue)
	}
}

// grant finds the contenders that hold now, and returns the parties that go on because a lease of theirs that waited holds.
func (r *reduction) grant() (round []int) {
	for _, q := range r.dirty {
		r.isDirty[q] = false
		entries, next := r.g.Queues[q], r.next[q]
		var ahead recipe.Ahead
		var sum int64
		for i := next[0]; i < len(entries); i = next[i+1] {
			e := entries[i]
			if ahead.Next(e.Contender, 0) == nil && !r.holds[q][i] {
				r.holds[q][i] = true
				r.awaits[e.Lease]--
				if p := r.g.Leases[e.Lease].Party; r.awaits[e.Lease] == 0 && !r.gone[p] && !r.queued[p] {
					r.queued[p] = true
					round = append(round, p)
				}
			}
			if e.Contender.Mode == recipe.Permit {
				sum += int64(e.Contender.Permits)
			}
			after := next[i+1]
			joined := after < len(entries) && e.Contender.LeaseID != "" && entries[after].Contender.LeaseID == e.Contender.LeaseID ||
				after < len(entries) && e.Contender.LeaseID == "" && entries[after].Contender.LeaseID == ""
			if ahead.Closed(sum >= r.limit[q]) && !joined {
				break
			}
		}
	}
	r.dirty = r.dirty[:0]
	return round
}
