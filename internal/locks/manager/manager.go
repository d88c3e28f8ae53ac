package manager

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks/cluster"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/settings"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// Bounds.
const (
	// answerWithin bounds how long a request waits while ZooKeeper answers no request at all.
	// The request then fails with CodeUnavailable or CodeOutcomeUnknown.
	answerWithin = term.AnswerWithin
	// settleWithin bounds how long a request waits for what ZooKeeper refuses or does not report while it answers
	// other requests.
	settleWithin = 5 * time.Second
	// retryAfter is the Retry-After of answers given while ZooKeeper is unavailable.
	retryAfter     = time.Second
	keyLife        = 10 * time.Minute // of an idempotency key, after its lease ended
	endedLife      = time.Hour        // how long the reason and postmortem of an ended lease are kept
	waitingClock   = 30 * time.Second // a waiting lease's clock is min(TTL, this)
	unclaimedClock = 30 * time.Second // an unclaimed grant passes on after min(TTL, this)
)

// Metrics counts what happens to leases. Implementations must be quick and safe for concurrent use; the manager
// calls them with its lock held.
type Metrics interface {
	// LeaseGranted reports that a lease became held after it had waited.
	LeaseGranted(waited time.Duration)
	// Handover reports the time between the release of a lock and its next grant.
	Handover(took time.Duration)
	// LeaseEnded reports how long the lease was held: 0 when it never was.
	LeaseEnded(reason string, held time.Duration)
	// Takeover reports that this gateway took over the leases of another gateway or of its own former session.
	Takeover()
	// Deposed reports a takeover from a gateway that was registered but stalled.
	Deposed()
	// HeartbeatWritten reports a heartbeat that this gateway wrote into the record of another gateway's lease.
	HeartbeatWritten()
}

// Options of a Manager.
type Options struct {
	Store          term.Store
	Root           string // of the layout in ZooKeeper, "/lockkeeper"
	Servers        []string
	SessionTimeout time.Duration
	Clock          zk.Clock
	// Random spreads the gateways' periodic work; nil is the runtime's source.
	Random  mathrand.Source
	Logger  *slog.Logger
	Metrics Metrics     // nil: none
	Events  *events.Hub // nil: no events
	Outbox  Outbox      // nil: no guaranteed deliveries
	// Registration is written into this gateway's registration node.
	Registration Registration
	// Hearsay is set where this gateway follows its peers (Hear, Following). It then reports an end a moment later when
	// a peer may know its reason.
	Hearsay bool
	// Limits bound what clients may store here. A limit of 0 is the default for one GiB of memory.
	Limits quota.Limits
}

// Registration describes a gateway to its peers.
type Registration struct {
	Address string `json:"address,omitempty"`
	Version string `json:"version"`
	Started int64  `json:"started_ms"`
}

// Manager maps leases onto contenders; see the package's doc. Create one with
// New and run it with Run.
type Manager struct {
	opt     Options
	clock   zk.Clock
	log     *slog.Logger
	metrics Metrics
	fleet   fleet
	port    *term.Port // to ZooKeeper

	monitor // guards everything below, and what ZooKeeper's observer and writers report

	life     life
	requests requests
	stream   stream
	timers   timers

	leases  *leaseTable
	delays  delays  // ended leases of this gateway whose places stay
	orphans orphans // ephemeral leases of gateways that this one has succeeded
	keys    keys
	quota   quota.Quota

	replica *queues.Replica
	members *cluster.Members

	history    postmortem.Log
	witnessed  postmortem.Log              // observed ends of other gateways' leases
	verdicts   map[*recipe.Contender]cause // of other owners' contenders that an administrator ends here
	hearsay                                // peer reports
	outboxWake chan struct{}               // closed by OutboxChanged; nil without waiters
}

// fleet is what all gateways of a layout share. It is immutable once ready is closed.
type fleet struct {
	root     string // of the layout in ZooKeeper
	settings settings.Tree
	ready    chan struct{} // closed once the layout has been read
	layout   *layout.Layout
	id       recipe.FleetID
	tokens   record.Tokens
}

// life is the course of the process, from Run to the end of Drain.
type life struct {
	ctx      context.Context // ends when Run returns; no errand begins afterwards
	end      context.CancelFunc
	errands  sync.WaitGroup // goroutines for which Run waits
	served   bool           // this gateway has been able to serve requests
	leaving  bool           // Ready fails, nothing else
	draining bool
	drain    chan struct{} // closed when draining begins: open polls end
}

// requests are the requests that wait here.
type requests struct {
	acquiring  int           // acquires that wait for their answer
	obstructed int           // acquires that wait for plain nodes to go; see obstacle.go
	written    chan struct{} // a place for each heartbeat that is being written for another gateway
	shortTTL   string        // the warning about a short TTL; immutable
}

// stream is how far the observer's changes have brought the replica.
type stream struct {
	synced         bool            // the replica holds the whole tree
	loadedOnce     bool            // it did once
	suppressEvents bool            // a namespace is being read for the first time: its state is not news
	heard          time.Time       // when the changes being applied arrived; else zero
	again          []*lease        // to read again when no other read is due; see recheck
	unlooked       []*queues.Queue // new directories; see lookSoon
}

