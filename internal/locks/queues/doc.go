// Package queues is the replica of the locks in ZooKeeper: namespaces, queues of contenders, groups, and limits of
// semaphores. It receives the observer's changes (zk.Change), keeps what follows from them, and says which leases hold.
//
// # What it promises
//
// A Replica is passive. It starts nothing, reads no clock (the caller passes now), sends nothing and calls no other
// component. The Deltas that a call returns say what the caller must do next.
//
// A queue has the contenders that ZooKeeper's stream has shown, in the order of their numbers. Whether a contender
// holds follows from the names alone (recipe.Queue). Whether that answer is certain is a second question: Certain is
// false while a contender may stand before it that the replica does not show, while one that has ended is still shown
// before it, and while a listing is applied in part.
//
// # What it refuses
//
// The package does not guess. A number that was handed out and never seen leaves a gap. Nothing behind a gap is certain
// until a listing closes it. A directory whose listing ZooKeeper refuses stays unknown.
//
// # Groups
//
// A lease with several contenders is a Group. It is whole when each contender is there, and holds when each of them
// does.
//
// # Namespaces
//
// A recorded namespace is a Loading until the replica holds all of it: namespace.go has the steps.
//
// # Use
//
// A Replica is not safe for concurrent use. The manager guards it with its mutex. A call costs no more than the queue
// that it is about; calls that walk all queues say so. Deltas are valid until the next call that returns some.
package queues
