package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"lockkeeper"
	"lockkeeper/internal/dashboard"
	"lockkeeper/internal/events"
	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi"
	"lockkeeper/internal/httpapi/connlimit"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/manager"
	"lockkeeper/internal/metrics"
	"lockkeeper/internal/outbox"
	"lockkeeper/internal/webhooks"
	"lockkeeper/internal/zk/ensemble"
)

// shutdownWithin bounds how long open requests may take to end after a SIGTERM.
const shutdownWithin = 15 * time.Second

// serve runs the gateway until ctx ends (SIGTERM) or something fatal happens.
func serve(ctx context.Context, c *config, stderr io.Writer) error {
	if err := c.check(); err != nil {
		return err
	}
	logger := c.logger(stderr)
	collectors := metrics.New(version())
	zkConfig, err := c.zookeeper(logger.With("part", "zookeeper"), zkMetrics{collectors})
	if err != nil {
		return err
	}
	listener, err := listen("--listen", c.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	gateways := listener // where other gateways come
	if c.FleetListen != "" {
		if gateways, err = listen("--fleet-listen", c.FleetListen); err != nil {
			return err
		}
		defer gateways.Close()
	}
	var metricsListener net.Listener
	if c.MetricsListen != "" {
		if metricsListener, err = listen("--metrics-listen", c.MetricsListen); err != nil {
			return err
		}
		defer metricsListener.Close()
	}
	peerCAs, err := c.peerCAs()
	if err != nil {
		return err
	}
	address := c.advertised(gateways.Addr())
	if address == "" && c.ZK != "" {
		logger.Warn("other gateways cannot send requests here: --listen (or --fleet-listen) is no address that they could reach; give --advertise", "listen", gateways.Addr().String())
	}
	own, err := c.openStore(logger)
	if err != nil {
		return err
	}
	defer own.close()
	reachWithin := c.ZKConnectTimeout
	if own != nil {
		// A full disk at the start is waited for as one later on is, and what is hopeless ends the process by itself.
		reachWithin = 0
		own.reach(&zkConfig)
	}
	started := time.Now()
	// Streams must not be able to keep the dashboard's own subscriptions out.
	hub := events.New(events.Options{Metrics: collectors, MaxSubscribers: httpapi.DefaultMaxStreams + dashboard.DefaultMaxTopics})
	addresses, err := c.webhookAddresses()
	if err != nil {
		return err
	}
	proxy, err := c.webhookProxy()
	if err != nil {
		return err
	}
	limits := c.Limits.resolve(logger)
	connections := connlimit.New(limits.connections, logger.With("part", "http"))
	box := &outbox.Box{}
	store := newRepairedStore(own.store(&manager.ZooKeeper{Config: zkConfig, ReachWithin: reachWithin}))
	manager := manager.New(manager.Options{
		Store: store,
		Root:  zkConfig.Root, Servers: own.servers(zkConfig.Servers), SessionTimeout: c.SessionTimeout,
		Logger: logger.With("part", "locks"), Metrics: collectors, Events: hub,
		Registration: manager.Registration{Address: address, Version: version(), Started: started.UnixMilli()},
		Hearsay:      true,
		Outbox:       box,
		Limits:       limits.quota,
	})
	hooks := box.Connect(manager, webhooks.Options{Root: zkConfig.Root, Addresses: addresses, Metrics: collectors, Logger: logger.With("part", "webhooks"),
		Transport: webhooks.NewSender(webhooks.SenderOptions{Addresses: addresses, Proxy: proxy, Version: version(), Logger: logger.With("part", "webhooks")})})
	var zkServers func(context.Context) []ensemble.Server
	if own == nil {
		zkServers = (&ensemble.Status{Servers: zkConfig.Servers}).Get
	}
	hookPages := &webhookPages{}
	pages := dashboard.New(dashboard.Options{Ensemble: zkServers, Locks: manager, Webhooks: hookPages, Events: hub, Logger: logger.With("part", "dashboard"),
		Version: version(), Started: started, Embedded: own != nil})
	peers := fleet.New(fleet.Options{Secret: manager.FleetKeys, Self: manager.Identity, Address: address, PeerCAs: peerCAs})
	defer peers.Close()
	api := httpapi.New(httpapi.Options{Locks: own.watched(manager), Webhooks: hooks, Embedded: own != nil, Events: hub, Pages: pages, Metrics: collectors, Fleet: peers, News: manager.News, ServeMetrics: c.MetricsListen == "",
		Logger: logger.With("part", "http"), Version: version(), OpenAPI: lockkeeper.OpenAPI, AllowedHosts: c.AllowedHosts,
		Connections: limits.connections, MaxWaiting: limits.waiting, MaxAnswers: limits.answers})
	hookPages.api = api
	collectors.Watch(func() metrics.State {
		return state(manager.Info(context.Background()), connections.State(), api.AnswersBound())
	})
	server := &http.Server{Handler: api, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug)}
	httpapi.Configure(server)
	servers, listeners := []*http.Server{server}, []net.Listener{connections.Listener(listener)}
	if gateways != listener {
		server.Handler = api.Public()
		fleetServer := &http.Server{Handler: api.FleetOnly(), ErrorLog: server.ErrorLog}
		httpapi.Configure(fleetServer)
		servers, listeners = append(servers, fleetServer), append(listeners, limits.boundBesides(fleetServer, gateways, logger.With("part", "fleet")))
	}
	connections.Bound(server)

	peerListener := fleet.Listener{Fleet: peers, Peers: func() []fleet.Peer { return httpapi.Others(manager.Peers()) }, Changed: manager.SourcesChanged,
		Receive: manager.Hear, Following: manager.Following, Logger: logger.With("part", "fleet")}

	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	group, running := errgroup.WithContext(running)
	own.run(group, running)
	own.administer(logger.With("part", "admin"))
	group.Go(func() error {
		err := manager.Run(running)
		if running.Err() != nil && errors.Is(err, context.Canceled) {
			return nil // we ended it, perhaps before ZooKeeper was reached
		}
		return err
	})
	group.Go(func() error {
		store.run(running, zkConfig, logger.With("part", "zookeeper"))
		return nil
	})
	group.Go(func() error { return hub.Run(running) })
	group.Go(func() error { return peerListener.Run(running) })
	group.Go(func() error { return hooks.Run(running) })
	group.Go(func() error {
		tuneGC(running)
		return nil
	})
	group.Go(func() error { return pages.Run(running) })
	for i := range servers {
		group.Go(func() error { return serveHTTP(servers[i], listeners[i]) })
	}
	var metricsServer *http.Server
	if metricsListener != nil {
		metricsServer = &http.Server{ErrorLog: server.ErrorLog, Handler: httpapi.New(httpapi.Options{OnlyMetrics: true, Metrics: collectors,
			Logger: logger.With("part", "metrics"), AllowedHosts: c.AllowedHosts})}
		httpapi.Configure(metricsServer)
		bounded := limits.boundBesides(metricsServer, metricsListener, logger.With("part", "metrics"))
		group.Go(func() error { return serveHTTP(metricsServer, bounded) })
	}
	if n := newNotifier(logger, own.watched(manager).Ready, manager.Alive); n != nil {
		group.Go(func() error {
			n.run(running, ctx)
			return nil
		})
	}
	warnOfExposures(logger, exposures(listener, metricsListener, own))
	logger.Info("listening", append([]any{"address", listener.Addr().String(), "version", version()}, own.describe(c)...)...)
	group.Go(func() error {
		defer cancel()
		select {
		case <-ctx.Done():
		case <-running.Done(): // something failed: nothing is handed over
			for _, server := range servers {
				_ = server.Close()
			}
			if metricsServer != nil {
				_ = metricsServer.Close()
			}
			return nil
		}
		return shutDown(c, logger, manager, api, pages, servers, metricsServer)
	})
	err = group.Wait()
	// Last of all: the manager's last transactions are stored by now.
	if ended := own.stop(); err == nil {
		err = ended
	}
	return err
}

