// Package recipe is the lock recipe as pure functions: names in, grants out.
// It knows ZooKeeper's numbers, the names of contenders and the order of a
// queue. It does no I/O, starts nothing and keeps no state but a Queue's.
//
// # What it promises
//
// Who holds a lock follows from the names of the lock's children alone; nobody
// has to read data. A contender that holds goes on holding whatever is
// appended behind it, so a grant is a fact that no later arrival takes back.
// Every child that ends in a sequence number is a contender, whoever made it.
//
// # What it refuses
//
// It does not guess an order. When the numbers of a queue do not fit into half
// of the 32-bit circle, Queue.Ordered reports false and nothing holds. A name of
// this fleet in a format that this program does not know is respected as an
// exclusive contender (Unknown) and is otherwise left alone.
//
// # Names
//
// A contender's name is a form around an id, then the sequence number:
//
//	write-<id>-lock-%010d     read-<id>-lock-%010d       native
//	permit-<id>-<permits>of<limit>-lock-%010d            native, semaphore
//	write-<id>-__WRIT__%010d  read-<id>-__READ__%010d    curator-rw
//	<id>__lock__%010d         <id>__rlock__%010d         kazoo
//	as configured                                        custom; see ParseNaming
//
//	id    = "v1." lease-id ["." "e"] ["." "m" k "of" n] ["." "g" k "of" n] ["." "f" czxid]
//	lease-id = "lk" fleet gateway random                 (39 characters)
//
// e is an ephemeral contender, m the member k of a lease of n contenders in this
// queue, g the contender of the k-th lock of a lease over n locks (2 to 64), f the
// first czxid of a lease that was downgraded. Attributes stand in this order,
// numbers are decimal without leading zeros: a contender has one name. An id
// consists of a-z, 0-9 and dots, so none of the words by which other clients
// find the number (lock-, __, -__WRIT__) can occur in it, and every name starts
// with a letter or an underscore: Curator would starve behind a name that sorts before digits.
//
// Which dialect a namespace has, and how its names are read, is its Naming. Custom
// names are refused when they are configured, not when they are met: every one that is
// accepted has one reading, and nobody takes it for another mode.
//
// A lock's name is its directory's, percent-encoded where another program has called
// it as no lock of ours may be called: LockName, LockDir, ParseLockName.
//
// # Who owns what
//
// A Queue belongs to its caller, who serialises access to it. A Contender is
// not changed once it is in a queue; the queue keeps the pointer it was given. A
// Naming never changes.
package recipe
