// Package zktest is ZooKeeper in virtual time with switches: one history, several servers that show it, and a network between
// them and their clients that can be cut, stalled, delayed and robbed of single messages at exact points. It is test support;
// no shipped code may import it.
//
// # What it promises
//
// Inside a testing/synctest bubble, the same seed and the same calls give the same bytes at the same times. Nothing is
// delivered at the same nanosecond as anything else: the world comes to rest between two deliveries, so that what a delivery
// sets off does not depend on how goroutines are scheduled. The delay of a message depends on the seed, on the two ends of the
// connection, on how often they had connected before and on the time, and on nothing else: what is written at one instant arrives at
// one instant, in one write or in several. Where several goroutines write at one instant, their order is the scheduler's; see
// package sim for how that is kept the same.
//
// The leader is package embedded's server with a MemoryStorage; nothing of it is imitated. A follower has a copy of the
// state machine, fed with the leader's transactions after a delay. It answers reads and pings from that copy and hands
// everything else on, as ZooKeeper's followers do: a reply to a write leaves it once the write is in its copy, a client that
// has seen more than it has is refused, and when it is cut off it goes on answering reads and pings until its sync limit has
// passed. Sessions live and expire at the leader.
//
// Followers with local sessions (Config.LocalSessions; localSessionsEnabled in ZooKeeper, which is off by default) begin the
// sessions of clients that only read by themselves: no transaction tells of them, so such a client is greeted at once, by a
// follower that is cut off, too, and may read what is older than its connection. Only what the client says it has seen bounds
// how old. Such a session ends with its connection, with its follower's leader, or when nothing was heard of it for its timeout.
//
// # What is not modelled
//
// Elections: the leader stays the leader, and a restart of it stands for one. Transactions that were proposed and not
// committed. Followers that lose what they had. Packets that are lost or reordered within a connection (TCP does not), or
// damaged.
//
// Of local sessions: ZooKeeper upgrades one to a session that all servers know, under the same id, when it creates its first
// ephemeral node. The leader here knows ids of its own alone. So only clients that ask with the read-only byte (Java's clients, Kazoo
// and the gateway's observer do, go-zookeeper does not) gets a local session, and is refused ephemeral nodes as without
// localSessionsUpgradingEnabled; all others get an ordinary one from the start, as a writer of the gateway's has it from its
// registration on. A local session that writes or syncs does so by a session of the follower's own at the leader, whose
// beginning is a transaction that ZooKeeper has not. It cannot be taken up again by another connection with the same server. The
// leader opens ordinary sessions: what it shows is never old.
//
// # Ownership
//
// An Ensemble belongs to a test, which closes it inside the bubble; then nothing of it is left. A connection's bytes are moved
// by timers; each connection of a follower has two goroutines of its own, which end with the connection. All methods may be
// called from any goroutine.
package zktest
