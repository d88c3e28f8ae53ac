// Package events is the hub between what happens to locks and its watchers:
// streams over HTTP and WebSockets, and the pages of the dashboard.
//
// # What it promises
//
// Every event has one place in one order, the order in which Publish was
// called; its ID names that place. Every subscriber gets the events that
// its filter selects, in that order, each once, with none left out, until
// its subscription ends. A subscriber that misses events gets a
// Resync event: it must read the present state again.
//
// The publisher defines what the order means. The lock manager publishes
// under its own lock, so (internal/locks/manager, events.go):
//
//   - Node events stand in ZooKeeper's order, as its watch reports them.
//   - Of one lease: queued, then granted (if it ever was), then its end, each
//     at most once. (Of a contender that is no lease of this gateway's they are
//     repeated when it comes back: after a lost connection, the tree may be
//     read from a server that lags.)
//   - Of one lock: a holder's end stands before the grant that it makes possible.
//   - lease.queued stands behind the node.created of the contender. The end of
//     a lease may stand before its node.deleted: the reply to a gateway's own delete may
//     be quicker than the watch. It may also stand much later: the manager holds back ends
//     that another gateway may explain, with the same lock's later events. An
//     event's time is when it happened, so times may go back a little in the order.
//
// # What it refuses
//
// Publish never waits, and does the same small work for no subscriber as for a
// thousand, whether they read or not (BENCHMARKS.md has the cost of waking them). Events are
// kept in one ring; a subscriber is a place in it and owns no queue. A
// subscriber that falls behind by the whole ring gets Resync, and its
// subscription ends. Subscribers beyond MaxSubscribers are refused. Subscribers of one
// filter share their batches; the hub keeps the last few of them, also those that the ring has lost.
//
// # Resuming
//
// Subscribe with the ID of the last received event continues right behind
// it, as long as it is in the ring. An ID of another process, or one that the
// ring has lost, begins with Resync. So does the Position of a subscriber that
// has missed events and did not get Resync yet. The ring is memory: a restart loses it.
//
// # Goroutines and failure
//
// Run owns one goroutine, which looks once at each new event for all subscribers with
// the same filter, and not at all for those of another lock. It wakes those that the event concerns, at
// once after a pause, else at most every WakePause, so a burst is read in one go. Subscribers that take turns
// to read are woken again when all have read, or after a second. A subscriber that has read everything waits for the
// next wake-up, also when it comes back late. After Run every subscription
// can still read what was published, and then ends with ErrClosed. A subscription
// belongs to the goroutine that calls Next; any goroutine may Close it.
package events
