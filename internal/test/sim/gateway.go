package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper"
	"lockkeeper/internal/events"
	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi"
	"lockkeeper/internal/locks/manager"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/metrics"
	"lockkeeper/internal/outbox"
	"lockkeeper/internal/secret"
	"lockkeeper/internal/test/zktest"
	"lockkeeper/internal/webhooks"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// gateway is one life of one gateway: a process.
type gateway struct {
	name    string // "gw1.2" is the second life of the first
	w       *world
	clock   *zktest.Clock
	manager *manager.Manager
	keyring layout.Keyring
	keeper  *secret.Keeper // of a plan with rotations
	api     *httpapi.Server
	server  *http.Server
	peers   *fleet.Fleet // by which it sends requests on
	listens *fleet.Fleet // by which it follows the others
	busy    atomic.Int64 // requests
	hub     *events.Hub
	died    atomic.Bool // it was gone before the end of the run
	listen  *listener
	cancel  context.CancelFunc
	ended   chan struct{} // closed when nothing of it runs any more
	err     error         // how the manager ended
	skew    atomic.Int64  // of its wall clock, where there are reservations
	gone    atomic.Bool   // it was killed or told to leave
	hooks   *webhooks.Service
}

// source is a random source that may be used from many goroutines. What it gives depends on the time at which it is asked, not
// on how often it was asked before: which of two goroutines asks first at one instant is up to the scheduler, and must not decide
// about everything that comes later.
type source struct {
	seed, whose uint64

	mu  sync.Mutex
	at  int64 // the instant of now
	now rand.Source
}

func (s *source) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := time.Now().UnixNano(); s.now == nil || at != s.at {
		s.at, s.now = at, rand.NewPCG(s.seed^uint64(at), s.whose)
	}
	return s.now.Uint64()
}

// store is a gateway's ZooKeeper. Its two sessions connect by ways of their own, and draw from sources of their own: they may do so at
// one instant.
type store struct {
	term.ZooKeeper
	observe func(ctx context.Context, network, addr string) (net.Conn, error)
	random  rand.Source
}

// Watch implements term.Store.
func (s *store) Watch(roots []zk.WatchRoot, sink zk.Sink, writerZxid func() int64) term.Watcher {
	observer := term.ZooKeeper{Config: s.Config}
	observer.Config.Dial, observer.Config.Random = s.observe, s.random
	return observer.Watch(roots, sink, writerZxid)
}

// startGateway starts a process, as cmd/gateway does.
func (w *world) startGateway(number int) *gateway {
	life := w.gateways.nextLife(number)
	name := fmt.Sprintf("gw%d.%d", number, life)
	g := &gateway{name: name, w: w, clock: zktest.NewClock(), ended: make(chan struct{}), listen: newListener(name)}
	random := func(part int) rand.Source {
		return &source{seed: w.plan.Seed, whose: uint64(part<<32 | number<<16 | life)}
	}
	config := zk.Config{Servers: w.zk.Servers(), SessionTimeout: w.timeout, PromiseWindow: w.window, CreateRoot: true,
		Namespaces: w.namespaces(number), Dial: g.dials(w.zk.Dialer(g.name)), Clock: g.clock, Random: random(0)}
	for i := range config.Servers {
		config.Servers[i] += ":2181"
	}
	collectors := metrics.New("sim")
	g.hub = events.New(events.Options{Metrics: collectors})
	zookeeper := &store{ZooKeeper: term.ZooKeeper{Config: config, Keyring: &g.keyring}, observe: g.dials(w.zk.DialerBy("observer", g.name)), random: random(1)}
	options := manager.Options{Store: zookeeper, Root: zk.DefaultRoot, Servers: config.Servers,
		SessionTimeout: w.timeout, Clock: g.clock, Random: random(2), Metrics: collectors, Events: g.hub,
		Registration: manager.Registration{Address: g.name + ":8080", Version: "sim"}, PeerReports: true, Keyring: &g.keyring}
	if w.plan.Rotate {
		options.Follow = map[string]func(string){zk.NodeRotation: func(string) { g.keeper.Look() }}
	}
	var box outbox.Box
	if w.plan.Hooks > 0 {
		options.Outbox = &box
	}
	g.manager = manager.New(options)
	if w.plan.Rotate {
		g.keeper = secret.NewKeeper(secret.Options{Tree: g.secretTree(), Keyring: &g.keyring, Leases: g.manager})
	}
	g.peers, g.listens = g.fleet(asPeer(name)), g.fleet(asListener(name))
	g.api = httpapi.New(httpapi.Options{Locks: g.manager, Fleet: g.peers, News: g.manager.News, Events: g.hub, Metrics: collectors, Version: "sim", OpenAPI: lockkeeper.OpenAPI})
	g.server = &http.Server{Handler: http.HandlerFunc(g.serve)}
	httpapi.Configure(g.server)
	w.zk.Network.Serve(g.name, g.listen.take)
	if w.plan.Hooks > 0 {
		g.hooks = box.Connect(g.manager, g.hub, g.hookOptions())
	}
	g.run()
	w.gateways.add(number, g)
	w.trace("%s starts", g.name)
	return g
}

