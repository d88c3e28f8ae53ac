package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper"
	"lockkeeper/internal/events"
	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi"
	"lockkeeper/internal/locks/manager"
	"lockkeeper/internal/metrics"
	"lockkeeper/internal/outbox"
	"lockkeeper/internal/test/zktest"
	"lockkeeper/internal/webhooks"
	"lockkeeper/internal/zk"
)

// gateway is one life of one gateway: a process.
type gateway struct {
	name    string // "gw1.2" is the second life of the first
	w       *world
	clock   *zktest.Clock
	manager *manager.Manager
	api     *httpapi.Server
	server  *http.Server
	peers   *fleet.Fleet
	busy    atomic.Int64 // requests
	hub     *events.Hub
	died    atomic.Bool // it was killed, or left before the end
	listen  *listener
	cancel  context.CancelFunc
	ended   chan struct{} // closed when nothing of it runs any more
	err     error         // how the manager ended
	gone    bool          // it was killed or told to leave; the world's
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
	manager.ZooKeeper
	observe func(ctx context.Context, network, addr string) (net.Conn, error)
	random  rand.Source
}

// Watch implements locks.Store.
func (s *store) Watch(roots []zk.WatchRoot, sink zk.Sink, writerZxid func() int64) manager.Watcher {
	observer := manager.ZooKeeper{Config: s.Config}
	observer.Config.Dial, observer.Config.Random = s.observe, s.random
	return observer.Watch(roots, sink, writerZxid)
}

// startGateway starts a process, as cmd/gateway does.
func (w *world) startGateway(number int) *gateway {
	w.lives[number]++
	g := &gateway{name: fmt.Sprintf("gw%d.%d", number, w.lives[number]), w: w, clock: zktest.NewClock(), ended: make(chan struct{}),
		listen: newListener(fmt.Sprintf("gw%d.%d", number, w.lives[number]))}
	random := func(part int) rand.Source {
		return &source{seed: w.plan.Seed, whose: uint64(part<<32 | number<<16 | w.lives[number])}
	}
	config := zk.Config{Servers: w.zk.Servers(), SessionTimeout: w.timeout, PromiseWindow: w.window, CreateRoot: true,
		Namespaces: w.namespaces(number), Dial: g.dials(w.zk.Dialer(g.name)), Clock: g.clock, Random: random(0)}
	for i := range config.Servers {
		config.Servers[i] += ":2181"
	}
	collectors := metrics.New("sim")
	hub := events.New(events.Options{Metrics: collectors})
	g.hub = hub
	zookeeper := &store{ZooKeeper: manager.ZooKeeper{Config: config}, observe: g.dials(w.zk.DialerBy("observer", g.name)), random: random(1)}
	options := manager.Options{Store: zookeeper, Root: zk.DefaultRoot, Servers: config.Servers,
		SessionTimeout: w.timeout, Clock: g.clock, Random: random(2), Metrics: collectors, Events: hub,
		Registration: manager.Registration{Address: g.name + ":8080", Version: "sim"}, Hearsay: true}
	var box outbox.Box
	if w.plan.Hooks > 0 {
		options.Outbox = &box
	}
	g.manager = manager.New(options)
	g.peers = fleet.New(fleet.Options{Secret: g.manager.FleetKeys, Self: g.manager.Identity, Address: options.Registration.Address, Dial: g.dials(g.dialBy(asPeer))})
	ears := fleet.New(fleet.Options{Secret: g.manager.FleetKeys, Self: g.manager.Identity, Address: options.Registration.Address, Dial: g.dials(g.dialBy(asEar))})
	listener := fleet.Listener{Fleet: ears, Peers: func() []fleet.Peer { return httpapi.Others(g.manager.Peers()) }, Changed: g.manager.SourcesChanged,
		Receive: g.manager.Hear, Following: g.manager.Following,
		Random: func(p fleet.Peer) rand.Source { return &source{seed: w.plan.Seed, whose: nameOf(g.name, p.Address)} }}
	g.api = httpapi.New(httpapi.Options{Locks: g.manager, Fleet: g.peers, News: g.manager.News, Events: hub, Metrics: collectors, Version: "sim", OpenAPI: lockkeeper.OpenAPI})
	g.server = &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == fleet.StreamPath { // no client waits for it
			g.api.ServeHTTP(rw, r)
			return
		}
		w.answeredBy(r.Header.Get(fleet.Header), g.name)
		g.busy.Add(1)
		defer g.busy.Add(-1)
		g.api.ServeHTTP(rw, r)
	})}
	httpapi.Configure(g.server)
	w.zk.Network.Serve(g.name, g.listen.take)

	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	var running sync.WaitGroup
	if w.plan.Hooks > 0 {
		g.hooks = box.Connect(g.manager, g.hookOptions())
		running.Go(func() { _ = g.hooks.Run(ctx) })
	}
	running.Go(func() { g.err = g.manager.Run(ctx) })
	running.Go(func() { _ = hub.Run(ctx) })
	running.Go(func() {
		_ = listener.Run(ctx)
		ears.Close()
	})
	running.Go(func() { _ = g.server.Serve(g.listen) })
	go func() {
		running.Wait()
		close(g.ended)
	}()
	w.mu.Lock()
	w.lived = append(w.lived, g)
	w.mu.Unlock()
	w.trace("%s starts", g.name)
	return g
}

