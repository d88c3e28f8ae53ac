package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/metrics"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

const (
	someID    = "lk7zeszcneibhyj6bvzox7mltgsjyv2atyozwpj"
	someToken = "lk1." + someID + ".k1.AbCdEfGhIjKlMnOpQr-_01"
	someKey   = "0123456789abcdef"
)

// fake is a lock manager that says what it is told to and remembers what it was asked.
type fake struct {
	mu    sync.Mutex
	calls []string

	acquire       func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error)
	lease         func(context.Context, locks.LeaseRequest) (locks.Lease, error)
	leases        func(locks.LeaseFilter) (locks.LeasePage, error)
	heartbeat     func(id, token string, ttl time.Duration) (locks.Heartbeat, error)
	many          func(tokens []string) []locks.HeartbeatResult
	release       func(id, token string) error
	hold          func(id, token, hold string) error
	update        func(locks.UpdateRequest) (locks.Lease, error)
	namespaces    []locks.NamespaceInfo
	namespacesErr error

	downgrade  func(id, token string) (locks.Lease, error)
	ended      func(id string) (locks.Postmortem, error)
	fence      func(locks.FenceRequest) (locks.FenceAnswer, error)
	configure  func(locks.SettingsRequest) (locks.Lock, error)
	revoke     func(locks.RevokeRequest) (locks.RevokeAnswer, error)
	withdraw   func(locks.WithdrawRequest) (locks.WithdrawAnswer, error)
	reap       func(locks.ReapRequest) (locks.ReapAnswer, error)
	destroy    func(locks.DestroyRequest) (locks.DestroyAnswer, error)
	admin      error // what Break and Remove answer
	lock       func(context.Context, locks.LockRequest) (locks.Lock, error)
	locks      func(locks.LockFilter) (locks.LockPage, error)
	graph      func(locks.GraphRequest) (locks.WaitGraph, error)
	breaks     func(locks.BreakRequest) error
	change     func(ctx context.Context) (locks.Heartbeat, error)
	beatFor    func(token string) (locks.Heartbeat, error)
	releaseFor func(token string) error
	route      func(lease string) (locks.Route, bool)
	arrive     func(ctx context.Context, lease string, zxid int64) error
	peers      []locks.Peer
	left       []locks.LeftGateway
	session    time.Duration // its age
	lag        time.Duration
	stranger   func(gateway string) bool // a gateway that is not registered; nil: all are
	id         string
	seals      int // that another gateway has registered, to which sendsTo leads
	ready      error
	alive      error
	untrusted  atomic.Bool
	client     atomic.Pointer[string] // of the last acquire
}

func held() locks.Lease {
	return locks.Lease{
		ID: someID, Token: someToken, NS: "default", Lock: "deploy", Znode: "/lockkeeper/locks/deploy/write-x-lock-0000000000",
		Mode: locks.Exclusive, State: locks.Held, FencingToken: 1 << 33, TTL: 30 * time.Second, ExpiresIn: 30 * time.Second,
		FailoverSafe: true, Owner: "me", Metadata: `{"job":7}`, Rev: "7f",
	}
}

func waiting() locks.Lease {
	l := held()
	l.State, l.FencingToken, l.Position, l.QueueLength = locks.Waiting, 0, 2, 3
	return l
}

// several is a lease of three locks.
func several() locks.Lease {
	l := held()
	l.Lock, l.NS, l.Znode, l.Mode = "", "", "", ""
	l.Locks = []locks.LeaseLock{
		{NS: "default", Lock: "a", Mode: locks.Exclusive, Znode: "/lockkeeper/locks/a/write-x", FencingToken: 1 << 33},
		{NS: "other", Lock: "a", Mode: locks.Shared, Znode: "/lockkeeper/locks/a/read-x", FencingToken: 1 << 33},
		{NS: "default", Lock: "b", Mode: locks.Semaphore, Permits: 2, Limit: 5, Znode: "/lockkeeper/locks/b/permit-x", FencingToken: 1 << 33},
	}
	return l
}

