// Package term runs one ZooKeeper session after another and counts them: each is a term. What a gateway decides under a term it
// may only say under it.
//
// A Port is the manager's way to ZooKeeper. It opens sessions, hands writes to the present one, reads over the
// observer's connection, and tells whether the gateway may speak now.
//
// # What it promises
//
// StillValid(t) means that the session of term t is the present one, that its trust window is open, and that the replica is
// current. A Barrier returns when everything that was acknowledged before the call is in the replica. Every write that
// Submit takes has one outcome, and every read one reply.
//
// # Concurrency
//
// The port's owner has one lock, which it gives as a Monitor. Outcomes of writes, replies of reads, and the hooks of Options
// are called with that lock held. Methods that say so are called with it held; the others need no lock and may
// block. Run owns the goroutine of the sessions; a barrier has a goroutine of its own, which ends within barrierWithin.
//
// # Bounds
//
// At most readWindow reads are under way; the others wait, one entry each. At most maxBarriers barriers are under way,
// for any number of callers. The session bounds writes.
//
// # Failure
//
// A lost connection puts a read back into the line. A write without a session is not done. When a session ends, the port opens the
// next one after reopenDelay, with a new id; Last ends that. Each attempt to open a session has a new id; delays that grow to 2 s
// lie between them.
package term
