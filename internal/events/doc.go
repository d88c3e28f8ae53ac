// Package events is the hub between what happens to locks and those who watch:
// streams over HTTP and WebSockets, and the pages of the dashboard.
//
// # What it promises
//
// Every event has one place in one order, the order in which Publish was
// called; its ID names that place. Every subscriber is given the events that
// its filter lets through, in that order, each once, with none left out, until
// its subscription ends. What a subscriber cannot be given it is told of by a
// Resync event: from there on it has to look at the present state once more.
//
// What the order means is its publisher's to say. The lock manager publishes
// under its own lock, so (internal/locks, events.go):
//
//   - Node events stand in ZooKeeper's order, as its watch told them.
//   - Of one lease: queued, then granted (if it ever was), then its end, each
//     at most once. (Of a contender that is no lease of this gateway's they are
//     told anew when it comes back: after a connection was lost, the tree may be
//     read from a server that has not come to the last events.)
//   - Of one lock: a holder's end stands before the grant that it makes possible.
//   - lease.queued stands behind the node.created of the contender. The end of
//     a lease may stand before its node.deleted: the reply to our own delete is
//     often quicker than the watch, or much later: the manager holds ends
//     back that another gateway may explain, with the same lock's later events. An
//     event's time is when it happened, so times may go back a little in the order.
//
// # What it refuses
//
// To wait for anybody. Publish does the same small work whether nobody watches
// or a thousand do, and whether they read or not. (Those who are woken want
// processors, as everybody does: see BENCHMARKS.md.) Events are
// kept in one ring; a subscriber is a place in it and owns no queue that could
// grow. One that falls behind by the whole ring is told Resync and its
// subscription is over. Subscribers beyond MaxSubscribers are refused.
//
// # Resuming
//
// Subscribe with the ID of the last event that was seen goes on right behind
// it, as long as it is in the ring. An ID of another process, or one that the
// ring has lost, begins with Resync. So does the Position of a subscriber that
// has lost something and was not told yet. The ring is memory: a restart loses it.
//
// # Goroutines and failure
//
// Run owns one goroutine, which wakes subscribers at most every WakePause, so
// that a burst is read in one go; one that has read all there was waits for the
// next wake-up, also when it comes back late. When Run returns every subscription
// has what was published left to read, and ends with ErrClosed. A subscription
// belongs to the goroutine that calls Next; anybody may Close it.
package events
