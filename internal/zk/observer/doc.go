// Package observer keeps a replica of whole trees of ZooKeeper that is always a
// true state of the past, and judges how fresh it is.
//
// An Observer feeds the replica from one persistent recursive watch per root, on a connection of its own, which it
// speaks without go-zookeeper. The replica is pure: events and listings in the order of the stream, Changes out.
// Freshness tells whether the replica is fit to grant from. See Observer for the order that all of this relies on, for
// goroutines and for failure.
package observer
