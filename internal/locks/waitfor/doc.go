// Package waitfor is the wait-for graph among the parties that use locks: which waits for which, which parties cannot go on by
// themselves, and the cycles among them. It is pure: it is given queues, and starts, reads and keeps nothing.
//
// # What it is given
//
// A Graph has the queues in which something waits. Each entry is a contender of a lease, and each lease has a party: what goes
// on, or does not, as one. Which contenders block which follows from the queue's rules alone (package recipe).
//
// # What it says
//
// Stuck are the parties that cannot go on. A party goes on when it waits for nothing, or when one of its leases that wait can
// be granted; then all its contenders go, and others may be granted. What is left when no party goes on any more is stuck. A
// party with several waits is taken to need one of them only, so what is stuck is never too much.
//
// An Edge leads from the party of a waiter to that of a contender that blocks it: each holder that it conflicts with, and the
// waiters directly ahead, which it cannot pass. Waiters farther ahead are reached by way of these.
//
// A Cycle is minimal: without one of its parties it is none. It is certain when all its parties are stuck. Another one is
// possible: a party in it waits for one of several permits, or has another wait, and may go on.
//
// # Bounds
//
// Stuck and the strongly connected components take time that grows with the contenders, and with the holders of a lock that
// goes free step by step. Cycles are searched for with a budget: Cycles says when there may be more than it has found.
//
// Limits.Edges counts pairs of parties. A client can have millions of edges in one pair: it needs thousands of readers with one
// owner's name, and as many writers with another one. So a pair's edges are not looked at one by one. Those to the holders of
// a queue count once, and so do those to each run of waiters. What this costs grows with the contenders, and with the pairs
// at the holders and at each run. Limits.Edges bounds the pairs at any one of these.
//
// Through looks at all queues, and at each edge of its lease: who asks for many leases pays that for each. Edges has them all.
package waitfor
