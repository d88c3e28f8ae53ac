package queues

import (
	"slices"

	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/recipe"
)

// DeltaKind is the kind of a Delta.
type DeltaKind uint8

const (
	Added         DeltaKind = iota // Contender is in the queue now
	Removed                        // Contender has left the queue
	HazardBegins                   // the lock has come to have Hazard
	HazardEnds                     // Hazard is over
	Listed                         // a listing has been applied; Err is nil
	Evaluate                       // the queue's holders may have changed
	ReadDir                        // the data of the lock's directory may have changed
	ReadLimit                      // the node of Limit may have changed
	LookSoon                       // the directory is new, and may be a plain node: list it when it stays without a child
	SettingsBegin                  // the lock has settings now
	SettingsEnd                    // the lock has no settings any more
)

// Delta is a change made by a call, or work that the caller must do after it. The caller takes a call's deltas in order, and
// has done with them before it calls again what returns deltas: the slice is used anew. Only the last one, Evaluate, may
// make such a call necessary.
type Delta struct {
	Kind      DeltaKind
	Queue     *Queue
	Contender *recipe.Contender // Added, Removed
	Hazard    *interop.Hazard   // HazardBegins, HazardEnds
	Limit     int               // ReadLimit
}

// begin makes room for the deltas of a call.
func (r *Replica) begin() {
	clear(r.deltas) // so that no contender is kept alive
	r.deltas = r.deltas[:0]
}

func (r *Replica) emit(d Delta) { r.deltas = append(r.deltas, d) }

// review adds the hazards that the lock has come to have, or that are over.
func (r *Replica) review(q *Queue) {
	was, now := q.Extras().Hazards, q.hazardsNow()
	if slices.Equal(was, now) {
		return
	}
	q.MakeExtras().Hazards = now
	q.Trim()
	change := min(len(now), 1) - min(len(was), 1)
	r.Counts.Hazardous += change
	q.Namespace.Hazardous += change
	before, after := interop.CountCodes(was), interop.CountCodes(now)
	for i := range after {
		r.Counts.Hazards[i] += after[i] - before[i]
	}
	for _, h := range now {
		if !slices.Contains(was, h) {
			r.emit(Delta{Kind: HazardBegins, Queue: q, Hazard: h})
		}
	}
	for _, h := range was {
		if !slices.Contains(now, h) {
			r.emit(Delta{Kind: HazardEnds, Queue: q, Hazard: h})
		}
	}
	r.Touch(q)
}

// hazardsNow is what is wrong with the lock as it is, in the catalogue's order; nil when nothing is.
func (q *Queue) hazardsNow() (now []*interop.Hazard) {
	x := q.Extras()
	for code, wrong := range [...]bool{len(x.Hidden) > 0, !q.Contenders.Ordered(), x.Unnumbered > 0, x.misplaced, x.Invalid && q.Exists} {
		if wrong {
			now = append(now, interop.HazardAt(code))
		}
	}
	return x.presence.AddHazards(now, q.Namespace.ignoring)
}
