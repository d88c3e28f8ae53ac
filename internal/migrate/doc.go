// Package migrate moves a whole Lockkeeper from one ZooKeeper to another: Export
// reads a root into an Archive, Import makes a root of one. Between the two stands
// a file (Write, Read).
//
// # What it promises
//
// What clients have goes on working on the new ZooKeeper: lease ids, lease
// tokens, what their records say (TTLs, owners, metadata, holds, that one is
// closed), settings and idempotency keys are the same, each queue has the same
// contenders in the same order, and held leases are taken over by the first gateway
// there as those of a gateway that has died: their clocks begin at takeover +
// promise window + TTL, however long the move took.
//
// Fencing tokens rise. The new root's fence base is above every token that was
// ever given, so each token that is given there is higher than all before,
// also than those of the root that the exported one was imported from. The token
// of a held lease changes with the move: it gets that of its new contender. The
// name of a downgraded one no longer has its first czxid then, which was another ZooKeeper's.
//
// An archive is whole or refused: it ends with the number of its records and their
// SHA-256. (That is against accidents. A program that can write the file can write a checksum
// too; and who can read it can end every lease, for it holds the secret of the
// lease tokens.)
//
// An import that did not come to its end leaves a root on which no gateway starts
// (zk.NodeImport), and nothing is ever mixed: each of its transactions checks the
// version of its own node, so one that was lost on the way, and arrives when
// another import has begun, fails. Clearing the rest and beginning again
// (ImportOptions.ReplacePartial) is the one way on. Going on where it stopped was
// rejected: it would have to prove that what is there came from the same file, to
// save seconds.
//
// # What it refuses
//
// To export while gateways are registered, or when one was meanwhile: they would
// go on writing what is not exported. To leave other programs' contenders
// behind unless asked to: they cannot be moved, and a lease that waited
// for one of them would hold on the new ZooKeeper. What is exported and not
// understood: contenders of a later release, queues without an order, leases over
// several locks that were not made in one transaction. To import into a root that
// has anything in it.
//
// Ephemeral leases end with their gateway's session; they are listed and left.
// Sequence numbers begin at 0 again in each directory; the czxids and times of
// creation in an archive are for the order and for readers.
//
// # Order
//
// Contenders are created in the order of their creation over all locks. Those of
// one lease that were created in one transaction are again, so that groups of
// locks have the same order in every queue. Different leases share a transaction
// too, but never two of one lock: a transaction's zxid is the fencing token.
//
// # What is opaque
//
// All nodes of the root but registrations, guards and locks are copied as they
// are (the promise window, keys, settings, successions, and what later releases keep there),
// except that the lock roots of namespaces below the old root move below the new one. A
// directory of sequential nodes gets them under their old names; its counter starts again.
//
// # Ownership
//
// Export and Import block, run a bounded number of reads at once, and have
// ended all that they started when they return. Both keep the archive in memory:
// half a kilobyte for each lease.
package migrate
