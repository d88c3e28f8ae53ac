// Package orders keeps the locks of a namespace in the orders in which lists show them: by a number (most waiters, held for the
// longest time, waited for the longest time), and by words (an owner, a host, a mode). A page of 100,000 locks then costs what is
// on it.
//
// # What it promises
//
// An order has each lock that the caller has put into it, at the keys that the caller has given last. Walking from a place on
// finds each lock behind that place once.
//
// # Who keeps them up
//
// No acquire pays for an order. A queue only marks itself when it changes (queues.Namespace.KeepChanges), and no queue does while no
// order is kept. The manager puts marked queues in order before it answers a list, and once a second. An order is made when a list
// asks for it, and dropped when none has for Life.
//
// Lists are all orders that are kept. What they compare of a lock they ask of a Source.
//
// The package is passive: it starts nothing and reads no clock. It is not safe for concurrent use; the manager guards it with its
// monitor.
package orders
