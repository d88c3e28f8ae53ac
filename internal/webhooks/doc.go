// Package webhooks tells other systems that a lock was let go: subscriptions,
// the outbox, and delivery.
//
// # What it promises
//
// An end that somebody subscribed to is delivered at least once. Reading an
// outbox entry does not remove it: it is removed when every subscription in it has
// been told or has given up, so a gateway that dies in between leaves it to its
// successor, which tells all of them again. A message has the same webhook-id each
// time, at whatever gateway, so a receiver can drop what it has seen. Messages about
// one lock that one gateway has written down and delivers reach one receiver in the order in which the leases ended.
//
// # What it does not promise
//
// Order between locks; order between gateways, each of which delivers the ends that it has written down: what one retries
// may arrive behind what another tells of later ends of the same lock; and order of what is only found in the outbox, which a dead gateway
// has left or whose answer from ZooKeeper was lost: it is put into its lane where it belongs, and what is behind it may have been
// told by then. So it is with ends by another's hand, which are written down afterwards. The fencing token tells the order of a lock's exclusive holders,
// whatever came first. Nor is it promised that a dead letter that is replayed comes before what ended after it; that a receiver is told only once; anything about a
// subscription that was removed or disabled while its messages waited (they are
// given up as dead letters, or forgotten with it); that ends are told for one whose record
// cannot be read here. What waits for such a one goes on waiting: it has not been removed.
//
// # Delivery
//
// A Courier has one lane for each lock of a receiver. The head of a lane is sent until it is delivered or has had its last try;
// what is behind it waits. Lanes of one receiver are sent at the same time up to a bound, receivers do not wait
// for each other. A receiver that fails again and again is left alone for a while and
// then tried with one message (the probe); when one gets through, all lanes go on at once. Schedule,
// headers and signatures are those of Standard Webhooks
// (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md).
//
// # What happens at the bound
//
// Each subscription has a share of the outbox; one that has more waiting is left out of new entries, and the others are told (share.go).
// The outbox has room for MaxEntries, so that receivers that take nothing do not fill ZooKeeper. An end that finds none is decided as if
// nobody had asked for it, except that it is counted, and that an event and the log tell once a minute how many there were (bound.go). Letting go of a
// lock neither fails nor waits for it; what is in the outbox is delivered, and what ends below the bound is noted again.
//
// # The notify_url of a lease
//
// A subscription that goes with its lease: its address stands in the entry in the place of a subscription's id, and its secret is
// derived from the fleet's by whoever delivers. It is told of the grant, too, in an entry of its own. Each lease has lanes of its
// own; receivers are counted by host, and hosts have places of their own (hosts.go). After the last try a message is given up: nobody could ask for it as a dead letter. It
// may have half of the outbox, so that those who take locks cannot keep subscriptions from being told.
//
// # Whom it will not talk to
//
// Anything but http and https, and addresses inside one's own network: looked at
// when the connection is made, each time, so that a name that resolves to something else by then
// gains nothing (Addresses). Redirects are not followed.
//
// # Secrets
//
// A subscription's signing secret is made here, shown once and stored where only gateways may
// read. It is never logged and never part of an error.
//
// # Who owns what
//
// A Courier's state is behind one mutex, never held during I/O. Each attempt
// has a goroutine of its own, which ends with the attempt; timers start them. Close
// ends all of them and waits.
package webhooks
