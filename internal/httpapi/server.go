package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-chi/chi/v5"

	"lockkeeper/internal/audit"
	"lockkeeper/internal/docsite"
	"lockkeeper/internal/events"
	"lockkeeper/internal/fleet"
	"lockkeeper/internal/history"
	"lockkeeper/internal/httpapi/accesslog"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/httpapi/compat"
	"lockkeeper/internal/httpapi/compat/terraform"
	"lockkeeper/internal/httpapi/connlimit"
	"lockkeeper/internal/httpapi/proxies"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/metrics"
	"lockkeeper/internal/ratelimit"
	"lockkeeper/internal/traces"
)

// DefaultMaxWaiting is the bound on requests that wait at the same time: blocking acquires and long polls. One that waits
// costs some 10 kB.
const DefaultMaxWaiting = 20_000

// Options configure a Server.
type Options struct {
	Locks    Locks
	Events   *events.Hub      // the events of the streams; nil: they are 404
	Webhooks Webhooks         // the subscriptions; nil: their paths are 404
	History  *history.History // who held what; nil: its paths are 404
	Pages    Pages            // the dashboard; nil: its paths are 404. See mountPages
	Docs     *docsite.Site    // the documentation; nil: its paths are 404
	Compat   compat.Options   // the protocols of other programs
	Metrics  *metrics.Metrics // nil: none are kept
	// News are the end reports for the other gateways, as manager.Manager.News gives them; nil: none.
	News  func(since string) (news [][]byte, at string, more <-chan struct{})
	Auth  Authenticator // says who sends a request; nil: every client may do everything
	Fleet *fleet.Fleet  // the other gateways; nil: nothing is sent on, and what they send is refused
	// Proxies are believed when they name the client that they ask for; nil: none is.
	Proxies *proxies.Trust
	// ServeMetrics serves /metrics; without it they are to be had elsewhere, and the path is 404.
	ServeMetrics bool
	// OnlyMetrics makes the server of an address for metrics alone: it serves /metrics behind the guard, and needs no Locks.
	OnlyMetrics  bool
	Logger       *slog.Logger   // nil: nothing is logged but what Access logs
	Access       *accesslog.Log // of requests; nil: they are not logged
	Audit        *audit.Log     // of changes and refusals; nil: there is none
	Traces       *traces.Tracer // gets a span for each request; nil: there are none
	Version      string
	Embedded     bool     // ZooKeeper is part of this process
	OpenAPI      []byte   // what /openapi.yaml answers
	AllowedHosts []string // names besides localhost and addresses
	MaxWaiting   int      // 0: DefaultMaxWaiting
	MaxStreams   int      // of events; 0: DefaultMaxStreams
	MaxAnswers   int64    // bytes of large answers under way; 0: DefaultMaxAnswers
	// Principals bounds what one principal asks, where Auth says who asks.
	Principals PrincipalLimits
	// Connections are the limits that the listener enforces. The server shows them to clients, and gives one address behind a
	// proxy as many places for requests that wait as an address may have connections.
	Connections connlimit.Limits
}

// Server is an http.Handler. Make one with New; Drain it before it is shut down.
type Server struct {
	// What every exchange uses.
	locks     Locks
	log       *slog.Logger
	access    *accesslog.Log // nil: none
	audit     *audit.Log
	traces    *traces.Tracer // nil: none
	metrics   *metrics.Metrics
	guard     guard
	behind    behind
	auth      Authenticator // nil: every client may do everything
	pages     []string      // Pages.Paths; nil: the dashboard is not served
	rechecks  rechecks
	forwarder forwarder
	router    *chi.Mux
	direct    direct
	pool      sync.Pool // of *exchange

	// Bounds on what is under way.
	waiting  places // requests that wait
	queueing queueing
	answers  answers
	sockets  sockets
	callers  *ratelimit.Callers // nil: none is asked who it is
	rate     float64            // PrincipalLimits.Rate
	begun    atomic.Uint64      // requests that have come in

	drained context.Context
	drain   context.CancelFunc

	handlers
	feed feed
}

// handlers are the operations of openapi.yaml, by what they are about.
type handlers struct {
	*leases
	*queues
	*fences
	*admin
	*hooks
	*streams
	*remembered
	*process
}

// errDraining is why a waiting request was ended.
var errDraining = errors.New("the gateway drains")

