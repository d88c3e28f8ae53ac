// Package embeddedtest runs embedded ZooKeeper servers for tests. It is test support; no shipped code may import it.
//
// What it promises: a Server listens on loopback, on a port of its own that stays the same across restarts, or, with Pipes, on
// no network at all, for tests in virtual time (testing/synctest). What was written survives Restart and Kill. When the test
// ends, or Close returns, nothing of it is left running.
//
// What differs from the server in production: one tick is 500 ms and sessions of 200 ms to a minute are granted, as by
// zkreal, and connections from one address are not counted.
//
// It owns two goroutines for each life of the server, which end with it, and one for each connection of a pipe. A Server's
// methods may be called from any goroutine; those that change whether it runs exclude each other.
package embeddedtest
