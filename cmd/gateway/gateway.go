package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"lockkeeper"
	"lockkeeper/docs"
	"lockkeeper/internal/audit"
	"lockkeeper/internal/auth"
	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/certs"
	"lockkeeper/internal/dashboard"
	"lockkeeper/internal/docsite"
	"lockkeeper/internal/events"
	"lockkeeper/internal/fleet"
	"lockkeeper/internal/history"
	"lockkeeper/internal/httpapi"
	"lockkeeper/internal/httpapi/accesslog"
	"lockkeeper/internal/httpapi/connlimit"
	"lockkeeper/internal/httpapi/proxies"
	"lockkeeper/internal/locks/manager"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/metrics"
	"lockkeeper/internal/outbox"
	"lockkeeper/internal/secret"
	"lockkeeper/internal/traces"
	"lockkeeper/internal/webhooks"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/ensemble"
	"lockkeeper/internal/zk/layout"
)

// shutdownWithin bounds how long open requests may take to end after a SIGTERM.
const shutdownWithin = 15 * time.Second

// gateway is the parts of a process that serves.
type gateway struct {
	c       *config
	log     *slog.Logger
	own     *ownStore // nil with --zk
	zk      zk.Config
	certs   *certs.Source  // of clients and of other gateways
	zkCerts *certs.Source  // for the servers of --zk; nil without --zk-tls
	proxies *proxies.Trust // before --listen; nil: none is believed
	limits  inForce
	metrics *metrics.Metrics

	accessLog *accesslog.Writer
	audit     *audit.Log          // nil without --audit-log
	traces    *traces.Tracer      // nil without --otlp
	auth      *auth.Authenticator // nil without --auth-file

	hub     *events.Hub
	store   repairedStore
	manager *manager.Manager
	hooks   *webhooks.Service
	history *history.History // nil with --history=off
	tokens  *token.Store
	keyring layout.Keyring
	secret  *secret.Keeper
	peers   *fleet.Fleet
	pages   *dashboard.Dashboard
	api     *httpapi.Server

	connections   *connlimit.Limiter
	servers       []*http.Server
	listeners     []net.Listener // one for each server
	metricsServer *http.Server   // nil unless --metrics-listen is given
	metricsOn     net.Listener
}

// newGateway reads the files that the configuration names.
func newGateway(c *config, logger *slog.Logger, accessLog io.Writer) (*gateway, error) {
	g := &gateway{c: c, log: logger, metrics: metrics.New(version())}
	g.accessLog = accesslog.NewWriter(accessLog, g.metrics.AccessLogDropped)
	var err error
	if g.proxies, err = c.Proxies.trust(); err != nil {
		return nil, err
	}
	if g.zk, err = c.zookeeper(logger.With("part", "zookeeper"), zkMetrics{g.metrics}); err == nil {
		g.zkCerts, err = c.zkCertificates(logger.With("part", "zookeeper"), g.metrics)
		c.secure(&g.zk, g.zkCerts)
	}
	if err == nil {
		g.certs, err = c.certificates(logger.With("part", "tls"), g.metrics)
	}
	if err == nil {
		err = g.openAudit(accessLog)
	}
	if err == nil {
		err = g.openAuth()
	}
	if err == nil {
		g.traces, err = c.Traces.tracer(logger.With("part", "traces"), g.metrics)
	}
	return g, err
}

// assemble makes the parts and starts nothing.
func (g *gateway) assemble(on listeners, own *ownStore) error {
	g.own, g.limits = own, g.c.Limits.resolve(g.log)
	address := g.c.advertised(on.fleet.Addr())
	if address == "" && g.c.ZK != "" {
		g.log.Warn("other gateways cannot send requests here: --listen (or --fleet-listen) is no address that they could reach; give --advertise", "listen", on.fleet.Addr().String())
	}
	started := time.Now()
	// Streams must not take the places of the dashboard's own subscriptions, nor those of the audit log and the history.
	g.hub = events.New(events.Options{Metrics: g.metrics, MaxSubscribers: httpapi.DefaultMaxStreams + dashboard.DefaultMaxTopics + 2})
	if err := g.makeManager(address, started); err != nil {
		return err
	}
	g.peers = fleet.New(fleet.Options{Secret: g.keyring.Living(fleet.SealLife), Self: g.manager.Identity, Address: address, TLS: g.certs.Client})
	if err := g.makeHistory(); err != nil {
		return err
	}
	g.makeAPI(started)
	g.makeServers(on)
	return nil
}

