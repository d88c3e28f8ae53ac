package manager

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// gate is one gateway of a test: a manager on the fake store.
type gate struct {
	t       *testing.T
	s       *fakeStore
	m       anyone
	w       *fakeWatcher
	cancel  context.CancelFunc
	stopped chan error
	hub     *events.Hub
	lagged  bool // it has read the tree from a server that lagged
	outbox  *fakeOutbox
}

// ring is large enough for everything that a test does: the law of events is checked over all of it.
const ring = 1 << 16

// scene runs a test in virtual time with a fake store, and checks all gateways that run at its end.
func scene(t *testing.T, f func(t *testing.T, s *fakeStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// Runs last: what was under way when the gateways stopped comes to its end.
		t.Cleanup(func() { time.Sleep(time.Minute) })
		s := newFakeStore(t)
		f(t, s)
		if !t.Failed() {
			checkAll(t, s, s.gates...)
		}
	})
}

// withGateway is a scene with one gateway.
func withGateway(t *testing.T, f func(t *testing.T, s *fakeStore, g *gate)) {
	t.Helper()
	scene(t, func(t *testing.T, s *fakeStore) { f(t, s, s.gateway(t)) })
}

// withGateways is a scene with two gateways.
func withGateways(t *testing.T, f func(t *testing.T, s *fakeStore, one, two *gate)) {
	t.Helper()
	scene(t, func(t *testing.T, s *fakeStore) { f(t, s, s.gateway(t), s.gateway(t)) })
}

// in is a test of its own in a scene: t.Run(name, in(withGateway, f)).
func in[F any](scene func(*testing.T, F), f F) func(*testing.T) {
	return func(t *testing.T) { scene(t, f) }
}

// pass lets time go by, and what is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// gateway starts a manager and waits until it is usable.
func (s *fakeStore) gateway(t *testing.T) *gate {
	t.Helper()
	return s.gatewayOn(t, s)
}

// gatewayOn starts a manager on a store that stands before the fake one.
func (s *fakeStore) gatewayOn(t *testing.T, store term.Store) *gate {
	t.Helper()
	g := &gate{t: t, s: s, stopped: make(chan error, 1), hub: events.New(events.Options{Ring: ring})}
	opt := Options{Store: store, Root: "/lockkeeper", SessionTimeout: 10 * time.Second, Clock: s.clock, Events: g.hub, PeerReports: s.peerReports, Traces: s.traces, Limits: s.limits, PrincipalLimits: s.principalLimits,
		Registration: Registration{Address: fmt.Sprintf("gateway-%d:8080", len(s.watchers)+1), Version: "1.2.3", Started: 1_700_000_000_000}}
	if s.outboxes {
		g.outbox = &fakeOutbox{s: s}
		opt.Outbox = g.outbox
	}
	g.m = anyone{New(opt)}
	if s.outboxes {
		g.outbox.changed = g.m.OutboxChanged
	}
	ctx, cancel := context.WithCancel(t.Context())
	g.cancel = cancel
	go func() { g.stopped <- g.m.Run(ctx) }()
	synctest.Wait()
	s.set(func() { g.w = s.watchers[len(s.watchers)-1] })
	t.Cleanup(g.stop)
	s.gates = append(s.gates, g)
	return g
}

// stop ends the gateway. Whatever the test was about, what was told must have
// been lawful, and what is counted must be true.
func (g *gate) stop() {
	g.s.gates = slices.DeleteFunc(g.s.gates, func(o *gate) bool { return o == g })
	g.cancel()
	<-g.stopped
	g.checkCounts()
	g.checkLaw()
	g.stopped <- nil
}

// crash ends the process: nothing is handed over, and ZooKeeper finds out when the session times out.
func (g *gate) crash() {
	session := g.session()
	session.s.mu.Lock()
	session.crashed = true
	g.w.connected = false
	session.s.mu.Unlock()
	g.stop()
	go func() {
		time.Sleep(10 * time.Second)
		session.s.mu.Lock()
		session.s.closeSession(session.id)
		session.s.mu.Unlock()
	}()
}

func (g *gate) acquire(req locks.AcquireRequest) (locks.Lease, error) {
	res, err := g.m.Acquire(g.t.Context(), req)
	return res.Lease, err
}

// mustAcquire, and every must that writes, returns when the news of what was written has come, too: a fault that a test makes
// next meets what the test is about, and not what follows from the answer before it.
func (g *gate) mustAcquire(req locks.AcquireRequest) locks.Lease {
	g.t.Helper()
	l := assert.Value(g.acquire(req))(g.t, "acquire %+v", req)
	synctest.Wait()
	return l
}

func (g *gate) mustHold(req locks.AcquireRequest) locks.Lease {
	g.t.Helper()
	l := g.mustAcquire(req)
	assert.Must(g.t, l.State == locks.Held, "acquire %+v: state %s, want held", req, l.State)
	return l
}

func (g *gate) heartbeat(l locks.Lease) (locks.Heartbeat, error) {
	return g.m.Heartbeat(g.t.Context(), locks.Anonymous, l.ID, l.Token, 0)
}

func (g *gate) release(l locks.Lease) error {
	return g.m.Release(g.t.Context(), locks.Anonymous, l.ID, l.Token)
}

func (g *gate) mustRelease(l locks.Lease) {
	g.t.Helper()
	assert.NoError(g.t, g.release(l), "release")
	synctest.Wait()
}

func (g *gate) look(l locks.Lease) locks.Lease {
	g.t.Helper()
	v := assert.Value(g.m.Lease(g.t.Context(), locks.LeaseRequest{ID: l.ID}))(g.t, "look at %s", l.ID)
	return v
}

