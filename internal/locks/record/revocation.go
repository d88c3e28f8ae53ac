package record

import (
	"time"

	"lockkeeper/internal/locks"
)

// Revocation is a revocation as a contender's record has it.
type Revocation struct {
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`             // who asked last; for display, never for decisions
	Force  int64  `json:"force_after_ms,omitempty"` // counts on the owner's clock from when it knows; 0: never
}

// Over is the revocation that results when it is asked for after another; nil
// for none.
func (r Revocation) Over(earlier *Revocation) Revocation {
	if earlier != nil && earlier.Force > 0 && (r.Force == 0 || r.Force > earlier.Force) {
		r.Force = earlier.Force
	}
	return r
}

// After is over as a revise.
func (r Revocation) After(was *Revocation) *Revocation {
	r = r.Over(was)
	return &r
}

// Revise makes a lease's next revocation of its present one; nil is none.
type Revise func(was *Revocation) *Revocation

// SameRevocation compares what two records ask.
func SameRevocation(a, b *Revocation) bool { return a == b || a != nil && b != nil && *a == *b }

// View is for a lease that runs elsewhere: there it is known how much of the time is left.
func (r *Revocation) View() *locks.Revocation {
	if r == nil {
		return nil
	}
	return &locks.Revocation{Reason: r.Reason, By: r.By, Forced: r.Force > 0, ForceIn: time.Duration(r.Force) * time.Millisecond}
}
