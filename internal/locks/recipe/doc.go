// Package recipe is the lock recipe as pure functions: names in, grants out.
// It knows ZooKeeper's numbers, the names of contenders and the order of a
// queue. It does no I/O, starts nothing and keeps no state but a Queue's.
//
// # What it promises
//
// A lock's holders follow from the names of its children alone, without reading data. A holder goes on holding
// with any contender behind it: no later arrival revokes a grant.
// Every child that ends in a sequence number is a contender, of any program.
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
// A namespace's Naming has its dialect and reads its names. Custom names are refused when they are configured.
// Each accepted name has one reading, and no known program takes it for another mode.
//
// A lock's name is its directory's name. It is percent-encoded where another program's directory has a name that our
// locks may not have: LockName, LockDir, ParseLockName.
//
// # Ownership
//
// A Queue belongs to its caller, which serializes access to it. A Contender does not change once it is in a queue; the
// queue keeps the pointer. A Naming never changes.
package recipe
