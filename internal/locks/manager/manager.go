package manager

import (
	"context"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"strconv"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/cluster"
	"lockkeeper/internal/locks/idempotency"
	"lockkeeper/internal/locks/orders"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// What a Manager is made of, and whether it may answer.

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
	// Deadlock reports that parties have come to wait for each other.
	Deadlock()
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

func (noMetrics) Deadlock() {}

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
	Traces  Traces      // nil: none
	Events  *events.Hub // nil: no events
	Outbox  Outbox      // nil: no guaranteed deliveries
	// Follow are directories that other parts keep in ZooKeeper, by their paths below Root. A function is called with the name of
	// the child that has changed, or with "" when any may have; it must return at once.
	Follow map[string]func(child string)
	// Keyring has the fleet's secret as this process knows it; nil: the manager keeps what the layout has at the start.
	Keyring *layout.Keyring
	// Registration is written into this gateway's registration node.
	Registration Registration
	// PeerReports is set where this gateway follows its peers (Receive, Following). It then reports an end a moment later when
	// a peer may know its reason.
	PeerReports bool
	// Limits bound what clients may store here. A limit of 0 is the default for one GiB of memory.
	Limits quota.Limits
	// PrincipalLimits bound what one principal may store here, of those that are asked who they are.
	PrincipalLimits quota.PrincipalLimits
}

// Registration describes a gateway to its peers.
type Registration struct {
	Address string `json:"address,omitempty"`
	Version string `json:"version"`
	Started int64  `json:"started_ms"`
	Seals   int    `json:"seals,omitempty"` // the newest version of seals that it understands
	Terms   int    `json:"terms,omitempty"` // the newest terms of leases that it keeps; the manager fills it in
}

// Manager maps leases onto contenders; see the package's doc. Create one with
// New and run it with Run.
type Manager struct {
	opt   Options
	clock zk.Clock
	log   *slog.Logger
	fleet fleet
	port  *term.Port // to ZooKeeper

	monitor // guards everything below, and what ZooKeeper's observer and writers report

	life     life
	requests requests
	stream   stream
	timers   timers

	leases  *leaseTable
	delays  delays  // ended leases of this gateway whose places stay
	orphans orphans // ephemeral leases of gateways that this one has succeeded
	keys    idempotency.Keys

	replica *queues.Replica
	members *cluster.Members

	deadlocks deadlocks    // cycles of the wait-for graph
	lists     orders.Lists // the orders in which lists show locks, while they are asked for

	history      postmortem.Log
	observedEnds postmortem.Log    // observed ends of other gateways' leases
	reports      *reports.Exchange // with other gateways
	answers      answers
	publisher    publisher
	deliveries   deliveries
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

// Whether this gateway may answer, what it answers otherwise, and which gateway may.

// StillValid reports whether an answer that was decided under the term may be given now: the term's session is the
// present one, its trust window is open and the replica is current. Adapters call it right before they write such an
// answer. An answer of a former session must not pass under the window of the next one: another gateway may have owned
// the lease in between.
func (m *Manager) StillValid(term locks.Term) bool { return m.port.StillValid(term) }

// Trusted reports whether an answer of this gateway would be valid now.
func (m *Manager) Trusted() bool { return m.port.Trusted() }

func (m *Manager) trusted() bool { return m.port.Session() != nil && m.stream.synced && m.Trusted() }

// usable returns nil when requests can be served, else the error to answer.
func (m *Manager) usable() *locks.Error {
	switch {
	case m.life.draining:
		return &locks.Error{Code: locks.CodeUnavailable, Detail: "this gateway is shutting down; repeat the request, another gateway or the restarted one answers"}
	case m.trusted():
		return nil
	}
	return unavailable()
}

// stalled reports whether, for answerWithin, ZooKeeper has answered nothing or the gateway was not trusted, while a
// request has waited since `since`.
func (m *Manager) stalled(since, now time.Duration) bool {
	if m.port.Session() == nil {
		return true
	}
	return now-max(since, m.port.Session().LastAnswer().Boot()) >= answerWithin ||
		!m.trusted() && now-max(since, m.timers.lastTrusted) >= answerWithin
}

// overdue reports whether a request that has waited since then gets the answer that its outcome is unknown.
func (m *Manager) overdue(since, now time.Duration) bool {
	return m.stalled(since, now) || now-since >= settleWithin
}

// Ready returns nil when the replica is loaded, the gateway is not draining, and it is not the only gateway that is not
// trusted: one that reaches ZooKeeper and yet cannot commit. In a full outage it stays ready and answers 503.
func (m *Manager) Ready() error {
	return locked(m, func() error {
		switch {
		case m.life.draining, m.life.leaving:
			return errors.New("shutting down")
		case !m.stream.loadedOnce:
			return errors.New("the tree has not been read from ZooKeeper yet")
		case !m.life.served && !m.trusted():
			return errors.New("no ZooKeeper session has been opened yet")
		}
		m.life.served = true
		switch {
		case m.port.Session() == nil:
			return nil
		case !m.port.Session().Trusted(m.clock.Now()) && m.port.Session().Connected() && m.stream.synced:
			return errors.New("not trusted: ZooKeeper is reachable and does not confirm this gateway's writes")
		}
		return nil
	})
}

// Alive returns nil while the process's loops run.
func (m *Manager) Alive() error {
	return locked(m, func() error {
		select {
		case <-m.fleet.ready:
		default:
			return nil // still connecting to ZooKeeper; the loops have not begun
		}
		if since := m.clock.Now().Boot() - m.timers.beat; m.timers.beat != 0 && since > 20*clockTick {
			return errors.New("the clock loop has stood still for " + strconv.FormatInt(since.Milliseconds(), 10) + " ms")
		}
		return nil
	})
}

// Nodes gives access to ZooKeeper under the present session.
func (m *Manager) Nodes() term.Nodes { return m.port.Nodes() }

// needsNewer is the answer about a lease whose contenders have names of a later release. Such a contender keeps its
// position, counts as exclusive, and is listed. A successor of an earlier release neither changes it nor reports its
// end. A successor of that later release adopts it, with takeover + promise window + TTL.
func needsNewer() *locks.Error {
	return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter,
		Detail: "a later release made this lease, and this gateway, which has taken it over, does not understand it; it stays until a gateway of that release succeeds this one: upgrade this one"}
}

