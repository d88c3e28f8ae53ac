package zk

import (
	"errors"
)

// OpKind is the kind of one operation of a Write.
type OpKind uint8

// The operations a Write is made of.
const (
	OpCreate  OpKind = iota + 1 // a persistent node
	OpDelete                    // Version -1 deletes any version
	OpSetData                   // Version -1 overwrites any version
	OpCheck                     // fails unless the node exists at Version
)

// Op is one operation of a Write. Paths are full paths below the chroot.
type Op struct {
	Kind       OpKind
	Path       string // for a sequential create: the prefix that the number is appended to
	Data       []byte // create, set
	Version    int32  // delete, set, check
	Sequential bool   // create
	Ephemeral  bool   // create; counted against the session's cap
	Private    bool   // create: readable by gateways alone (needs authentication)
}

// Outcome tells what became of a Write.
type Outcome uint8

// A Write has exactly one of these outcomes.
const (
	// Done: the transaction committed.
	Done Outcome = iota + 1
	// NotDone: it definitely did not and will not. Result.Err says why: the error of the Write's own operation
	// Result.Culprit (ErrNoNode, ErrNodeExists, ErrBadVersion, ErrNotEmpty, ErrNoAuth ...), or ErrNotApplied when a
	// lost transaction was proved not to have happened.
	NotDone
	// Conflict: a check failed on which this Write depended, its own or that of another Write in the same transaction.
	// Nothing was done; decide again from the present state.
	Conflict
	// Unknown: it could not be found out, because the session ended first, or (rarely, while the session lives) because
	// another program removed what would have told. Nothing of the Write can commit after this answer, so a tree read
	// that is made later tells what is there.
	Unknown
)

// Result is what a Write's Done function is told, exactly once.
type Result struct {
	Outcome Outcome
	Err     error
	Culprit int // index into Write.Ops of the operation that failed, or -1
	// Zxid is the transaction's zxid when Done: the czxid of every node it created (the guard's mzxid). When the answer
	// was lost and nothing that was created is there any more, it is a later zxid of this session.
	Zxid int64
	// SentAt is when the committed transaction was handed to the client library: the start of what its commit proves.
	SentAt Instant
	// Paths holds, per operation, the full path of a created node, and "" for the others; "" also for a node whose
	// creation was found out about only after another program had removed it.
	Paths []string
	// Versions holds, per operation, the data version after a set, 0 after a create.
	Versions []int32
}

// Write is a piece of work that commits whole or not at all, possibly in one transaction with the Writes of others.
type Write struct {
	Ops []Op
	// Alone keeps the Write out of other Writes' transactions: for what fails
	// often (sweeps, a new directory with its first lease) or must be the only one.
	Alone bool
	// Awaited says that clients wait for what the Write does, as those behind a holder wait for its release. It does not
	// wait for others to share its transaction.
	Awaited bool
	// MayWait lets the Write wait a moment for another one to share a transaction with, although nothing is under way: no
	// client gets anything sooner from a transaction of its own.
	MayWait bool
	// DeletesLast gives the Write the place of one that only deletes, behind the
	// others of its transaction and in the order in which queues may lose their
	// contenders: its other operations (checks, notes, replacements of the contenders
	// that it deletes) let no contender in.
	DeletesLast bool
	// Queues names the queues (lock directories) in which the Write creates contenders, each once. A transaction has at
	// most one Write for each queue, because all its creates share one zxid and the zxid is the fencing token. Writes
	// of one queue go in the order in which they were submitted: a Write goes when it is the first in all of its
	// queues, and until then it holds up those behind it in each of them.
	Queues []string
	// Done is called once with the outcome, as a rule by the goroutine that reads from ZooKeeper. It must not block, nor wait
	// for anything that is read from ZooKeeper.
	Done func(Result)
	// To takes the outcome instead, and calls Done; nil: Done needs nothing around it.
	To Receiver
}

// Receiver takes the outcomes of Writes that name it, those of one transaction at once, and calls Done of each in the
// given order. So it takes a lock that they need once for all of them.
type Receiver interface {
	Receive([]Answered)
}

// Answered is a Write with its outcome.
type Answered struct {
	Write  *Write
	Result Result
}

// Answer tells the Write its outcome.
func (w *Write) Answer(r Result) { Answer([]Answered{{w, r}}) }

// Answer tells Writes their outcomes in the given order. Those that stand side by side and name one Receiver go to it in
// one call.
func Answer(list []Answered) {
	for len(list) > 0 {
		to, n := list[0].Write.To, 1
		for n < len(list) && list[n].Write.To == to {
			n++
		}
		if to != nil {
			to.Receive(list[:n])
		} else {
			for i := range list[:n] {
				list[i].Write.Done(list[i].Result)
			}
		}
		list = list[n:]
	}
}

// Errors of operations and sessions. Errors.Is finds them through wrapping.
var (
	ErrNoNode          = errors.New("no such node")
	ErrNodeExists      = errors.New("node exists")
	ErrBadVersion      = errors.New("version differs")
	ErrNotEmpty        = errors.New("node has children")
	ErrEphemeralParent = errors.New("the parent is ephemeral and has no children")
	ErrNoAuth          = errors.New("not authorized")
	ErrNotApplied      = errors.New("the transaction was lost before ZooKeeper applied it")
	ErrTooLarge        = errors.New("larger than a transaction may be")
	ErrEphemeralCap    = errors.New("the session's ephemeral nodes are at their cap")
	ErrQueueFull       = errors.New("too many writes wait for ZooKeeper")
	ErrSessionGone     = errors.New("the ZooKeeper session is gone")
	ErrDeposed         = errors.New("another gateway has taken over")
	ErrUnavailable     = errors.New("ZooKeeper cannot be reached")
)