// shutDown hands over: /readyz turns red, clocks stop, requests that wait are
// answered, the writes under way finish, and the registration goes in the
// session's last transaction, so that a successor begins at once.
func shutDown(c *config, logger *slog.Logger, manager *manager.Manager, api *httpapi.Server, pages *dashboard.Dashboard, servers []*http.Server, metricsServer *http.Server) error {
	logger.Info("shutting down", "drain_delay_ms", c.DrainDelay.Milliseconds())
	ctx, cancel := context.WithTimeout(context.Background(), c.DrainDelay+shutdownWithin)
	defer cancel()
	if c.DrainDelay > 0 {
		manager.Leave()
		select {
		case <-time.After(c.DrainDelay):
		case <-ctx.Done():
		}
	}
	// First those who wait: an acquire that nobody waits for any more takes its
	// place in the queue back while writes are still possible.
	api.Drain()
	pages.Drain()
	err := manager.Drain(ctx)
	for _, server := range servers {
		if e := server.Shutdown(ctx); e != nil {
			err = errors.Join(err, fmt.Errorf("ending open requests: %w", e), server.Close())
		}
	}
	if e := api.Wait(ctx); e != nil { // sockets, which Shutdown does not know
		err = errors.Join(err, fmt.Errorf("ending open sockets: %w", e))
	}
	if metricsServer != nil {
		err = errors.Join(err, metricsServer.Close())
	}
	if err != nil {
		// Nothing is lost by it: a successor waits for the session's end instead.
		logger.Warn("the handover was not clean", "err", err)
	}
	logger.Info("stopped")
	return nil
}

// listen opens what a flag asks for.
func listen(flag, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err == nil {
		return listener, nil
	}
	hint := "for example " + flag + " 127.0.0.1:8080"
	if errors.Is(err, syscall.EADDRINUSE) {
		hint = "another program uses the address; choose one with " + flag
	}
	return nil, usage(hint, "listening on %s: %w", address, err)
}

func serveHTTP(server *http.Server, listener net.Listener) error {
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving HTTP: %w", err)
	}
	return nil
}

// zkMetrics is the collectors as internal/zk sees them.
type zkMetrics struct{ m *metrics.Metrics }

func (z zkMetrics) Op(op, outcome string, took time.Duration) { z.m.ZKOperation(op, outcome, took) }
func (z zkMetrics) Batch(writes int)                          { z.m.ZKBatch(writes) }

// state is what a scrape shows of the moment.
func state(info locks.Info, connections connlimit.State, answers metrics.Bound) metrics.State {
	s := metrics.State{FenceMargin: info.ZooKeeper.FenceMargin, ReplicaCurrent: info.ZooKeeper.ReplicaCurrent, SecretExposed: info.ZooKeeper.SecretExposed,
		OldestWaiter: info.OldestWaiter, Leases: map[metrics.LeaseKind]int{}, Hazards: make(map[string]int, len(info.Hazards)),
		Bounds: bounds(info.Bounds, connections, answers), Displaced: connections.Displaced}
	for of, n := range info.Kinds {
		s.Leases[metrics.LeaseKind{State: string(of.State), Mode: string(of.Mode)}] = n
	}
	for code, n := range info.Hazards {
		s.Hazards[string(code)] = n
	}
	return s
}
