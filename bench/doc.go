// Command bench is "make bench": it measures what a lock costs through the gateway, beside go-zookeeper's zk.Lock used
// directly on the same ZooKeeper, and prints the tables of BENCHMARKS.md.
//
//	-duration   how long the comparison may take, 3m45s unless given; at least 30s. Webhooks, events, dashboard and
//	            the gateway's own ZooKeeper follow: webhooks.go, watch.go, overview.go, ownstore.go, some five minutes
//	-rounds     how many rounds the time is divided into, 5 unless given
//	-out FILE   also write the result into FILE, between its lines <!-- bench --> and <!-- /bench -->
//
// It starts Debian's ZooKeeper (every write forced to disk) and the gateway as it is shipped, built from this tree, both on
// loopback and with their default settings (the gateway obeys LOCKKEEPER_... variables as ever, and may deliver webhooks to
// 127.0.0.1), and is itself the load: plain net/http clients for the one side, zk.Lock for the other, and the receiver of webhooks. All three share the machine, so the figures are ratios
// first.
//
// What makes the two sides comparable: they run in turns of seconds within one run, and the side that began in one round comes
// last in the next, so that what disturbs the machine for a while disturbs both. A ratio is taken within each round; the
// median of the rounds is reported, with the least and the greatest. zk.Lock is measured twice, with one connection for
// all clients and with a connection for each, and the better one is compared.
//
// What it checks while it measures: no two clients may hold a contended lock at once, every answer must be the one
// that is expected, and every release with a subscription must be delivered. A run in which anything fails reports no figures.
//
// It owns the two processes, which the kernel kills when it is gone, however it ends, and a directory for ZooKeeper's data
// in .run/, which it removes: the working tree is on a disk, /tmp need not be. SIGINT and SIGTERM end the run.
package main
