// Package zk is ZooKeeper as a gateway needs it: sessions that cannot write
// once they are over, and a replica that is always a true state of the past.
//
// # The session side
//
// A Session is one ZooKeeper session and one gateway id. It registers with
// two ephemeral nodes, the registration (its data version is the epoch) and
// the guard, and everything it writes afterwards is a guarded transaction: a
// multi that checks the epoch and writes the guard. It promises:
//
//   - One object, one session. When ZooKeeper expires the session the object
//     is over; nothing it was given is ever executed by another session.
//   - A gateway that was deposed or whose session is gone cannot write,
//     whatever was retried, reordered or delayed on the way.
//   - Every accepted Write is answered exactly once: Done, NotDone, Redecide
//     or Unknown. Done is closed after the last answer.
//   - A Write whose connection was lost is never sent again. The epoch is
//     raised first, at the version that is known, so that what is still under
//     way fails; only then it is found out what happened (see below).
//   - The Fence moves with committed guarded transactions and with nothing
//     else, and closes by the boot clock or the wall clock, whichever is ahead.
//   - Writes of many callers share transactions. A Write that arrives while
//     nothing is under way is sent at once. Writes are not ordered among each
//     other: who needs an order waits for Done.
//   - Close returns when its context ends at the latest, and the goroutines
//     end soon after whatever the server does.
//
// It refuses Writes above 256 KiB (ErrTooLarge: over ZooKeeper's limit of 1 MB
// the server drops the connection for everyone on it), more than 8192 Writes
// or 16 MiB that wait (ErrQueueFull), and ephemeral nodes beyond 256 KiB of
// paths (ErrEphemeralCap: the transaction that closes a session names them
// all, and one that is too large keeps a server from starting again).
//
// # What becomes of a transaction whose answer was lost
//
// After the raise nothing of the old epoch can commit any more, so the
// question has an answer that no longer changes. Each guarded transaction that
// commits adds exactly one to the guard's data version, and each answer tells
// its version: the versions below the raise's that no answer told are as many
// as there are lost transactions that did commit. None missing: none
// committed. As many as are in question: all did. In between, what the
// transactions left behind decides, read after the raise on the same session:
//
//   - a sequential node with the name of the Write exists: it committed,
//     because the name is unique to it;
//   - an ephemeral node that it was to create exists and is ours: it committed;
//   - a node that it was to delete, or to create, exists and is older than the
//     transaction: it did not commit;
//   - a node that it was to set at a version still has that version: it did
//     not commit;
//   - absence proves nothing by itself, because another program may delete
//     what we created or what we wanted to delete. It counts as a hint, and
//     hints that something was done decide only when there are as many as
//     missing versions, and of nothing else in question (bare guard writes aside)
//     there is no idea at all.
//
// One transaction is atomic, so one conclusive operation decides for all
// Writes in it. Where nothing is conclusive the outcome is Unknown: then
// nothing of the Write can commit later, and a tree read tells what is there.
//
// # Permissions
//
// Without an identity (Config.Auth) every node is open; queues alone leave ADMIN to no client, because they never
// have to be closed. With an identity the fleet has all rights on its nodes, and no other client has ADMIN on any
// (acl.go).
//
// OpenLayout checks the ACL of each node of the layout, and of the namespaces' records. It closes what it may, the root
// first, and refuses what it may not close and others could change. ZooKeeper hides digests from clients without ADMIN, so
// where gateways alone write, an ACL that OpenLayout may not change is always refused. What lies below (keys, locks)
// OpenLayout leaves to package aclrepair, which works in the background: there may be a hundred thousand nodes.
//
// Before the layout is complete OpenLayout accepts nothing that others made, because the keys would be theirs. The version
// is written last, so a root with a version that lacks a node is refused, too, unless its secret has the fleet's ACL. A
// complete open root is adopted with all that is in it: a fleet that gets an identity leaves one, and a stranger can make
// the same. Gateways of one fleet may begin at once: what each makes has the same ACL.
//
// Layout.SecretExposed says that others can or could read the secret. Nothing is recorded for that: a secret that was
// created closed has an ACL that was never changed. An import creates the node anew, so an export writes it into the
// data.
//
// # Namespaces
//
// OpenLayout records those that are configured, each once and for good, in one
// transaction with a write to their parent: of gateways that add overlapping lock
// roots at the same time the second one finds the first one's (namespaces.go).
//
// # The observer side
//
// An Observer feeds a replica of whole subtrees from one persistent recursive
// watch each, on a connection of its own; see Observer.
//
// # Goroutines
//
// A Session owns one goroutine that owns all its state (the epoch, the queue,
// what is under way), one per transaction or read that is under way, bounded,
// go-zookeeper's three and the one that waits for those. All end with the
// session, within a few seconds.
package zk
