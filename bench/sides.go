package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/go-zookeeper/zk"
)

// maxClients is the most that a comparison with direct clients has; mostWaiters the most that wait for one lock.
const (
	maxClients  = 256
	mostWaiters = 10_000
)

// The sides of a comparison.
const (
	gatewaySide       = "gateway on ZooKeeper"
	embeddedSide      = "gateway, embedded"
	zkLockSharedSide  = "zk.Lock, one connection"
	zkLockOwnSide     = "zk.Lock, own connections"
	curatorSharedSide = "Curator, one connection"
	curatorOwnSide    = "Curator, own connections"
	etcdSide          = "etcd over JSON"
	bareSide          = "bare handler"
)

// directSides talk to ZooKeeper themselves. The better one, line by line, is what the gateway is compared with.
var directSides = []string{zkLockSharedSide, zkLockOwnSide, curatorSharedSide, curatorOwnSide}

// side is one way to do the work of a line.
type side struct {
	name    string
	servers []int  // process ids of what serves HTTP; none for direct clients
	store   *store // nil when it is no ZooKeeper of Debian's
	clients int    // process id
	log     *program
	locker  func(i int, lock string) locker // of client i; nil when the clients are in another program
	run     func(ctx context.Context, w work, begin func()) (sample, error)
}

// setting is a ZooKeeper and what works on it.
type setting struct {
	store   *store
	gateway *gateway
	direct  *directClients
	curator *curator
}

// startSetting starts n ZooKeeper servers, a gateway on them, and connects the direct clients.
func (r *rig) startSetting(ctx context.Context, n int) (s *setting, err error) {
	s = &setting{}
	if s.store, err = r.startStore(n); err != nil {
		return nil, err
	}
	if s.gateway, err = r.startGateway(ctx, "--zk", s.store.addrs(), "--webhook-allow", "127.0.0.1"); err != nil {
		return nil, err
	}
	if s.direct, err = r.connectDirect(ctx, s.store); err != nil {
		return nil, err
	}
	s.curator, err = r.startCurator(ctx, s.store)
	return s, err
}

// gatewaySide is the gateway on this setting's ZooKeeper.
func (s *setting) gatewaySide() side {
	side := s.gateway.side(gatewaySide)
	side.store = s.store
	return side
}

// directSides are the four that talk to ZooKeeper.
func (s *setting) directSides() []side {
	zkLock := func(name string, connection func(i int) *zk.Conn) side {
		return side{name: name, store: s.store, clients: os.Getpid(), log: s.gateway.program}.
			with(func(i int, lock string) locker { return newDirectLocker(connection(i), lock) })
	}
	curatorSide := func(name, connections string) side {
		return side{name: name, store: s.store, clients: s.curator.PID(), log: s.curator.program, run: func(_ context.Context, w work, begin func()) (sample, error) {
			return s.curator.run(w, connections, begin)
		}}
	}
	return []side{
		zkLock(zkLockSharedSide, func(int) *zk.Conn { return s.direct.shared }),
		zkLock(zkLockOwnSide, func(i int) *zk.Conn { return s.direct.own[i] }),
		curatorSide(curatorSharedSide, "shared"),
		curatorSide(curatorOwnSide, "own"),
	}
}

// lockers makes a locker for each client.
func (w work) lockers(of func(i int, lock string) locker) []locker {
	lockers := make([]locker, w.clients)
	for i := range lockers {
		lockers[i] = of(i, w.lock(i))
	}
	return lockers
}

// with gives a side clients in this process.
func (s side) with(of func(i int, lock string) locker) side {
	s.locker = of
	s.run = func(ctx context.Context, w work, begin func()) (sample, error) {
		return closedLoop(ctx, w.lockers(of), w, begin)
	}
	return s
}

// side is what speaks the gateway's HTTP.
func (g *gateway) side(name string) side {
	return side{name: name, servers: []int{g.PID()}, clients: os.Getpid(), log: g.program}.
		with(func(_ int, lock string) locker { return g.http.locker(lock) })
}

// side is etcd's lock service.
func (e *etcd) side() side {
	return side{name: etcdSide, servers: []int{e.PID()}, clients: os.Getpid(), log: e.program}.with(e.locker)
}

// allSides starts everything that is compared on one machine.
func (r *rig) allSides(ctx context.Context, s *setting) ([]side, error) {
	embedded, err := r.startGateway(ctx, "--data-dir", filepath.Join(r.dir, "embedded"))
	if err != nil {
		return nil, err
	}
	etcd, err := r.startEtcd(ctx)
	if err != nil {
		return nil, err
	}
	bare, err := r.startBare(ctx, s.gateway)
	if err != nil {
		return nil, err
	}
	sides := append([]side{s.gatewaySide(), embedded.side(embeddedSide)}, s.directSides()...)
	return append(sides, etcd.side(), bare.side(bareSide)), nil
}
