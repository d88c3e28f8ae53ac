// Package zkreal runs real ZooKeeper servers, the ones of Debian's zookeeper package, as child processes. It is test
// support, and the development runner uses it; no other code may import it.
//
// What it promises: a server listens on loopback only, on ports of its own and in a directory of its own; Start returns
// once it serves requests or says why it does not, within a minute; data survives Restart; and no server outlives the
// process that started it, however that process ends (childproc). The goroutine that waits for the child is the only one
// a Server owns; it ends with the child.
//
// What it refuses: it skips no test but with -short. Where ZooKeeper is not installed the error is the line that installs it.
//
// A test binary may have another server that claims to be a ZooKeeper stand in for standalone ones (UseStandIn). Ensembles,
// and what asks for it (Real, SharedRealT), are Debian's all the same.
//
// What differs from a production server: one tick is 500 ms, so that sessions of 1 to 10 s are possible; the JVM is tuned
// for a quick start and little memory; the admin server is off and all four-letter words are on. Writes are forced to
// disk as in production, unless WithoutFsync says otherwise.
//
// A temporary directory is removed by Close. It stays behind only when the test process itself was killed.
package zkreal
