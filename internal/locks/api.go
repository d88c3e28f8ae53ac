package locks

import (
	"encoding/base64"
	"strings"
	"time"

	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/recipe"
)

// DefaultNamespace is the namespace of a lock that is requested without one.
const DefaultNamespace = "default"

// Limits of the API. The specification states the same numbers.
const (
	MinTTL        = time.Second
	MaxTTL        = 24 * time.Hour
	DefaultTTL    = 30 * time.Second
	MaxOwner      = 128     // bytes
	MaxPrincipal  = 512     // bytes of a principal's name
	MaxMetadata   = 4 << 10 // bytes
	MaxPollWait   = 5 * time.Minute
	MaxWait       = 24 * time.Hour // of an acquire with a finite wait
	MaxNamespace  = 64             // characters of a namespace's name
	MaxPattern    = 1024           // bytes of a part of a lock's name; names of other programs may be long
	MinKeyLength  = 16             // visible characters of an idempotency key
	MaxKeyLength  = 128
	MaxHeartbeats = 1000 // leases in one bulk heartbeat
	DefaultPage   = 100
	MaxPage       = 1000
	WaitForever   = time.Duration(1<<63 - 1)
	MaxGroup      = 64      // locks of one lease
	MaxLimit      = 1 << 20 // permits of a semaphore
	MaxHolds      = 64      // names of holds over the life of one lease
	MaxHoldName   = 64      // bytes
	MaxLockDelay  = 7 * 24 * time.Hour
	MaxAtLeast    = 7 * 24 * time.Hour
	MaxForceAfter = 24 * time.Hour
	MaxReasonText = 256 // bytes of the reason of an acquire, a revocation, a break or a destruction
	MaxReserve    = 31 * 24 * time.Hour
	MaxReap       = 1000 // leases that one reap ends; its answer says whether more are left
	MaxNotifyURL  = 2048 // bytes
)

// Term numbers the ZooKeeper sessions of this process from 1. An answer is valid under one term; 0 is no term.
// See Manager.StillValid.
type Term uint32

// State is the state of a lease.
type State string

// A lease is waiting, then held, then ended. It is ending while the deletion of its contender is under way and
// its outcome is not known.
const (
	Waiting State = "waiting"
	Held    State = "held"
	Ended   State = "ended"
)

// Reason says why a lease ended.
type Reason string

// The reasons.
const (
	ReasonReleased    Reason = "released"     // by its client, while held
	ReasonCancelled   Reason = "cancelled"    // by its client, while waiting, or the client disconnected
	ReasonExpired     Reason = "expired"      // its client stopped heartbeating, or the end of its reservation came
	ReasonUnclaimed   Reason = "unclaimed"    // granted while no client waited, and no client claimed it
	ReasonRemoved     Reason = "removed"      // another program deleted its contender
	ReasonWaitElapsed Reason = "wait_elapsed" // the acquire's wait ended first
	ReasonUnknown     Reason = "unknown"      // the contender was gone before this gateway could know why
	ReasonRevoked     Reason = "revoked"      // revoked and not released in time, broken or reaped
	ReasonDestroyed   Reason = "destroyed"    // the lock was destroyed with its whole queue
	ReasonDone        Reason = "done"         // the period that it waited for was done
	ReasonGatewayLeft Reason = "gateway_left" // an ephemeral lease whose gateway's session ended
	// ReasonWouldDeadlock: it waited in a deadlock, and its acquire said that it shall not.
	ReasonWouldDeadlock Reason = "would_deadlock"
)

// Known reports whether this release defines the reason.
func (r Reason) Known() bool {
	switch r {
	case ReasonReleased, ReasonCancelled, ReasonExpired, ReasonUnclaimed, ReasonRemoved, ReasonWaitElapsed, ReasonUnknown, ReasonRevoked,
		ReasonDestroyed, ReasonGatewayLeft, ReasonWouldDeadlock, ReasonDone:
		return true
	}
	return false
}

// Mode of a contender.
type Mode string

// The modes.
const (
	Exclusive Mode = "exclusive"
	Shared    Mode = "shared"
	Semaphore Mode = "semaphore"
)

