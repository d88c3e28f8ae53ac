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
	// Scenario begins the name of a test of the simulation, after "Test", that shows it: it runs instead of seeds. Empty: seeds
	// show it.
	Scenario string
	// Open says why no seed shows it as yet, where that is a gap of the simulation and not another protection's merit.
	Open string
}

// Points are the fail points that are on.
func (m Mutant) Points() []string { return strings.Split(m.Name, "+") }

// Table is every protection that the simulation must miss when it is gone.
var Table = []Mutant{
	{Name: "guard", Without: "transactions do not write the guard; the zxid of a create is what the session has last seen"},
	{Name: "epoch-check", Without: "transactions do not check the epoch, only that the registration is there"},
	{Name: "epoch-bump", Without: "after a lost transaction the epoch stays; a guard-only write is all that comes before the next ones", Scenario: "Attack14"},
	{Name: "trust-window", Without: "the trust window is always open", Backed: "trust-window+freshness"},
	{Name: "freshness", Without: "a replica that has been read is fresh for ever", Backed: "trust-window+freshness"},
	{Name: "behind", Without: "the observer stays with a server that has fallen behind", Scenario: "Attack03AServer"},
	{Name: "trust-window+freshness", Without: "the trust window is always open, and a replica that has been read is fresh for ever", Scenario: "Attack01"},
	{Name: "freshness+behind", Without: "a replica is fresh for ever, and the observer stays with a server that has fallen behind", Scenario: "Attack03AServer"},
	{Name: "window", Without: "a successor does not wait W", Scenario: "Attack54"},
	{Name: "resync", Without: "the tree is read on the first connection alone"},
	{Name: "created-event", Without: "a create's reply grants"},
	{Name: "early-end", Without: "an end that the writer was told of grants, though the replica does not show it"},
	{Name: "gap", Without: "a number that was never seen does not matter", Scenario: "Attack05"},
	{Name: "created-event+gap", Without: "a create's reply grants, and a number that was never seen does not matter"},
	{Name: "absence", Without: "what a listing lacks is gone, whatever its zxid", Scenario: "Attack03WhatAListing"},
	{Name: "last-seen", Without: "the observer connects to servers that are behind what it has seen", Scenario: "Attack03AnObserver"},
	{Name: "absence+last-seen", Without: "what a listing lacks is gone, and the observer connects to servers that are behind", Scenario: "Attack03WhatAListing"},
	{Name: "creates-first", Without: "in a transaction deletes stand before creates"},
	{Name: "downgrade-token", Without: "the token of a downgraded lease is that of its newest contender"},
	{Name: "group-turn", Without: "a lease of several locks is granted when it holds the first of them"},
	{Name: "group-whole", Without: "a lease of several locks that has lost one of its contenders goes on"},
	{Name: "limit-check", Without: "an acquire does not check that its limit is in force", Scenario: "Attack48"},
	{Name: "limit-name", Without: "the limit that counts is the lock's, not the one in a contender's name", Scenario: "Attack10"},
	{Name: "holds-named", Without: "a release of a hold that was released before is not known as a repetition"},
	{Name: "fence-memory", Without: "a fence check is answered from memory"},
	{Name: "force-record", Without: "a revocation is not written into the record", Scenario: "Attack50"},
	{Name: "force-withdrawn", Without: "force does not name the version that was read, so it overtakes a withdrawal", Scenario: "Attack52"},
	{Name: "withdraw-round", Without: "what was asked after a withdrawal goes on with the old force", Scenario: "Attack53"},
	{Name: "closed-first", Without: "a lease with a lock delay ends like any other"},
	{Name: "closed-read", Without: "a successor does not look whether a record says closed", Scenario: "Attack27"},
	{Name: "read-first", Without: "a lease that was taken over is heartbeaten before its record was read", Scenario: "Attack35"},
	{Name: "ephemeral", Without: "a successor runs ephemeral leases, too", Scenario: "Attack51"},
	{Name: "tail-pieces", Without: "a queue that is destroyed goes from its head"},
	{Name: "old-read", Without: "a record that is older than what was written counts"},
	{Name: "knows-all", Without: "a takeover does not wait until every recorded namespace has been read", Scenario: "Attack25"},
	{Name: "tail-first", Without: "of a queue's deletes in one transaction the earlier contender goes first", Scenario: "Attack55"},
	{Name: "fleet", Without: "whatever looks like a lease id is ours"},
	{Name: "blind-time", Without: "deadlines do not move when the fence opens"},
	{Name: "unclaimed-ends", Without: "a grant of which nobody knows is never passed on"},
	{Name: "unclaimed-counts", Without: "a grant of which nobody knows counts as claimed"},
	{Name: "guard-writes", Without: "an idle gateway does not write its guard"},
	{Name: "seen-version", Without: "what time decided deletes any version"},
	{Name: "depose-polled", Without: "who deposes looks at the guard anew", Scenario: "Attack38"},
	{Name: "depose-blind", Without: "time counts against a silent gateway in which one's own fence was closed", Scenario: "Attack22NobodyIsDeposed"},
	{Name: "written-heard", Without: "an owner ignores the heartbeats that others write down", Scenario: "Attack22ALeaseWhoseOwner"},
	{Name: "written-over", Without: "a record that another program has written over had no heartbeats in it", Scenario: "Attack34"},
	{Name: "hearsay", Without: "nobody waits for the word of the gateway that ran a lease"},
	{Name: "held-order", Without: "a lock's later events do not wait behind one that is held back"},

	{Name: "hooks-check", Hooks: true, Without: "an end does not check who wants to be told"},
	{Name: "hooks-wait", Hooks: true, Without: "ends do not wait until it is known who wants to be told"},
	{Name: "hooks-after", Hooks: true, Without: "an end is noted when its transaction is done, not in it"},
	{Name: "hooks-left", Hooks: true, Without: "nobody looks for what a dead gateway has left in the outbox"},
	{Name: "hooks-id", Hooks: true, Without: "a message has another id each time"},
	{Name: "hooks-done", Hooks: true, Without: "an entry goes when it is to be delivered, not when it is"},
	{Name: "hooks-tries", Hooks: true, Without: "what a receiver did not take is not sent again"},
	{Name: "hooks-fresh", Hooks: true, Without: "what a dead gateway has left is read with the subscriptions as they were known"},
	{Name: "hooks-verdict", Hooks: true, Without: "the gateway of a lease that another one has broken tells its end, too", Scenario: "HooksABreak"},
	{Name: "hooks-gone", Hooks: true, Without: "nobody looks through the outbox when a gateway is gone"},
}