// New makes a server. It starts nothing.
func New(o Options) *Server {
	s := &Server{locks: o.Locks, log: o.Logger, access: o.Access, audit: o.Audit, traces: o.Traces, metrics: o.Metrics, guard: newGuard(o.AllowedHosts), auth: o.Auth, router: chi.NewMux()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.metrics == nil {
		s.metrics = metrics.New("")
	}
	s.behind = behind{trust: o.Proxies, limit: o.Connections.PerAddress}
	s.waiting.limit = orDefault(int64(o.MaxWaiting), DefaultMaxWaiting)
	s.answers.limit = orDefault(o.MaxAnswers, DefaultMaxAnswers)
	s.drained, s.drain = context.WithCancel(context.Background())
	if p := o.Principals; o.Auth != nil {
		s.callers, s.rate = ratelimit.New(ratelimit.AtOnce{ratelimit.Active: p.Active, ratelimit.Waiting: p.Waiting, ratelimit.Stream: p.Streams}), p.Rate
	}
	s.pool.New = func() any { return newExchange(s) }
	s.rechecks = rechecks{auth: o.Auth, every: recheckEvery, queueing: &s.queueing}
	s.forwarder = forwarder{fleet: o.Fleet, locks: o.Locks, metrics: s.metrics, lookAgain: lookAgain}
	s.leases = &leases{o.Locks, s}
	s.queues = &queues{o.Locks, s}
	s.fences = &fences{o.Locks}
	s.admin = &admin{o.Locks, s}
	s.hooks = &hooks{subscriptions: o.Webhooks, fleet: o.Fleet, locks: o.Locks}
	s.streams = newStreams(s, o.Events, o.MaxStreams)
	s.remembered = &remembered{history: o.History, s: s}
	s.process = &process{locks: o.Locks, s: s, version: o.Version, mode: api.Zookeeper, openapi: o.OpenAPI, openapiTag: digest(o.OpenAPI), docs: new(docsite.Site), connections: o.Connections}
	if o.Embedded {
		s.process.mode = api.Embedded
	}
	if o.ServeMetrics || o.OnlyMetrics {
		s.exposition = s.metrics.Handler()
	}
	for _, route := range append(routeTable(), documents()...) {
		if !o.OnlyMetrics || route.operation == "Metrics" {
			s.mount(route)
		}
	}
	notFound := counted(func(x *exchange) { x.refuse(x.notFound()) })
	if o.Pages != nil {
		notFound = forBrowsers(s.mountPages(o.Pages), notFound)
	}
	if o.Docs != nil {
		s.mountDocs(o.Docs)
		s.docs = o.Docs
	}
	if !o.OnlyMetrics {
		s.mountCompat(o.Compat)
	}
	if o.News != nil {
		s.mountNews(o.News)
	}
	s.router.NotFound(notFound)
	s.router.MethodNotAllowed(counted((*exchange).methodNotAllowed))
	return s
}

// counted handles what is no operation, and counts for its principal all the same.
func counted(handle func(*exchange)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		x := w.(*exchange)
		if p := x.account(); p != nil {
			x.refuse(p)
			return
		}
		handle(x)
	}
}

// digest tells one text from another.
func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

func orDefault(n, otherwise int64) int64 {
	if n <= 0 {
		return otherwise
	}
	return n
}

// route is one operation of the specification.
type route struct {
	operation string
	method    string
	pattern   string
	handle    func(h *handlers, x *exchange) error
	bare      bool // it has no fields: a request with any is refused
}

// mount gives an operation its route, and HEAD wherever GET is.
func (s *Server) mount(route route) {
	if s.subscriptions == nil && strings.HasPrefix(route.pattern, "/v1/webhooks") {
		route.handle = func(_ *handlers, x *exchange) error { return x.notFound() }
	}
	if s.hub == nil && (strings.HasPrefix(route.pattern, "/v1/events") || route.operation == "GetHistory") {
		route.handle = func(*handlers, *exchange) error {
			return &problem{code: codeRouteNotFound, detail: "this gateway has no events"}
		}
	}
	if s.history == nil && (route.operation == "ListHistory" || route.operation == "GetStats") {
		route.handle = func(*handlers, *exchange) error {
			return &problem{code: codeRouteNotFound, detail: "this gateway keeps no history: it was started with --history=off"}
		}
	}
	needed := needs[route.operation]
	handle := func(x *exchange) {
		x.operation, x.route = route.operation, route.pattern
		p := x.account()
		if p == nil {
			p = x.mayAsk(needed)
		}
		if p != nil {
			x.refuse(p)
			return
		}
		var err error
		if route.bare {
			err = decode(x, &nothing, new(struct{}))
		}
		if err == nil {
			err = route.handle(&s.handlers, x)
		}
		if err != nil {
			x.fail(err)
		}
	}
	s.direct.add(route.operation, handle)
	handler := func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		x.r = r
		handle(x)
	}
	methods := []string{route.method}
	switch {
	case route.operation == "CheckFence": // a proxy asks with the method of the request that it has got
		methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	case route.method == http.MethodGet:
		methods = append(methods, http.MethodHead)
	}
	// A path of its own for self spares every heartbeat what the router allocates for a parameter.
	for _, pattern := range slices.Compact([]string{route.pattern, strings.Replace(route.pattern, "/leases/{id}", "/leases/self", 1)}) {
		for _, method := range methods {
			s.router.MethodFunc(method, pattern, handler)
		}
	}
}

