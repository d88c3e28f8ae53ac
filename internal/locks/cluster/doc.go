// Package cluster knows which gateway runs which lease. A lease's id names the gateway that made it; succession entries in
// ZooKeeper name the gateway that runs the leases of one that is gone.
//
// Members is what the replica has shown of all gateways: registrations, succession entries, contenders that carry a
// gateway's id, and the guards of those that are registered. It is passive and not safe for concurrent use: its owner hands
// it what happened and the time, and does what its answers say. Only succession entries prove ownership; the order and rate
// of takeovers (takeovers.go) and the watch over guards (guard.go) decide only when one is tried.
package cluster