// New prepares a manager. Its answers are CodeUnavailable until Run has reached ZooKeeper.
func New(opt Options) *Manager {
	if opt.Metrics == nil {
		opt.Metrics = noMetrics{}
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Clock == nil {
		opt.Clock = zk.SystemClock{}
	}
	m := &Manager{
		opt: opt, clock: opt.Clock, log: opt.Logger, metrics: opt.Metrics,
		fleet:    fleet{root: opt.Root, settings: settings.Below(opt.Root), ready: make(chan struct{})},
		life:     life{drain: make(chan struct{})},
		requests: requests{written: make(chan struct{}, writtenWindow)},
		timers:   timers{wake: make(chan struct{}, 1)},
		keys:     keys{byHash: map[string]*keyEntry{}},
		verdicts: map[*recipe.Contender]cause{},
		delays:   newDelays(),
		orphans:  orphans{},
		hearsay:  newHearsay(),
		quota:    quota.New(opt.Limits.For(quota.GiB)),
	}
	m.leases = newLeaseTable(&m.quota, m.log, m.wake)
	m.members = cluster.New(m.wake)
	m.replica = queues.New(m.wake)
	m.port = term.New(term.Options{Store: opt.Store, Clock: opt.Clock, Log: opt.Logger, Monitor: outcomes{&m.monitor},
		NewID: newGatewayID, Begun: m.sessionBegun, Ended: m.sessionEnded, Idle: func() { m.stream.recheckNext(m) }})
	m.life.ctx, m.life.end = context.WithCancel(context.Background())
	m.requests.shortTTL = shortTTLWarning(m.failoverTTL())
	return m
}

// Run works until ctx ends or something fatal happens (*zk.FatalError). When
// it returns, everything it started has stopped; leases stay in ZooKeeper.
func (m *Manager) Run(ctx context.Context) error {
	layout, err := m.opt.Store.Layout(ctx)
	if err != nil {
		return fmt.Errorf("reading the layout below %s: %w", m.opt.Root, err)
	}
	if err := m.prepare(layout); err != nil {
		return err
	}
	registration, err := json.Marshal(m.opt.Registration)
	if err != nil {
		return fmt.Errorf("encoding the registration: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return m.port.Watcher.Run(ctx) })
	group.Go(func() error { return m.port.Run(ctx, registration, m.fleet.layout.PromiseWindow) })
	group.Go(func() error { return m.timers.run(m, ctx) })
	group.Go(func() error { return (&sweeper{m: m, random: m.opt.Random}).run(ctx) })
	group.Go(func() error { return (&guardWatch{m: m}).run(ctx) })
	err = group.Wait()
	m.do(func() { m.life.end() })
	m.life.errands.Wait()
	m.releaseAll()
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return nil
	}
	return err
}

func (m *Manager) prepare(layout *layout.Layout) error {
	fleet, err := recipe.ParseFleetID(layout.FleetID)
	if err != nil {
		return fmt.Errorf("the fleet id in %s/secret: %w", m.opt.Root, err)
	}
	m.fleet.layout, m.fleet.id, m.fleet.tokens = layout, fleet, record.NewTokens(layout.Keys, layout.NameKey)
	roots := []zk.WatchRoot{
		{Path: m.opt.Root + "/gateways", Depth: 1},
		{Path: m.opt.Root + "/succession", Depth: 1},
		{Path: m.opt.Root + zk.NodeNamespaces, Depth: 1},
		{Path: string(m.fleet.settings), Depth: 2},
	}
	if m.opt.Outbox != nil {
		roots = append(roots, zk.WatchRoot{Path: m.outboxRoot(), Depth: 1})
	}
	for _, ns := range slices.Sorted(maps.Keys(layout.Namespaces)) { // the watcher reads the roots in this order
		namespace := layout.Namespaces[ns]
		s, err := queues.NamespaceOf(ns, namespace)
		if err != nil {
			return err
		}
		s.Whole = true // Synced reports all roots together
		m.replica.Namespaces[ns] = s
		roots = append(roots, zk.WatchRoot{Path: s.Root, Depth: 2})
	}
	m.port.Watch(roots, m)
	close(m.fleet.ready)
	return nil
}

func newGatewayID() (string, error) {
	id, err := recipe.NewGatewayID(rand.Reader)
	return string(id), err
}

func (m *Manager) sessionBegun(session term.Session) {
	m.members.Begin(recipe.GatewayID(session.ID()))
	m.tellSession(events.ZooKeeperConnected, session)
	if m.opt.Outbox != nil {
		m.opt.Outbox.Look()
	}
	m.adoptOutbox()
	// The former sessions of this process end like any other: once their registrations are gone, the quickest gateway
	// takes them over.
	if m.stream.synced {
		m.disown(m.clock.Now().Boot())
	}
}

func (m *Manager) sessionEnded(session term.Session) {
	m.members.End()
	m.timers.trusted = false
	if !m.port.Ending() {
		m.tellSession(events.ZooKeeperExpired, session)
	}
	// A request that waits for a write of that session learns that its outcome is unknown.
	for _, l := range m.leases.byID {
		m.members.AddFormer(l.id().Gateway())
	}
	for _, l := range m.leases.inOrder(func(l *lease) bool { return l.phase == creating || l.phase == ending }) {
		m.leases.touch(l)
	}
}

type noMetrics struct{}

func (noMetrics) LeaseGranted(time.Duration)       {}
func (noMetrics) Handover(time.Duration)           {}
func (noMetrics) LeaseEnded(string, time.Duration) {}
func (noMetrics) Takeover()                        {}
func (noMetrics) Deposed()                         {}
func (noMetrics) HeartbeatWritten()                {}
