// Package history remembers who held which lock, who waited for it in vain, and what was wrong with it: on disk, over
// restarts, for days.
//
// # What it promises
//
// One row stands for one contender that held a lock, from its grant to its end, with the reason of the end. A contender that
// left the queue without a grant is a row, too (Wait), and so are the hazards of a lock and deadlocks, from when they
// appeared until they were gone. Every gateway observes all locks of its fleet, so its store has those of all gateways.
//
// A quick hold (under a second, after a wait of under a second, and released by its client) has a row of its own while its lock
// has few of them (quick.go). Those beyond that are counted: one row (Many) has their number and their mean spans. A
// hold that lasted, or ended otherwise, always has its own row.
//
// The store says how far back it reaches, and where it has gaps: while the gateway did not run, while it lagged behind the
// hub, while the disk took nothing. A hold whose begin or end fell into a gap has bounds instead (Item.Early, Item.Late).
// A gap is filled from another gateway when one answers that was there (fill.go).
//
// # What it refuses
//
// It keeps no lease tokens and no metadata. It grants, ends and keeps nothing: no request of a client but those about
// history waits for it, and no answer about a lease comes from it.
//
// # Bounds
//
// Options.Keep in time and Options.Size in bytes, whichever comes first; what is older is deleted in small steps. The queue
// before the writer has maxQueued batches; what finds no place is dropped, counted, and is a gap. A writer with nothing to write
// gives back the memory that it can fill again. A query ends after queryWithin and says that it is not complete; it may look at
// no more than the rows of one store.
//
// # Failure
//
// The gateway goes on without it. A store that cannot be opened is tried again every retryOpen. A damaged file is moved
// aside (never deleted; maxAside of them are kept, and at that number the history stays off), and a new one begins. A full disk
// loses what it does not take, which is a gap. A killed process loses the last two seconds at most, which is a gap. Each of these
// is in Status, in the log, and in a metric.
//
// # Goroutines
//
// Run owns them: the follower reads the hub and makes batches (follow.go), the writer alone writes to the store (write.go), a
// third one asks for the present holders and asks other gateways (present.go, fill.go). Queries run on the goroutines of their
// callers, on connections of their own that only read.
package history