// requestID is the header by which an answer can be told from others.
const requestID = "Lockkeeper-Request-Id"

// answeredBy notes who answers a request that another gateway has sent on, by its seal.
func (w *world) answeredBy(seal, gateway string) {
	_, rest, sealed := strings.Cut(seal, " request=")
	if !sealed {
		return
	}
	id, _, _ := strings.Cut(rest, " ")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forwarded[id] = gateway
}

// answerer is the gateway that has answered, where another one was asked.
func (w *world) answerer(answer http.Header, asked string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.forwarded[answer.Get(requestID)], asked)
}

// asPeer is a gateway's name where it is the client of another gateway.
func asPeer(gateway string) string { return gateway + " as a peer" }

// asEar is its name where it follows another gateway.
func asEar(gateway string) string { return gateway + " as an ear" }

// dialBy connects with another gateway.
func (g *gateway) dialBy(as func(gateway string) string) dialer {
	return func(_ context.Context, _, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return g.w.zk.Network.Dial(as(g.name), host)
	}
}

// nameOf makes a number of names.
func nameOf(names ...string) uint64 {
	h := fnv.New64a()
	for _, name := range names {
		_, _ = h.Write([]byte(name + "\x00")) // never fails
	}
	return h.Sum64()
}

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
	for _, s := range g.w.zk.Servers() {
		g.w.zk.Network.Part(g.name, s)
	}
	g.w.zk.Network.Serve(g.name, nil)
	g.w.zk.Network.CutAll(g.w.zk.Network.Links("", g.name))
	g.w.zk.Network.CutAll(g.w.zk.Network.Links(g.name, ""))
	g.w.zk.Network.CutAll(g.w.zk.Network.Links(asPeer(g.name), ""))
	g.w.zk.Network.CutAll(g.w.zk.Network.Links(asEar(g.name), ""))
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

// listener is a net.Listener on the simulated network.
type listener struct {
	name   string
	frozen atomic.Pointer[chan struct{}] // while the process stands still; closed when it goes on
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newListener(name string) *listener {
	return &listener{name: name, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *listener) take(nc net.Conn) {
	l.thaw()
	select {
	case l.conns <- nc:
	case <-l.closed:
		nc.Close()
	}
}

// freeze has new connections wait, those from the process and those to it, until end is called.
func (l *listener) freeze() (end func()) {
	thawed := make(chan struct{})
	l.frozen.Store(&thawed)
	return func() {
		l.frozen.CompareAndSwap(&thawed, nil)
		close(thawed)
	}
}

// thaw waits until the process goes on.
func (l *listener) thaw() {
	if thawed := l.frozen.Load(); thawed != nil {
		select {
		case <-*thawed:
		case <-l.closed:
		}
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return name(l.name) }

type name string

func (n name) Network() string { return "sim" }
func (n name) String() string  { return string(n) }

var errGone = errors.New("the gateway is gone")