func postmortem(id string) locks.Postmortem {
	return locks.Postmortem{
		LeaseID: id, NS: "default", Lock: "deploy", Mode: locks.Exclusive, Owner: "me", Reason: locks.ReasonRevoked, Detail: "maintenance",
		FencingToken: 1 << 33, EndedAgo: 2 * time.Second, EndedAt: time.Date(2026, 11, 21, 9, 30, 0, 123456789, time.UTC),
		WaitedFor: time.Second, HeldFor: time.Minute, TTL: 30 * time.Second, LastHeartbeat: 5 * time.Second,
		Next: &locks.Successor{LeaseID: "other", FencingToken: 1<<33 + 5, After: 7 * time.Millisecond},
	}
}

func newFake() *fake {
	f := &fake{}
	f.acquire = func(_ context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
		l := held()
		l.Lock, l.NS = req.Lock, req.NS
		switch {
		case req.DryRun:
			return locks.AcquireResult{DryRun: &locks.DryRun{State: locks.Waiting, QueueLength: 1, Holders: queue().Holders}}, nil
		case req.Group != nil:
			l = several()
		}
		l.Owner, l.Metadata, l.TTL = req.Owner, req.Metadata, req.TTL
		return locks.AcquireResult{Lease: l}, nil
	}
	f.lease = func(context.Context, locks.LeaseRequest) (locks.Lease, error) {
		l := held()
		l.Token = ""
		return l, nil
	}
	f.leases = func(locks.LeaseFilter) (locks.LeasePage, error) {
		return locks.LeasePage{Items: []locks.Lease{held(), waiting()}, NextCursor: "c2"}, nil
	}
	f.heartbeat = func(_, _ string, ttl time.Duration) (locks.Heartbeat, error) {
		if ttl == 0 {
			ttl = 30 * time.Second
		}
		return locks.Heartbeat{LeaseID: someID, State: locks.Held, ExpiresIn: ttl, TTL: ttl, FencingToken: 1 << 33, Waiters: 2}, nil
	}
	f.many = func(tokens []string) []locks.HeartbeatResult {
		results := make([]locks.HeartbeatResult, len(tokens))
		for i := range tokens {
			results[i].Heartbeat, _ = f.heartbeat("", tokens[i], 0)
		}
		return results
	}
	f.release = func(string, string) error { return nil }
	f.hold = func(string, string, string) error { return nil }
	f.update = func(locks.UpdateRequest) (locks.Lease, error) { return held(), nil }
	f.downgrade = func(string, string) (locks.Lease, error) {
		l := held()
		l.Mode = locks.Shared
		return l, nil
	}
	f.ended = func(id string) (locks.Postmortem, error) { return postmortem(id), nil }
	f.fence = func(req locks.FenceRequest) (locks.FenceAnswer, error) {
		return locks.FenceAnswer{Current: req.Token == 1<<33, Reason: "superseded", Highest: 1 << 33}, nil
	}
	f.configure = func(req locks.SettingsRequest) (locks.Lock, error) {
		return locks.Lock{NS: req.NS, Name: req.Lock, State: locks.LockFree, Limit: req.Limit, Rev: "0"}, nil
	}
	f.withdraw = func(locks.WithdrawRequest) (locks.WithdrawAnswer, error) {
		return locks.WithdrawAnswer{Withdrawn: queue().Holders, Not: []locks.Unreached{{Contender: queue().Waiters[0], Detail: "why"}}}, nil
	}
	f.revoke = func(locks.RevokeRequest) (locks.RevokeAnswer, error) {
		return locks.RevokeAnswer{Asked: queue().Holders, Not: []locks.Unreached{{Contender: queue().Waiters[0], Detail: "why"}}}, nil
	}
	f.reap = func(req locks.ReapRequest) (locks.ReapAnswer, error) {
		return locks.ReapAnswer{Reaped: queue().Waiters, DryRun: req.DryRun, More: true}, nil
	}
	f.destroy = func(locks.DestroyRequest) (locks.DestroyAnswer, error) {
		return locks.DestroyAnswer{Ended: 4, Foreign: 2}, nil
	}
	f.lock = func(_ context.Context, req locks.LockRequest) (locks.Lock, error) {
		return locks.Lock{NS: req.NS, Name: req.Lock, State: locks.LockFree, Rev: "0"}, nil
	}
	f.graph = func(locks.GraphRequest) (locks.WaitGraph, error) { return locks.WaitGraph{}, nil }
	f.locks = func(locks.LockFilter) (locks.LockPage, error) {
		return locks.LockPage{Items: []locks.Lock{{NS: "default", Name: "deploy", State: locks.LockHeld}}}, nil
	}
	return f
}

