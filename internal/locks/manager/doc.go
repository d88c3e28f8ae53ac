// Package manager runs leases: locks, queues and their clocks. A Manager maps
// each lease of an HTTP client onto one contender (a sequential znode) of the
// ZooKeeper lock recipe and answers for it.
//
// # What it promises
//
// The manager grants a lease only when its contender holds by the queue's names alone, as recipe.Queue decides.
// The replica must have shown every earlier contender, and the deletion of each that is gone.
// A reply to a deletion grants no lease before the replica shows that deletion (queues.Queue.Awaits).
// A held lease does not expire before its TTL has passed since its last answered heartbeat.
// That is so whatever happens to gateways or to ZooKeeper; the lease may expire later.
// An acquire with an idempotency key queues once. The fencing token of a lease
// is the fence base plus the czxid of its contender. Acquiring is one write,
// releasing is one, a heartbeat is none, and none of them reads.
//
// # What it refuses
//
// The gateway is not trusted while no guarded transaction has committed that was sent within the promise window.
// While it is not trusted, or its replica is not current, the manager grants and expires no lease.
// It then answers heartbeats, acquires and verifications with CodeUnavailable.
// A write whose outcome is unknown leaves its lease creating or ending until the outcome is known.
//
// # The life of a lease
//
//	creating --(own node seen, czxid known)--> waiting --(holds)--> held --> ending --> ended
//
// The contender's created event on the observer's stream (or a tree read that
// lists it) makes it seen: all earlier contenders came earlier in that stream.
// The reply to the create gives the czxid. A grant needs both. A lease is ending once
// the manager has submitted the contender's deletion. If an expiry definitely failed, the lease is held again;
// any other end is final. When a session ends, the process opens another one with a new gateway id.
// It takes over its own old leases by the same protocol as those of a dead gateway. They keep their id, token,
// fencing token and position, and their clock restarts at takeover + promise window + TTL.
//
// # Leases of several contenders
//
// A lease has a slot for each of its contenders (slot.go): one, or for a group one in the queue of each lock.
// One transaction creates them, so all groups have the same order in all queues.
// Clients that take all they need at once therefore cannot deadlock with each other.
// The lease is granted when it holds in every slot. One transaction ends it, also when one slot loses its contender:
// then it has ended for its client at once.
// Each name says which contender of how many it is (recipe), so a successor adopts a lease only when it is complete.
// A lease that is incomplete a promise window after it was seen is deleted (sweep.go).
// The first slot has the lease's record; the others have a label for display.
//
// A downgrade (amend.go) replaces a slot's contender under the same number,
// creating before it deletes. Meanwhile the name to delete is not certain, so an end waits for the downgrade.
//
// # What is written down
//
// The contender's data, its record, tells a successor what the name does not:
// owner, TTL, metadata, holds. The owner's gateway writes it, at the version that it has applied;
// another gateway writes it only to ask the holder to release (see below).
// A request that changes the record is answered after the write (amend.go).
// Holds are named, so a repeated request does not count twice (amend.go).
// A gateway that cannot reach a lease's owner may count a heartbeat in the record, which the owner reads (heartbeat.go).
//
// # Lock delay
//
// The end of a held lease with a lock delay is a write of its record instead of a
// deletion (delays.go): the record says closed. The lease has then ended for its client.
// The delay keeps its contenders in their queues and deletes them when it is over.
// A successor reads closed first and runs the whole delay again.
//
// at_least uses the same write: its record says for how long the place stays, so a successor keeps it for no less.
//
// # Periods
//
// A lease with once_per is granted only when the record of its lock's periods has its id (once.go). The gateway writes
// that record at the version that it has read, so no end of a lease has to write a mark. A release that makes the period
// done writes it in the transaction that ends the lease.
//
// # Reservations
//
// A reservation ends at a time, and heartbeats do not extend it (reserve.go). The record has the end as wall time. A
// successor ends the lease a minute later, because its wall clock may be ahead.
//
// # When a lease was granted
//
// The record says that, for display alone: a create that is granted at once by its number, one that waited by a write that
// comes when the lease has held for a while (granted.go).
//
// Package postmortem has the history of ended leases, of this gateway and of others.
//
// # Events
//
// Options.Events gets the events of leases, nodes, gateways and the session, in the order that internal/events
// promises. events.go publishes them with the monitor held; queues.Observed records what was published of a contender.
//
// The gateway that ran a lease, and the one whose administrator ended it, know why it ended. They send the reason
// to the other gateways, which delay their event for at most a second to wait for it (package reports).
//
// # Notifications
//
// One transaction ends a held lease and writes the outbox entry from which its end is delivered (outbox.go).
// term/nodes.go gives the Outbox access to ZooKeeper under the present session.
//
// # Ephemeral leases
//
// ZooKeeper deletes their contenders with the gateway's session. A successor does not run them:
// it deletes what is left of them (orphans).
//
// # Namespaces
//
// Every gateway follows every recorded namespace, also those added while it runs. It succeeds no other gateway
// before it has read them all; package queues says why that is enough.
//
// # Plain nodes
//
// Another program's ephemeral node at the path of a lock's directory is the lock's holder. Acquires then wait in
// memory, in no order (request.go).
//
// # Settings
//
// A semaphore's limit is a node whose path names it, which an acquire's transaction
// checks or creates, and the contender carries it in its name: package settings says why,
// admin.go sets and removes it.
//
// # Current tokens
//
// A protected resource may ask a gateway that lags or is deposed whether a fencing token is current.
// fencecheck.go says which answers are allowed, term/barrier.go how such requests share one transaction.
//
// # What administrators do
//
// A revocation asks holders to release (revoke.go). It is written to the lease's record before any client sees it,
// so it survives the gateway. With force, it ends the lease if its holder does not release in time.
// A withdrawal is written in the same way. A request may be limited to named contenders (targets.go).
// A break ends one lease, or another program's contender (break.go). A reap ends old contenders (reap.go), a destroy
// a whole queue (break.go). All use small transactions that start at the tail (terminate.go). A release whose owner
// cannot be reached goes the same way (release.go).
// The administrator's text is in the history, in the event and in the error that the client gets.
//
// # Concurrency
//
// One monitor guards all state (manager.go); its lock is held for short spans and never during I/O.
// Manager.Run owns six goroutines and returns when all have stopped: the
// session loop (opens a session, waits for its end, opens the next), the
// observer (calls Manager.Apply with changes in ZooKeeper's order), the clock
// loop (deadlines, blind time), the sweeper (idle lock directories, old
// keys, old successions), the guard watch (checks the other gateways' guards: fleet.go) and the search for deadlocks
// (deadlocks.go).
// Outcomes of writes arrive on goroutines of the session, all those of one transaction under one taking of the lock.
// A request's goroutine waits on a channel that is closed when its lease changes. While ZooKeeper has not answered, it
// also looks at each beat (monitor.go) whether it has waited too long: one timer serves all requests.
//
// # Bounds
//
// Package quota bounds what clients create: leases, tickets, texts, idempotency keys, locks and settings
// (bounds.go says where it is asked). Also bounded are writes in flight, remembered ended leases, heartbeats written
// for others, guards checked in a round, retries of a create and contenders in one answer.
// The comment at each constant says what happens at its bound.
//
// The manager cuts what other programs write to the bounds of the API when it reads it (record/bounds.go).
// It keeps and shows less than 10 KiB of text of a contender: owner, metadata, holds and the reason of a revocation.
// Of another program's data it keeps 4 KiB, twice when it is decoded. JSON answers write some bytes as six.
// A contender takes less than 52 KiB of an answer, besides the names of nodes and of its group's locks.
// A lock's answer of 1,000 holders and 1,000 waiters takes less than 102 MiB.
//
// A held lease on a lock of its own keeps some 580 bytes alive, the replica's part included (lease.go says how).
package manager
