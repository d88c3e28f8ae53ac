package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"lockkeeper/internal/httpapi/connlimit"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/metrics"
	"lockkeeper/internal/unixsock"
)

// serveAndReport is serve and report over one output: the last line must not wait for one that stands still.
func serveAndReport(ctx context.Context, c *config, stderr io.Writer) (code int) {
	to := newSharedOutput(stderr)
	defer to.stop()
	return report(to, serveTo(ctx, c, to))
}

// serve runs the gateway until ctx ends (SIGTERM) or something fatal happens.
func serve(ctx context.Context, c *config, stderr io.Writer) error {
	to := newSharedOutput(stderr)
	defer to.stop()
	return serveTo(ctx, c, to)
}

func serveTo(ctx context.Context, c *config, to *sharedOutput) error {
	if err := c.check(); err != nil {
		return err
	}
	defer to.end(ctx)()
	logger := c.logger(to)
	g, err := newGateway(c, logger, to)
	if err != nil {
		return err
	}
	defer g.endTraces()
	on, err := c.listen()
	if err != nil {
		return err
	}
	defer on.close()
	own, err := c.openStore(logger)
	if err != nil {
		return err
	}
	defer own.close()
	if err := g.assemble(on, own); err != nil {
		return err
	}
	defer g.peers.Close()
	warnOfExposures(logger, c.exposures(on.clients, on.metrics, own))
	logger.Info("listening", append([]any{"address", on.clients.Addr().String(), "version", version()}, own.describe(c)...)...)
	err = g.run(ctx)
	// Last of all: the manager's last transactions are stored by now.
	if ended := own.stop(); err == nil {
		err = ended
	}
	return err
}

// listeners are what the flags open.
type listeners struct {
	clients net.Listener
	fleet   net.Listener // clients unless --fleet-listen is given
	metrics net.Listener // nil unless --metrics-listen is given
}

func (c *config) listen() (l listeners, err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.clients, err = c.listenForClients(); err != nil {
		return l, err
	}
	l.fleet = l.clients
	if c.FleetListen != "" {
		if l.fleet, err = listen("--fleet-listen", c.FleetListen); err != nil {
			return l, err
		}
	}
	if c.MetricsListen != "" {
		l.metrics, err = listen("--metrics-listen", c.MetricsListen)
	}
	return l, err
}

func (l *listeners) close() {
	for _, one := range []net.Listener{l.clients, l.fleet, l.metrics} {
		if one != nil {
			_ = one.Close() // the servers have closed most of them
		}
	}
}

// listenForClients opens --listen.
func (c *config) listenForClients() (net.Listener, error) {
	path, isSocket := c.socket()
	if !isSocket {
		return listen("--listen", c.Listen)
	}
	mode, err := c.socketMode()
	if err != nil {
		return nil, err
	}
	listener, err := unixsock.Listen(path, mode)
	if err == nil {
		return listener, nil
	}
	hint := "for example --listen unix:/run/lockkeeper/gateway.sock, in a directory that this user may write to"
	if errors.Is(err, unixsock.ErrInUse) {
		hint = "another program uses the socket; choose another path with --listen"
	}
	return nil, usage(hint, "listening on %s: %w", c.Listen, err)
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
	serve := server.Serve
	if server.TLSConfig != nil {
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
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
	s := metrics.State{TrustMargin: info.ZooKeeper.TrustMargin, ReplicaCurrent: info.ZooKeeper.ReplicaCurrent, SecretExposed: info.ZooKeeper.SecretExposed,
		OldestWaiter: info.OldestWaiter, Deadlocks: info.Deadlocks, Leases: map[metrics.LeaseKind]int{}, Hazards: make(map[string]int, len(info.Hazards)),
		Bounds: bounds(info.Bounds, connections, answers), Displaced: connections.Displaced}
	for of, n := range info.Kinds {
		s.Leases[metrics.LeaseKind{State: string(of.State), Mode: string(of.Mode)}] = n
	}
	for code, n := range info.Hazards {
		s.Hazards[string(code)] = n
	}
	return s
}
