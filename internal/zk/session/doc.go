// Package session is a gateway's ZooKeeper session, which cannot write once it is over.
//
// A Session is one ZooKeeper session and one gateway id. It registers with two ephemeral nodes, the registration (its
// data version is the epoch) and the guard. Everything that it writes afterwards is a guarded transaction: a multi that
// checks the epoch and writes the guard. It promises:
//
//   - One object, one session. When ZooKeeper expires the session the object is
//     over. Nothing that it was given is executed by another session.
//   - A gateway that was deposed, or whose session is gone, cannot write,
//     also with requests that were retried, reordered or delayed on the way.
//   - Every accepted Write is answered exactly once: Done, NotDone, Conflict or
//     Unknown. Done is closed after the last answer. The Writes of a transaction
//     are answered at once where they name one zk.Receiver.
//   - A Write whose connection was lost is never sent again. First the epoch is
//     bumped at the version that is known, so that what is under way fails. Then
//     the session finds out what happened (see below).
//   - The TrustWindow moves with committed guarded transactions alone. It closes
//     by the boot clock or the wall clock, whichever is ahead.
//   - Writes of many callers share transactions. A Write that arrives while
//     nothing is under way is sent at once (see below), unless it MayWait. Writes are not ordered
//     among each other: a caller that needs an order waits for Done.
//   - Close returns when its context ends at the latest.
//
// It refuses Writes above 256 KiB (ErrTooLarge: over ZooKeeper's limit of 1 MB the server drops the connection), more
// than 8192 Writes or 16 MiB that wait (ErrQueueFull), and ephemeral nodes beyond 256 KiB of paths (ErrEphemeralCap:
// the transaction that closes a session names them all, and a server cannot start again from one that is too large).
//
// # When a transaction goes
//
// A Write that arrives while no other is under way goes at once, alone. What arrives meanwhile waits for the answer and
// shares the next transaction: each transaction costs the gateway and ZooKeeper as much as several Writes in it. A further
// one goes beside those under way, of which there are three at most,
//
//   - when it is full: nothing that arrives later could join it, because it has 128 operations or as many bytes as a
//     transaction may have, or because a Write that travels alone is in it or stands behind it;
//   - when the last one was sent 2 ms ago: where the round trip is long, waiting for it would halve what clients get
//     done, because a client whose Write has just missed a transaction waits for two. Near ZooKeeper this is rare;
//   - when a Write in the line is Awaited: the hand-over of a contended lock would otherwise wait for a transaction that has
//     nothing to do with it, as a rule the next acquire of the client that has just released;
//   - when a Barrier waits, which needs a transaction that is sent after it was asked for;
//   - when it carries again what a refused transaction held: the Writes in it have waited once already.
//
// A Write that MayWait waits for another one up to 2 ms from when it came, also while nothing is under way. It goes with the next
// Write that may not, which it does not hold up. A contended lock changes hands in one transaction so: the release takes along
// the acquire of the client that released before.
//
// Writes go in the order in which they came, but for those that wait for their queue and those that are sent again.
//
// # What becomes of a transaction whose answer was lost
//
// After the bump nothing of the old epoch can commit any more, so the question has an answer that no longer changes.
// Each guarded transaction that commits adds one to the guard's data version, and each answer tells its version. The
// versions below the bump's that no answer told are as many as the lost transactions that did commit. None missing:
// none committed. As many as are in question: all did. In between decides what the transactions left behind, read after
// the bump on the same session:
//
//   - a sequential node with the name of the Write exists: it committed,
//     because the name is unique to it;
//   - an ephemeral node that it was to create exists and is ours: it committed;
//   - a node that it was to delete, or to create, exists and is older than the
//     transaction: it did not commit;
//   - a node that it was to set at a version still has that version, or has the
//     next one with other data: it did not commit;
//   - absence proves nothing by itself, because another program may have deleted
//     the node. It is a hint. Hints decide only where as many transactions have
//     one as versions are missing, and all others in question have some evidence
//     (or are guard-only writes, which leave none).
//
// One transaction is atomic, so one conclusive operation decides for all Writes in it. Where nothing is conclusive the
// outcome is Unknown: then nothing of the Write can commit later, and a tree read tells what is there.
//
// # Goroutines
//
// One lock guards all state of a Session (the epoch, the queue, what is under way). It is held for short spans, never during
// I/O, and never while callers are told answers. Each use of it ends with unlock, which tells the answers that have become
// known and then sends what is due. So the goroutine that makes something possible does it:
//
//   - the caller of Submit or Barrier sends, when nothing is under way that it has to wait for;
//   - the goroutine that reads the connection takes the answer, tells the Writes, and sends what has come meanwhile;
//   - the session's own goroutine, run, does what neither does: the timer, a connection that comes or goes, the epoch's
//     version, lost transactions, Close and the end.
//
// While answers are being told nothing is sent: Writes that follow from them share one transaction. Transactions are numbered
// and handed to the Conn with the lock held, hence they are sent in the order of their numbers. Done is closed by run, once
// nothing is under way and no call of unlock tells answers.
//
// The goroutine of run, one that looks for what lost transactions left, one that reads the epoch's version, and those of the
// Conn end with the session, within a few seconds.
package session
