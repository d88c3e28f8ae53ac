// Package parties says whose the contenders of locks are, and keeps one look at the wait-for graph in the form in which callers
// are shown it. The graph itself, its cycles and what is stuck in it are package waitfor's.
//
// # What it has
//
// Known is what was read of contenders that this gateway does not run. A Scan is what stood in the contended queues when they
// were copied, with the graph that follows. Waits answers from a Scan what a caller may ask.
//
// # Use
//
// All types are passive: they start nothing and read no clock. Known is not safe for concurrent use. The caller copies queues into
// a Scan while nothing changes them, some at a time, so what is in two queues may never have been so at one moment. StillStands and
// Deadlocks read the queues again, so nothing may change these meanwhile. Nothing else reads them after the copy.
package parties