// ModeOf is the mode of a contender.
func ModeOf(m recipe.Mode) Mode { return Mode(m.String()) }

// Recipe is the mode of the contenders of such a lease: exclusive for an unknown mode.
func (m Mode) Recipe() recipe.Mode {
	of, _ := recipe.ModeNamed(string(m))
	return of
}

// Known reports whether it is one of the modes.
func (m Mode) Known() bool {
	_, known := recipe.ModeNamed(string(m))
	return known
}

// Lease is a lease as its gateway sees it at one moment. Durations count from the answer.
type Lease struct {
	ID           string
	Token        string // only in the answer that created it and to an idempotent repeat
	NotifyURL    string // only for callers that have the lease's token
	NotifySecret string // signs deliveries to NotifyURL; present where Token is
	NS, Lock     string
	Znode        string // full path of the contender
	Mode         Mode
	State        State
	Reason       Reason // when ended
	Position     int    // among the waiters, from 1; 0 unless waiting
	QueueLength  int    // number of waiting contenders
	FencingToken int64  // once held
	TTL          time.Duration
	ExpiresIn    time.Duration // until the clock of its state runs out; 0 when ended
	TTLFrom      time.Duration // State held: when its present TTL began; boot clock
	// LastHeartbeat is how long ago the client's last one was; 0 when this gateway heard of none, or does not run the lease.
	LastHeartbeat time.Duration
	// Waited is the time from the arrival of the client's request to TTLFrom. The client holds the lease until it sent
	// the request + Waited + TTL. WaitedKnown is false when the TTL began before the request.
	Waited       time.Duration
	WaitedKnown  bool
	FailoverSafe bool // the TTL survives the crash of a gateway
	Owner        string
	Principal    string // that took it; "" where none is asked who it is
	Metadata     string
	Permits      int         // with Mode Semaphore, of Limit
	Limit        int         // with Mode Semaphore: the limit in force when the contender was enqueued
	Locks        []LeaseLock // of a group, in the order of the request; then NS, Lock, Znode and Mode are ""
	Holds        []string    // the named holds of a reentrant lease, oldest first
	LockDelay    time.Duration
	LockDelayOn  DelayOn
	Ephemeral    bool // ends with its gateway's session; ExpiresIn is an estimate
	Revoke       *Revocation
	Warning      string        // a warning about the request, for the client; "" for none
	Rev          string        // opaque revision of the visible fields
	Term         Term          // of State held; see Manager.StillValid
	AtLeast      time.Duration // as AcquireRequest.AtLeast
	Purpose      string        // the reason that its acquire gave
	// EndsAt is when a reservation ends, once that is known; zero for other leases. ReservedFor is what it asked for, from
	// its grant on; 0 without that. The TTL of a reservation is what is left of it.
	EndsAt      time.Time
	ReservedFor time.Duration
	OncePer     time.Duration // as AcquireRequest.OncePer; Period is the name in any case
	Period      string
	DoneOn      DoneOn
}

// LeaseLock is one lock of a group.
type LeaseLock struct {
	NS, Lock       string
	Mode           Mode
	Permits, Limit int // with Mode Semaphore
	Znode          string
	FencingToken   int64 // once held
	Position       int   // among the waiters of that lock, from 1; 0 when no contender is before it
}

// DelayOn says after which ends of a held lease the lock delay runs.
type DelayOn string

// A lock delay keeps the place of an ended lease. A client that still believes it holds the lock can finish before
// the next grant.
const (
	DelayOnExpiry DelayOn = "expiry" // expired, unclaimed, or revoked by force
	DelayAlways   DelayOn = "always" // also released
)

// Revocation is a request to a holder to release its lock.
type Revocation struct {
	Reason string // text of the request
	By     string // who asked: Principal.By. "" also where the asker may not know it
	// Forced: the lease ends with ReasonRevoked when ForceIn has passed.
	Forced  bool
	ForceIn time.Duration
}