func (f *fake) HeartbeatFor(_ context.Context, _ locks.Principal, token string) (locks.Heartbeat, error) {
	f.note("heartbeat for %s", token)
	if f.beatFor == nil {
		return locks.Heartbeat{}, &locks.Error{Code: locks.CodeNotOwner}
	}
	return f.beatFor(token)
}

func (f *fake) ReleaseFor(_ context.Context, _ locks.Principal, token string) error {
	f.note("release for %s", token)
	if f.releaseFor == nil {
		return &locks.Error{Code: locks.CodeNotOwner}
	}
	return f.releaseFor(token)
}

func (f *fake) RouteOf(lease string) (locks.Route, bool) {
	if f.route == nil {
		return locks.Route{}, false
	}
	return f.route(lease)
}

func (f *fake) Arrive(ctx context.Context, lease string, zxid int64) error {
	f.note("arrive %s %d", lease, zxid)
	if f.arrive == nil {
		return nil
	}
	return f.arrive(ctx, lease, zxid)
}

func (f *fake) Reached(ctx context.Context, zxid int64) error { return f.Arrive(ctx, "", zxid) }
func (f *fake) GatewayID() string                             { return f.id }
func (f *fake) Peers() []locks.Peer                           { return f.peers }
func (f *fake) LeftGateways() []locks.LeftGateway             { return f.left }
func (f *fake) Registered(gateway string) bool                { return f.stranger == nil || !f.stranger(gateway) }

func (f *fake) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

// noteTraced notes a call with the trace that it is a part of.
func (f *fake) noteTraced(ctx context.Context, format string, args ...any) {
	if trace := locks.TraceParentOf(ctx); trace != "" {
		format, args = format+" traced %s", append(args, trace)
	}
	f.note(format, args...)
}

// asked is what the manager was asked since the last time.
func (f *fake) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// answer applies the domain's rules, as the manager does, takes note, and says what the fake is told to: what the manager was
// asked is what may be asked.
func answer[R, A any](ctx context.Context, f *fake, verb string, req R, check error, do func(R) (A, error)) (none A, err error) {
	if check != nil {
		return none, check
	}
	f.noteTraced(ctx, verb+" %+v", req)
	return do(req)
}

func (f *fake) Acquire(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
	check := req.Normalize()
	client := req.Client
	f.client.Store(&client)
	req.Client = "" // the same in each test
	return answer(ctx, f, "acquire", req, check, func(r locks.AcquireRequest) (locks.AcquireResult, error) { return f.acquire(ctx, r) })
}

func (f *fake) Lease(ctx context.Context, req locks.LeaseRequest) (locks.Lease, error) {
	check := req.Check()
	return answer(ctx, f, "lease", req, check, func(r locks.LeaseRequest) (locks.Lease, error) { return f.lease(ctx, r) })
}

func (f *fake) Leases(ctx context.Context, filter locks.LeaseFilter) (locks.LeasePage, error) {
	check := filter.Check()
	return answer(ctx, f, "leases", filter, check, f.leases)
}

func (f *fake) Heartbeat(_ context.Context, _ locks.Principal, id, token string, ttl time.Duration) (locks.Heartbeat, error) {
	if err := locks.CheckTTL(cmp.Or(ttl, locks.DefaultTTL)); err != nil {
		return locks.Heartbeat{}, err
	}
	f.note("heartbeat %q %s %s", id, token, ttl)
	return f.heartbeat(id, token, ttl)
}

