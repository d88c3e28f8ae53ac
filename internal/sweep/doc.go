// Package sweep clears what a fleet that is gone for good has left in ZooKeeper
// (gateway sweep).
//
// Leases outlive gateways. When the last gateway is gone for good, their contenders
// stay in the queues, and other programs wait behind them for ever. With Sweep an
// operator says that no gateway will come back.
//
// # What it promises
//
// Of the root's own fleet it deletes, in this order: registrations and guards without
// a session, contenders in all recorded namespaces, idempotency
// keys, succession entries, the outbox. An interrupted sweep leaves what
// gateways could have left: of each queue the tail goes first, a
// lease over several locks goes in one transaction, a key goes after its lease, and
// of a chain of successions the oldest entry goes first. A gateway that starts after
// an interrupted sweep finds the same holders as before, and the remaining waiters in order.
//
// Every transaction proves that no gateway has registered since none was registered:
// ZooKeeper numbers sequential nodes by how many children their parent has ever had,
// so {create /gateways/sweep-, delete /gateways/sweep-<the number that it gets
// without a registration>} fails after a registration, even one that is gone again.
// (A check would not do: it compares a node's data, which children do not change.) A
// gateway that registers meanwhile loses nothing: the next
// transaction fails, and Sweep stops and names the gateway.
//
// Before the first deletion it waits for the largest promise window: a gateway whose
// session ZooKeeper has ended may for so long still tell a client that it holds.
//
// # What it refuses
//
// To begin while a gateway is registered. To touch contenders of other programs or other
// fleets in the same lock roots: a contender is this
// fleet's only by the fleet id in its name. To delete a node with children: it is
// reported and kept, and then so are the keys and successions.
//
// # What stays
//
// Settings, namespaces, webhooks, API tokens, the secret and the rest of the layout: a gateway that is
// started later finds an empty lock service with the same configuration, and
// fencing tokens continue to rise. The locks' directories stay, too, because lock objects of other programs
// create theirs just once. (Gateways sweep idle ones of the default namespace.)
//
// # What it cannot know
//
// Whether the clients are gone, too. A client may believe in its lease for the TTL after
// its last heartbeat; the report has the longest TTL. Fencing tokens protect in any case.
//
// # Ownership
//
// Sweep blocks, runs a bounded number of reads at once and has ended all of them
// when it returns. It keeps the paths that it will delete in memory.
package sweep
