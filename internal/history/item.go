package history

import (
	"time"

	"lockkeeper/internal/locks"
)

// Kind is what a row is about. The numbers are in the store.
type Kind uint8

// The kinds.
const (
	Hold     Kind = 1 + iota // a contender held the lock
	Wait                     // a contender left the queue without a grant
	Many                     // several quick holds of the lock
	Hazard                   // the lock had a hazard
	Deadlock                 // a contender of the lock waited in a deadlock
)

var kindNames = [...]string{Hold: "hold", Wait: "wait", Many: "many", Hazard: "hazard", Deadlock: "deadlock"}

// String is the kind's name in the API.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return ""
}

// KindNamed is the kind of that name, 0 for none.
func KindNamed(name string) Kind {
	for k := Hold; k <= Deadlock; k++ {
		if kindNames[k] == name {
			return k
		}
	}
	return 0
}

// Kinds is a set of kinds.
type Kinds uint8

// Of makes a set.
func Of(kinds ...Kind) (s Kinds) {
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

// Has reports whether k is in the set.
func (s Kinds) Has(k Kind) bool { return s>>k&1 != 0 }

// Holds is who held the lock, and AllKinds everything.
var (
	Holds    = Of(Hold, Many)
	AllKinds = Of(Hold, Wait, Many, Hazard, Deadlock)
)

// Item is one row. Fields that do not apply are zero.
type Item struct {
	Kind     Kind
	NS, Lock string // "" of Many: of several locks
	LeaseID  string // "" for another program's contender
	Foreign  bool
	Program  string // of a foreign contender, when its name shows it
	Name     string // of a foreign contender's znode
	Owner    string
	// Principal took the lease, Gateway ran it last, Purpose is the reason of its acquire.
	Principal, Gateway, Purpose string
	Mode                        locks.Mode
	Permits                     int
	FencingToken                int64
	// Begin is the grant, or of a Wait when it was queued. It is Early earlier at most: 0 when it was seen.
	Begin time.Time
	Early time.Duration
	// End is zero while it goes on. It is Late earlier at most: 0 when it was seen.
	End  time.Time
	Late time.Duration
	// Waited is how long it waited for the grant; of Many the mean. WaitedKnown is false for what was not seen to queue.
	Waited      time.Duration
	WaitedKnown bool
	Reason      locks.Reason
	By, Detail  string
	Count       int           // of Many: how many holds
	Mean        time.Duration // of Many: how long one lasted in the mean
	Code        string        // of a Hazard, or the cycle of a Deadlock
	Programs    []string      // of a Hazard

	Queued time.Time // when it was queued; zero: not known. It is not kept: Waited is
	held   bool      // of an end: it held the lock
}

// Span is how long it lasted until its end, or until now.
func (i *Item) Span(now time.Time) time.Duration {
	if i.End.IsZero() {
		return max(now.Sub(i.Begin), 0)
	}
	return max(i.End.Sub(i.Begin), 0)
}

// mark tells the rows of one lock apart that have not ended: the lease, the name of a foreign contender, or the hazard's code.
func (i *Item) mark() string {
	switch {
	case i.Kind == Hazard:
		return "hazard:" + i.Code
	case i.Kind == Deadlock:
		return "cycle:" + i.Code + ":" + i.LeaseID
	case i.LeaseID != "":
		return i.LeaseID
	}
	return i.Name
}

// key is a row that has not ended.
type key struct{ ns, lock, mark string }

func (i *Item) key() key { return key{i.NS, i.Lock, i.mark()} }

// reasons have numbers in the store: one may be added, none may change.
var reasons = [...]locks.Reason{"", locks.ReasonReleased, locks.ReasonCancelled, locks.ReasonExpired, locks.ReasonUnclaimed, locks.ReasonRemoved,
	locks.ReasonWaitElapsed, locks.ReasonUnknown, locks.ReasonRevoked, locks.ReasonDestroyed, locks.ReasonGatewayLeft, locks.ReasonWouldDeadlock, locks.ReasonDone}

// numberOf is a reason's number; one of a later release is unknown.
func numberOf(r locks.Reason) int {
	for n, known := range reasons {
		if known == r {
			return n
		}
	}
	return numberOf(locks.ReasonUnknown)
}

func reasonOf(n int64) locks.Reason {
	if n < 0 || int(n) >= len(reasons) {
		return locks.ReasonUnknown
	}
	return reasons[n]
}

// modes have numbers in the store.
var modes = [...]locks.Mode{"", locks.Exclusive, locks.Shared, locks.Semaphore}

func modeNumber(m locks.Mode) int {
	for n, known := range modes {
		if known == m {
			return n
		}
	}
	return 0
}

func modeOf(n int64) locks.Mode {
	if n < 0 || int(n) >= len(modes) {
		return ""
	}
	return modes[n]
}

// Gap is a time of which the store may lack something.
type Gap struct {
	From, To time.Time
	Cause    string
}

// The causes of gaps.
const (
	CauseStopped   = "stopped"   // the gateway did not run
	CauseLagged    = "lagged"    // the follower fell behind the hub
	CauseDropped   = "dropped"   // the writer fell behind the follower
	CauseDisk      = "disk"      // the store took nothing
	CauseZooKeeper = "zookeeper" // the session was suspended
	CauseDamaged   = "damaged"   // the file was damaged and set aside
	causeBefore    = "before"    // before the store began: not shown, but other gateways may know of it
)
