// Package zk holds the nouns of ZooKeeper as a gateway uses it: instants and clocks, Writes and their Results, Changes
// of the replica, the names of the layout's nodes, the configuration and the errors. It does no I/O but for Config's
// default Dial.
//
// The work is done in the packages below:
//
//	session    one ZooKeeper session of a gateway: guarded Writes, and for how long it may be trusted
//	layout     what is recorded for the whole fleet, its permissions, and work on a root that no gateway uses
//	conn       one connection of go-zookeeper, whose traps it closes; only it imports go-zookeeper
//	observer   the replica of whole trees, and how fresh it is
//	ensemble   what the servers say of themselves
//	wire       ZooKeeper's wire format
//	embedded, standalone   a ZooKeeper server in the gateway's process
//
// # The clock
//
// The trust window needs a clock that goes on while the machine sleeps: CLOCK_BOOTTIME, which Go cannot read without a
// system call. SystemClock derives it. Boot clock and monotonic clock run at the same rate; what the boot clock leads by
// grows when the machine sleeps, and only then. So a reading is the monotonic clock plus the lead as it was last found.
//
// The kernel adds a sleep to the boot clock and to the wall clock in one step, before any process runs again. So a wall clock
// that still is as far from the monotonic one as before, within 1 ms, proves that the machine has not slept, or that the wall
// clock was set back by just as much. Each reading looks at that, and reads the boot clock itself when it is not so. It also
// does when the last look at the boot clock is 1 ms of running time old. Hence a reading is the boot clock's, within 0.1 ms,
// with one exception: the machine sleeps, a process sets the wall clock back by the length of the sleep, to the
// millisecond, and the gateway reads the clock, all within 1 ms of running time. The promises leave the exception out.
//
// Two readings without a sleep between differ by what the monotonic clock says: the lead stays the same. A sleep that shows
// in no clock (a virtual machine that was stopped and continued) shows in none here, as ever: the wall clock has to
// be set for it.
package zk
