// Package embedded is a ZooKeeper server in one process: a single node that speaks the client protocol of ZooKeeper 3.8 on
// any net.Conn. Clients of the real one (go-zookeeper, Kazoo, Curator, zkCli) work with it as with ZooKeeper.
//
// What a request means is decided by package state, a pure state machine. This package is what stands around it: listeners
// and handshakes, sessions' clocks, batches, storage, four-letter words, and the bounds.
//
// # What it promises
//
//   - Requests of one connection are carried out in the order in which they were sent, those of all connections one after
//     the other in the order in which they arrived. Replies and watch events leave each connection in that order, an event
//     before every reply that shows its change.
//
//   - Clients learn only what is stored: the changes of a batch go to the Storage first, and only then do the replies and
//     events of that batch leave.
//
//   - The Storage need not keep every transaction: when it asks for a snapshot, the state as of one transaction is written down
//     while requests go on, a piece with each batch, and without requests when there are none. A request waits for one piece
//     at most. A server that ends does not wait for its snapshot; the next one begins anew.
//
//   - A session lives until it is closed or until its timeout has passed in silence, rounded up to the next tick. A session
//     moves to the newest connection that names it with its password; the older connection is closed.
//
//   - A new Server over the same Storage goes on where the last one ended, with the same nodes, zxids, sessions and
//     passwords. Each session then has its whole timeout to come back.
//
//   - Time in which the server itself stood still does not count against sessions, and what had reached the server in time is
//     looked at before any session expires.
//
//   - A session that was opened through ServeLocal is a local one: it belongs to the process that opened it. Its id says so,
//     no connection from outside can open one or take one over, and with Config.EndLocalSessions the server that follows in
//     another process ends it before it serves clients, which so do not wait for its timeout. Within the process it is like
//     all others, and lives on when a new Server follows over the same Storage. Its connection passes every ACL: the
//     process owns the store, so no client from outside can shut it out with setACL.
//
// # What it refuses
//
// A client that has seen a later zxid than the server has is disconnected without an answer, as by ZooKeeper. A session that
// is over, or a wrong password, gets a connect reply of zeros and the end of the connection. A frame longer than
// Config.MaxFrame, of negative length, or too short for a request's header ends the connection it came on. All other bad
// input gets ZooKeeper's error from package state. None of it touches other connections.
//
// # Goroutines and what they own
//
// The caller starts Run, and Serve for each listener, and they block. Run is the core: it alone owns the state machine, the
// sessions and the counters, and it does no I/O but calling the Storage. Each connection has a goroutine that reads and one
// that writes. The reader hands the core one burst of whole frames at a time and waits until that is carried out before it
// hands over the next. The writer takes what the core has released. All of them have ended when Run returns: it
// closes the clients' connections.
//
// # On failure
//
// When the Storage fails, be it on a piece of a snapshot, the output of that batch is dropped, every connection is closed and
// Run returns the error: clients learn nothing of what may not have been stored, and see what they see when a real server
// dies. A panic is a bug and is not caught.
//
// # Bounds
//
//	connections          Config.MaxConns in all and MaxConnsPerIP: one more is closed at once; local ones have a bound of
//	                     their own
//	handshake            Config.HandshakeTimeout from accepting to a whole connect request: then closed
//	a frame              Config.MaxFrame: a longer one closes the connection
//	requests in flight   one burst for each connection (frames that arrived together, at most about 1 MB): then reading stops
//	unread output        from 1 MiB on no more requests of that connection are carried out; beyond Config.MaxUnread, which only
//	                     watch events and single huge replies can reach, the connection is closed, and beyond
//	                     Config.MaxUnreadTotal on all connections those with more than 1 MiB are. While requests (and pings)
//	                     wait for this, that the client reads keeps its session
//	the reply to a       Config.MaxUnread: beyond it the connection is closed before the reply is made
//	multiRead
//	a turn               turnRequests requests or turnTime: then the rest of a connection's burst waits behind all others
//	a batch              batchRequests requests or batchBytes: then it is stored and released
//	a snapshot           one at a time; Config.SnapshotPiece with each batch, and whole nodes, so a large one makes it longer.
//	                     Until the piece that has them, data that is replaced or deleted stays in memory
//	an ACL               256 entries; a connection has at most 64 identities (package state)
//	nodes, watches and   not bounded, as in ZooKeeper: any client may fill the memory
//	sessions
//
// # What differs on purpose from ZooKeeper 3.8
//
//   - A failed attempt to take over a session (wrong password) leaves the session's connection alone. ZooKeeper closes it
//     before it looks at the password, so a client that guesses an id can disconnect its owner.
//   - Passwords come from a keyed hash with the store's own secret. ZooKeeper's secret is a constant of its source.
//   - An auth request is answered in its turn. ZooKeeper answers it at once, before the requests sent ahead of it.
//   - Time in which the server stood still is forgiven (above). ZooKeeper expires sessions whose pings are still unread.
//   - createSession, the server's own operation, as a request ends the connection. ZooKeeper begins the connection's session
//     again and answers with a second connect reply.
//   - A character above U+FFFF in a path comes back as UTF-8. ZooKeeper sends two surrogates of three bytes each.
//   - Requests sent ahead right behind a setACL are judged by the new ACL. ZooKeeper judges them by the old or the new one,
//     by chance.
//   - addWatch without a path is a marshalling error. ZooKeeper accepts it and never closes that connection.
//   - A createTTL without a TTL mode and with a negative TTL is refused. ZooKeeper logs it and ends, then and at every start.
//   - TTL nodes need no switch. Debian's ZooKeeper wants zookeeper.extendedTypesEnabled.
//   - ACLs, identities and replies to multiReads are bounded (above). ZooKeeper's are not, and its memory goes.
//   - The timeout of an unfinished handshake is exact, not rounded up to ten seconds.
//   - Children are listed in the order of their bytes, identities in that of their auth requests. A session's ephemeral
//     nodes are listed and deleted in the order of their creation. ZooKeeper has the order of Java's hash tables.
//   - Quotas are plain nodes below /zookeeper/quota: nothing is counted or refused. zkCli's setquota and delquota create
//     and delete them, and listquota shows the quota with the statistics count=0,bytes=0. ZooKeeper counts there.
//   - There are no ensembles, no TLS, no SASL, no reconfiguration, no JMX and no admin server.
//   - Four-letter words. ZooKeeper's whitelist has srvr alone unless it is told otherwise. Here it also has ruok (probes ask
//     it), stat and mntr (monitoring; mntr has the metrics that mean something here, under ZooKeeper's names), conf (scripts
//     that look whose server has a port), isro (clients that would put up with a read-only server) and envi (Kazoo's
//     server_version; it tells the version and nothing of the machine). All others are answered as off the whitelist.
package embedded
