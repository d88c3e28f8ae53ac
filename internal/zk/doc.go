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
package zk
