package locks

import (
	"strings"
	"time"

	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/recipe"
)

// Principal is who makes a call. Until there is authentication everyone is
// Anonymous.
type Principal string

// Anonymous is the principal of a caller who did not say who they are.
const Anonymous Principal = "anonymous"

// DefaultNamespace is the namespace of locks that name none.
const DefaultNamespace = "default"

// Limits of the API, in one place. The specification states the same numbers.
const (
	MinTTL        = time.Second
	MaxTTL        = 24 * time.Hour
	DefaultTTL    = 30 * time.Second
	MaxOwner      = 128     // bytes
	MaxMetadata   = 4 << 10 // bytes
	MaxPollWait   = 5 * time.Minute
	MaxWait       = 24 * time.Hour // of an acquire that does not wait for ever
	MaxNamespace  = 64             // characters of a namespace's name
	MaxPattern    = 1024           // bytes of a part of a lock's name: those of other programs may have long names
	MinKeyLength  = 16             // visible characters of an idempotency key
	MaxKeyLength  = 128
	MaxHeartbeats = 1000 // leases in one bulk heartbeat
	DefaultPage   = 100
	MaxPage       = 1000
	WaitForever   = time.Duration(1<<63 - 1)
	MaxGroup      = 64      // locks of one lease
	MaxLimit      = 1 << 20 // permits of a semaphore
	MaxHolds      = 64      // names of holds that one lease has had
	MaxHoldName   = 64      // bytes
	MaxLockDelay  = time.Hour
	MaxForceAfter = 24 * time.Hour
	MaxReasonText = 256  // bytes of the words that go with a revocation, a break, a destruction
	MaxReap       = 1000 // leases that one reap ends; it says how many are left
	MaxNotifyURL  = 2048 // bytes
)

// Term numbers the ZooKeeper sessions of this process, from 1 on: the ground on which an answer stands. 0 is no ground.
// See Manager.StillValid.
type Term uint32

// State of a lease.
type State string

// A lease is waiting, then held, then ended. Ending is its last moment: its
// contender's deletion has been handed over and is not yet known.
const (
	Waiting State = "waiting"
	Held    State = "held"
	Ended   State = "ended"
)

// Reason tells why a lease ended.
type Reason string

// The reasons.
const (
	ReasonReleased    Reason = "released"     // by its client, while held
	ReasonCancelled   Reason = "cancelled"    // by its client, while waiting, or the client went away
	ReasonExpired     Reason = "expired"      // its client stopped heartbeating
	ReasonUnclaimed   Reason = "unclaimed"    // granted while nobody listened, and nobody came
	ReasonRemoved     Reason = "removed"      // its contender was deleted by somebody else
	ReasonWaitElapsed Reason = "wait_elapsed" // the acquire's wait ended first
	ReasonUnknown     Reason = "unknown"      // gone before this gateway could know why
	ReasonRevoked     Reason = "revoked"      // taken back: asked for and not let go in time, broken or reaped
	ReasonDestroyed   Reason = "destroyed"    // the lock was destroyed with everyone in its queue
	ReasonGatewayLeft Reason = "gateway_left" // an ephemeral lease whose gateway's session ended
)

