// Package reports has what gateways report to each other about the ends of leases, and the events that wait for it.
//
// # What is reported
//
// A gateway reports how its own leases ended, and which leases of others its administrators end. It does not forward the
// reports of its peers, because every gateway follows every other one. It reports a termination before it submits the
// deletion, so the lease's owner usually knows the reason when the contender disappears. It withdraws the report when the
// deletion was not done. It reports an end once the end is certain.
//
// # What a report does
//
// A report explains an end: it never grants, ends or keeps a lease. An Exchange keeps a report about a lease that lives here,
// or whose contender the replica still shows, until the replica has lost the contender. So a wrong, late or repeated report
// costs at most a wrong reason. The report of the gateway that ran the lease takes precedence. If that gateway only saw
// a deletion by another client, the report of the administrator's gateway counts.
//
// # Delayed events
//
// The event of an end waits for a moment when another gateway may know its reason. Later events of the same lock wait
// behind it: each lock's events keep their order, and all gateways publish the same reasons. Only the publication waits;
// grants, answers and lists do not. Each bound says what happens when it is reached.
//
// # Use
//
// An Exchange is passive: it starts nothing and is given the time. It is not safe for concurrent use. Options says how it
// asks its owner, and what it hands to its owner.
package reports
