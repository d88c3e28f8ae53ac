package authtest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

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
	"lockkeeper/internal/httpapi/compat"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/manager"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/metrics"
	"lockkeeper/internal/outbox"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zktest"
	"lockkeeper/internal/webhooks"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// The gateways' session timeout and promise window.
const (
	sessionTimeout = 4 * time.Second
	promiseWindow  = 3 * time.Second
)

// Gateway is one gateway of the fleet. Clients reach it under its name, and over TLS under its name with "-tls".
type Gateway struct {
	name    string
	w       *World
	metrics *metrics.Metrics
	hub     *events.Hub
	keyring layout.Keyring
	manager *manager.Manager
	tokens  *token.Store
	hooks   *webhooks.Service
	auth    *auth.Authenticator
	pages   *dashboard.Dashboard
	history *history.History
	peers   *fleet.Fleet
	API     *httpapi.Server
	audit   *audit.Log
	access  *accesslog.Writer
	servers []listening
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// start starts a gateway, as cmd/gateway does.
func (w *World) start(name string) *Gateway {
	w.t.Helper()
	g := &Gateway{name: name, w: w, metrics: metrics.New("authtest")}
	log := w.Log.logger().With("gateway", name)
	g.hub = events.New(events.Options{Metrics: g.metrics})
	config := zk.Config{Servers: []string{zktest.LeaderName + ":2181"}, SessionTimeout: sessionTimeout, PromiseWindow: promiseWindow, CreateRoot: true,
		Namespaces: map[string]zk.Namespace{"vault": {Root: "/vault"}}, Auth: &zk.DigestAuth{User: "fleet", Password: "sesame"}, Dial: w.zk.Dialer(name), Clock: zktest.NewClock(), Logger: log}
	box := &outbox.Box{}
	g.manager = manager.New(manager.Options{Store: &term.ZooKeeper{Config: config, Keyring: &g.keyring}, Keyring: &g.keyring, Root: zk.DefaultRoot, Servers: config.Servers, SessionTimeout: sessionTimeout,
		Clock: config.Clock, Logger: log, Metrics: g.metrics, Events: g.hub, PeerReports: true, Outbox: box,
		Registration: manager.Registration{Address: name + ":8080", Version: "authtest", Seals: fleet.Seals},
		Follow:       map[string]func(string){zk.NodeTokens: func(id string) { g.tokens.Look(id) }}})
	g.tokens = token.NewStore(token.Options{Tree: token.Tree{Nodes: g.manager.Nodes(), Root: zk.DefaultRoot}, Log: log, Changed: g.tokenChanged})
	anywhere := assert.Value(webhooks.NewAddresses(true, nil))(w.t)
	g.hooks = box.Connect(g.manager, g.hub, webhooks.Options{Root: zk.DefaultRoot, Addresses: anywhere, Transport: post{w}, Metrics: g.metrics, Logger: log,
		Standing: func(name, kind, credential string, roles []string) (*access.Rules, string, bool) {
			return g.auth.Standing(name, kind, credential, roles)
		}})
	g.auth = assert.Value(auth.New(auth.Options{Path: w.rules, Tokens: g.tokens, Logger: log, Metrics: unmeasured{}, Refused: func(*auth.FileError) {}, Loaded: func() {},
		Through: issuers{w}, Secret: g.keyring.Living(auth.MaxSession)}))(w.t)
	g.peers = g.fleet("")
	g.audit = assert.Value(audit.Open(audit.Options{Output: w.Log, Log: log}))(w.t)
	g.access = accesslog.NewWriter(w.Log, g.metrics.AccessLogDropped)
	g.pages = dashboard.New(dashboard.Options{Locks: g.manager, Events: g.hub, Logger: log, Version: "authtest", Started: time.Now(), Embedded: true, Logins: g.auth})
	g.history = history.New(history.Options{Hub: g.hub, Now: history.LocksNow{Locks: g.manager}, Others: func() []history.Source { return g.API.OtherHistories() }, Log: log})
	g.API = httpapi.New(httpapi.Options{Locks: g.manager, Webhooks: g.hooks, History: g.history, Events: g.hub, Pages: g.pages,
		Docs:    &docsite.Site{Files: docs.Files, OpenAPI: lockkeeper.OpenAPI, Version: "authtest"},
		Metrics: g.metrics, ServeMetrics: true, Fleet: g.peers, News: g.manager.News, Auth: g.auth, Logger: log, Audit: g.audit,
		Compat: compat.Options{Names: compat.Names(), Hold: time.Hour, FleetLockLimit: 1},
		Access: &accesslog.Log{To: g.access, JSON: true, Level: slog.LevelDebug, Which: accesslog.All, Part: "http"}, Version: "authtest", OpenAPI: lockkeeper.OpenAPI})
	g.serve(log)
	g.run(log)
	return g
}

// fleet connects with other gateways by a way of its own.
func (g *Gateway) fleet(way string) *fleet.Fleet {
	return fleet.New(fleet.Options{Secret: g.keyring.Living(fleet.SealLife), Self: g.manager.Identity, Address: g.name + ":8080",
		Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return g.w.dial(g.name+way, host)
		}})
}

