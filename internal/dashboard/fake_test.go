package dashboard

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

var started = time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)

// fakeLocks is a lock manager with given answers that counts what it is asked.
type fakeLocks struct {
	mu    sync.Mutex
	asked map[string]int
	as    []locks.Principal // who asked what depends on that

	lock       func(locks.LockRequest) (locks.Lock, error)
	locks      func(locks.LockFilter) (locks.LockPage, error)
	info       func() locks.Info
	namespaces func() ([]locks.NamespaceInfo, error)
	peers      []locks.Peer
	left       []locks.LeftGateway
	ends       map[string]locks.Postmortem
	waits      fakeWaits
	looking    time.Duration // how long a look at the waits takes
	found      func(locks.FindRequest) locks.Found
}

func (f *fakeLocks) Find(_ context.Context, r locks.FindRequest) (locks.Found, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked["find"]++
	f.as = append(f.as, r.Principal)
	if err := r.Check(); err != nil || f.found == nil {
		return locks.Found{}, err
	}
	return f.found(r), nil
}

// fakeWaits is a graph that answers each question with all of it.
type fakeWaits struct{ graph locks.WaitGraph }

func (f fakeWaits) Answer(req *locks.GraphRequest) locks.WaitGraph {
	v := f.graph
	if req.Cycles {
		v.Waits = nil
	}
	return v
}

func (f fakeWaits) Ahead(_, _, contender string, _ int) locks.WaitGraph {
	v := f.graph
	for i := range v.Waits {
		if v.Waits[i].Waiter.LeaseID == contender {
			v.Of = v.Waits[i].From
		}
	}
	return v
}

func (f *fakeLocks) Waits(_ context.Context, p locks.Principal) (locks.Waits, error) {
	f.mu.Lock()
	f.asked["waits"]++
	f.as = append(f.as, p)
	took, answer := f.looking, f.waits
	f.mu.Unlock()
	time.Sleep(took)
	return answer, nil
}

func newFake() *fakeLocks {
	return &fakeLocks{
		asked: map[string]int{},
		lock: func(r locks.LockRequest) (locks.Lock, error) {
			return locks.Lock{NS: r.NS, Name: r.Lock, State: locks.LockFree}, nil
		},
		locks: func(locks.LockFilter) (locks.LockPage, error) { return locks.LockPage{}, nil },
		info:  servingInfo,
		namespaces: func() ([]locks.NamespaceInfo, error) {
			return []locks.NamespaceInfo{{Name: "default", Root: "/lockkeeper/locks", Dialect: "native", Ready: true, Swept: true, Locks: 7}}, nil
		},
	}
}

func servingInfo() locks.Info {
	return locks.Info{GatewayID: "gw1", Root: "/lockkeeper", Namespaces: []string{"default", "team"}, Locks: 7, Contenders: 9,
		Leases:    map[locks.State]int{locks.Held: 3, locks.Waiting: 2},
		ZooKeeper: locks.ZooKeeperInfo{Servers: []string{"zk1:2181"}, State: "connected", Trusted: true, ReplicaCurrent: true}}
}

// set changes what the fake says.
func (f *fakeLocks) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeLocks) count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[what]
}

func (f *fakeLocks) Lock(_ context.Context, r locks.LockRequest) (locks.Lock, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked["lock"]++
	f.as = append(f.as, r.Principal)
	return f.lock(r)
}

func (f *fakeLocks) Locks(_ context.Context, r locks.LockFilter) (locks.LockPage, error) {
	f.mu.Lock()
	f.asked["locks"]++
	f.as = append(f.as, r.Principal)
	answer := f.locks
	f.mu.Unlock()
	return answer(r)
}

func (f *fakeLocks) Info(context.Context) locks.Info {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked["info"]++
	return f.info()
}

func (f *fakeLocks) Peers() []locks.Peer {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked["peers"]++
	return f.peers
}

func (f *fakeLocks) LeftGateways() []locks.LeftGateway {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.left
}

