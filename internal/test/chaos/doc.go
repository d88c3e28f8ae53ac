// Package chaos breaks a whole fleet on purpose and lets internal/test/chaos/check decide whether its clients noticed what they
// must not notice. It is a test and nothing else: no part of the gateway imports it.
//
// A *world* is a real ensemble of three ZooKeeper servers, three gateways (the real binary), and two ways to them: Debian's
// nginx, and a balancer that deals out TCP connections in turn. Between all of them are proxies (internal/test/netfault): before
// each gateway for its clients and for other gateways, between each gateway and each server, between the servers.
//
// *Clients* are goroutines with a small HTTP client of their own, written from the documentation: it shares no code with the
// gateway. They try, wait, take tickets, repeat with a key, heartbeat one lease or many, poll, let go, and some just stop. They
// write down what they sent and were told, and when. A *lister* looks at the queues all the while.
//
// A *plan* is a list of faults with their times, a function of a seed: processes are killed, frozen, told to go and started
// again, servers too, the leader included; links are cut, fall silent, slow down; a follower loses its peers and goes on
// serving. In between it is calm for as long as a silent client's lease may live, so that what stays locked is seen.
//
// The plan is a function of the seed; the run is not, for it happens in real time, and on the operating system's terms. The
// history of a run that broke a promise is kept.
//
// # Ownership
//
// The goroutine that runs the plan breaks and mends; each client is one goroutine, the lister another. Recorder is the only
// thing they share. World.Close, the test's cleanup, ends every process and waits.
package chaos
