package locks

import "time"

// What administrators and curious clients ask for, besides acquiring.

// UpdateRequest changes what is known of a lease; nil leaves a field as it is.
type UpdateRequest struct {
	Principal Principal
	ID, Token string
	Owner     *string
	Metadata  *string
	TTL       time.Duration // 0: as it was
}

// Shown names the only contenders that an administrator's request may touch: leases by their ids, any by the paths of
// their znodes. Both nil: the request means whatever it finds.
type Shown struct {
	LeaseIDs, Znodes []string // at most MaxReap together
}

// RevokeRequest asks the holders of a lock to let go.
type RevokeRequest struct {
	Principal Principal
	NS, Lock  string
	Reason    string
	Shown     Shown
	// ForceAfter ends the leases of holders that have not let go by then, with ReasonRevoked; 0 never does.
	ForceAfter time.Duration
}

// RevokeAnswer tells who was asked, and who could not be.
type RevokeAnswer struct {
	Asked []Contender
	Not   []Unreached
	More  bool // more than MaxReap had not been asked yet: repeat
}

// WithdrawRequest takes back what the holders of a lock were asked.
type WithdrawRequest struct {
	Principal Principal
	NS, Lock  string
	Shown     Shown
}

// WithdrawAnswer tells which holders are asked nothing any more, and of which that could not be done.
type WithdrawAnswer struct {
	Withdrawn []Contender
	Not       []Unreached
	More      bool // more than MaxReap had been asked: repeat
}

// Unreached is a contender to which something could not be done, and why.
type Unreached struct {
	Contender Contender
	Detail    string
}

// BreakRequest ends one lease, or one foreign contender by the name of its znode.
type BreakRequest struct {
	Principal Principal
	ID        string // of a lease; or NS, Lock and Name
	NS, Lock  string
	Name      string
	Reason    string
	// AtOwner leaves a lease that another gateway runs to that one, which can tell its
	// client why: it is CodeNotOwner. Without it this gateway does it.
	AtOwner bool
}

// ReapRequest ends what is old in a lock's queue. All filters must match; empty ones match everything.
type ReapRequest struct {
	Principal Principal
	NS, Lock  string
	OlderThan time.Duration // since the contender was made, by ZooKeeper's clock
	Mode      Mode
	State     State // Waiting or Held
	Owner     string
	// Foreign: nil takes ours and other programs', else only the ones or the others.
	Foreign *bool
	Shown   Shown
	DryRun  bool
	Reason  string
}

// ReapAnswer lists what was ended, or would be.
type ReapAnswer struct {
	Reaped []Contender
	Not    []Unreached
	DryRun bool
	More   bool // there are more than MaxReap: repeat
}

// DestroyRequest ends every contender of a lock, other programs' too, from the tail, and removes the lock.
type DestroyRequest struct {
	Principal Principal
	NS, Lock  string
	Reason    string
}

// DestroyAnswer tells how many contenders were ended.
type DestroyAnswer struct {
	Ended   int
	Foreign int // of them
}

// SettingsRequest sets a lock's settings.
type SettingsRequest struct {
	Principal Principal
	NS, Lock  string
	Limit     int // 1..MaxLimit
}

// FenceRequest asks whether a fencing token is still current.
type FenceRequest struct {
	Principal Principal
	NS, Lock  string
	Token     int64
}

// FenceAnswer is true of a moment after the question came.
type FenceAnswer struct {
	Current bool
	// Reason says why not: "superseded" (a later token was given), "ended" (its lease has ended), "delayed" (its lease has
	// ended and the lock delay runs), "waiting" (its lease has not been granted), "unknown" (nothing here has that token).
	Reason  string
	Highest int64 // the highest token of a holder, now or before, that this gateway knows; 0 for none
	Term    Term  // with Current: see Manager.StillValid
}

// Postmortem is what is remembered of a lease's end.
type Postmortem struct {
	LeaseID       string
	NS, Lock      string // of the first lock of a group
	Mode          Mode
	Owner         string
	Reason        Reason
	Detail        string // the words of whoever ended it
	FencingToken  int64  // when it was held
	EndedAgo      time.Duration
	EndedAt       time.Time     // UTC, by this gateway's wall clock
	WaitedFor     time.Duration // before it was granted, or ended
	HeldFor       time.Duration // 0 when it never was
	TTL           time.Duration
	LastHeartbeat time.Duration // before the end; 0 when there was none
	Next          *Successor    // who was granted the lock next; nil while nobody was
}

// Successor is who took a lock after a lease.
type Successor struct {
	LeaseID      string // "" when foreign
	Owner        string
	FencingToken int64 // 0 while it is not known
	After        time.Duration
}
