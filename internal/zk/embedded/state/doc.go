// Package state is the ZooKeeper data model as a pure state machine: a tree of nodes, sessions and watches that requests
// are carried out on, one after the other. What it answers is what ZooKeeper 3.8 answers, byte for byte, quirks
// included, but for the order of lists.
//
// It starts no goroutine, reads no clock and does no input or output; the time of every request is given. The same requests
// at the same times give the same state, the same replies and the same events in the same order. It is not safe for
// concurrent use: one goroutine owns a State and all of its connections. What it hands out (replies, transactions) may go to
// other goroutines, because node data and ACLs are never written to, only replaced; their receivers must not write to them either.
//
// A State has three parts: the tree (nodes, ACLs, the changes at hand), the owners (sessions, and the lists of nodes that can go
// without a request) and the watches. A request is a call on them. A write is decided, applied and committed (decide.go, apply.go,
// commit.go): decide only reads the tree, apply changes it alone, commit brings owners and watches up to date. Until it is committed a
// write can be undone, so a multi is all or nothing. Every write uses up a zxid and
// yields a Txn, also one that fails. Txns, applied in order to a new State, give the same State again: they hold what was
// decided, so that a log does not depend on the rules of the version that reads it.
//
// A log need not go back to the beginning: a Snapshot is the state as of one transaction, written down piece by piece while
// requests go on. A Restorer makes an equal State of it, without connections. Txns that came later are applied to it as ever.
//
// Bad input is answered with ZooKeeper's error or by Reply.Close, and changes nothing. Only Apply and a Restorer can fail for good: a
// log that does not fit the tree is damaged, and so is a snapshot that is not whole. The State is then of no use.
//
// # What differs from ZooKeeper on purpose
//
//   - Lists have orders that cost no memory. Children are sorted by their bytes when they are listed. A session's
//     ephemeral nodes are listed and deleted in the order of their creation. Identities stand in the order of their auth
//     requests. ZooKeeper has the order of Java's hash tables.
//   - TTL nodes are always there (ZooKeeper: extendedTypesEnabled). The super user is the process that owns the store
//     (NewSuper); no password gives this right. Quotas are plain nodes.
//   - What ends the real server is an error here: a createTTL that is none by its flags and has a negative time to live is
//     BadArguments.
//   - createSession, the server's own operation, as a request ends the connection. ZooKeeper begins the connection's session
//     again and answers with a second connect reply.
//   - An ACL has at most 256 entries ("auth" counts for all identities of the client) and a connection 64 identities: more are
//     InvalidACL and AuthFailed. Both are gone through for each operation. The reply to a multiRead is bounded, too.
//   - addWatch refuses a null path always, not only when hashes collide. A multi with a null path is logged as a
//     failure; the real one takes a zxid for it that no reply ever shows.
//   - Where the real one looks at what is in its pipeline, and so depends on timing, the last committed state counts: a
//     setACL is in force for the next request, and so is a sequence counter that has reached the greatest int.
package state
