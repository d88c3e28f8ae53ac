// Package sim attacks the gateway's promises in virtual time: the real HTTP server, manager, session layer, replica and
// go-zookeeper on the embedded ZooKeeper of package zktest, with random clients and random weather. It is test support; no
// shipped code may import it.
//
// A run is a Plan: a seed, the clients and a list of faults with their times. Everything that is random comes from the seed,
// and nothing happens at the same nanosecond as anything else, so that a Plan gives the same history each time. A Plan that
// fails can be made shorter by leaving faults and clients out (Minimize).
//
// # Parts
//
// A world has parts that own their state, each with a lock of its own: the journal (history and violations), the audit (what
// ZooKeeper committed), the gateways, the beliefs (what clients count on), the exemptions (why a lease may end nevertheless), the
// ledger (what clients asked for beside that) and the receivers (of webhooks). The weather makes the faults of the plan happen. The
// review compares beliefs, ledger and receivers with the audit when all is over.
//
// Every fourth plan or so has a second namespace in another dialect, whose lock leases share with a program that knows the dialect's
// names alone (spaces.go). All that is checked holds there, too.
//
// # What is checked
//
// Clients count as the documentation tells them to: they hold a lock from the moment in which they read that they do, for the
// TTL from the moment in which they sent the newest request that was answered so. From these counts, and from every
// transaction that ZooKeeper commits (the audit), a run finds what is wrong. Who may hold together follows from the names of the
// contenders alone (queues.go): readers, permits within the limit of the last one of them, one lease's locks all or none.
//
//   - overlap: two clients held one lock at the same time in modes that conflict, or more permits than there are, as they
//     counted (promise 1). A client that has asked for a downgrade counts on no more than a shared lock;
//   - barging: a client was told that it holds while an earlier contender that conflicts stood before it (1, 4), other
//     programs' included, or though by the names its lease never held, in all of its queues at once;
//   - shortening: a lease ended although its client held it, and neither it, an administrator nor another program had ended it
//     (2, 3). Force ends a lease no sooner than was said;
//   - a zombie: a success was answered for a lease more than a promise window after it had ended (2);
//   - fencing: the token of a later holder is not greater than those of all that it conflicts with before, or a lease's token
//     changes (5);
//   - fence: a token is said to be current whose lease had ended before the question was sent, or never held; or one is refused
//     whose lease holds (5), unless it is ephemeral and its gateway has been taken over;
//   - doubles: one attempt has two leases, or one key (6);
//   - holds: a named hold that was answered is lost, or one that was let go is back; the same for metadata (6);
//   - limit: a contender was enqueued under a limit that was not in force;
//   - delay: the place of a lease that has ended did not stay for its lock delay;
//   - once: two leases were granted for one period, or one after another one was released with the period done;
//   - at least: a lock was free before the at_least of a lease that was granted had passed;
//   - reservation: one did not end in time. One that ended early is a shortening: its client counts on it until the end that it was told;
//     the wall clocks of gateways differ by less than the spare of a successor;
//   - ephemeral: a gateway that has not made it says that an ephemeral lease holds;
//   - revocation: a holder that was asked in vain still holds when force is due;
//   - story: two gateways tell of one end with different reasons (where a client's wish to go was overtaken by another gateway, the one may
//     tell the wish and the others the deed); or, in good weather, one tells of something that another does not,
//     or of a lock's holders in another order;
//   - told: there was a subscription when the lease of a client that held it ended by a gateway's transaction, and the note is not in that
//     transaction, or it was never delivered, or late, or came under two ids, or two messages under one; or an end is told of a lease that
//     is there (7; only where a plan has webhooks);
//   - token: the token of a lease that is there is refused; or, in good weather, a rotation of the fleet's secret does not get over (where a
//     plan has rotations);
//   - stuck: when the weather is good again, a lock cannot be had within the time that it may take (3, 4);
//   - litter: when all clients have left, something remains that no gateway sweeps;
//   - held for: a gateway says that a lock has been held for longer than it has, or for less at most;
//   - invariant: after an answer, what a manager keeps as things change is not what it would compute from scratch
//     (locks.Manager.CheckAll).
//
// More, about events, tickets and versions, stand in review.go, review_audit.go and watch.go; model.go asks a model of locks with fencing
// whether it could have given the clients' histories.
//
// # How a new feature joins
//
// Add its requests to client.go, or to the files of the recipes beside it (recipes.go, holds.go, administrator.go), with what
// its answers make the client believe, and its promise to the review as one more check over beliefs and audit; when it changes
// who may hold, to queues.go and model.go. Give the feature's protection a fail point and see a seed fail with it on: package mutants.
package sim
