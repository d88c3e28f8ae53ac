// Package clients has no code but tests: the ZooKeeper clients of other people, with all their recipes, against Debian's
// ZooKeeper and against the embedded server. What they do on the one they must be able to do on the other.
//
// The clients are Kazoo 2.8 (Debian's python3-kazoo), Curator 5.4 on ZooKeeper's own Java client
// (libcurator-recipes-java) and zkCli. One program for each of the first two is in testdata. It holds scenarios: a recipe,
// two or more clients that contend for it, and assertions about exclusion, order, and what happens when a client's network
// or the server goes away. A scenario that Debian's ZooKeeper fails is wrong; one that only the embedded server fails has
// found a difference.
//
// A program runs once for each server and all of its scenarios at the same time, for most of them wait most of the time. It
// gets the server's address, an address where a scenario can have a proxy for bad weather, and how much work to do
// (LOCKKEEPER_FULL=1: more). Everything is bounded: a scenario that does not end is failed with the stacks of its program.
package clients