func (f *fakeLocks) Postmortem(_ context.Context, _ locks.Principal, id string) (locks.Postmortem, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked["postmortem"]++
	if end, ok := f.ends[id]; ok {
		return end, nil
	}
	return locks.Postmortem{}, &locks.Error{Code: locks.CodeNotFound, Detail: "no such lease"}
}

func (f *fakeLocks) Namespaces(_ context.Context, p locks.Principal) ([]locks.NamespaceInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked["namespaces"]++
	f.as = append(f.as, p)
	return f.namespaces()
}

// holds lets the fake's locks be held by owner.
func (f *fakeLocks) holds(owner string) {
	f.set(func() {
		held := func(ns, name string) locks.Lock {
			return locks.Lock{NS: ns, Name: name, State: locks.LockHeld, Holders: []locks.Contender{
				{LeaseID: "lk1", Owner: owner, Znode: "/lockkeeper/locks/" + name + "/write-1", Mode: locks.Exclusive, FencingToken: 7}}}
		}
		f.lock = func(r locks.LockRequest) (locks.Lock, error) { return held(r.NS, r.Lock), nil }
		f.locks = func(r locks.LockFilter) (locks.LockPage, error) {
			return locks.LockPage{Items: []locks.Lock{held(r.NS, "deploy")}}, nil
		}
	})
}

func unavailable() error {
	return &locks.Error{Code: locks.CodeUnavailable, Detail: "ZooKeeper cannot be reached"}
}

// rig is a dashboard on a fake, with its hub, both running.
type rig struct {
	*Dashboard
	fake *fakeLocks
	hub  *events.Hub
	stop func() // ends both and waits for them
}

// withRig runs a test in virtual time with a dashboard.
func withRig(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t)) })
}

func newRig(t *testing.T, change ...func(*Options)) *rig {
	t.Helper()
	f := newFake()
	hub := events.New(events.Options{})
	o := Options{Locks: f, Events: hub, Logger: quiet(), Version: "1.2.3", Started: started}
	for _, c := range change {
		c(&o)
	}
	d := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = hub.Run(ctx) })
	wg.Go(func() { _ = d.Run(ctx) })
	r := &rig{d, f, o.Events, sync.OnceFunc(func() { cancel(); wg.Wait() })}
	t.Cleanup(r.stop)
	return r
}

// ServeHTTP lets every visitor do everything, as a gateway without authentication does, unless the request says who it is.
func (r *rig) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if auth.VisitorOf(req.Context()).Principal.Rules == nil {
		req = req.WithContext(auth.WithVisitor(req.Context(), &auth.Visitor{Caller: auth.Caller{Principal: locks.Anonymous, Kind: auth.Anonymous}}))
	}
	r.Dashboard.ServeHTTP(w, req)
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// happen tells of a lock's change.
func (r *rig) happen(lock string) {
	r.hub.Publish(&events.Event{Type: events.LeaseQueued, NS: "default", Lock: lock})
}

// inUse counts what is live.
func (r *rig) inUse() (topics, viewers int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.topics), r.viewers
}

// get asks the handler, without a network.
func (r *rig) get(t *testing.T, target string) *httptest.ResponseRecorder {
	t.Helper()
	return r.do(t, http.MethodGet, target)
}

func (r *rig) do(t *testing.T, method, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
}

// ids lists the fragments of a message, in order.
func ids(html string) []string {
	var found []string
	for _, id := range []string{"status", "deadlocks", "locks", "lock-head", "queue", "history", "nodes", "namespaces", "gateways", "graph", "owned"} {
		if strings.Contains(html, fmt.Sprintf(`id="%s" hx-swap-oob`, id)) || strings.Contains(html, fmt.Sprintf(`id="%s"`, id)) {
			found = append(found, id)
		}
	}
	return found
}

func wantIDs(t *testing.T, html string, want ...string) {
	t.Helper()
	got := ids(html)
	assert.That(t, slices.Equal(got, want), "fragments %v, want %v in\n%s", got, want, html)
}
