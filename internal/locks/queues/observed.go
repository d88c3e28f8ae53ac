package queues

import (
	"time"

	"lockkeeper/internal/locks/recipe"
)

// Observed is what this gateway knows of a contender beyond its place in the queue: that it holds, or that events are
// suppressed for it. A lease of this gateway has its own, which ends with it. The others are in the Replica and go with
// their contender. A plain waiter has none, so there are at most about as many as holders.
type Observed struct {
	Since          time.Duration // boot: when this gateway saw that it holds
	Holds          bool          // Since is valid, and the grant has been reported
	SinceBefore    bool          // it may have held before Since
	SuppressEvents bool          // no events are delivered for it
}

// Begin records that the contender holds, and reports whether an event is due.
func (o *Observed) Begin(now time.Duration, before bool) bool {
	if o.Holds {
		return false
	}
	o.Holds, o.Since, o.SinceBefore = true, now, before
	return !o.SuppressEvents
}

// Observed is what is known of a contender that is no lease of this gateway's.
func (r *Replica) Observed(c *recipe.Contender) Observed { return r.observed[c] }

// Observe notes what is known of a contender that is in its queue, or, of the zero value, forgets it.
func (r *Replica) Observe(c *recipe.Contender, o Observed) {
	if o == (Observed{}) {
		delete(r.observed, c)
		return
	}
	r.observed[c] = o
}

// Inherit gives what is known of a contender to the one that takes its place.
func (r *Replica) Inherit(c, next *recipe.Contender) { r.Observe(next, r.observed[c]) }