// Known reports whether the reason is one of this release's.
func (r Reason) Known() bool {
	switch r {
	case ReasonReleased, ReasonCancelled, ReasonExpired, ReasonUnclaimed, ReasonRemoved, ReasonWaitElapsed, ReasonUnknown, ReasonRevoked,
		ReasonDestroyed, ReasonGatewayLeft:
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

// Foreign describes a contender that another program put there.
type Foreign struct {
	Program string // "curator", "kazoo", "hbase", "go-zookeeper", "zookeeper-writelock", "" when not known
	Kind    string // the recipe: "mutex", "write lock", "leader latch", ...; "" when not known
	Session int64  // ephemeralOwner; 0 for a persistent node or when not read yet
	Data    []byte // as read, at most 4 KiB; nil when not read yet or not readable
	Decoded *Decoded
	// Revocable: it was read, and listens to what Manager.Revoke writes.
	Revocable bool
}

// Decoded is what a foreign contender's data says, of what one program or the other
// puts there.
type Decoded struct {
	Address     string // of its machine
	Participant string // in an election
	Identifier  string // Kazoo's
	TableLock   *TableLock
}

// TableLock is HBase's.
type TableLock struct {
	Table, Owner, Purpose string
	Thread                int64
	Shared                bool
	Created               time.Time // zero when it is not there
}

// Lease is a lease as its gateway sees it at one moment. Durations are spans,
// not points in time: they count from the answer.
type Lease struct {
	ID           string
	Token        string // only in the answer that created it and to an idempotent repeat
	NotifyURL    string // only to who has its token
	NotifySecret string // signs what NotifyURL is told; where Token is
	NS, Lock     string
	Znode        string // full path of the contender
	Mode         Mode
	State        State
	Reason       Reason // when ended
	Position     int    // among the waiters, from 1; 0 unless waiting
	QueueLength  int    // contenders that wait
	FencingToken int64  // once held
	TTL          time.Duration
	ExpiresIn    time.Duration // until the clock of its state runs out; 0 when ended
	FailoverSafe bool          // the TTL rides over the crash of a gateway
	Owner        string
	Metadata     string
	Permits      int         // with Mode Semaphore, of Limit
	Limit        int         // with Mode Semaphore: what was in force when it was enqueued
	Locks        []LeaseLock // of a group, in the order of the request; then NS, Lock, Znode and Mode are ""
	Holds        []string    // the named holds of a reentrant lease, in the order in which they were taken
	LockDelay    time.Duration
	LockDelayOn  DelayOn
	Ephemeral    bool // ends with its gateway's session; ExpiresIn is an estimate
	Revoke       *Revocation
	Warning      string // what the client should know about what it asked for; "" for nothing
	Rev          string // opaque mark of what is visible here
	Term         Term   // of State held; see Manager.StillValid
}

// LeaseLock is one lock of a group.
type LeaseLock struct {
	NS, Lock       string
	Mode           Mode
	Permits, Limit int // with Mode Semaphore
	Znode          string
	FencingToken   int64 // once held
	Position       int   // among the waiters of that lock, from 1; 0 when nothing stands before it there
}

// DelayOn says which ends of a held lease its lock delay follows.
type DelayOn string

// A lock delay keeps the place of a lease that has ended, so that whoever
// still believes to hold it can finish before the next one begins.
const (
	DelayOnExpiry DelayOn = "expiry" // expired, unclaimed, or taken back by force
	DelayAlways   DelayOn = "always" // also released
)

// Revocation is what a holder is asked to do.
type Revocation struct {
	Reason string // the asker's words
	// Forced: the lease ends with ReasonRevoked when ForceIn has passed.
	Forced  bool
	ForceIn time.Duration
}

// Contender is an entry of a lock's queue as shown to anyone: no secrets.
type Contender struct {
	LeaseID      string // "" when foreign
	Foreign      *Foreign
	Znode        string
	Owner        string
	Mode         Mode
	Permits      int
	Position     int   // among the waiters, from 1; 0 for a holder
	FencingToken int64 // holders only; 0 while it is not known
	// At is when the contender was looked at: the spans below count from it, and At plus or minus one is the same instant each time.
	At       time.Time
	Age      time.Duration
	AgeKnown bool
	// HeldFor is how long a holder has held, as far as this gateway has seen.
	// HeldLonger: it may have held before, because this gateway did not see it
	// begin (it held when the tree was read, or when it was taken over).
	HeldFor    time.Duration
	HeldLonger bool
	// Clock is what ExpiresIn counts down from: the TTL, or the shorter clock of
	// who waits or has not claimed. Ours, on the gateway that runs it; else 0.
	Clock     time.Duration
	ExpiresIn time.Duration // ours, on the gateway that runs its clock; else 0
	Unclaimed bool          // granted, and its client has not shown up yet
	Metadata  string
	Limit     int // of a permit contender of ours
	// Delayed: its lease has ended and its place stays for its lock delay; ExpiresIn
	// is how much longer, Reason how the lease ended.
	Delayed   bool
	Reason    Reason
	Holds     []string    // of a reentrant lease
	Group     []string    // the other locks of its lease: "lock", or "ns/lock" outside its own namespace
	Ephemeral bool        // of ours
	Revoke    *Revocation // its holder has been asked to let go
	Wait      *Wait       // of a waiter in a page of its queue: what keeps it from holding; nil when nothing does
}

// Wait is what keeps a waiter from holding.
type Wait = recipe.Wait

// LockState sums up a lock.
type LockState string

// The states of a lock.
const (
	LockFree      LockState = "free"
	LockHeld      LockState = "held"
	LockUnclaimed LockState = "unclaimed" // granted, and the client has not shown up yet
	LockQueued    LockState = "queued"    // contenders wait and nobody holds (a grant is under way, or a group waits for another lock)
	LockDelayed   LockState = "delayed"   // let go, and kept for its last holder's lock delay
)

// Lock is a lock's queue.
type Lock struct {
	NS, Name    string
	Dialect     string // of its namespace
	State       LockState
	Holders     []Contender // one page of them; in a list the first ones
	HolderCount int         // all who hold
	HeldPermits int         // of all who hold
	Waiters     []Contender // one page of them
	QueueLength int         // all who wait
	Limit       int         // of its permits; 0 when it has no settings
	LimitAgreed bool        // the limit came with an acquire and is forgotten with the idle lock; else it was set
	Hazards     []Hazard
	Rev         string
	NextCursor  string
}

// AcquireRequest asks for a lock. The zero values of optional fields mean their defaults.
type AcquireRequest struct {
	Principal Principal
	NS, Lock  string
	TTL       time.Duration // MinTTL..MaxTTL; 0: DefaultTTL
	// Wait is how long to stand in line: 0 tries, WaitForever has no end. With
	// Async it must be 0.
	Wait time.Duration
	// Async answers at once with a waiting lease (a ticket).
	Async          bool
	Owner          string
	Metadata       string
	IdempotencyKey string // "" for none

	// Mode, Limit and Permits: see Want.
	Mode           Mode
	Limit, Permits int
	// Group asks for several locks at once, all or nothing: 1 to MaxGroup of them, none twice. Then NS, Lock, Mode,
	// Limit and Permits are empty.
	Group []Want
	// Hold names the first hold of a reentrant lease. With Token it adds a hold to that lease instead of queueing:
	// then everything else but NS and Lock is empty, and they must be the lease's.
	Hold, Token string
	// LockDelay keeps the lock for so long after the lease's end; LockDelayOn "" is DelayOnExpiry.
	LockDelay   time.Duration
	LockDelayOn DelayOn
	// Ephemeral makes it the plain ZooKeeper recipe: the lease ends with this gateway's session.
	Ephemeral bool
	// NotifyURL is told when the lease is granted and when it ends. "" for none.
	NotifyURL string
	// DryRun asks what would happen, and does nothing.
	DryRun bool
}

// Want is one lock of an acquire.
type Want struct {
	NS, Lock string // NS "": DefaultNamespace
	Mode     Mode   // "": Exclusive
	// Limit and Permits belong to Semaphore. Limit 0 takes the lock's own; a lock without one, and one that differs,
	// is an error. Permits 0: 1.
	Limit, Permits int
}

// AcquireResult is the answer to an acquire.
type AcquireResult struct {
	Lease    Lease
	Replayed bool // an idempotent repeat: the lease as it is
	// HoldAdded: Lease is an older one that has one hold more (or had it already).
	HoldAdded bool
	DryRun    *DryRun // the answer to a dry run; Lease is empty then
}

// DryRun is what an acquire would find now.
type DryRun struct {
	State       State       // Held: it would be granted at once; Waiting: it would stand in line
	QueueLength int         // who waits already, in the longest of the queues
	Holders     []Contender // who is in the way, of all the locks asked for
}

// LeaseRequest asks for one lease.
type LeaseRequest struct {
	Principal Principal
	ID        string // or "" to take it from the token
	Token     string // "" for an outsider's look, which keeps nothing alive
	// Wait > 0 polls: answer when the lease differs from Since, or when Wait is
	// over. At most MaxPollWait.
	Wait  time.Duration
	Since string
	// Verify asks ZooKeeper: the answer was true after the question arrived.
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
	Waiters      int  // others in line behind the holder
	Term         Term // see Manager.StillValid
	Revoke       *Revocation
}

// HeartbeatResult is one entry of a bulk heartbeat's answer: either of the two.
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
	State     State // Waiting or Held
	Limit     int
	Cursor    string
}

// LockRequest asks for one lock's queue.
type LockRequest struct {
	Principal  Principal
	NS, Lock   string
	Wait       time.Duration // long poll, as in LeaseRequest
	Since      string
	Consistent bool // everything that was acknowledged before the question is in the answer
	Limit      int  // holders on a page, and waiters
	Cursor     string
}

// LockFilter selects locks; they come in order of their names.
type LockFilter struct {
	Principal Principal
	NS        string
	Prefix    string
	Contains  string // part of the name
	State     LockState
	Hazardous bool // only those with a hazard, also when nobody uses them
	Limit     int
	Cursor    string
}

// LockPage is a page of locks, each without its waiters.
type LockPage struct {
	Items      []Lock
	NextCursor string
}

// LeasePage is a page of leases.
type LeasePage struct {
	Items      []Lease
	NextCursor string
}

// NamespaceInfo describes a recorded namespace.
type NamespaceInfo struct {
	Name          string
	Root, Dialect string // "" while the record has not been read
	// Names belong to the custom dialect; "" for those that it has not.
	Names     struct{ Exclusive, Shared, ForeignShared string }
	Ready     bool   // the replica holds it: its locks can be taken here
	Problem   string // why it will not be ready; "" for none
	Swept     bool   // the directories of locks that nobody uses are removed
	Locks     int    // in use
	Hazardous int    // locks with a hazard
}

// Info describes this gateway and its ZooKeeper.
type Info struct {
	GatewayID      string // of the present session; "" while there is none
	FleetID        string
	Root           string
	PromiseWindow  time.Duration
	ZooKeeper      ZooKeeperInfo
	Namespaces     []string
	Locks          int // in use, in all namespaces
	Contenders     int // that hold or wait, foreign ones too
	Leases         map[State]int
	Kinds          map[LeaseKind]int  // the same leases by mode, too
	OldestWaiter   time.Duration      // how long the oldest waiting lease has waited; 0 when none waits
	Hazards        map[HazardCode]int // locks that have each of them now, whoever they belong to
	HazardousLocks int                // locks with a hazard, or several
	Bounds         []quota.State      // on what clients may leave here
}

// LeaseKind is what leases are counted by. Mode is Several for those of more
// than one lock.
type LeaseKind struct {
	State State
	Mode  Mode
}

// ZooKeeperInfo describes the connection.
type ZooKeeperInfo struct {
	Servers        []string
	State          string // "connected", "suspended", "none"
	SessionTimeout time.Duration
	FenceOpen      bool
	FenceMargin    time.Duration // until the fence closes if nothing commits
	ReplicaCurrent bool
	LastZxid       int64
	SecretExposed  bool // see layout.Layout
}

// String is the whole in a line, for people.
func (d *Decoded) String() string {
	if d == nil {
		return ""
	}
	var list []string
	add := func(what, s string) {
		if s != "" {
			list = append(list, what+s)
		}
	}
	add("", d.Address)
	add("participant ", d.Participant)
	add("", d.Identifier)
	if t := d.TableLock; t != nil {
		add("table ", t.Table)
		add("by ", t.Owner)
		add("for ", t.Purpose)
	}
	return strings.Join(list, " ")
}

// KindCopiedID is the Foreign.Kind of a contender that another program made with the id of a lease.
const KindCopiedID = "copied lease id"

// KindEphemeralNode is the Foreign.Kind of a plain node, whose Znode is the lock's own path.
const KindEphemeralNode = "ephemeral node"

// Several stands in place of a mode for leases of more than one lock.
const Several Mode = "several"
