// Package conn is one ZooKeeper session over go-zookeeper, and the only package
// that imports it. It closes the library's traps and promises:
//
//   - One Conn, one session. When ZooKeeper expires the session, the library is
//     closed inside its own callback, before it can run queued requests in a
//     session of its own making.
//   - A server that accepts a connection and says nothing is left for the next
//     one within a third of the session timeout.
//   - Credentials go with every connection, in one write with the handshake.
//   - An error of the library is one of package zk's. ErrUnavailable says of a
//     write nothing at all about its outcome.
//   - Paths get their chroot here and nowhere else, and nodes their ACLs.
//
// # Transactions
//
// go-zookeeper has the session: it connects, greets, pings, notices silence and reads. Transactions go beside it on the same
// connection, because by its way each costs four changes of goroutine and reflection. Send encodes one, with a negative xid
// that the library never uses, and Flush writes its frame. The link takes such replies out of the stream that the library
// reads, and tells the answer on that goroutine. When the connection or the session ends, all that have no answer are told
// that nothing is known. A transaction is never sent again, and never on a later connection.
//
// What an error means for its caller stands in one table, the Policy. Retry runs a request as the table says.
//
// # Goroutines
//
// A Conn owns go-zookeeper's three goroutines, the one that waits for them, one for each read that is under way, of which
// there are 256 at most, and one that writes while more than 32 KiB of transactions have no answer. All end within a few
// seconds of the session, also when the server hangs; Gone is closed then.
package conn
