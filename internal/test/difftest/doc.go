// Package difftest shows two ZooKeeper servers the same clients and compares all that the clients see: every reply, stat,
// error, event and closed connection, in order. Its tests hold the embedded server against Debian's ZooKeeper 3.8.
//
// A Scenario is a list of steps: connections are opened, sessions attached to and closed, requests of any kind sent, valid
// and not. Generate makes one from a seed, the tables of the tests hold the ones that are about a certain quirk. Compare
// plays a scenario on both servers at the same time and returns the first Difference; Shrink makes the scenario shorter
// as long as there is one.
//
// What is compared, and how:
//
//   - After each step every connection makes a round trip, so all that the step has caused has arrived: a connection's
//     events precede its later replies. Then the frames of each connection are compared in the order of their arrival.
//   - A scenario has a fresh node as its root, and the paths of its steps are below it; one that begins with "^" is sent
//     without the "^" as it stands. Zxids are written as distance from the scenario's start: no other client may write to the
//     server meanwhile.
//   - Session ids are named in the order of their creation. Times cannot be equal; instead each transaction has one time,
//     none later than the next transaction's, and a node's times are those of its transactions.
//   - Lists of children, ephemerals, identities and ACLs, and the events of a session's end, are sorted on both sides:
//     ZooKeeper has the order of hash tables there (purpose.go, inAnyOrder).
//
// What the embedded server does otherwise on purpose is kept out in one place, purpose.go. What ZooKeeper itself decides by
// chance is kept out by inTurn; two real servers show what that is (LOCKKEEPER_DIFF=real).
//
// Three requests are never made, because the real server does not survive them: a TTL of zero or less with a mode that has
// none (it dies, and again at each start), a persistent watch on a null path (its connection is never closed), and a
// client's createSession.
//
// It is test support. It starts no goroutine that outlives a call. A server that does not answer within 20 s is an error,
// not a difference.
package difftest
