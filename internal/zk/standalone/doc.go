// Package standalone is a ZooKeeper of one's own: the store on disk, the embedded server over it, and the supervision of both.
// With it a gateway is a complete lock service in one process.
//
// # What it promises
//
//   - What a client was told is on the disk (package disk), so killing the process or the power loses nothing of it.
//   - One process at a time has a store. As long as it has it, no other process serves it.
//   - The gateway reaches its server by Dial, without a network. Its sessions belong to its process (embedded.Server's local
//     sessions): when a node opens a store, those of the process before it are ended in ordinary transactions before any
//     client is served. The lock of the store proves that that process is gone. So a gateway that was killed is succeeded at once,
//     and not after a session timeout.
//   - The process has an identity of its own toward the server (Identity). With it in the ACLs of its nodes, clients from
//     outside, which prove nothing, are kept from what is not theirs. Its own connections (Dial) pass every ACL, because it
//     owns the store: a setACL from outside never shuts the gateway out. No connection from outside gets this right.
//   - A store that cannot be written (a full disk, a failed sync) is closed and opened again until it can, and everything that
//     was acknowledged is there then. Sessions live on meanwhile: each has its whole timeout once the server is back.
//
// # What it refuses
//
// Open fails when the store is locked, damaged or of a newer format: package disk says which, and Run fails the same way when
// that is found at a later opening. Nothing is served then. Open also refuses a directory into which a restore has not come to
// its end: to begin there with an empty store would be to lose what is expected. Restore refuses a directory that has anything
// in it, or another restore at work.
//
// # Goroutines and what they own
//
// The caller starts Run, which owns the store and the server, one life of them after the other. Run has one more goroutine
// that accepts connections from outside, if that was asked for, and each connection has those of package embedded. All have
// ended when Run returns.
//
// # On failure
//
// When the storage fails, the server ends and closes all connections: clients learn nothing of a write that may not be
// stored. Until the store is open again Dial fails at once with ErrDown and the cause, and connections from outside are closed
// as they come. The gateway's trust window closes by itself, and it answers 503. Opening is tried again with growing pauses, and
// before any client is served a probe has shown that there is room to write. A store that is no longer there (its file system is
// gone, or something else is mounted in its place) is waited for, too: none is made anew, and no other one is served.
//
// # Why connections within the process have a pipe of their own
//
// Lock cycles per second through internal/zk's writer, on two cores, over a storage that costs nothing (BenchmarkWays), with
// 1, 16 and 256 clients: net.Pipe 13,000, 42,000, 44,000; a pair of Unix sockets 19,000, 42,000, 72,000; TCP on loopback
// 16,000, 47,000, 95,000; the pipe of this package 25,000, 58,000, 129,000.
package standalone
