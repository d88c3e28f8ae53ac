package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"lockkeeper/internal/events"
	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/httpapi/connlimit"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/metrics"
)

// Locks is the lock manager as this package needs it: locks.Manager.
type Locks interface {
	Acquire(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error)
	Lease(ctx context.Context, req locks.LeaseRequest) (locks.Lease, error)
	Leases(ctx context.Context, filter locks.LeaseFilter) (locks.LeasePage, error)
	Heartbeat(ctx context.Context, p locks.Principal, id, token string, ttl time.Duration) (locks.Heartbeat, error)
	Heartbeats(ctx context.Context, p locks.Principal, tokens []string) []locks.HeartbeatResult
	// HeartbeatFor renews a lease in the place of the gateway that runs it and cannot be reached.
	HeartbeatFor(ctx context.Context, p locks.Principal, token string) (locks.Heartbeat, error)
	Release(ctx context.Context, p locks.Principal, id, token string) error
	ReleaseHold(ctx context.Context, p locks.Principal, id, token, hold string) error
	Update(ctx context.Context, req locks.UpdateRequest) (locks.Lease, error)
	Downgrade(ctx context.Context, p locks.Principal, id, token string) (locks.Lease, error)
	Postmortem(ctx context.Context, p locks.Principal, id string) (locks.Postmortem, error)
	Lock(ctx context.Context, req locks.LockRequest) (locks.Lock, error)
	Locks(ctx context.Context, filter locks.LockFilter) (locks.LockPage, error)
	Fence(ctx context.Context, req locks.FenceRequest) (locks.FenceAnswer, error)
	Configure(ctx context.Context, req locks.SettingsRequest) (locks.Lock, error)
	Remove(ctx context.Context, p locks.Principal, ns, lock string) error
	Revoke(ctx context.Context, req locks.RevokeRequest) (locks.RevokeAnswer, error)
	Withdraw(ctx context.Context, req locks.WithdrawRequest) (locks.WithdrawAnswer, error)
	Break(ctx context.Context, req locks.BreakRequest) error
	Reap(ctx context.Context, req locks.ReapRequest) (locks.ReapAnswer, error)
	Destroy(ctx context.Context, req locks.DestroyRequest) (locks.DestroyAnswer, error)
	Namespaces(ctx context.Context) ([]locks.NamespaceInfo, error)
	Info(ctx context.Context) locks.Info
	// Ready is nil when requests should be sent here, Alive when the
	// manager's loops turn.
	Ready() error
	Alive() error
	// RouteOf tells who runs a lease; Arrive waits until it is known to be this gateway, Reached
	// until the replica has come so far.
	RouteOf(lease string) (locks.Route, bool)
	Arrive(ctx context.Context, lease string, zxid int64) error
	Reached(ctx context.Context, zxid int64) error
	GatewayID() string
	// Registered reports whether the replica shows the registration of a gateway.
	Registered(gateway string) bool
	Peers() []locks.Peer
	// StillValid reports whether what was said about a lease may be written now.
	StillValid(term locks.Term) bool
}

// DefaultMaxWaiting is the bound on requests that wait at the same time:
// blocking acquires and long polls. A parked one costs some 10 kB.
const DefaultMaxWaiting = 20_000

// Options configure a Server.
type Options struct {
	Locks  Locks
	Events *events.Hub // what the streams tell; nil: they are 404
	// Webhooks are who is told of ends; nil: their paths are 404.
	Webhooks Webhooks
	Pages    http.Handler     // the dashboard; nil: its paths are 404. See mountPages
	Metrics  *metrics.Metrics // nil: none are kept
	// News is what the other gateways are told, as locks.Manager.News gives it; nil: nothing.
	News  func(since string) (news [][]byte, at string, more <-chan struct{})
	Fleet *fleet.Fleet // the other gateways; nil: nothing is sent on, and what they send is refused
	// ServeMetrics serves /metrics; without it they are to be had elsewhere,
	// and the path is 404.
	ServeMetrics bool
	// OnlyMetrics makes the server of an address for metrics alone: it serves /metrics behind the guard, and needs no Locks.
	OnlyMetrics  bool
	Logger       *slog.Logger // nil: nothing is logged
	Version      string
	Embedded     bool     // ZooKeeper is part of this process
	OpenAPI      []byte   // what /openapi.yaml answers
	AllowedHosts []string // names besides localhost and addresses
	MaxWaiting   int      // 0: DefaultMaxWaiting
	MaxStreams   int      // of events; 0: DefaultMaxStreams
	MaxAnswers   int64    // bytes of large answers under way; 0: DefaultMaxAnswers
	// Connections are the limits that the listener keeps to; they are told to clients, and kept elsewhere.
	Connections connlimit.Limits
}

// Server is an http.Handler. Make one with New; Drain it before it is shut down.
type Server struct {
	locks      Locks
	events     *events.Hub
	webhooks   Webhooks
	pages      http.Handler
	metrics    *metrics.Metrics
	fleet      *fleet.Fleet
	news       func(since string) (news [][]byte, at string, more <-chan struct{})
	exposition http.Handler // of the metrics; nil when they are elsewhere
	log        *slog.Logger
	version    string
	mode       api.InfoMode
	openapi    []byte
	guard      guard
	router     *chi.Mux
	maxWaiting int64
	maxStreams int64

	connections connlimit.Limits // as Options has it

	lookAgain     time.Duration // lookAgain, except in tests
	keepalive     time.Duration // streamKeepalive, except in tests
	streamWrite   time.Duration // streamWrite
	socketPong    time.Duration // socketPong
	newsKeepalive time.Duration // fleet.StreamKeepalive

	answers   answers
	waiting   atomic.Int64 // requests that wait
	streams   atomic.Int64
	followers atomic.Int64 // other gateways
	sockets   sockets
	drained   context.Context
	drain     context.CancelFunc
	pool      sync.Pool // of *exchange
}

