package postmortem

import (
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// Cause is a Reason in one byte.
type Cause uint8

var causes = [...]locks.Reason{"", locks.ReasonReleased, locks.ReasonCancelled, locks.ReasonExpired, locks.ReasonUnclaimed, locks.ReasonRemoved, locks.ReasonWaitElapsed, locks.ReasonUnknown,
	locks.ReasonRevoked, locks.ReasonDestroyed, locks.ReasonGatewayLeft, Forced: locks.ReasonRevoked, locks.ReasonWouldDeadlock, locks.ReasonDone}

// Forced is a revocation that its holder did not follow: unlike an administrator's end it can be withdrawn, and a lock
// delay follows.
const Forced Cause = 11

// Reason is the reason that the byte stands for.
func (c Cause) Reason() locks.Reason { return causes[c] }

// CauseOf is the byte of a reason of this release; another one is a defect.
func CauseOf(r locks.Reason) Cause {
	for c, reason := range causes {
		if reason == r {
			return Cause(c)
		}
	}
	panic("postmortem: a reason without a number: " + string(r))
}

// End is what is remembered of an ended lease.
type End struct {
	At           time.Duration // boot
	NS, Lock     string
	FencingToken int64
	TTL          time.Duration
	Owner        string
	Words        string        // of the administrator who ended it
	By           string        // that administrator
	Waited, Held time.Duration // until it was granted or ended; after that
	Beat         time.Duration // from the last heartbeat to the end; 0 when there was none
	Next         *Next
	Why          Cause
	Mode         recipe.Mode
	// Doubtful is set when the contender's creation time is unknown: the listing
	// that lacked it may come from a server that lags, so it may reappear.
	Doubtful   bool
	Terminated bool   // another gateway ran it, and this one has ended it
	Stays      bool   // its place stayed for a while
	Reported   bool   // the gateway that ran it or ended it has reported the end
	Several    bool   // it was of several locks
	Purpose    string // the reason of its acquire
}

// Reason is why it ended.
func (p *End) Reason() locks.Reason { return p.Why.Reason() }

// Next is the contender that was granted the lock next.
type Next struct {
	Lease recipe.LeaseID // "" when foreign
	Name  string         // of its contender
	Owner string
	Token int64
	After time.Duration
}

// Place names a lock.
type Place struct{ NS, Lock string }
