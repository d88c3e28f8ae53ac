// Package periods has the record of the periods in which the work of a lock was done (once_per), and what follows from it: whether a
// lease may be granted for its period, what is written for that, and whether a release has made the period done.
//
// # What it promises
//
// A lock with such acquires has one more node, its Record. It outlives the leases. It is written at the version that was read, so
// each writer has seen what all before it wrote. An entry that is done is never replaced, and is kept for Keep at least.
//
// # Use
//
// All types are passive: they read and write nothing and are given the time. They are not safe for concurrent use. The manager
// (its periods.go and once.go) reads the node and writes it.
package periods
