package main

import (
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"lockkeeper/internal/httpapi"
	"lockkeeper/internal/httpapi/connlimit"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/metrics"
)

// limits are the flags that bound what clients may take of this gateway. 0 stands for a default that follows from the memory
// and the files that the process may use.
type limits struct {
	Connections  int   `name:"max-connections" default:"0" help:"How many connections clients and other gateways may have open; at the bound the one that has been idle for the longest time is closed in favor of a new one. 0: seven eighths of the files that the process may open, at most 12,000 for each GiB of memory."`
	PerAddress   int   `name:"max-connections-per-address" default:"0" help:"The same for one IPv4 address, or one /64 of IPv6. Clients behind a proxy have the proxy's address, which is exempt as one of --trusted-proxies. 0: three quarters of --max-connections."`
	Leases       int64 `name:"max-leases" default:"0" help:"How many leases this gateway runs; at the bound it refuses new ones. A lease of several locks counts once for each of them. Leases that it takes over come on top. 0: 40,000 for each GiB of memory that the process may use (GOMEMLIMIT, else the limit of its control group, else what the machine has)."`
	Tickets      int64 `name:"max-tickets" default:"0" help:"How many of the leases may wait though their acquire was answered (async). 0: half of --max-leases."`
	Metadata     int64 `name:"max-metadata-total" default:"0" placeholder:"BYTES" help:"How many bytes owners, metadata, names of holds and notify_urls of this gateway's leases may have together. 0: 64 MiB for each GiB of memory."`
	Keys         int64 `name:"max-idempotency-keys" default:"0" help:"How many idempotency keys this gateway keeps, each until ten minutes after its lease has ended. 0: 160,000 for each GiB of memory."`
	Locks        int64 `name:"max-locks" default:"0" help:"How many locks this gateway knows: those in use in the whole fleet, and those whose directory has not been removed after their last use. At the bound it refuses to begin new ones. 0: 200,000 for each GiB of memory."`
	LockSettings int64 `name:"max-settings" default:"0" help:"How many locks may have settings (PUT /v1/locks/{lock}), in the whole fleet. 0: 10,000 for each GiB of memory."`

	Principal principalFlags `embed:""`
}

// quota are the limits of the lock manager, as they are given.
func (l *limits) quota() quota.Limits {
	return quota.Limits{quota.Leases: l.Leases, quota.Tickets: l.Tickets, quota.MetadataBytes: l.Metadata, quota.Keys: l.Keys, quota.Locks: l.Locks, quota.Settings: l.LockSettings}
}

func (l *limits) check() error {
	if l.Connections < 0 || l.PerAddress < 0 {
		return usage("leave it out for the default", "--max-connections and --max-connections-per-address must be at least 1, or 0 for the default")
	}
	if l.Connections > 0 && l.PerAddress > l.Connections {
		return usage("raise --max-connections, or lower the other one", "--max-connections-per-address %d must not be above --max-connections %d", l.PerAddress, l.Connections)
	}
	if err := l.Principal.check(); err != nil {
		return err
	}
	if err := l.quota().Check(); err != nil {
		return usage("leave the flags --max-... out for the defaults", "%w", err)
	}
	return nil
}

// inForce are the limits with their defaults.
type inForce struct {
	quota       quota.Limits
	connections connlimit.Limits
	waiting     int   // requests that wait
	answers     int64 // bytes of large answers under way

	// Of one principal, with authentication.
	principals      httpapi.PrincipalLimits
	principalLeases quota.PrincipalLimits
}