// fleet connects with other gateways under a name of its own.
func (g *gateway) fleet(as string) *fleet.Fleet {
	return fleet.New(fleet.Options{Secret: g.keyring.Living(fleet.SealLife), Self: g.manager.Identity, Address: g.name + ":8080", Dial: g.dialAs(as)})
}

// serve answers a request, and counts it while a client waits for it.
func (g *gateway) serve(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path != fleet.StreamPath {
		g.w.gateways.answeredBy(r.Header.Get(fleet.Header), g.name)
		g.busy.Add(1)
		defer g.busy.Add(-1)
	}
	g.api.ServeHTTP(rw, r)
}

// run starts what a gateway consists of.
func (g *gateway) run() {
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	listener := fleet.Listener{Fleet: g.listens, Peers: func() []fleet.Peer { return httpapi.Others(g.manager.Peers()) }, Changed: g.manager.PeersChanged,
		Receive: g.manager.Receive, Following: g.manager.Following,
		Random: func(p fleet.Peer) rand.Source {
			return &source{seed: g.w.plan.Seed, whose: nameOf(g.name, p.Address)}
		}}
	var running sync.WaitGroup
	if g.hooks != nil {
		running.Go(func() { _ = g.hooks.Run(ctx) })
	}
	if g.keeper != nil {
		running.Go(func() { _ = g.keeper.Run(ctx) })
	}
	running.Go(func() { g.err = g.manager.Run(ctx) })
	running.Go(func() { _ = g.hub.Run(ctx) })
	running.Go(func() {
		_ = listener.Run(ctx)
		g.listens.Close()
	})
	running.Go(func() { _ = g.server.Serve(g.listen) })
	go func() {
		running.Wait()
		close(g.ended)
	}()
}

// asPeer is a gateway's name where it is the client of another gateway.
func asPeer(gateway string) string { return gateway + " as a peer" }

// asListener is its name where it follows another gateway.
func asListener(gateway string) string { return gateway + " as a listener" }

// nameOf makes a number of names.
func nameOf(names ...string) uint64 {
	h := fnv.New64a()
	for _, name := range names {
		_, _ = h.Write([]byte(name + "\x00")) // never fails
	}
	return h.Sum64()
}

// dialAs connects with another gateway.
func (g *gateway) dialAs(name string) dialer {
	return g.dials(func(_ context.Context, _, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return g.w.zk.Network.Dial(name, host)
	})
}

// claimEnd reports whether this call is the one that ends the gateway's life.
func (g *gateway) claimEnd() bool { return !g.gone.Swap(true) }

// dials connects as a process that may stand still.
func (g *gateway) dials(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		g.listen.thaw()
		return dial(ctx, network, address)
	}
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// kill ends the process without a word. Its goroutines cannot be killed, so they are cut off from the world for good.
func (g *gateway) kill() {
	g.w.trace("%s is killed", g.name)
	network := g.w.zk.Network
	for _, s := range g.w.zk.Servers() {
		network.Part(g.name, s)
	}
	network.Serve(g.name, nil)
	network.CutAll(network.Links("", g.name))
	for _, as := range []string{g.name, asPeer(g.name), asListener(g.name)} {
		network.CutAll(network.Links(as, ""))
	}
	go g.end()
}

// end waits until nothing runs any more.
func (g *gateway) end() {
	g.cancel()
	_ = g.server.Close()
	g.peers.Close()
	<-g.ended
}

// leave ends the process as SIGTERM does.
func (g *gateway) leave() {
	g.w.trace("%s leaves", g.name)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		g.api.Drain()
		_ = g.manager.Drain(ctx)
		g.shutDown(ctx)
		g.w.zk.Network.Serve(g.name, nil)
		g.w.zk.Network.CutAll(g.w.zk.Network.Links("", g.name)) // the HTTP server would do it in the order of a map
		g.end()
		g.w.trace("%s has left", g.name)
	}()
}

// shutDown is http.Server's Shutdown, which looks at times that nothing but chance decides about.
func (g *gateway) shutDown(ctx context.Context) {
	_ = g.listen.Close()
	for g.busy.Load() > 0 && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	_ = g.server.Close()
}

var errGone = errors.New("the gateway is gone")