func (f *fake) AwaitChange(ctx context.Context, _ locks.Principal, id, token string, wait time.Duration) (locks.Heartbeat, error) {
	f.note("await change %q %s %s", id, token, wait)
	if f.change == nil {
		return f.heartbeat(id, token, 0)
	}
	return f.change(ctx)
}

func (f *fake) Heartbeats(_ context.Context, _ locks.Principal, tokens []string) []locks.HeartbeatResult {
	f.note("heartbeats %d", len(tokens))
	return f.many(tokens)
}

func (f *fake) Release(ctx context.Context, _ locks.Principal, id, token string) error {
	f.noteTraced(ctx, "release %q %s", id, token)
	return f.release(id, token)
}

func (f *fake) ReleaseHold(ctx context.Context, _ locks.Principal, id, token, hold string) error {
	if err := locks.CheckHold(hold); err != nil {
		return err
	}
	f.noteTraced(ctx, "release %q %s hold %s", id, token, hold)
	return f.hold(id, token, hold)
}

func (f *fake) Update(ctx context.Context, req locks.UpdateRequest) (locks.Lease, error) {
	return answer(ctx, f, "update", req, req.Check(), f.update)
}

func (f *fake) Downgrade(_ context.Context, _ locks.Principal, id, token string) (locks.Lease, error) {
	f.note("downgrade %q %s", id, token)
	return f.downgrade(id, token)
}

func (f *fake) Postmortem(_ context.Context, _ locks.Principal, id string) (locks.Postmortem, error) {
	f.note("postmortem %q", id)
	return f.ended(id)
}

func (f *fake) Fence(ctx context.Context, req locks.FenceRequest) (locks.FenceAnswer, error) {
	check := req.Check()
	return answer(ctx, f, "fence", req, check, f.fence)
}

func (f *fake) Periods(context.Context, locks.PeriodsRequest) ([]locks.Period, error) {
	return nil, nil
}

func (f *fake) ForgetPeriod(context.Context, locks.PeriodsRequest) error { return nil }

func (f *fake) Configure(ctx context.Context, req locks.SettingsRequest) (locks.Lock, error) {
	return answer(ctx, f, "configure", req, req.Check(), f.configure)
}

func (f *fake) Remove(_ context.Context, _ locks.Principal, ns, lock string) error {
	f.note("remove %s %s", ns, lock)
	return f.admin
}

func (f *fake) Withdraw(ctx context.Context, req locks.WithdrawRequest) (locks.WithdrawAnswer, error) {
	return answer(ctx, f, "withdraw", req, req.Shown.Check(), f.withdraw)
}

func (f *fake) Revoke(ctx context.Context, req locks.RevokeRequest) (locks.RevokeAnswer, error) {
	return answer(ctx, f, "revoke", req, req.Check(), f.revoke)
}

func (f *fake) Break(ctx context.Context, req locks.BreakRequest) error {
	_, err := answer(ctx, f, "break", req, req.Check(), func(r locks.BreakRequest) (struct{}, error) {
		if f.breaks != nil {
			return struct{}{}, f.breaks(r)
		}
		return struct{}{}, f.admin
	})
	return err
}

func (f *fake) Reap(ctx context.Context, req locks.ReapRequest) (locks.ReapAnswer, error) {
	return answer(ctx, f, "reap", req, req.Check(), f.reap)
}

func (f *fake) Destroy(ctx context.Context, req locks.DestroyRequest) (locks.DestroyAnswer, error) {
	return answer(ctx, f, "destroy", req, req.Check(), f.destroy)
}

func (f *fake) Lock(ctx context.Context, req locks.LockRequest) (locks.Lock, error) {
	check := req.Check()
	return answer(ctx, f, "lock", req, check, func(r locks.LockRequest) (locks.Lock, error) { return f.lock(ctx, r) })
}

