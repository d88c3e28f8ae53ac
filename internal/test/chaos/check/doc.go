// Package check decides whether a history of what clients were told breaks a promise of a lock service. It shares no code
// with the gateway and imports nothing but the standard library: a misunderstanding that both had would go unnoticed.
//
// # What it is given
//
// Requests, each with the time at which its client sent it and the time at which the answer had come (or the client gave
// up), on one monotonic clock; looks at whole queues; and the spans of time in which something was broken on purpose. It
// is told neither which gateway answered nor what ZooKeeper did. A request that was not answered may have been done or not.
//
// An *attempt* is one client's wish to have a lock once: an acquire and its repeats, then everything that it does with the
// lease. Its name is the owner label of the lease, so that queues tell whose contenders are in them.
//
// # What follows from an answer
//
// A success for a lease says that it was alive at some instant between sending and answer, and a lease that has ended never
// lives again. So a lease is known to hold from the first answer that says so until the last of (sending of a success + TTL),
// without a gap, unless its client let go before. That is stronger than what the client counts on in each moment, and
// follows from the same promises.
//
// # Rules
//
//	overlap     two leases that conflict are known to hold at one time; permits beyond the limit
//	shortened   a lease is told to have ended, or is missing from its queue, before its time, and its client did not let go
//	revived     a success for a lease that was told to have ended before the request was sent
//	fencing     a lease's token changes, two leases of a lock have one, or a later holder's is not higher
//	accounted   an attempt has two leases or contenders, two attempts have one; a contender belongs to no attempt
//	order       a client is told to hold while a conflicting waiter with a lower number is told to wait
//	stuck       a contender is in its queue long after its client's last request
//	unexpected  an answer that a client need not understand
package check
