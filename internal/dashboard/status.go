package dashboard

import (
	"context"
	"sync"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/web/templates"
)

// statusAge is how old the state of gateway and ZooKeeper on a page may be. It
// is asked for once for all views: counting leases costs the lock manager.
const statusAge = 200 * time.Millisecond

// status keeps what every page says of the gateway.
type status struct {
	locks   Locks
	version string
	build   string
	started time.Time
	// embedded: ZooKeeper is part of this process.
	embedded bool

	mu   sync.Mutex
	info locks.Info
	at   time.Time // zero: never
}

// get is the state of at most statusAge ago. Info is answered from memory.
func (s *status) get(ctx context.Context) locks.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || time.Since(s.at) >= statusAge {
		s.info, s.at = s.locks.Info(ctx), time.Now()
	}
	return s.info
}

// statusOf is what pages show to who; Now is set when it is rendered.
func (s *status) statusOf(info locks.Info, who locks.Principal) templates.Status {
	info = info.For(who)
	zk := info.ZooKeeper
	return templates.Status{
		Partial: !who.Rules.MayAll(access.Read), Rules: nameOf(who.Rules),
		Hazards: info.HazardousLocks, HazardsURL: hazardsURL(info),
		GatewayID: info.GatewayID, Version: s.version, Build: s.build, Started: s.started,
		ZooKeeper: zk.State, Embedded: s.embedded, Servers: zk.Servers, Root: info.Root,
		Trusted: zk.Trusted, PromiseWindow: info.PromiseWindow, ReplicaCurrent: zk.ReplicaCurrent,
		Serving: zk.State == "connected" && zk.Trusted && zk.ReplicaCurrent,
		Locks:   info.Locks, Contenders: info.Contenders,
		Held: info.Leases[locks.Held], Waiting: info.Leases[locks.Waiting],
	}
}

// hazardsURL is where the locks with hazards are, "" when there are none. In which
// namespace they are is on the page of namespaces, unless there is but one.
func hazardsURL(info locks.Info) string {
	switch {
	case info.HazardousLocks == 0:
		return ""
	case len(info.Namespaces) > 1:
		return urlOf(namespacesPage{})
	}
	return urlOf(overviewPage{ns: locks.DefaultNamespace, state: stateHazard})
}
