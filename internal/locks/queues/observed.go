package queues

import (
	"time"

	"lockkeeper/internal/locks/recipe"
)

// Observed is what is known of a contender of which its place in the queue does not tell everything: one that holds, or
// one of which events tell nothing. That of a lease of this gateway is in the lease and ends with it. The others are in
// the Replica and go with their contender. A contender that merely waits has none, so there are at most about as many
// as there are holders.
type Observed struct {
	Since          time.Duration // boot: when this gateway saw that it holds
	Holds          bool          // Since means something, and the grant has been told
	SinceBefore    bool          // it may have held before Since
	SuppressEvents bool          // events tell nothing of it
}

// Begin notes that the contender holds, and reports whether that is to be told.
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
