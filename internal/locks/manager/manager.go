package manager

import (
	"context"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
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

// What a Manager is made of: its options, its state, and the monitor that guards it.

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

type noMetrics struct{}

func (noMetrics) LeaseGranted(time.Duration) {}

func (noMetrics) Handover(time.Duration) {}

func (noMetrics) LeaseEnded(string, time.Duration) {}

func (noMetrics) Takeover() {}

func (noMetrics) Deposed() {}

func (noMetrics) HeartbeatWritten() {}

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
	// PeerReports is set where this gateway follows its peers (Receive, Following). It then reports an end a moment later when
	// a peer may know its reason.
	PeerReports bool
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

	history      postmortem.Log
	observedEnds postmortem.Log              // observed ends of other gateways' leases
	terminations map[*recipe.Contender]cause // of other owners' contenders that an administrator ends here
	peerReports                              // from other gateways
	answers      answers
	publisher    publisher
	deliveries   deliveries
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

// fencingToken converts a czxid to the number that clients see.
func (f *fleet) fencingToken(czxid int64) int64 {
	if czxid == 0 {
		return 0
	}
	return f.layout.FenceBase + czxid
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

// monitor is the one lock of the manager's state. do, locked and locked2 take it, and outside and sleep release it in
// between; no other code does. A function queues what it may not do under the lock, such as I/O, as an effect. Effects
// begin in order once the monitor is free.
type monitor struct {
	mu      sync.Mutex
	effects []func()
	wakes   []chan struct{} // closed when the monitor is free, because their waiters lock it
}

// do runs f under the lock, then the effects that f queued.
func (m *monitor) do(f func()) {
	m.mu.Lock()
	defer m.unlock()
	f()
}

// locked is do with a result.
func locked[T any](m *Manager, f func() T) T {
	m.mu.Lock()
	defer m.unlock()
	return f()
}

// locked2 is do with two results.
func locked2[T, U any](m *Manager, f func() (T, U)) (T, U) {
	m.mu.Lock()
	defer m.unlock()
	return f()
}

// unlock releases the lock and runs the effects.
func (m *monitor) unlock() {
	effects, wakes := m.effects, m.wakes
	m.effects, m.wakes = nil, nil
	m.mu.Unlock()
	for _, wake := range wakes {
		close(wake)
	}
	for _, act := range effects {
		act()
	}
}

// outside runs f without the lock: the effects first, then f. What the caller has read under the lock before may have
// changed afterwards.
func (m *monitor) outside(f func()) {
	m.unlock()
	defer m.mu.Lock()
	f()
}

// sleep releases the lock until wake is closed, for at most atMost; its error is CodeCancelled, when ctx has ended.
func (m *monitor) sleep(ctx context.Context, wake <-chan struct{}, atMost time.Duration) *locks.Error {
	m.unlock()
	defer m.mu.Lock()
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	case <-ctx.Done():
		return cancelled(ctx)
	}
	return nil
}

// effect queues act until the monitor is free.
func (m *monitor) effect(act func()) { m.effects = append(m.effects, act) }

// wake closes the channel when the monitor is free.
func (m *monitor) wake(ch chan struct{}) { m.wakes = append(m.wakes, ch) }

// outcomes is the monitor as the port to ZooKeeper uses it.
type outcomes struct{ *monitor }

func (o outcomes) Do(f func()) { o.do(f) }

func (o outcomes) Effect(f func()) { o.effect(f) }

func (o outcomes) Deliver(res zk.Result, done func(zk.Result)) { o.do(func() { done(res) }) }
