package mutants

import "strings"

// Mutant is a gateway without one protection, or without several.
type Mutant struct {
	// Name is that of the fail point that is on (package fault), or of several, with + between them.
	Name string
	// Without says what is missing.
	Without string
	// Backed names the mutant in which what makes up for it is gone, too: nothing shows this one alone. Empty: a seed or a named
	// scenario must.
	Backed string
	// Hooks says that the plans have webhooks, and with them many more that listen.
	Hooks bool
	// Rotate says that the plans rotate the fleet's secret.
	Rotate bool
	// Scenario begins the name of a test of the simulation, after "Test", that shows it: it runs instead of seeds. Empty: seeds
	// show it.
	Scenario string
	// Seed is one that showed it, and where the hunt begins; 0 where a scenario does. Shows is the broken promise.
	Seed  int
	Shows string
	// Open says why no seed shows it as yet, where that is a gap of the simulation and not another protection's merit.
	Open string
}

// Points are the fail points that are on.
func (m Mutant) Points() []string { return strings.Split(m.Name, "+") }

// Table is every protection that the simulation must miss when it is gone.
var Table = []Mutant{
	{Name: "guard", Without: "transactions do not write the guard; the zxid of a create is what the session has last seen", Seed: 4, Shows: "a lock cannot be had"},
	{Name: "epoch-check", Without: "transactions do not check the epoch, only that the registration is there", Seed: 173, Shows: "barging"},
	{Name: "epoch-bump", Without: "after a lost transaction the epoch stays; a guard-only write is all that comes before the next ones", Scenario: "Attack14", Shows: "the epoch was not raised before the old bytes arrived"},
	{Name: "trust-window", Without: "the trust window is always open", Backed: "trust-window+freshness"},
	{Name: "freshness", Without: "a replica that has been read is fresh for ever", Backed: "trust-window+freshness"},
	{Name: "behind", Without: "the observer stays with a server that has fallen behind", Scenario: "Attack40AnObserver", Shows: "grants stop"},
	{Name: "trust-window+freshness", Without: "the trust window is always open, and a replica that has been read is fresh for ever", Scenario: "Attack01", Shows: "a heartbeat is answered long after the last commit"},
	{Name: "freshness+behind", Without: "a replica is fresh for ever, and the observer stays with a server that has fallen behind", Scenario: "Attack40AnObserver", Shows: "grants stop"},
	{Name: "window", Without: "a successor does not wait W", Scenario: "Attack54", Shows: "shortening"},
	{Name: "resync", Without: "the tree is read on the first connection alone", Seed: 1, Shows: "stuck"},
	{Name: "created-event", Without: "a create's reply grants", Seed: 3, Shows: "invariant: a contender is in the queue and its lease has ended"},
	{Name: "early-end", Without: "an end that the writer was told of grants, though the replica does not show it", Seed: 1, Shows: "an event tells of a holder that never was"},
	{Name: "gap", Without: "a sequence number that was never seen does not matter", Scenario: "Attack05", Shows: "barging"},
	{Name: "granted-number", Without: "a lease counts as granted at once whatever number its contender has", Seed: 1, Open: "too rare: another create must come between a look at an empty queue and the lease's own; internal/locks/manager TestALeaseThatWasOvertakenIsNotTakenForGrantedAtOnce shows it"},
	{Name: "created-event+gap", Without: "a create's reply grants, and a sequence number that was never seen does not matter", Seed: 7, Shows: "barging"},
	{Name: "absence", Without: "a contender that a listing lacks is gone, with any zxid", Scenario: "Attack03WhatAListing", Shows: "a lease that is there is answered 410 removed"},
	{Name: "last-seen", Without: "the observer connects to servers that are behind what it has seen", Scenario: "Attack03AnObserver", Shows: "a released lock is shown as held"},
	{Name: "absence+last-seen", Without: "a contender that a listing lacks is gone, and the observer connects to servers that are behind", Scenario: "Attack03WhatAListing", Shows: "a lease that is there is answered 410 removed"},
	{Name: "creates-first", Without: "in a transaction deletes stand before creates", Seed: 1, Shows: "shortening"},
	{Name: "downgrade-token", Without: "the token of a downgraded lease is that of its newest contender", Seed: 2, Shows: "a fencing token that no lease ever had"},
	{Name: "group-turn", Without: "a lease of several locks is granted when it holds the first of them", Seed: 1, Shows: "invariant: two holders of one lock"},
	{Name: "group-whole", Without: "a lease of several locks that has lost one of its contenders goes on", Seed: 27, Shows: "zombie"},
	{Name: "limit-check", Without: "an acquire does not check that its limit is in force", Scenario: "Attack48", Shows: "enqueued under a limit that is not in force"},
	{Name: "limit-name", Without: "the limit that counts is the lock's, not the one in a contender's name", Scenario: "Attack10", Shows: "the successor thinks that a holder waits"},
	{Name: "holds-named", Without: "a release of a hold that was released before is not known as a repetition", Seed: 3, Shows: "a repeated release is refused"},
	{Name: "fence-memory", Without: "a fence check is answered from memory", Seed: 46, Shows: `"current" for a lease that had ended`},
	{Name: "force-record", Without: "a revocation is not written into the record", Scenario: "Attack50", Shows: "it holds though force is due"},
	{Name: "force-withdrawn", Without: "force does not name the version that was read, so it overtakes a withdrawal", Scenario: "Attack52", Shows: "force that was withdrawn has ended the lease"},
	{Name: "withdraw-round", Without: "a revocation after a withdrawal goes on with the old force", Scenario: "Attack53", Shows: "force that was withdrawn has ended the lease"},
	{Name: "closed-first", Without: "a lease with a lock delay ends like any other", Seed: 2, Shows: "its place does not stay for the lock delay"},
	{Name: "deadlock-placed", Without: "a wait with deadlock=fail is looked at before its create alone", Scenario: "Attack64", Shows: "two owners wait for each other"},
	{Name: "deadlock-youngest", Without: "each wait with deadlock=fail ends in a cycle, not the youngest alone", Scenario: "Attack64", Shows: "both waits have ended"},
	{Name: "at-least", Without: "the end of a lease does not look whether at_least has passed", Seed: 1, Shows: "the lock is free before at_least has passed"},
	{Name: "once-mark", Without: "a lease is granted without an entry in the record of the periods", Seed: 1, Shows: "once: two leases are granted for one period"},
	{Name: "once-done", Without: "an entry that is done is replaced", Seed: 1, Shows: "once: two leases are granted for one period"},
	{Name: "once-release", Without: "a release does not make the period done", Seed: 30, Shows: "once: a lease is granted after another one was released with the period done"},
	{Name: "reservation-end", Without: "the end of a reservation is no deadline", Seed: 1, Shows: "stuck"},
	{Name: "reservation-spare", Without: "a successor adds nothing to the end of a reservation, whatever its clock says", Seed: 32, Shows: "shortening"},
	{Name: "closed-read", Without: "a successor does not look whether a record says closed", Scenario: "Attack27", Shows: "a lease that has expired is alive"},
	{Name: "closed-restored", Without: "the record of a place that is kept is not written back when another program has written over it", Scenario: "Attack56", Shows: "a lease that has expired is alive"},
	{Name: "read-first", Without: "a lease that was taken over is heartbeaten before its record was read", Scenario: "Attack35", Shows: "shortening"},
	{Name: "release-closed", Without: "a gateway that releases a lease in its owner's place does not write into the record that the lease has ended", Scenario: "Attack59", Shows: "a lease that was released is held at its owner"},
	{Name: "ephemeral", Without: "a successor runs ephemeral leases, too", Scenario: "Attack51", Shows: "the successor runs it"},
	{Name: "tail-batches", Without: "a queue that is destroyed goes from its head", Seed: 8, Shows: "an event tells of a holder that never was"},
	{Name: "old-read", Without: "a record that is older than what was written counts", Seed: 985, Shows: "a released hold is there again"},
	{Name: "knows-all", Without: "a takeover does not wait until every recorded namespace has been read", Scenario: "Attack25", Shows: "a lease that is there is said to have ended"},
	{Name: "tail-first", Without: "of a queue's deletes in one transaction the earlier contender goes first", Scenario: "Attack55", Shows: "the holder is deleted before the waiter behind it"},
	{Name: "fleet", Without: "every name that looks like a lease id is ours", Seed: 1, Shows: "a gateway deletes another program's contender"},
	{Name: "blind-time", Without: "deadlines do not move when the trust window opens again", Seed: 24, Shows: "unheard"},
	{Name: "unclaimed-ends", Without: "an unclaimed grant is never passed on", Seed: 4, Shows: "stuck"},
	{Name: "unclaimed-counts", Without: "an unclaimed grant counts as claimed", Seed: 4, Shows: "unclaimed"},
	{Name: "guard-writes", Without: "an idle gateway does not write its guard", Seed: 1, Shows: "stuck"},
	{Name: "seen-version", Without: "an expiry deletes any version", Seed: 24, Shows: "unseen"},
	{Name: "depose-polled", Without: "a deposition reads the guard again", Scenario: "Attack38", Shows: "a gateway that has written since is deposed"},
	{Name: "depose-blind", Without: "time counts against a silent gateway while one's own trust window was closed", Scenario: "Attack22NoGatewayIsDeposed", Shows: "deposed for an outage of ZooKeeper"},
	{Name: "written-heard", Without: "an owner ignores the heartbeats that others write down", Scenario: "Attack22ALeaseWhoseOwner", Shows: "shortening"},
	{Name: "written-over", Without: "a record that another program has overwritten had no heartbeats in it", Scenario: "Attack34", Shows: "a heartbeat that was answered has been swallowed"},
	{Name: "end-report", Without: "an end does not wait for the report of the gateway that ran the lease", Seed: 4, Shows: "two gateways tell of one end with different reasons"},
	{Name: "held-order", Without: "a lock's later events do not wait behind a delayed one", Seed: 4, Shows: "two gateways tell of its holders in another order"},

	{Name: "hooks-check", Hooks: true, Without: "an end does not check the subscriptions", Seed: 20, Shows: "an end without its note"},
	{Name: "hooks-wait", Hooks: true, Without: "ends do not wait until the subscriptions are known", Seed: 20, Shows: "an end without its note"},
	{Name: "hooks-after", Hooks: true, Without: "the outbox entry of an end is written after its transaction, not in it", Seed: 1, Shows: "a note of a later transaction"},
	{Name: "hooks-left", Hooks: true, Without: "no gateway looks for what a dead gateway has left in the outbox", Seed: 8, Shows: "litter"},
	{Name: "hooks-id", Hooks: true, Without: "a message has another id each time", Seed: 1, Shows: "one end under two ids"},
	{Name: "hooks-done", Hooks: true, Without: "an entry is deleted before its delivery, not after it", Seed: 1, Shows: "an end that was never told"},
	{Name: "hooks-tries", Hooks: true, Without: "a message that a receiver refused is not sent again", Seed: 1, Shows: "litter"},
	{Name: "hooks-fresh", Hooks: true, Without: "the entries of a dead gateway are read with old subscriptions", Seed: 23, Shows: "an end that was never told"},
	{Name: "hooks-termination", Hooks: true, Without: "the owner of a lease that another gateway has broken delivers its end, too", Scenario: "HooksABreak", Shows: "told twice"},
	{Name: "hooks-gone", Hooks: true, Without: "no gateway looks through the outbox when a gateway is gone", Seed: 803, Shows: "told nearly ten minutes late"},
	{Name: "rotate-sign", Rotate: true, Without: "leases are told apart by the old key before every gateway has said that it signs with the new one", Seed: 35, Shows: "the token of a lease that is there is refused"},
	{Name: "rotate-leases", Rotate: true, Without: "the old key is dropped while leases need it", Seed: 1, Shows: "the token of a lease that is there is refused"},
	{Name: "rotate-members", Rotate: true, Without: "what gateways counted before a takeover counts after it", Seed: 91, Shows: "the token of a lease that is there is refused"},
	{Name: "rotate-unknown", Rotate: true, Without: "a gateway that is cut off refuses tokens of keys that it does not know", Seed: 61, Shows: "the token of a lease that is there is refused"},
}