// serve opens the listeners: one for clients and gateways, and one with TLS for clients with certificates.
func (g *Gateway) serve(log *slog.Logger) {
	w := g.w
	cert, key := w.servers.Issue([]string{"localhost"}).Files()
	source := assert.Value(certs.Load(certs.Options{Name: "gateway", Logger: log, Files: certs.Files{Cert: certs.File{Path: cert}, Key: certs.File{Path: key},
		Clients: certs.File{Path: w.clientCA.File()}}}))(w.t)
	plain, secured := &http.Server{Handler: g.API}, &http.Server{Handler: g.API.Public(), TLSConfig: source.Server()}
	for at, server := range map[string]*http.Server{g.name: plain, g.name + "-tls": secured} {
		server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
		httpapi.Configure(server)
		on := newListener(at)
		w.zk.Network.Serve(at, on.take)
		g.servers = append(g.servers, listening{server, on})
	}
}

// run starts what a gateway consists of.
func (g *Gateway) run(log *slog.Logger) {
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	follows := g.fleet(" as a listener")
	peers := fleet.Listener{Fleet: follows, Peers: func() []fleet.Peer { return httpapi.Others(g.manager.Peers()) }, Changed: g.manager.PeersChanged,
		Receive: g.manager.Receive, Following: g.manager.Following, Logger: log}
	for _, part := range []func(context.Context) error{g.manager.Run, g.hub.Run, g.hooks.Run, g.pages.Run, g.tokens.Run, g.auth.Run, g.history.Run,
		func(ctx context.Context) error { defer follows.Close(); return peers.Run(ctx) },
		func(ctx context.Context) error { g.audit.Run(ctx); return nil }, func(ctx context.Context) error { g.access.Run(ctx); return nil }} {
		g.running.Go(func() { _ = part(ctx) })
	}
	for _, s := range g.servers {
		g.running.Go(func() {
			if s.server.TLSConfig != nil {
				_ = s.server.ServeTLS(s.on, "", "")
				return
			}
			_ = s.server.Serve(s.on)
		})
	}
}

// stop ends the gateway as a SIGTERM does.
func (g *Gateway) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	g.API.Drain()
	g.pages.Drain()
	_ = g.manager.Drain(ctx)
	for _, s := range g.servers {
		_ = s.server.Close()
		_ = s.on.Close()
	}
	_ = g.API.Wait(ctx)
	g.cancel()
	g.peers.Close()
	g.running.Wait()
}

// tokenChanged audits what this gateway has observed of a token.
func (g *Gateway) tokenChanged(c token.Change) {
	g.audit.Add(audit.Line{Event: "token." + string(c.Kind), Token: c.ID, Name: c.Name, Admin: c.Admin})
}

// post carries messages to the receivers of webhooks. They take all, but those whose path ends with "gone": these answer 410.
type post struct{ w *World }

// Send implements webhooks.Transport.
func (p post) Send(_ context.Context, to *webhooks.Subscription, m *webhooks.Message) webhooks.Attempt {
	p.w.Mail.add(Letter{URL: to.URL, Headers: to.Headers, Body: string(m.Body)})
	a := webhooks.Attempt{At: time.Now(), MessageID: m.ID, Type: m.Type, NS: m.NS, Lock: m.Lock, Result: webhooks.Delivered, Status: 200}
	if strings.HasSuffix(to.URL, "/gone") {
		a.Result, a.Status, a.Error = webhooks.Gone, 410, "it is gone"
	}
	return a
}

// unmeasured is where figures about the file and the issuers go.
type unmeasured struct{}

func (unmeasured) AuthFile(bool)       {}
func (unmeasured) Issuer(string, bool) {}
func (unmeasured) IssuerGone(string)   {}