// RouteOf returns the route to a lease's owner, by the lease's id. It reports false when the owner is not known:
// a takeover is under way, or has not begun.
func (m *Manager) RouteOf(lease string) (locks.Route, bool) {
	return locked2(m, func() (locks.Route, bool) {
		id, err := recipe.ParseLeaseID(lease)
		if err != nil || id.Fleet() != m.fleet.id {
			return locks.Route{}, false
		}
		route := m.route(id)
		if route == nil {
			return locks.Route{}, false
		}
		return *route, true
	})
}

// route is the route to a lease's owner, nil when that is not known. The monitor is held.
func (m *Manager) route(id recipe.LeaseID) *locks.Route {
	return m.members.Route(id, m.port.LastZxid())
}

// notOwner is the error for a lease that another gateway owns; the monitor is held.
func (m *Manager) notOwner(id recipe.LeaseID) *locks.Error {
	return &locks.Error{Code: locks.CodeNotOwner, RetryAfter: retryAfter, Owner: m.route(id),
		Detail: "another gateway runs this lease; send the request there"}
}

// Peers lists the registered gateways as the replica shows them, this one first.
func (m *Manager) Peers() []locks.Peer {
	return locked(m, func() []locks.Peer { return m.members.List(m.clock.Now().Boot()) })
}

// LeftGateways are the gateways that have left lately, the latest first.
func (m *Manager) LeftGateways() []locks.LeftGateway {
	return locked(m, func() []locks.LeftGateway { return m.members.Left(m.clock.Now().Boot()) })
}

// OldLeases counts the leases that were created until the transaction cut. ok is false while the replica does not show everything up
// to reached. last is what the call before has found: this gateway's leases are counted anew only when none of those that it names is
// left, so N may be too large, and is never 0 too early.
func (m *Manager) OldLeases(ctx context.Context, cut, reached int64, last locks.OldLeases) (found locks.OldLeases, ok bool) {
	if m.Reached(ctx, reached) != nil {
		return found, false
	}
	return locked2(m, func() (locks.OldLeases, bool) {
		if !m.trusted() || !m.replica.KnowsAll() {
			return found, false
		}
		found = m.leases.until(cut, last)
		found.Unowned = m.members.Unowned()
		return found, true
	})
}

// Reached waits until the replica holds everything up to that transaction.
func (m *Manager) Reached(ctx context.Context, zxid int64) error {
	select {
	case <-m.fleet.ready:
	default:
		return unavailable()
	}
	if err := m.port.Watcher.Reached(ctx, zxid); err != nil {
		e := unavailable()
		e.Err = err
		return e
	}
	return nil
}

// Identity returns the id of the present session and a zxid not before its registration; "" without a session.
func (m *Manager) Identity() (gateway string, registered int64) {
	if ref := m.port.Present(); ref != nil {
		return ref.Session.ID(), ref.Session.LastZxid()
	}
	return "", 0
}

// Registered reports whether the replica shows the registration of a gateway.
func (m *Manager) Registered(gateway string) bool {
	return locked(m, func() bool {
		return m.members.Registered(recipe.GatewayID(gateway))
	})
}

// GatewayID returns the id of the present session, or "" without one.
func (m *Manager) GatewayID() string {
	if ref := m.port.Present(); ref != nil {
		return ref.Session.ID()
	}
	return ""
}

// Delivers reports whether this gateway delivers what is in the outbox about a lease. The gateway that runs the lease, or
// would run it, delivers; when that one is gone and has no successor, one of the registered gateways.
func (m *Manager) Delivers(lease string) bool {
	return locked(m, func() bool {
		id, err := recipe.ParseLeaseID(lease)
		if err != nil || m.port.Session() == nil || !m.stream.synced {
			return false
		}
		owner, _ := m.members.OwnerOf(id.Gateway())
		if self := m.members.Self(); owner == self || m.members.Registered(owner) {
			return owner == self
		}
		return m.members.Appointed(lease)
	})
}

// DeliversFor is Delivers for an entry that a gateway has written about another program's contender.
func (m *Manager) DeliversFor(gateway, what string) bool {
	return locked(m, func() bool {
		if m.port.Session() == nil || !m.stream.synced {
			return false
		}
		if id, self := recipe.GatewayID(gateway), m.members.Self(); id == self || m.members.Registered(id) {
			return id == self
		}
		return m.members.Appointed(what)
	})
}

// TokenOf is the token of a lease, for protocols whose clients keep none. It does not ask who wants it: that the caller may act
// for the lease is to be made sure before. It must never be sent to a client.
func (m *Manager) TokenOf(id string) (string, error) {
	select {
	case <-m.fleet.ready:
	default:
		return "", unavailable()
	}
	lease, err := recipe.ParseLeaseID(id)
	if err != nil {
		return "", notFound()
	}
	return m.fleet.ring.Tokens().Make(lease), nil
}