// Contender is an entry of a lock's queue in its public form, without secrets.
type Contender struct {
	NS           string // of the lock
	LeaseID      string // "" when foreign
	Foreign      *Foreign
	Znode        string
	Owner        string
	Principal    string // as its record says: another program can write any name there
	Mode         Mode
	Permits      int
	Position     int   // among the waiters, from 1; 0 for a holder
	FencingToken int64 // holders only; 0 while it is not known
	// At is when the contender was observed; the spans below count from it. At plus or minus a span is the same
	// instant in every answer.
	At       time.Time
	Age      time.Duration
	AgeKnown bool
	// HeldFor is for how long the holder has held: as this gateway has seen, or as the lease's record says. HeldLonger: neither
	// tells when the hold began, so it may be longer, but no longer than HeldAtMost; 0: no bound is known.
	HeldFor    time.Duration
	HeldLonger bool
	HeldAtMost time.Duration // with HeldLonger
	// Clock is the span from which ExpiresIn counts down: the TTL, or the shorter clock of an unclaimed or waiting
	// lease. It is set for leases that this gateway runs; else 0.
	Clock     time.Duration
	ExpiresIn time.Duration // for leases that this gateway runs; else 0
	// LastHeartbeat is how long ago the client's last one was, for leases that this gateway runs; 0 when it heard of none.
	LastHeartbeat time.Duration
	Unclaimed     bool // granted, and its client has not claimed it yet
	Metadata      string
	Limit         int // of this fleet's permit contenders
	// Delayed: the lease has ended, and the lock delay keeps its place. ExpiresIn is the rest of the delay, Reason the
	// reason of the end.
	Delayed   bool
	Reason    Reason
	Holds     []string    // of a reentrant lease
	Group     []string    // the lease's other locks: "lock", or "ns/lock" in another namespace
	Ephemeral bool        // of this fleet's contenders
	Revoke    *Revocation // the holder has been asked to release
	Wait      *Wait       // of a waiter in a page of its queue: what blocks it; nil when nothing does
	Purpose   string      // the reason that its acquire gave, as its record says
	EndsAt    time.Time   // of a reservation: see Lease
	// ReservedFor: see Lease.
	ReservedFor time.Duration
}

// Wait describes what blocks a waiter.
type Wait = recipe.Wait

// LockState summarizes a lock.
type LockState string

// The states of a lock.
const (
	LockFree      LockState = "free"
	LockHeld      LockState = "held"
	LockUnclaimed LockState = "unclaimed" // granted, and its client has not claimed it yet
	LockQueued    LockState = "queued"    // contenders wait, none holds (a grant is under way, or a group waits elsewhere)
	LockDelayed   LockState = "delayed"   // ended, and kept for the last holder's lock delay
)

// Lock is a lock's queue.
type Lock struct {
	NS, Name    string
	Dialect     string // of its namespace
	State       LockState
	Holders     []Contender // one page; in a list the first ones
	HolderCount int         // all holders
	HeldPermits int         // of all holders
	Waiters     []Contender // one page
	QueueLength int         // all waiters
	Limit       int         // of permits; 0 without settings
	LimitAgreed bool        // the limit came with an acquire, and ends when the lock is idle; else an administrator set it
	Hazards     []Hazard
	Rev         string
	NextCursor  string
	Term        Term // of the answer to a question about one lock; see Manager.StillValid
}