// makeManager makes the lock manager, and the webhooks that it notes ends for.
func (g *gateway) makeManager(address string, started time.Time) error {
	addresses, err := g.c.webhookAddresses()
	if err != nil {
		return err
	}
	proxy, err := g.c.webhookProxy()
	if err != nil {
		return err
	}
	reachWithin := g.c.ZKConnectTimeout
	if g.own != nil {
		reachWithin = 0 // a full disk is waited for, and a hopeless error ends the process by itself
		g.own.reach(&g.zk)
	}
	box := &outbox.Box{}
	g.store = newRepairedStore(g.own.store(&term.ZooKeeper{Config: g.zk, ReachWithin: reachWithin, Keyring: &g.keyring}), g.c.checkLayout)
	g.manager = manager.New(manager.Options{
		Store: g.store,
		Root:  g.zk.Root, Servers: g.own.servers(g.zk.Servers), SessionTimeout: g.c.SessionTimeout,
		Logger: g.log.With("part", "locks"), Metrics: g.metrics, Traces: g.leaseTraces(), Events: g.hub,
		Registration:    manager.Registration{Address: address, Version: version(), Started: started.UnixMilli(), Seals: g.c.seals()},
		PeerReports:     true,
		Outbox:          box,
		Follow:          map[string]func(string){zk.NodeTokens: func(id string) { g.tokens.Look(id) }, zk.NodeRotation: func(string) { g.secret.Look() }},
		Keyring:         &g.keyring,
		Limits:          g.limits.quota,
		PrincipalLimits: g.limits.principalLeases,
	})
	g.tokens = token.NewStore(token.Options{Tree: token.Tree{Nodes: g.manager.Nodes(), Root: g.zk.Root}, Log: g.log.With("part", "tokens"), Changed: g.tokenChanged})
	g.secret = secret.NewKeeper(secret.Options{Tree: g.secretTree(), Keyring: &g.keyring, Leases: g.manager, Log: g.log.With("part", "secret"), Changed: g.secretChanged})
	log := g.log.With("part", "webhooks")
	g.hooks = box.Connect(g.manager, g.hub, webhooks.Options{Root: g.zk.Root, Addresses: addresses, Metrics: g.metrics, Logger: log, Standing: g.standing(),
		Transport: webhooks.NewSender(webhooks.SenderOptions{Addresses: addresses, Proxy: proxy, Version: version(), Logger: log})})
	return nil
}

// secretTree is the secret in ZooKeeper as this gateway reads and writes it.
func (g *gateway) secretTree() secret.Tree {
	return secret.Tree{Nodes: g.manager.Nodes(), Root: g.zk.Root, Open: !g.zk.Identified()}
}

// adminRoutes are what the parts do on the administration's socket.
func (g *gateway) adminRoutes(mux *http.ServeMux) {
	log := g.log.With("part", "admin")
	adminTokens{g.tokens, log}.routes(mux)
	adminSecret{g.secretTree(), log}.routes(mux)
}

// makeAPI makes the API and the pages, which show each other.
func (g *gateway) makeAPI(started time.Time) {
	var zkServers func(context.Context) []ensemble.Server
	if g.own == nil {
		zkServers = (&ensemble.Status{Servers: g.zk.Servers, Dial: g.zk.Dial}).Get
	}
	hookPages, fleetPages := &webhookPages{}, &fleetPages{}
	g.pages = dashboard.New(dashboard.Options{Ensemble: zkServers, Locks: g.manager, Webhooks: hookPages, Fleet: fleetPages, History: g.memory(), Events: g.hub, Logins: g.logins(), Logger: g.log.With("part", "dashboard"),
		Version: version(), Started: started, Embedded: g.own != nil})
	g.api = httpapi.New(httpapi.Options{Auth: g.authenticator(), Locks: g.own.watched(g.manager), Webhooks: g.hooks, History: g.history, Embedded: g.own != nil, Events: g.hub, Pages: g.pages, Docs: &docsite.Site{Files: docs.Files, OpenAPI: lockkeeper.OpenAPI, Version: version(), Pages: g.pages.Navigation()}, Metrics: g.metrics,
		Fleet: g.peers, News: g.manager.News, ServeMetrics: g.c.MetricsListen == "", Logger: g.log.With("part", "http"), Access: g.c.accessLog(g.accessLog, "http"), Audit: g.audit, Traces: g.traces, Version: version(), OpenAPI: lockkeeper.OpenAPI,
		AllowedHosts: g.c.AllowedHosts, Compat: g.c.Compat.options(), Proxies: g.proxies, Connections: g.limits.connections, MaxWaiting: g.limits.waiting, MaxAnswers: g.limits.answers, Principals: g.limits.principals})
	hookPages.api, fleetPages.api = g.api, g.api
}

// makeServers makes a server for each listener, with its bounds.
func (g *gateway) makeServers(on listeners) {
	g.connections = connlimit.New(g.limits.connections, g.log.With("part", "http"))
	serverOf := func(handler http.Handler, over *tls.Config) *http.Server {
		server := &http.Server{Handler: handler, TLSConfig: over, ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelDebug)}
		httpapi.Configure(server)
		return server
	}
	var clientTLS, fleetTLS *tls.Config // nil: none
	if g.c.TLS.on() {
		fleetTLS = g.certs.PeerServer()
		if _, isSocket := g.c.socket(); !isSocket {
			clientTLS = g.certs.Server()
		}
	}
	clients := http.Handler(g.api)
	if on.fleet != on.clients {
		clients = g.api.Public()
	}
	shareProxies(g.connections, g.proxies)
	server := serverOf(clients, clientTLS)
	g.connections.Bound(server)
	g.servers, g.listeners = []*http.Server{server}, []net.Listener{g.connections.Listener(on.clients)}
	if on.fleet != on.clients {
		fleetServer := serverOf(g.api.FleetOnly(), fleetTLS)
		g.servers, g.listeners = append(g.servers, fleetServer), append(g.listeners, g.limits.boundBesides(fleetServer, on.fleet, g.log.With("part", "fleet")))
	}
	if on.metrics != nil {
		log := g.log.With("part", "metrics")
		g.metricsServer = serverOf(httpapi.New(httpapi.Options{OnlyMetrics: true, Metrics: g.metrics, Logger: log, Access: g.c.accessLog(g.accessLog, "metrics"), AllowedHosts: g.c.AllowedHosts}), nil)
		g.metricsOn = g.limits.boundBesides(g.metricsServer, on.metrics, log)
	}
	g.metrics.Watch(func() metrics.State {
		return state(g.manager.Info(context.Background()), g.connections.State(), g.api.AnswersBound())
	})
}