// resolve fills in the defaults, and says what they are made of.
func (l *limits) resolve(logger *slog.Logger) inForce {
	memory, source := memoryLimit()
	files := fileLimit()
	f := inForce{quota: l.quota().For(memory), connections: connlimit.Limits{Connections: l.Connections, PerAddress: l.PerAddress}.Default(files, memory)}
	f.answers = max(memory/16, 16<<20)
	// A request that waits has a connection. A quarter stays for heartbeats and releases.
	f.waiting = max(min(httpapi.DefaultMaxWaiting, f.connections.Connections-f.connections.Connections/4), 1)
	f.principals, f.principalLeases = l.Principal.resolve(&f)
	logger.Info("limits", "memory", memory, "memory_from", source, "files", files, "max_leases", f.quota[quota.Leases], "max_tickets", f.quota[quota.Tickets],
		"max_metadata_total", f.quota[quota.MetadataBytes], "max_idempotency_keys", f.quota[quota.Keys], "max_locks", f.quota[quota.Locks], "max_settings", f.quota[quota.Settings],
		"max_connections", f.connections.Connections, "max_connections_per_address", f.connections.PerAddress)
	if uint64(f.connections.Connections) >= files {
		logger.Warn("--max-connections is not below the number of files that the process may open: raise that (ulimit -n, LimitNOFILE), or new connections will fail",
			"max_connections", f.connections.Connections, "files", files)
	}
	return f
}

// The least that a listener that is not for clients has: with few --max-connections gateways must still reach each other.
const (
	leastBesides           = 16
	leastBesidesPerAddress = 8
)

// besides are the bounds of a listener that is not for clients (--fleet-listen, --metrics-listen). It has an eighth of what
// clients may have, so that all of them together leave files for the store and for ZooKeeper.
//
// One address has half of that. Gateways behind one NAT have one address and share the half. Each of them needs one
// connection for what it follows, one for each request that it sends on, and some that it keeps for the next requests. So two
// of them work even with the least, and a request for which there is no place is answered 503 where it came from.
func (f *inForce) besides() connlimit.Limits {
	n := max(f.connections.Connections/8, leastBesides)
	return connlimit.Limits{Connections: n, PerAddress: max(n/2, leastBesidesPerAddress)}
}

// boundBesides bounds the connections of such a listener.
func (f *inForce) boundBesides(server *http.Server, on net.Listener, log *slog.Logger) net.Listener {
	limiter := connlimit.New(f.besides(), log)
	limiter.Bound(server)
	return limiter.Listener(on)
}

// memoryLimit is how much memory the process may use, and what says so.
func memoryLimit() (bytes int64, source string) {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return limit, "GOMEMLIMIT"
	}
	if limit, ok := cgroupMemory(); ok {
		return limit, "cgroup"
	}
	if limit, err := memlimit.FromSystem(); err == nil && limit <= math.MaxInt64 {
		return int64(limit), "machine"
	}
	return quota.GiB, "unknown: 1 GiB is assumed"
}

// cgroupMemory is the limit of the process's control group.
func cgroupMemory() (int64, bool) {
	limit, err := memlimit.FromCgroup()
	if err != nil || limit == 0 || limit > math.MaxInt64 {
		return 0, false
	}
	if machine, err := memlimit.FromSystem(); err == nil && machine < limit {
		return 0, false // a limit that the machine cannot reach is none
	}
	return int64(limit), true
}

// fileLimit is how many files the process may have open. At its start Go has raised the soft limit to the hard one.
func fileLimit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return limit.Cur
}

// bounds are the bounds as a scrape shows them.
func bounds(of []quota.State, c connlimit.State, answers metrics.Bound) []metrics.Bound {
	list := make([]metrics.Bound, 0, len(of)+3)
	for _, b := range of {
		list = append(list, metrics.Bound{Name: b.Bound.String(), Used: b.Used, Limit: b.Limit, Refused: b.Refused})
	}
	return append(list, answers,
		metrics.Bound{Name: "connections", Used: int64(c.Open), Limit: int64(c.Connections), Refused: c.Refused},
		metrics.Bound{Name: "connections_per_address", Used: int64(c.MostOfOneAddress), Limit: int64(c.PerAddress), Refused: c.RefusedOfOneAddress})
}

// keepWithin has the collector work harder as the heap nears the limit of the control group: a process that exceeds it is
// killed. A tenth stays for what is no heap of Go's.
func keepWithin() {
	if limit, ok := cgroupMemory(); ok {
		debug.SetMemoryLimit(limit - limit/10)
	}
}
