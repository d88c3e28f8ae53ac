// Package sim attacks the gateway's promises in virtual time: the real HTTP server, manager, session layer, replica and
// go-zookeeper on the embedded ZooKeeper of package zktest, with random clients and random weather. It is test support; no
// shipped code may import it.
//
// A run is a Plan: a seed, the clients and a list of faults with their times. Everything that is random comes from the seed,
// and nothing happens at the same nanosecond as anything else, so that a Plan gives the same history each time. A Plan that
// fails can be made shorter by leaving faults and clients out (Minimize).
//
// # What is checked
//
// Clients count as the documentation tells them to: they hold a lock from the moment in which they read that they do, for the
// TTL from the moment in which they sent the newest request that was answered so. From these counts, and from every
// transaction that ZooKeeper commits (the audit), a run finds:
//
//   - overlap: two clients held one lock at the same time, as they counted (promise 1);
//   - barging: a client was told that it holds while an earlier contender stood before it (1, 4), other programs' included, or
//     though its contender never stood first in ZooKeeper's order;
//   - shortening: a lease ended although its client held it, and neither it nor another program had ended it (2, 3);
//   - a zombie: a success was answered for a lease more than a promise window after its contender had gone (2);
//   - fencing: the token of a later holder is not greater (5);
//   - doubles: one attempt has two contenders, or one key two leases (6);
//   - stuck: when the weather is good again, a lock cannot be had within the time that it may take (3, 4);
//   - litter: when everybody has left, something remains that nobody sweeps;
//   - invariant: after an answer, what a manager keeps as things change is not what it would compute from scratch
//     (locks.Manager.CheckAll).
//
// More, about events, tickets and versions, stand in verdict.go and watch.go; model.go asks a model of locks with fencing
// whether it could have given the clients' histories.
//
// # How a new feature joins
//
// Add its requests to client.go, with what its answers make the client believe, and its promise to verdict.go as one more
// check over beliefs and audit. Take the feature's protection out once and see a seed fail.
package sim