// AcquireRequest asks for a lock. Zero values of optional fields mean their defaults.
type AcquireRequest struct {
	Principal Principal
	NS, Lock  string
	TTL       time.Duration // MinTTL..MaxTTL; 0: DefaultTTL
	// Wait is how long the request may wait: 0 tries once, WaitForever has no end. With Async it must be 0.
	Wait time.Duration
	// Async returns a waiting lease (a ticket) at once.
	Async          bool
	Owner          string
	Client         string // the client's address: the owner of a lease that names none, without a principal that was asked who it is. A repeat may come from another one
	Metadata       string
	IdempotencyKey string // "" for none

	// Mode, Limit and Permits: see Want.
	Mode           Mode
	Limit, Permits int
	// Group asks for 1 to MaxGroup different locks at once, all or nothing. Then NS, Lock, Mode, Limit and Permits
	// must be empty.
	Group []Want
	// Hold names the first hold of a reentrant lease. With Token it adds a hold to that lease instead of queueing.
	// Then NS and Lock must be the lease's, and all other fields empty.
	Hold, Token string
	// LockDelay keeps the lock for this long after the lease's end; LockDelayOn "" is DelayOnExpiry.
	LockDelay   time.Duration
	LockDelayOn DelayOn
	// Ephemeral uses the plain ZooKeeper recipe: the lease ends with this gateway's session.
	Ephemeral bool
	// NotifyURL receives the lease's grant and its end. "" for none.
	NotifyURL string
	// DryRun asks what would happen, and changes nothing.
	DryRun bool
	// AtLeast keeps the lock taken for this long from the grant on, however the lease ends. 0: for no longer than the lease lasts.
	AtLeast time.Duration
	// Purpose is the reason of the acquire, for people.
	Purpose string
	// For and Until make a reservation, and are not given together: a lease that no heartbeat keeps, and that ends so long
	// after its grant, or at that time. At most MaxReserve from now. TTL must be 0.
	For   time.Duration
	Until time.Time
	// Deadlock says what to do where the wait would be one of a deadlock; "" is DeadlockWait.
	Deadlock OnDeadlock
	// OncePer runs the lock's work at most once in each period: one of the name Period, or, without a name, the present window
	// of that length. 0: as often as the lock is granted. DoneOn "" is DoneOnGrant.
	OncePer  time.Duration
	Period   string
	DoneOn   DoneOn
	InPeriod string // the period's name in any case; the manager fills it in
}

// Want is one lock of an acquire.
type Want struct {
	NS, Lock string // NS "": DefaultNamespace
	Mode     Mode   // "": Exclusive
	// Limit and Permits belong to Semaphore. Limit 0 takes the lock's limit; it is an error if the lock has none, or
	// another one than Limit. Permits 0: 1.
	Limit, Permits int
}

// AcquireResult is the answer to an acquire.
type AcquireResult struct {
	Lease    Lease
	Replayed bool // an idempotent repeat: the lease in its present state
	// HoldAdded: Lease is an existing lease that now has the hold, or had it before.
	HoldAdded bool
	DryRun    *DryRun // the answer to a dry run; then Lease is empty
	Done      *Done   // the period was done before; then Lease is empty
}

// DryRun says what an acquire would find now.
type DryRun struct {
	State       State       // Held: it would be granted at once; Waiting: it would wait
	QueueLength int         // waiters in the longest of the queues
	Holders     []Contender // blocking holders of all requested locks
}

// LeaseRequest asks for one lease.
type LeaseRequest struct {
	Principal Principal
	ID        string // "" takes it from the token
	Token     string // "" only looks, and extends nothing
	// Wait > 0 is a long poll: the answer comes when the lease differs from Since, or after Wait. At most MaxPollWait.
	Wait  time.Duration
	Since string
	// Verify confirms the answer with ZooKeeper: it was true after the request arrived.
	Verify bool
}

// Heartbeat is the answer to a heartbeat.
type Heartbeat struct {
	LeaseID      string
	State        State
	ExpiresIn    time.Duration
	TTL          time.Duration
	FencingToken int64
	Position     int
	Waiters      int  // waiters behind the holder
	Term         Term // see Manager.StillValid
	Revoke       *Revocation
}

// HeartbeatResult is one entry of a bulk heartbeat's answer: a Heartbeat or an error.
type HeartbeatResult struct {
	LeaseID   string
	Heartbeat Heartbeat
	Err       *Error
}

// LeaseFilter selects leases; empty fields select all.
type LeaseFilter struct {
	Principal Principal
	NS        string
	Owner     string
	Host      string // of the owner: see HostOf
	State     State  // Waiting or Held
	Limit     int
	Cursor    string
	Purpose   string // part of it
}

// LockRequest asks for one lock's queue.
type LockRequest struct {
	Principal  Principal
	NS, Lock   string
	Wait       time.Duration // long poll, as in LeaseRequest
	Since      string
	Consistent bool // the answer includes everything that was acknowledged before the request
	Limit      int  // holders on a page, and waiters
	Cursor     string
	// Around, without a Cursor: the page on which a contender stands, which is named by its lease's id or by its znode's name. The
	// first page without it.
	Around string
}

