package locks

import "time"

// Requests and answers for administration and queries.

// UpdateRequest changes a lease's data; nil leaves a field as it is.
type UpdateRequest struct {
	Principal Principal
	ID, Token string
	Owner     *string
	Metadata  *string
	TTL       time.Duration // 0: unchanged
	IfMatch   []string      // revs of the lease, one of which it must have now (else CodeChanged); nil: any
	Purpose   *string
	// For and Until move the end of a reservation: to so long from now, or to that time. Zero: unchanged.
	For   time.Duration
	Until time.Time
}

// Shown names the only contenders that an administrator's request may affect: leases by id, any contender by its
// znode's path. Both nil: the request applies to all contenders that it finds.
type Shown struct {
	LeaseIDs, Znodes []string // at most MaxReap together
}

// RevokeRequest asks the holders of a lock to release it.
type RevokeRequest struct {
	Principal Principal
	Client    string // the caller's address; "" when unknown
	NS, Lock  string
	Reason    string
	Shown     Shown
	// ForceAfter ends, with ReasonRevoked, the leases that have not been released by then; 0 never does.
	ForceAfter time.Duration
}

// RevokeAnswer lists the holders that were asked, and those that could not be.
type RevokeAnswer struct {
	Asked []Contender
	Not   []Unreached
	More  bool // more than MaxReap remained to be asked: repeat
}

// WithdrawRequest withdraws the revocation of a lock's holders.
type WithdrawRequest struct {
	Principal Principal
	NS, Lock  string
	Shown     Shown
}

// WithdrawAnswer lists the holders whose revocation was withdrawn, and those where that failed.
type WithdrawAnswer struct {
	Withdrawn []Contender
	Not       []Unreached
	More      bool // more than MaxReap had been asked: repeat
}

// Unreached is a contender that the request could not change, and why.
type Unreached struct {
	Contender Contender
	Detail    string
}

// BreakRequest ends one lease, or one foreign contender by its znode's name.
type BreakRequest struct {
	Principal Principal
	Client    string // the caller's address; "" when unknown
	ID        string // of a lease; or NS, Lock and Name
	NS, Lock  string
	Name      string
	Reason    string
	// AtOwner refuses, with CodeNotOwner, a lease that another gateway owns: the owner can tell the client the reason.
	// Without it this gateway ends the lease itself.
	AtOwner bool
}

// ReapRequest ends old entries of a lock's queue. All filters must match; empty ones match everything.
type ReapRequest struct {
	Principal Principal
	Client    string // the caller's address; "" when unknown
	NS, Lock  string
	OlderThan time.Duration // since the contender's creation, by ZooKeeper's clock
	Mode      Mode
	State     State // Waiting or Held
	Owner     string
	// Foreign: nil selects all contenders, true foreign ones, false this fleet's.
	Foreign *bool
	Shown   Shown
	DryRun  bool
	Reason  string
}

// ReapAnswer lists the contenders that were ended, or would be.
type ReapAnswer struct {
	Reaped []Contender
	Not    []Unreached
	DryRun bool
	More   bool // more than MaxReap match: repeat
}

// DestroyRequest ends every contender of a lock, foreign ones too, from the tail, and removes the lock. With Shown it ends these alone, and
// the lock stays when another has come.
type DestroyRequest struct {
	Principal Principal
	Client    string // the caller's address; "" when unknown
	NS, Lock  string
	Shown     Shown
	Reason    string
}

// DestroyAnswer counts the contenders that were ended.
type DestroyAnswer struct {
	Ended   int
	Foreign int // of them
}

// SettingsRequest sets a lock's settings.
type SettingsRequest struct {
	Principal Principal
	NS, Lock  string
	Limit     int      // 1..MaxLimit
	IfMatch   []string // revs of the lock, one of which it must have now (else CodeChanged); nil: any
}

// FenceRequest asks whether a fencing token is still current.
type FenceRequest struct {
	Principal Principal
	NS, Lock  string
	Token     int64
}

// FenceAnswer was true at a moment after the request arrived.
type FenceAnswer struct {
	Current bool
	// Reason says why the token is not current: "superseded" (a later token was granted), "ended" (its lease has ended),
	// "delayed" (its lease has ended, and the lock delay runs), "waiting" (its lease is not granted yet),
	// "unknown" (this gateway knows no such token).
	Reason  string
	Highest int64 // the highest token of any holder, present or past, that this gateway knows; 0 for none
	Term    Term  // with Current: see Manager.StillValid
}

// Postmortem is the record of a lease's end.
type Postmortem struct {
	LeaseID       string
	NS, Lock      string // of the first lock of a group
	Mode          Mode
	Owner         string
	Reason        Reason
	Detail        string // text given by the caller that ended it
	By            string // that caller: Principal.By. "" also where the asker may not know it
	FencingToken  int64  // when it was held
	EndedAgo      time.Duration
	EndedAt       time.Time     // UTC, by this gateway's wall clock
	WaitedFor     time.Duration // before it was granted, or ended
	HeldFor       time.Duration // 0 if it was never held
	TTL           time.Duration
	LastHeartbeat time.Duration // before the end; 0 without one
	Next          *Successor    // the next holder of the lock; nil until there is one
	Purpose       string        // the reason that its acquire gave
}

// Successor is the next holder of a lock after a lease's end.
type Successor struct {
	LeaseID      string // "" when foreign
	Owner        string
	FencingToken int64 // 0 while it is not known
	After        time.Duration
}
