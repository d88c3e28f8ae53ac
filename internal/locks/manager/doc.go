// Package manager runs leases: locks, queues and their clocks. A Manager maps
// each lease of an HTTP client onto one contender (a sequential znode) of the
// ZooKeeper lock recipe and answers for it.
//
// # What it promises
//
// A lease is granted only when its contender holds by the queue's names alone,
// as recipe.Queue decides, in a replica that has seen every earlier contender
// and, of those that are gone, the end: what a reply to the writer tells of an
// end lets nobody in before the replica shows it (queues.Queue.Awaits).
// A held lease is not ended before its TTL has passed since its last answered
// heartbeat, whatever happens to gateways or to ZooKeeper; it may end later.
// An acquire with an idempotency key queues once. The fencing token of a lease
// is the fence base plus the czxid of its contender. Acquiring is one write,
// releasing is one, a heartbeat is none, and none of them reads.
//
// # What it refuses
//
// To speak while it cannot know: when the fence is closed (no guarded
// transaction committed that was sent within the promise window) or the
// replica is not current, nothing is granted, nothing expires, and heartbeats,
// acquires and verifications are answered CodeUnavailable. To guess: a write
// whose outcome is unknown leaves its lease creating or ending until it is
// known.
//
// # The life of a lease
//
//	creating --(own node seen, czxid known)--> waiting --(holds)--> held --> ending --> ended
//
// The contender's created event on the observer's stream (or a tree read that
// lists it) makes it seen: everything that stands before it in the queue came
// earlier in that stream. The reply to the create gives the czxid. Both are
// needed before a grant. Ending means that the contender's deletion was handed
// to ZooKeeper; a definite "not done" of an expiry makes the lease held again,
// anything else is final. When a session ends, the process opens another one
// with a new gateway id and takes its own old leases over by the same protocol
// as it does those of a dead gateway: they keep their id, token, fencing token
// and place, and their clock restarts at takeover + promise window + TTL.
//
// # Leases of several contenders
//
// A lease has a slot for each of its contenders (slot.go): one, or for a group one
// in the queue of each of its locks. They are created in one transaction, so that
// all groups have the same order in all queues and clients that take all they need
// at once cannot deadlock with each other; the lease is granted when it holds in every
// slot, ended in one transaction, and ended whole when one slot loses its
// contender. Each name says which of how many it is (recipe), so a successor adopts
// a lease when all of it is there, and what has lost a part a promise window after it
// was seen is deleted (sweepParts). The record that counts is that of the first
// slot; the others carry a label, for whoever looks at their queues.
//
// A downgrade (downgrade.go) replaces a slot's contender under the same number,
// creating before it deletes. While it is under way the name to delete is not
// certain, and an end waits for it.
//
// # What is written down
//
// The contender's data, its record, tells a successor what the name does not:
// owner, TTL, metadata, holds. The owner's gateway writes it, at the version
// that it has applied (another one only to ask the holder to let go, see below), and a request that changes it is answered afterwards
// (amend.go). Holds are named, so that nothing that is repeated counts twice
// (holds.go). A gateway that cannot reach the owner of a lease may count a heartbeat up in
// the record, which the owner reads (written.go).
//
// # Places that stay
//
// The end of a held lease with a lock delay is a write of its record instead of a
// deletion (delay.go): closed. The lease is over for its client from then on, and is
// history; a delay keeps its contenders in their queues and deletes them when it is
// over. Whoever takes over reads closed before anything else and gives the delay
// again.
//
// What is remembered of ended leases, and of those of other gateways that were seen
// to go, is in postmortem.go and the package postmortem.
//
// # What it tells
//
// Options.Events is told what happens to leases, nodes, gateways and the session,
// in the order that internal/events promises. All of it is published in events.go,
// with the monitor held; what has been told of a contender is in queues.Observed.
//
// Why a lease ended is known to the gateway that ran it, and to the one whose
// administrator ended it. They tell the others (notices.go), which hold the end back from
// their events for a second at most until they have heard (heldback.go). What is
// heard explains what the replica has shown, and never does more than that: hearsay.go.
//
// # Who is told for certain
//
// The end of a held lease and the note from which others are told of it are one
// transaction: outbox.go, whose Outbox is given by whoever delivers. nodes.go gives that one
// ZooKeeper under the present session.
//
// # Ephemeral leases
//
// Their contenders go with the gateway's session; ephemeral.go says how they end, and
// why a successor does not run them.
//
// # Namespaces
//
// Every gateway follows every recorded namespace, also those that others add while it
// runs, and succeeds no other gateway before it has read them all: package queues says why that
// is enough.
//
// # Plain nodes
//
// Where another program's ephemeral node stands in the place of a lock's directory
// (plain.go) it is the lock's holder, and acquires that wait do so in memory, in no order (obstacle.go).
//
// # Settings
//
// A semaphore's limit is a node whose path names it, which an acquire's transaction
// checks or creates, and the contender carries it in its name: settings.go says why,
// configure.go how it is set and removed.
//
// # Current tokens
//
// Whether a fencing token is current is asked by what the lock protects, perhaps of
// a gateway that lags or is deposed: fencecheck.go says what may be answered, barrier.go
// how all who ask share one transaction.
//
// # What administrators do
//
// Holders are asked to let go (revoke.go): the question is in the lease's record
// before anybody is told of it, so it survives the gateway, and force ends the lease when its
// holder does not. What was asked is withdrawn in the same way (withdraw.go). A request may name the only contenders that it
// means (shown.go). One lease, or another program's contender, is broken (break.go);
// what is old in a queue is reaped (reap.go), a whole queue destroyed (destroy.go), both in small transactions from its tail on
// (fell.go). The administrator's words go with the end: into history, the event and the error that the client gets.
//
// # Who owns what
//
// All state is behind one monitor (monitor.go), whose lock is held for short spans and never during I/O.
// Manager.Run owns five goroutines and returns when all have stopped: the
// session loop (opens a session, waits for its end, opens the next), the
// observer (calls Manager.Apply with changes in ZooKeeper's order), the clock
// loop (deadlines, blind time), the sweeper (idle lock directories, old
// keys, old successions) and the vigil (looks at the other gateways' guards: depose.go). Outcomes of writes arrive on goroutines of the
// session. A request's goroutine waits on a channel that is closed when its
// lease changes.
//
// # Bounds
//
// What clients may leave here is bounded by package quota: leases, tickets, texts, idempotency keys, locks and settings
// (bounds.go says where it is asked). Writes in flight, ended leases remembered, heartbeats written for others,
// guards looked at in a round, retries of a create and contenders described in one answer are bounded; what happens at
// each bound is said where the constant is.
//
// What other programs may write here is cut to the bounds of the API when it is read (recordbounds.go). So less than
// 10 KiB of text is kept of a contender and shown of it: owner, metadata, holds and the reason of a revocation, or 4 KiB
// of another program's data, twice when it is decoded. JSON answers write some bytes as six. A contender takes less than
// 52 KiB of an answer, besides the names of nodes and of its group's locks. A lock's answer of 1,000 holders and 1,000
// waiters takes less than 102 MiB.
//
// A held lease on a lock of its own keeps some 580 bytes alive, the replica's part included (compact.go says how).
package manager
