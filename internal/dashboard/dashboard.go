package dashboard

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/zk/ensemble"
	"lockkeeper/web/static"
)

// Bounds, where Options leave them out.
const (
	DefaultMaxViewers = 1000
	DefaultMaxTopics  = 256
	DefaultMaxSets    = 64
)

// Locks is what the dashboard asks of the lock manager. All of it is answered
// from memory; Lock may wait half a second for what it has to read of other
// programs' contenders.
type Locks interface {
	Lock(context.Context, locks.LockRequest) (locks.Lock, error)
	Locks(context.Context, locks.LockFilter) (locks.LockPage, error)
	Info(context.Context) locks.Info
	Namespaces(context.Context, locks.Principal) ([]locks.NamespaceInfo, error)
	Peers() []locks.Peer
	LeftGateways() []locks.LeftGateway
	Postmortem(ctx context.Context, p locks.Principal, leaseID string) (locks.Postmortem, error)
	Waits(context.Context, locks.Principal) (locks.Waits, error)
	Find(context.Context, locks.FindRequest) (locks.Found, error)
}

// Options of a Dashboard. Locks, Events and Logger are required.
type Options struct {
	Locks Locks
	// Webhooks gives the webhooks; nil: there are no pages of them.
	Webhooks Webhooks
	// Fleet gives what other gateways know; nil: none is asked.
	Fleet Fleet
	// History has what ended; nil: the gateway remembers nothing.
	History History
	Events  *events.Hub
	// Logins let users log in; nil: the gateway asks for no credential. Who a visitor is, and what it may do, comes with each
	// request (auth.VisitorOf).
	Logins  Logins
	Logger  *slog.Logger
	Version string
	Started time.Time // of the process
	// Embedded: ZooKeeper is part of this process.
	Embedded bool
	// Ensemble gives the last state of ZooKeeper's servers; nil: ZooKeeper is part of this process. It may wait for
	// a second.
	Ensemble func(context.Context) []ensemble.Server

	MaxViewers int // sockets at a time; 0: DefaultMaxViewers
	MaxTopics  int // different pages that sockets look at; 0: DefaultMaxTopics
	MaxSets    int // different sets of rules by which they look; 0: DefaultMaxSets
}

// Dashboard serves the pages; see the package's doc. Make one with New, run it
// with Run. All methods are safe for concurrent use.
type Dashboard struct {
	opt     Options
	static  http.Handler
	assets  map[string]string
	status  status
	memory  *memory
	waits   *waits
	lookout *lookout
	fleet   *fleet
	trends  *trends

	writeTimeout time.Duration   // of one message to one viewer
	pongTimeout  time.Duration   // of a viewer's answer to pings
	onRender     func(id string) // tests count what topics render; may be nil

	// listing is held by the one topic that lists locks: however many pages
	// there are, they take turns at the lock manager.
	listing chan struct{}
	// searching bounds the pages and polls that search all locks at a time.
	searching chan struct{}
	drained   chan struct{} // closed by Drain

	mu       sync.Mutex
	running  context.Context // of Run; nil before it
	draining bool
	topics   map[sight]*topic
	viewers  int
	conns    map[net.Conn]struct{}
	wg       sync.WaitGroup // topics and viewers
}

// New makes a dashboard.
func New(o Options) *Dashboard {
	if o.MaxViewers <= 0 {
		o.MaxViewers = DefaultMaxViewers
	}
	if o.MaxTopics <= 0 {
		o.MaxTopics = DefaultMaxTopics
	}
	if o.MaxSets <= 0 {
		o.MaxSets = DefaultMaxSets
	}
	d := &Dashboard{
		opt: o, static: static.Handler(), assets: static.URLs(),
		status:       status{locks: o.Locks, version: o.Version, embedded: o.Embedded, build: static.Version(), started: o.Started.UTC()},
		memory:       newMemory(o.History),
		waits:        newWaits(o.Locks, o.MaxSets),
		writeTimeout: writeTimeout, pongTimeout: pongTimeout, listing: make(chan struct{}, 1), searching: make(chan struct{}, maxSearches), drained: make(chan struct{}),
		topics: map[sight]*topic{}, conns: map[net.Conn]struct{}{},
	}
	d.lookout = newLookout(&d.opt, d.memory, d.background)
	d.fleet = newFleet(o.Fleet, d.background)
	d.trends = newTrends(&d.opt, d.memory, d.background)
	return d
}

// Run lets pages be live until ctx ends. It returns when every topic and every
// viewer is gone. It is called once.
func (d *Dashboard) Run(ctx context.Context) error {
	d.mu.Lock()
	d.running = ctx
	d.mu.Unlock()
	<-ctx.Done()
	d.Drain()
	d.wg.Wait()
	return nil
}

// Drain closes every live socket with 1001 (the page connects again, to
// any gateway) and refuses new ones. It does not wait for them; Run does.
func (d *Dashboard) Drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return
	}
	d.draining = true
	close(d.drained)
	for conn := range d.conns {
		// A write that is stuck is given up now.
		_ = conn.SetWriteDeadline(time.Now().Add(closeTimeout))
	}
}

// ServeHTTP serves the pages of the table, what leads to them (/locks, /favicon.ico), a page for any other address, /ui/live, /ui/fragments, /static/, and, with
// Logins, /login, /login/with/{issuer}, /login/callback and /logout.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if strings.HasPrefix(r.URL.Path, static.Prefix) {
		d.static.ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/favicon.ico" {
		http.Redirect(w, r, d.assets["favicon.svg"], http.StatusFound)
		return
	}
	if d.opt.Logins != nil && d.serveLogin(w, r) || d.turnedAway(w, r) {
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		d.refuse(w, r, &refusal{status: http.StatusMethodNotAllowed, title: "Method not allowed", detail: "Pages can only be read. Locks are acquired and released with the API."})
		return
	}
	switch path := r.URL.Path; path {
	case "/locks", "/locks/":
		http.Redirect(w, r, "/", http.StatusFound)
	case livePath:
		d.live(w, r)
	case pollPath:
		d.poll(w, r)
	case searchPath:
		d.search(w, r)
	default:
		at, subject := rowAt(path)
		if at == nil {
			d.refuse(w, r, &refusal{status: http.StatusNotFound, title: "There is no such page", detail: "Nothing is served at " + quoted(path) + "."})
			return
		}
		d.page(w, r, at, subject)
	}
}