func (g *gate) wantState(l locks.Lease, state locks.State, reason locks.Reason) {
	g.t.Helper()
	v := g.look(l)
	assert.Must(g.t, v.State == state && v.Reason == reason, "lease is %s (%s), want %s (%s)", v.State, v.Reason, state, reason)
}

func wantCode(t *testing.T, err error, code locks.Code) *locks.Error {
	t.Helper()
	var e *locks.Error
	assert.Must(t, errors.As(err, &e) && e.Code == code, "error is %v, want code %s", err, code)
	return e
}

// checkAll verifies what must be true of the managers and the store at any quiet moment: what CheckAll verifies, at
// most one holder a lock in all managers' minds, and every holder is at the front of ZooKeeper's queue.
func checkAll(t *testing.T, s *fakeStore, gates ...*gate) {
	t.Helper()
	synctest.Wait()
	held := map[string]*recipe.Contender{}
	for _, g := range gates {
		g.checkCounts()
		g.m.mu.Lock()
		for l := range g.m.leases.byID.All() {
			id := l.id()
			if l.Phase() != held_ {
				continue
			}
			for slot := range l.slots {
				if other := held[slot.q.Path]; other != nil && other.LeaseID != id && (other.Mode != slot.contender.Mode || other.Mode == recipe.Exclusive) {
					t.Errorf("%s: held by %s and %s", slot.q.Path, other.LeaseID, id)
				}
				held[slot.q.Path] = slot.contender
				for _, name := range s.names(slot.q.Path) {
					c, ok := slot.q.Namespace.Naming.Parse(g.m.fleet.id, name)
					if ok && recipe.Less(c.Number, c.Name, mustNumber(t, slot.name()), slot.name()) && c.LeaseID != id &&
						(c.Mode != slot.contender.Mode || c.Mode == recipe.Exclusive) {
						t.Errorf("%s: %s is held though %s stands before it", slot.q.Path, slot.name(), name)
					}
				}
			}
		}
		g.m.mu.Unlock()
	}
}

const held_ = lifecycle.Held

func mustNumber(t *testing.T, name string) int32 {
	n, ok := recipe.Number(name)
	assert.Must(t, ok, "no number in %s", name)
	return n
}

// background runs an acquire on a goroutine of its own.
type pending struct {
	done  chan struct{}
	lease locks.Lease
	res   locks.AcquireResult
	err   error
	stop  context.CancelFunc
}

func (g *gate) begin(req locks.AcquireRequest) *pending {
	ctx, cancel := context.WithCancel(g.t.Context())
	p := &pending{done: make(chan struct{}), stop: cancel}
	go func() {
		defer close(p.done)
		p.res, p.err = g.m.Acquire(ctx, req)
		p.lease = p.res.Lease
	}()
	return p
}

func (p *pending) finished() bool {
	synctest.Wait()
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func writeTo(sub string) func(*zk.Write) bool {
	return func(w *zk.Write) bool {
		for _, op := range w.Ops {
			if strings.Contains(op.Path, sub) {
				return true
			}
		}
		return false
	}
}

// rewrites is a write of one node's data alone.
func rewrites(w *zk.Write) bool { return len(w.Ops) == 1 && w.Ops[0].Kind == zk.OpSetData }

// begins hits the writes whose first operation is of that kind.
func begins(kind zk.OpKind) func(*zk.Write) bool {
	return func(w *zk.Write) bool { return len(w.Ops) > 0 && w.Ops[0].Kind == kind }
}

// once hits the first of the writes that hit does; the test fails when none came. The store's mutex guards it.
func once(t testing.TB, hit func(*zk.Write) bool) func(*zk.Write) bool {
	done := false
	t.Cleanup(func() { assert.That(t, done, "the fault met no write") })
	return func(w *zk.Write) bool {
		now := !done && hit(w)
		done = done || now
		return now
	}
}

// faultTwice runs the test of a lost answer twice: the write failed, and it failed but persisted.
func faultTwice(t *testing.T, f func(t *testing.T, persisted bool)) {
	t.Run("failed", func(t *testing.T) { f(t, false) })
	t.Run("failed but persisted", func(t *testing.T) { f(t, true) })
}

// refusing is a refusal of the writes that hit does, with the culprit's index.
func refusing(hit func(*zk.Write) bool, culprit int, err error) func(*zk.Write) (int, error) {
	return func(w *zk.Write) (int, error) {
		if hit(w) {
			return culprit, err
		}
		return -1, nil
	}
}

func (m *Manager) mustID(id string) recipe.LeaseID {
	parsed, err := recipe.ParseLeaseID(id)
	if err != nil {
		panic(err)
	}
	return parsed
}

// openSession gives the manager a port whose session is that one.
func openSession(tb testing.TB, m *Manager, session *fakeSession) {
	port := term.New(term.Options{Store: oneSession{session: session}, Clock: m.clock, Log: m.log, Monitor: outcomes{&m.monitor},
		NewID: newGatewayID, Begun: func(term.Session) {}, Ended: func(term.Session) {}, Idle: func() { m.stream.recheckNext(m) }})
	port.Watcher, m.port = m.port.Watcher, port
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- port.Run(ctx, nil, time.Hour) }()
	for port.Session() == nil {
		runtime.Gosched()
	}
	tb.Cleanup(func() {
		close(session.done)
		for port.Session() != nil {
			runtime.Gosched()
		}
		cancel()
		<-stopped
	})
}

// oneSession is a store with one session.
type oneSession struct {
	term.Store
	session *fakeSession
}

func (o oneSession) Open(context.Context, string, []byte, func(zk.Instant, int64)) (term.Session, error) {
	return o.session, nil
}