// Routes are the methods and patterns that are served, as "GET /v1/locks/{lock}". What is said of each of them elsewhere is held
// against this list.
func (s *Server) Routes() (routes []string) {
	_ = chi.Walk(s.router, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error { // its error is this function's
		routes = append(routes, method+" "+pattern)
		return nil
	})
	return routes
}

// Drain answers every request that waits with 503 draining, and every one that would wait from now on. It ends every
// stream, and the context of every request whose connection was hijacked. It is the first step of a shutdown.
func (s *Server) Drain() {
	s.drain()
	s.queueing.drain()
}

// Wait returns when the requests of hijacked connections are over, which http.Server.Shutdown knows nothing of. Call it
// after Drain; ctx bounds it.
func (s *Server) Wait(ctx context.Context) error { return s.sockets.wait(ctx) }

// ServeHTTP answers one request, of a client or of another gateway.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.serve(w, r, anyDoor) }

// Public answers clients alone: a request with a seal is refused. It is for a gateway whose other gateways have a listener
// of their own.
func (s *Server) Public() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, publicDoor) })
}

// FleetOnly answers other gateways alone: every request without a seal is refused.
func (s *Server) FleetOnly() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, fleetDoor) })
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, door door) {
	x := s.pool.Get().(*exchange)
	x.begin(w, r)
	s.begun.Add(1)
	defer x.end()
	if s.traces != nil {
		r = x.beginSpan()
	}
	if s.behind.trust != nil {
		x.unwrap()
	}
	if p := door.check(r); p != nil {
		x.refuse(p)
		return
	}
	if sealed(r) {
		if err := x.admit(); err != nil {
			x.refuse(problemOf(err))
			return
		}
	} else if p := s.guard.check(r); p != nil {
		x.refuse(p)
		return
	} else if p := x.authenticate(); p != nil {
		x.refuse(p)
		return
	}
	if handle, lock := s.direct.find(r); handle != nil {
		x.direct, x.lock = true, lock
		handle(x)
		return
	}
	s.router.ServeHTTP(x, r)
}

func (x *exchange) notFound() *problem {
	p := &problem{code: codeRouteNotFound, detail: "there is nothing at this path; openapi.yaml lists what there is"}
	path := x.r.URL.Path
	if rest, ok := strings.CutPrefix(path, "/v1/locks/"); ok && strings.Contains(rest, "/") {
		name, last, _ := strings.Cut(rest, "/")
		switch {
		case slices.Contains([]string{"acquire", "lock", "lease"}, last):
			p.detail = acquireLine(name)
		case slices.Contains([]string{"release", "unlock"}, last):
			p.detail = releaseLine
		default:
			p.detail += "; a lock's name has no slashes: separate its parts with a colon, as in team:job"
		}
	}
	if short, ok := strings.CutSuffix(path, "/"); ok && short != "" && (x.s.has(http.MethodGet, short) || x.s.has(http.MethodPost, short)) {
		p.detail = "the path ends with a slash: leave it out"
	}
	return p
}

// The requests that clients look for at other paths.

const releaseLine = "a lease is released with DELETE /v1/leases/self, and its token in the Lease-Token header"

func acquireLine(name string) string {
	if recipe.CheckLockName(name) != nil {
		name = "NAME"
	}
	return "the lock is acquired with POST /v1/locks/" + name + "/leases"
}

func (s *Server) has(method, path string) bool {
	return s.router.Match(chi.NewRouteContext(), method, path)
}

func (x *exchange) methodNotAllowed() {
	path := x.r.URL.RawPath
	if path == "" {
		path = x.r.URL.Path
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, terraform.MethodLock, terraform.MethodUnlock} {
		if x.s.has(method, path) {
			allowed = append(allowed, method)
		}
	}
	list := strings.Join(append(allowed, http.MethodOptions), ", ")
	x.Header()["Allow"] = []string{list}
	if x.r.Method == http.MethodOptions {
		_ = x.done(nil)
		return
	}
	p := &problem{code: codeMethodNotAllowed, detail: "this path has " + list}
	if name, ok := strings.CutPrefix(path, "/v1/locks/"); ok && x.r.Method == http.MethodPost && !strings.Contains(name, "/") {
		p.detail += "; " + acquireLine(name)
	}
	if strings.HasPrefix(path, terraformPath) {
		p.detail += noStates
	}
	x.refuse(p)
}
