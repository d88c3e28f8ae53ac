// Package sweep clears what a fleet that is gone for good has left in ZooKeeper
// (gateway sweep).
//
// Leases outlive gateways: that is what they are for. So when the last gateway is
// gone and none will come back, their contenders stand in the queues for ever, and
// other programs wait behind them. Sweep is how an operator says that nobody comes
// back.
//
// # What it promises
//
// Of the root's own fleet it deletes, in this order: registrations and guards that
// belong to no session any more, contenders in all recorded namespaces, idempotency
// keys, succession entries, the outbox. What is left at any moment, should it be
// interrupted, is what gateways may have left: of each queue the tail goes first, a
// lease over several locks goes in one transaction, a key goes after its lease, and
// of a chain of successions the oldest entry goes first. So who starts a gateway after all,
// half way, has the same holders as before, and the waiters that are left, in order.
//
// Every transaction proves that no gateway has registered since none was there:
// ZooKeeper numbers sequential nodes by how many children their parent has ever been
// given, so {create /gateways/sweep-, delete /gateways/sweep-<the number that it gets
// if nobody has registered}} fails when somebody has, even if that one is gone again.
// (A check would not do: it looks at a node's data, which children do not change.) A
// gateway that registers meanwhile is therefore not robbed of anything: the next
// transaction fails, Sweep stops and says which gateway it is.
//
// It waits for the largest promise window before the first deletion: for so long
// may a gateway that is not registered any more, because ZooKeeper has ended its session,
// still tell a client that it holds.
//
// # What it refuses
//
// To begin while a gateway is registered. To touch what other programs, or other
// fleets whose namespaces have the same lock roots, have there: a contender is this
// fleet's only by the fleet id in its name. To delete what has children: it is
// reported and left, as are the keys and successions then.
//
// # What stays
//
// Settings, namespaces, webhooks, the secret and the rest of the layout: a gateway that is
// started there later finds an empty lock service with the same configuration, and
// fencing tokens go on to rise. And the locks' directories: lock objects of other programs create theirs just
// once. (Gateways sweep idle ones of the default namespace.)
//
// # What it cannot know
//
// Whether the clients are gone, too. Whoever holds a lease may go on to believe in it for its TTL, counted
// from its last heartbeat; the report tells the longest one. What compares fencing tokens is safe in any case.
//
// # Who owns what
//
// Sweep blocks, runs a bounded number of reads at once and has ended all that it
// started when it returns. It keeps the paths of what it is going to delete in memory.
package sweep