// errDraining is why a waiting request was ended.
var errDraining = errors.New("the gateway drains")

// New makes a server. It starts nothing.
func New(o Options) *Server {
	s := &Server{
		locks:         o.Locks,
		events:        o.Events,
		webhooks:      o.Webhooks,
		pages:         o.Pages,
		metrics:       o.Metrics,
		fleet:         o.Fleet,
		news:          o.News,
		log:           o.Logger,
		version:       o.Version,
		openapi:       o.OpenAPI,
		guard:         newGuard(o.AllowedHosts),
		maxWaiting:    int64(o.MaxWaiting),
		maxStreams:    int64(o.MaxStreams),
		connections:   o.Connections,
		lookAgain:     lookAgain,
		keepalive:     streamKeepalive,
		streamWrite:   streamWrite,
		socketPong:    socketPong,
		newsKeepalive: fleet.StreamKeepalive,
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.mode = api.Zookeeper
	if o.Embedded {
		s.mode = api.Embedded
	}
	if s.maxWaiting <= 0 {
		s.maxWaiting = DefaultMaxWaiting
	}
	s.answers.limit = o.MaxAnswers
	if s.answers.limit <= 0 {
		s.answers.limit = DefaultMaxAnswers
	}
	if s.maxStreams <= 0 {
		s.maxStreams = DefaultMaxStreams
	}
	if s.metrics == nil {
		s.metrics = metrics.New("")
	}
	if o.ServeMetrics || o.OnlyMetrics {
		s.exposition = s.metrics.Handler()
	}
	s.drained, s.drain = context.WithCancel(context.Background())
	s.pool.New = func() any { return newExchange(s) }
	s.router = chi.NewMux()
	for _, route := range routeTable() {
		if !o.OnlyMetrics || route.operation == "Metrics" {
			s.mount(route)
		}
	}
	if s.pages != nil {
		s.mountPages()
	}
	if s.news != nil {
		s.mountNews()
	}
	s.router.NotFound(func(w http.ResponseWriter, _ *http.Request) { w.(*exchange).notFound() })
	s.router.MethodNotAllowed(func(w http.ResponseWriter, _ *http.Request) { w.(*exchange).methodNotAllowed() })
	return s
}

// route is one operation of the specification.
type route struct {
	operation string
	method    string
	pattern   string
	handle    func(x *exchange)
}

// mount gives an operation its route, and HEAD wherever GET is.
func (s *Server) mount(route route) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		x.operation, x.r = route.operation, r
		route.handle(x)
	}
	s.router.MethodFunc(route.method, route.pattern, handler)
	if route.method == http.MethodGet {
		s.router.MethodFunc(http.MethodHead, route.pattern, handler)
	}
}

// Drain answers every request that waits with 503 draining, and every one that
// would wait from now on. It ends every stream, and the context of every request
// whose connection was hijacked. It is the first step of a shutdown.
func (s *Server) Drain() { s.drain() }

// Wait returns when the requests of hijacked connections are over, which
// http.Server.Shutdown knows nothing of. Call it after Drain; ctx bounds it.
func (s *Server) Wait(ctx context.Context) error { return s.sockets.wait(ctx) }

// ServeHTTP answers one request, of a client or of another gateway.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.serve(w, r, anyDoor) }

// Public answers clients alone: a request with a seal is refused. It is for a gateway whose other gateways have a
// listener of their own.
func (s *Server) Public() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, publicDoor) })
}

// FleetOnly answers other gateways alone: a request without a seal is refused, whatever it asks for.
func (s *Server) FleetOnly() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, fleetDoor) })
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, door door) {
	x := s.pool.Get().(*exchange)
	x.begin(w, r)
	defer x.end()
	if p := door.check(r); p != nil {
		x.refuse(p)
		return
	}
	if sealed(r) {
		if !x.admit() {
			return
		}
	} else if p := s.guard.check(r); p != nil {
		x.refuse(p)
		return
	}
	s.router.ServeHTTP(x, r)
}

func (x *exchange) notFound() {
	p := &problem{code: codeRouteNotFound, detail: "there is nothing at this path; openapi.yaml lists what there is"}
	path := x.r.URL.Path
	if rest, ok := strings.CutPrefix(path, "/v1/locks/"); ok && strings.Contains(rest, "/") {
		p.detail += "; " + slashHint
	}
	if short, ok := strings.CutSuffix(path, "/"); ok && short != "" && x.served(short) {
		p.detail = "the path ends with a slash: leave it out"
	}
	x.refuse(p)
}

// served reports whether the path has any method.
func (x *exchange) served(path string) bool {
	return x.s.router.Match(chi.NewRouteContext(), http.MethodGet, path) || x.s.router.Match(chi.NewRouteContext(), http.MethodPost, path)
}

// slashHint is for those who expect a hierarchy in paths.
const slashHint = "a lock's name has no slashes: separate its parts with a colon, as in team:job"

func (x *exchange) methodNotAllowed() {
	path := x.r.URL.RawPath
	if path == "" {
		path = x.r.URL.Path
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if x.s.router.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
		}
	}
	list := strings.Join(allowed, ", ")
	x.Header()["Allow"] = []string{list}
	x.refuse(&problem{code: codeMethodNotAllowed, detail: "this path has " + list})
}