func (f *fake) Locks(ctx context.Context, filter locks.LockFilter) (locks.LockPage, error) {
	check := filter.Check()
	return answer(ctx, f, "locks", filter, check, f.locks)
}

func (f *fake) Graph(ctx context.Context, req locks.GraphRequest) (locks.WaitGraph, error) {
	check := req.Check()
	return answer(ctx, f, "graph", req, check, f.graph)
}

// Waits are what pages ask for: their own tests have some.
func (f *fake) Waits(context.Context, locks.Principal) (locks.Waits, error) {
	return nil, &locks.Error{Code: locks.CodeUnavailable}
}

func (f *fake) Namespaces(context.Context, locks.Principal) ([]locks.NamespaceInfo, error) {
	return f.namespaces, f.namespacesErr
}

func (f *fake) Info(context.Context) locks.Info {
	return locks.Info{
		GatewayID: "g1", FleetID: "fleet", Root: "/lockkeeper", PromiseWindow: 10 * time.Second, Namespaces: []string{"default"},
		Leases: map[locks.State]int{locks.Held: 2}, Locks: 3, Contenders: 5,
		ZooKeeper: locks.ZooKeeperInfo{Servers: []string{"127.0.0.1:2181"}, State: "connected", Trusted: true, TrustMargin: 9 * time.Second, ReplicaCurrent: true, LastZxid: 0x100000002, SessionAge: f.session, Lag: f.lag},
	}
}

func (f *fake) Ready() error               { return f.ready }
func (f *fake) Alive() error               { return f.alive }
func (f *fake) StillValid(locks.Term) bool { return !f.untrusted.Load() }

// gateway is a Server over a fake, on a real connection.
type gateway struct {
	*fake
	server *Server
	client *apitest.Client
	url    string
	ctx    context.Context
}

func serve(t *testing.T, change ...func(*Options)) *gateway {
	t.Helper()
	f := newFake()
	o := Options{Locks: f, Metrics: metrics.New("test"), ServeMetrics: true, Logger: slog.New(slog.DiscardHandler), Version: "test", OpenAPI: lockkeeper.OpenAPI}
	for _, c := range change {
		c(&o)
	}
	g := &gateway{fake: f, server: New(o), ctx: t.Context()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NoError(t, err)
	srv := &http.Server{Handler: g.server, ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelError)}
	Configure(srv)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(listener) }()
	t.Cleanup(func() {
		g.server.Drain()
		_ = srv.Close()
		assert.Equal(t, <-done, http.ErrServerClosed, "serving")
	})
	g.url = "http://" + listener.Addr().String()
	g.client = apitest.New(t, g.url)
	return g
}

// send fails the test when there is no answer.
func (g *gateway) send(t *testing.T, method, path string, options ...apitest.Option) *apitest.Answer {
	t.Helper()
	a, err := g.client.Send(g.ctx, method, path, options...)
	assert.NoError(t, err)
	return a
}

// expect sends, and fails the test unless the answer has the status and, if one is given, the code of a problem.
func (g *gateway) expect(t *testing.T, status int, code, method, path string, options ...apitest.Option) *apitest.Answer {
	t.Helper()
	a := g.send(t, method, path, options...)
	assert.That(t, a.Status == status && (code == "" || a.Code() == code),
		"%s %s: %d %s, want %d %s", method, path, a.Status, a.Body, status, code)
	return a
}

// later sends and gives the answer when it comes.
func (g *gateway) later(t *testing.T, method, path string, options ...apitest.Option) <-chan *apitest.Answer {
	answer := make(chan *apitest.Answer, 1)
	go func() {
		a, err := g.client.Send(g.ctx, method, path, options...)
		assert.Nil(t, err)
		answer <- a
	}()
	return answer
}

func (f *fake) TokenOf(id string) (string, error) {
	return "lk1." + id + ".k1.AbCdEfGhIjKlMnOpQr-_01", nil
}

// Find implements the dashboard's Locks.
func (*fake) Find(context.Context, locks.FindRequest) (locks.Found, error) {
	return locks.Found{}, nil
}
