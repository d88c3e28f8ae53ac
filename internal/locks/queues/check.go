package queues

import (
	"errors"
	"fmt"
	"slices"

	"lockkeeper/internal/locks/interop"
)

// Check recomputes what the replica keeps incrementally, and returns every difference. It walks all queues: it is for
// tests and simulations.
func (r *Replica) Check() (err error) {
	fail := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	now, observed := Counts{Moves: r.Counts.Moves}, 0
	for s := range r.All {
		before := now.Hazardous
		s.Queues.Scan(func(q *Queue) bool {
			observed += r.checkQueue(q, &now, fail)
			return true
		})
		if n := now.Hazardous - before; n != s.Hazardous {
			fail("%d locks of %s have hazards; counted %d", n, s.Name, s.Hazardous)
		}
	}
	if now != r.Counts {
		fail("the counts are %+v; counted %+v", now, r.Counts)
	}
	if observed != len(r.observed) {
		fail("%d contenders are observed, %d of them are there", len(r.observed), observed)
	}
	for id, g := range r.groups {
		if now := (&Group{At: g.At}); g.moves == r.Counts.Moves && g.holds != now.hold(g.moves) {
			fail("the contenders of lease %s hold: %v; noted %v", id, now.holds, g.holds)
		}
	}
	return err
}

func (r *Replica) checkQueue(q *Queue, now *Counts, fail func(string, ...any)) (observed int) {
	if n := q.Contenders.Len(); n > 0 {
		now.Locks++
		now.Contenders += n
	}
	if _, noted := r.contended[q]; noted != (q.Contenders.Len() > 1) {
		fail("%s: %d contenders; noted as contended: %v", q.Path, q.Contenders.Len(), noted)
	}
	hazards := q.hazardsNow()
	if !slices.Equal(q.Extras().Hazards, hazards) {
		fail("%s: %d hazards, published are %+v", q.Path, len(hazards), q.Hazards())
	}
	if hazards != nil {
		now.Hazardous++
	}
	for i, n := range interop.CountCodes(hazards) {
		now.Hazards[i] += n
	}
	for _, c := range q.Extras().ended {
		if q.Contenders.Get(c.Name) != nil {
			fail("%s: in the queue, and ended", c.Name)
		}
	}
	for _, c := range q.Contenders.All() {
		if at, ok := r.index.at[c.LeaseID]; r.index.covers(c) && (!ok || at.Queue.Contenders.Get(at.Contender.Name) != at.Contender) {
			fail("%s: its lease is not found there", c.Name)
		}
		if o, ok := r.observed[c]; ok {
			observed++
			if !o.Holds && !o.SuppressEvents {
				fail("%s: observed as nothing", c.Name)
			}
		}
	}
	return observed
}

// Kept counts the things of each kind that the replica keeps, for tests that nothing is kept for ever.
func (r *Replica) Kept() map[string]int {
	queues := 0
	for s := range r.All {
		queues += s.Queues.Len()
	}
	return map[string]int{"queues": queues, "observed": len(r.observed), "deferred": len(r.deferred), "polled": len(r.polled), "groups": len(r.groups),
		"newer": len(r.newer), "contended": len(r.contended), "indexed": len(r.index.at) + len(r.index.more)}
}