// LockSort says which locks a list shows first.
type LockSort string

// The orders. A list has an order by name, or the first page of another one.
const (
	SortWaiters LockSort = "-waiters" // most waiters
	SortHeld    LockSort = "-held"    // held for the longest time, as far as this gateway has seen it
	SortWait    LockSort = "-wait"    // the first in line has waited for the longest time, as far as this gateway knows
)

// LockFilter selects locks. They are ordered by name.
type LockFilter struct {
	Principal Principal
	NS        string
	Prefix    string
	Contains  string // part of the name
	Owner     string // only locks that a lease of this owner holds or waits for
	Host      string // the same, of owners with this behind their last @
	Mode      Mode   // only locks that are held or waited for in this mode; semaphores whose limit was set, too
	State     LockState
	Hazardous bool // only locks with a hazard, idle ones too
	Sort      LockSort
	Limit     int
	Cursor    string
	Purpose   string // only locks of which a lease holds or waits that has this in its Purpose
	// Elsewhere are locks that other gateways say belong to the Owner or Host.
	Elsewhere *Elsewhere
}

// Elsewhere are locks behind a list's cursor, by their names, of which other gateways run leases of an owner.
type Elsewhere struct {
	Names []string
	To    string // they may have others behind this one; "": they have not
}

// HostOf is the host in an owner's name: what stands behind the last @. "": there is none.
func HostOf(owner string) string {
	if at := strings.LastIndexByte(owner, '@'); at >= 0 {
		return owner[at+1:]
	}
	return ""
}

// LockPage is a page of locks, each without its waiters.
type LockPage struct {
	Items      []Lock
	NextCursor string
}

// LeaseCursor is the cursor of the page of leases behind that lease.
func LeaseCursor(id string) string { return base64.RawURLEncoding.EncodeToString([]byte("l" + id)) }

// LeasePage is a page of leases.
type LeasePage struct {
	Items      []Lease
	NextCursor string
}

// NamespaceInfo describes a recorded namespace.
type NamespaceInfo struct {
	Name          string
	Root, Dialect string // "" until the record has been read
	// Names of the custom dialect; "" for those that are not configured.
	Names     struct{ Exclusive, Shared, ForeignShared string }
	Ready     bool   // the replica holds it whole: its locks can be acquired here
	Problem   string // why it will not become ready; "" for none
	Swept     bool   // the directories of idle locks are removed
	Locks     int    // in use
	Hazardous int    // locks with a hazard
}

// Info describes this gateway and its ZooKeeper.
type Info struct {
	GatewayID      string // of the present session; "" without one
	FleetID        string
	Root           string
	PromiseWindow  time.Duration
	ZooKeeper      ZooKeeperInfo
	Namespaces     []string
	Locks          int // in use, in all namespaces
	Contenders     int // holding or waiting, foreign ones included
	Leases         map[State]int
	Kinds          map[LeaseKind]int  // the same leases by mode
	OldestWaiter   time.Duration      // how long the oldest waiting lease has waited; 0 when none waits
	Hazards        map[HazardCode]int // number of locks with each hazard now, this fleet's or foreign
	HazardousLocks int                // locks with at least one hazard
	Deadlocks      int                // certain cycles of several parties
	Bounds         []quota.State      // on what clients may leave in this gateway
}

// LeaseKind is the key by which leases are counted. Mode is Several for a lease of several locks.
type LeaseKind struct {
	State State
	Mode  Mode
}

// ZooKeeperInfo describes the connection.
type ZooKeeperInfo struct {
	Servers        []string
	State          string // "connected", "suspended", "none"
	SessionTimeout time.Duration
	Trusted        bool
	TrustMargin    time.Duration // time until the trust window closes if nothing commits
	ReplicaCurrent bool
	LastZxid       int64
	SecretExposed  bool // see layout.Layout
	// SessionAge is how long the present session has lasted; 0 without one.
	SessionAge time.Duration
	// Lag is how far the replica is behind at most: for how long it has not been seen to have reached a transaction that this gateway
	// has committed; 0: it has reached all.
	Lag time.Duration
}

// Several replaces the mode of a lease of several locks.
const Several Mode = "several"
