// Package webhooks delivers to other systems that a lock was released, and as best effort what else happens:
// subscriptions, the outbox, and delivery.
//
// # What it promises
//
// An end with a subscription is delivered at least once. Reading an outbox entry does not remove it: it is removed
// when every message in it was delivered or given up, together with others, within some 20 ms. A gateway that dies in between leaves the entry to its
// successor, which delivers all of it again. A message has the same webhook-id each time, at any gateway, so a receiver can drop
// duplicates. Messages about one lock that one gateway has written and delivers reach a receiver in the order in which the leases ended.
//
// # What it does not promise
//
// Order between locks, and between gateways: each delivers the ends that it has written. Order of entries that are only found in
// the outbox, left by a dead gateway or after a lost answer, and of ends by another's hand, which are written afterwards: such an entry
// goes to its place in the lane, but later ones may have been delivered by then. Order of replayed dead letters. The fencing token gives
// the order of a lock's exclusive holders in every case. Nor does it promise delivery for a subscription that was removed or
// disabled meanwhile (its messages are forgotten, or become dead letters), nor new entries for one whose record
// cannot be read here. What waits for such a one goes on waiting.
//
// # Delivery
//
// A Courier has one lane for each lock of a receiver. The head of a lane is sent until it is delivered or has had its last try;
// what is behind it waits. Lanes of one receiver are sent at the same time up to a bound, and receivers do not wait
// for each other. A receiver that fails again and again is paused, and then
// tried with one message (the probe); when one is delivered, all lanes go on at once. Schedule,
// headers and signatures are those of Standard Webhooks
// (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md).
//
// # What happens at the bound
//
// The outbox has room for MaxEntries, and each subscription has a share of it (share.go). An end that finds no room gets no entry; it is
// counted, and an event and the log tell once a minute how many there were (bound.go). Releasing a lock neither fails nor waits for it.
//
// # The notify_url of a lease
//
// It is a subscription that goes with its lease: its address stands in the entry in place of a subscription's id, and its secret is
// derived from the fleet's. Its receiver gets the grant, too, in an entry of its own. Each lease has lanes of its
// own; receivers are counted by host, and hosts have places of their own (receiver.go). After the last try a message is given up,
// without a dead letter. notify_urls may have half of the outbox, so that clients that take locks cannot keep subscriptions out.
//
// # Best effort
//
// What is no end (a grant, a queueing, a hazard) is in no transaction and in no entry: a Feed brings it, and it waits in the courier's
// memory, bounded, for some minutes (besteffort.go). It is lost with the gateway. It never makes an end wait.
//
// # Addresses that it refuses
//
// Anything but http and https, and addresses inside one's own network: they are checked each time a connection is made, so a name
// that resolves to another address by then gains nothing (Addresses). Redirects are not followed.
//
// # Secrets
//
// A subscription's signing secret is made here, shown once and stored where only gateways may
// read. It is never logged and never part of an error.
//
// # Ownership
//
// A Courier's state is behind one mutex, never held during I/O; so are the subscriptions (registry), the bound, and what is to be
// written (writer). Each attempt has a goroutine of its own, which ends with the attempt; timers start them. Close
// ends all of them and waits.
package webhooks