// run serves until ctx ends or a part fails; the first that ends stops all.
func (g *gateway) run(ctx context.Context) error {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	group, running := errgroup.WithContext(running)
	defer g.logRequests()()
	defer g.writeAudit()()
	g.own.run(group, running)
	g.own.administer(g.adminRoutes, g.log.With("part", "admin"))
	group.Go(func() error {
		err := g.manager.Run(running)
		if running.Err() != nil && errors.Is(err, context.Canceled) {
			return nil // this process ended it, perhaps before ZooKeeper was reached
		}
		return err
	})
	listener := fleet.Listener{Fleet: g.peers, Peers: func() []fleet.Peer { return httpapi.Others(g.manager.Peers()) }, Changed: g.manager.PeersChanged,
		Receive: g.manager.Receive, Following: g.manager.Following, Logger: g.log.With("part", "fleet")}
	background := func(do func(context.Context)) {
		group.Go(func() error { do(running); return nil })
	}
	background(func(ctx context.Context) { g.store.run(ctx, g.zk, g.own, g.log.With("part", "zookeeper")) })
	background(g.certs.Run)
	if g.history != nil {
		group.Go(func() error { return g.history.Run(running) })
	}
	if g.zkCerts != nil {
		background(g.zkCerts.Run)
	}
	background(tuneGC)
	background(g.auditEnds)
	background(g.watchRules)
	background(g.metrics.RunCommits)
	if n := newNotifier(g.log, g.own.watched(g.manager).Ready, g.manager.Alive); n != nil {
		background(func(running context.Context) { n.run(running, ctx) })
	}
	for _, part := range []func(context.Context) error{g.hub.Run, listener.Run, g.hooks.Run, g.pages.Run, g.tokens.Run, g.secret.Run} {
		group.Go(func() error { return part(running) })
	}
	for i := range g.servers {
		group.Go(func() error { return serveHTTP(g.servers[i], g.listeners[i]) })
	}
	if g.metricsServer != nil {
		group.Go(func() error { return serveHTTP(g.metricsServer, g.metricsOn) })
	}
	group.Go(func() error {
		defer cancel()
		select {
		case <-ctx.Done():
			return g.shutDown()
		case <-running.Done(): // a part failed: nothing is handed over
		}
		for _, server := range g.servers {
			_ = server.Close()
		}
		if g.metricsServer != nil {
			_ = g.metricsServer.Close()
		}
		return nil
	})
	return group.Wait()
}

// logRequests lets the access log be written until end is called.
func (g *gateway) logRequests() (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	written := make(chan struct{})
	go func() { defer close(written); g.accessLog.Run(ctx) }()
	return func() { stop(); <-written }
}

// shutDown hands over: /readyz turns red, clocks stop, requests that wait are
// answered, the writes under way finish, and the registration goes in the
// session's last transaction, so that a successor begins at once.
func (g *gateway) shutDown() error {
	g.log.Info("shutting down", "drain_delay_ms", g.c.DrainDelay.Milliseconds())
	ctx, cancel := context.WithTimeout(context.Background(), g.c.DrainDelay+shutdownWithin)
	defer cancel()
	if g.c.DrainDelay > 0 {
		g.manager.Leave()
		select {
		case <-time.After(g.c.DrainDelay):
		case <-ctx.Done():
		}
	}
	// First the requests that wait: an acquire whose client has gone withdraws its
	// contender while writes are still possible.
	g.api.Drain()
	g.pages.Drain()
	err := g.manager.Drain(ctx)
	for _, server := range g.servers {
		if e := server.Shutdown(ctx); e != nil {
			err = errors.Join(err, fmt.Errorf("ending open requests: %w", e), server.Close())
		}
	}
	if e := g.api.Wait(ctx); e != nil { // sockets, which Shutdown does not know
		err = errors.Join(err, fmt.Errorf("ending open sockets: %w", e))
	}
	if g.metricsServer != nil {
		err = errors.Join(err, g.metricsServer.Close())
	}
	if err != nil {
		// Nothing is lost by it: a successor waits for the session's end instead.
		g.log.Warn("the handover was not clean", "err", err)
	}
	g.log.Info("stopped")
	return nil
}
