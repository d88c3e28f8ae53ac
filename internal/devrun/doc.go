// Command devrun is "make run": it starts Debian's ZooKeeper and the gateway on loopback, waits until the gateway is
// ready, prints a curl line that works, and stops both when it is told to.
//
//	LISTEN          where the gateway listens (127.0.0.1:8080)
//	ZK_PORT         ZooKeeper's port on 127.0.0.1 (2181)
//	GATEWAY_FLAGS   further flags of the gateway, separated by spaces
//
// It runs in the top directory of the repository and needs bin/gateway there. Everything it writes is in .run/, which git
// ignores; ZooKeeper's data is in .run/zookeeper and survives, so what was held when it stopped is held when it starts
// again. A lock on .run/lock keeps a second devrun from using the same data.
//
// SIGINT, SIGTERM and SIGHUP stop the gateway, then ZooKeeper; a second signal stops waiting. When either of them ends by
// itself the other is stopped and the exit code is 1. Nothing is left running in any case: both are children that the
// kernel kills when devrun is gone. Exit codes: 0 stopped by a signal, 1 something failed, 64 usage, 69 a port or the
// data directory is in use, or ZooKeeper is not installed.
package main
