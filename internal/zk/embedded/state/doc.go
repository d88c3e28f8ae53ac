// Package state is the ZooKeeper data model as a pure state machine: a tree of nodes, sessions and watches that requests
// are carried out on, one after the other. What it answers is what ZooKeeper 3.8 answers, byte for byte, quirks included.
//
// It starts no goroutine, reads no clock and does no input or output; the time of every request is given. The same requests
// at the same times give the same state, the same replies and the same events in the same order. It is not safe for
// concurrent use: one goroutine owns a State and everything that it hands out, the connections included.
package state
