package manager

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

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
	"lockkeeper/internal/locks/settings"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// A Manager's life: New, Run, its sessions, and Drain.

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
		opt: opt, clock: opt.Clock, log: opt.Logger,
		fleet:     fleet{root: opt.Root, settings: settings.Below(opt.Root), ready: make(chan struct{})},
		life:      life{drain: make(chan struct{})},
		requests:  requests{written: make(chan struct{}, writtenWindow)},
		timers:    timers{wake: make(chan struct{}, 1)},
		keys:      idempotency.New(),
		delays:    newDelays(),
		orphans:   orphans{},
		lists:     orders.Lists{},
		deadlocks: newDeadlocks(),
	}
	m.fleet.keep(m, opt.Keyring)
	m.leases = newLeaseTable(quota.New(opt.Limits.For(quota.GiB)), quota.NewAccounts(opt.PrincipalLimits), m.log, m.wake)
	m.members = cluster.New(m.wake)
	m.replica = queues.New(m.wake)
	m.port = term.New(term.Options{Store: opt.Store, Clock: opt.Clock, Log: opt.Logger, Monitor: outcomes{&m.monitor},
		NewID: newGatewayID, Random: opt.Random, Begun: m.sessionBegun, Ended: m.sessionEnded, Idle: func() { m.stream.recheckNext(m) }})
	m.life.ctx, m.life.end = context.WithCancel(context.Background())
	m.answers = answers{parties: m.deadlocks.parties, fleet: &m.fleet, replica: m.replica, leases: m.leases, delays: &m.delays, orphans: m.orphans,
		history: &m.history, port: m.port, clock: m.clock, failoverTTL: opt.SessionTimeout + 5*time.Second}
	m.answers.shortTTL = shortTTLWarning(m.answers.failoverTTL)
	m.publisher = publisher{hub: opt.Events, fleet: &m.fleet, stream: &m.stream, leases: m.leases, replica: m.replica, members: m.members,
		port: m.port}
	m.reports = newReports(m)
	m.publisher.reports, m.answers.reports = m.reports, m.reports
	m.deliveries = deliveries{outbox: opt.Outbox, fleet: &m.fleet, stream: &m.stream, leases: m.leases, replica: m.replica, members: m.members,
		answers: &m.answers, reports: m.reports, port: m.port, clock: m.clock, log: m.log, do: m.do}
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
	m.opt.Registration.Terms = leaseTerms
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
	group.Go(func() error { return m.deadlocks.run(m, ctx) })
	err = group.Wait()
	m.do(func() { m.life.end() })
	m.life.errands.Wait()
	m.do(m.reports.ReleaseAll)
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
	m.fleet.layout, m.fleet.id = layout, fleet
	m.fleet.keyring.Take(layout.Secret)
	roots := []zk.WatchRoot{
		{Path: m.opt.Root + "/gateways", Depth: 1},
		{Path: m.opt.Root + "/succession", Depth: 1},
		{Path: m.opt.Root + zk.NodeNamespaces, Depth: 1},
		{Path: string(m.fleet.settings), Depth: 2},
	}
	if m.opt.Outbox != nil {
		roots = append(roots, zk.WatchRoot{Path: m.fleet.outboxRoot(), Depth: 1})
	}
	for _, path := range slices.Sorted(maps.Keys(m.opt.Follow)) {
		roots = append(roots, zk.WatchRoot{Path: m.opt.Root + path, Depth: 1})
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
	m.publisher.session(events.ZooKeeperConnected, session)
	if m.opt.Outbox != nil {
		m.opt.Outbox.Look()
	}
	for _, changed := range m.opt.Follow { // what could not be read without a session is read now
		changed("")
	}
	m.deliveries.adopt()
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
		m.publisher.session(events.ZooKeeperExpired, session)
	}
	// A request that waits for a write of that session learns that its outcome is unknown.
	for l := range m.leases.byID.All() {
		m.members.AddFormer(l.id().Gateway())
	}
	for _, l := range m.leases.inOrder(func(l *lease) bool { return l.Creating() || l.Ending() }) {
		m.leases.touch(l)
	}
}

// Leave makes Ready fail and changes nothing else: load balancers stop routing here before Drain refuses requests.
func (m *Manager) Leave() {
	m.do(func() { m.life.leaving = true })
}

// Drain hands over to a successor. Clocks stop, new requests are refused, and open acquires are answered or cancelled.
// Writes under way finish within the promise window or ctx. The session's last transaction deletes the registration,
// so a successor begins at once.
func (m *Manager) Drain(ctx context.Context) error {
	session, begun := locked2(m, func() (term.Session, bool) {
		if m.life.draining {
			return nil, false
		}
		m.life.draining = true
		m.port.Last()
		close(m.life.drain)
		m.endEphemerals(m.clock.Now().Boot())
		return m.port.Session(), true
	})
	if !begun {
		return nil
	}
	defer m.do(m.reports.Close)
	if session == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.fleet.layout.PromiseWindow)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for busy := true; busy; {
		m.do(func() { busy = m.port.InFlight() > 0 || m.requests.acquiring > 0 })
		if !busy {
			break
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			busy = false
		}
	}
	if err := session.Close(ctx); err != nil {
		return fmt.Errorf("handing over: %w", err)
	}
	return nil
}

// endEphemerals ends this gateway's ephemeral leases when it hands over. The end of its session would do so a moment
// later.
func (m *Manager) endEphemerals(now time.Duration) {
	for _, l := range m.leases.inOrder((*lease).ephemeral) {
		switch {
		case l.term != m.port.Term():
		case l.Creating():
			l.abandoned = true
		default:
			l.end(m, locks.ReasonGatewayLeft, now)
		}
	}
}

// OutboxDropped publishes that n messages to a webhook ("": to every webhook) found no room since the last such event.
// detail says which messages, and what to do. They are this gateway's, not changes read from the tree.
func (m *Manager) OutboxDropped(webhook string, n int, detail string) {
	m.do(func() {
		if m.opt.Events == nil {
			return
		}
		e := m.publisher.event(events.WebhookDropped, "", "")
		e.Dropped, e.Detail = &events.Dropped{Count: n, Webhook: webhook}, detail
		if m.port.Session() != nil {
			e.Gateway = m.port.Session().ID()
		}
		m.opt.Events.Publish(e)
	})
}

func newReports(m *Manager) *reports.Exchange {
	return reports.New(reports.Options{Follows: m.opt.PeerReports, Nonce: m.leases.nonce, Members: m.members, Replica: m.replica, History: &m.history, Observed: &m.observedEnds,
		Lives: func(id recipe.LeaseID) bool { return m.leases.lease(id) != nil },
		Stays: func(id recipe.LeaseID) bool { return m.delays.byID[id] != nil },
		Terminated: func(id recipe.LeaseID, why reports.Cause) {
			if l := m.leases.lease(id); l != nil && l.Ending() && l.reason() == locks.ReasonRemoved {
				l.rare().cause, l.why = &why, postmortem.CauseOf(why.Reason)
			}
		},
		Shared: m.leases.takers.name,
		Event: func(t events.Type, q *queues.Queue, c *recipe.Contender) *events.Event {
			if !m.publisher.enabled() {
				return nil
			}
			return m.publisher.contenderEvent(t, q, c)
		},
		Publish: func(e *events.Event) { m.publisher.hub.Publish(e) },
		Stamp: func(e *events.Event) {
			if e.Time.IsZero() {
				e.Time = time.Unix(0, int64(m.clock.Now().Wall())).UTC()
			}
		},
		Wake: m.wake, WakeAt: m.timers.wakeAt})
}
