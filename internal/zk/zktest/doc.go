// Package zktest is ZooKeeper in virtual time with switches: one history, several servers that show it, and a network between
// them and their clients that can be cut, stalled, delayed and robbed of single messages at exact points. It is test support;
// no shipped code may import it.
//
// # What it promises
//
// Inside a testing/synctest bubble, the same seed and the same calls give the same bytes at the same times. Nothing is
// delivered at the same nanosecond as anything else: the world comes to rest between two deliveries, so that what a delivery
// sets off does not depend on how goroutines are scheduled. The delay of a message depends on the seed, on who connected to
// whom, on how often they had done so before and on the time, and on nothing else: what is written at one instant arrives at
// one instant, in one write or in several. Where several goroutines write at one instant, their order is the scheduler's; see
// package sim for how that is kept the same.
//
// The leader is package embedded's server with a MemoryStorage; nothing of it is imitated. A follower has a copy of the
// state machine, fed with the leader's transactions after a delay. It answers reads and pings from that copy and hands
// everything else on, as ZooKeeper's followers do: a reply to a write leaves it once the write is in its copy, a client that
// has seen more than it has is refused, and when it is cut off it goes on answering reads and pings until its sync limit has
// passed. Sessions live and expire at the leader.
//
// # What is not modelled
//
// Elections: the leader stays the leader, and a restart of it stands for one. Transactions that were proposed and not
// committed. Followers that lose what they had. Packets that are lost or reordered within a connection (TCP does not), or
// damaged.
//
// # Who owns what
//
// An Ensemble belongs to a test, which closes it inside the bubble; then nothing of it is left. A connection's bytes are moved
// by timers; each connection of a follower has two goroutines of its own, which end with the connection. All methods may be
// called from any goroutine.
package zktest
