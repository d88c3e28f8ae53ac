package connlimit

// What the defaults are made of.
const (
	// leastReserve is how many files stay for all but connections of clients: the store, ZooKeeper, the other gateways,
	// webhooks, and connections that are being closed.
	leastReserve = 64
	// perGiB is how many connections there may be for each GiB of memory: a quiet one takes some 20 KiB, one that waits more.
	perGiB = 12_000
	gib    = 1 << 30
)

// Default gives the limits for a process that may open so many files and use so much memory. What is set in l stays.
//
// An address may have three quarters of all: behind a proxy all clients have the same one, and may need nearly all; and
// what one address cannot take stays for others.
func (l Limits) Default(files uint64, memory int64) Limits {
	if l.Connections == 0 {
		bounded := int(min(files, 1<<20))
		l.Connections = max(bounded-max(leastReserve, bounded/8), 1)
		l.Connections = min(l.Connections, max(int(memory/gib*perGiB+memory%gib*perGiB/gib), 1))
	}
	if l.PerAddress == 0 {
		l.PerAddress = l.Connections - l.Connections/4
	}
	return l
}
