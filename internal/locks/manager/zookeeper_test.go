package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
)

func TestMain(m *testing.M) {
	embeddedtest.StandIn()
	zkreal.Main(m)
}

// onZooKeeper runs a manager on a real ZooKeeper until the test ends.
func onZooKeeper(t testing.TB, addr, chroot string, change ...func(*zk.Config)) anyone {
	t.Helper()
	cfg := zk.Config{Servers: strings.Split(addr, ","), Chroot: chroot, Root: "/lockkeeper", SessionTimeout: 4 * time.Second, CreateRoot: true}
	for _, f := range change {
		f(&cfg)
	}
	return runOnZooKeeper(t, Options{Store: &term.ZooKeeper{Config: cfg}, Root: cfg.Root, SessionTimeout: cfg.SessionTimeout})
}

func runOnZooKeeper(t testing.TB, opt Options) anyone {
	t.Helper()
	m := anyone{New(opt)}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.Nil(t, testkit.Receive(t, 20*time.Second, stopped, "the manager stops"), "run")
	})
	testkit.Eventually(t, 20*time.Second, func() bool { return m.Ready() == nil && m.Trusted() }, "the manager is usable")
	return m
}

func TestLeasesOnARealZooKeeper(t *testing.T) {
	addr, chroot := zkreal.SharedT(t)
	testkit.NoLeaks(t)
	m := onZooKeeper(t, addr, chroot)
	ctx := t.Context()
	res, err := m.Acquire(ctx, locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second, Owner: "me"})
	assert.Must(t, err == nil && res.Lease.State == locks.Held && res.Lease.FencingToken != 0, "%+v %v", res, err)
	_, err = m.Acquire(ctx, locks.AcquireRequest{Lock: "deploy"})
	wantCode(t, err, locks.CodeHeldByOther)
	v, err := m.Lease(ctx, locks.LeaseRequest{ID: res.Lease.ID, Verify: true})
	assert.Must(t, err == nil && v.State == locks.Held, "verify: %+v %v", v, err)
	assert.NoError(t, m.Release(ctx, locks.Anonymous, res.Lease.ID, res.Lease.Token))
}

// Two hundred clients on one lock: their own intervals never overlap, and the fencing tokens rise.
func TestTwoHundredClientsOnOneLockNeverOverlap(t *testing.T) {
	addr, chroot := zkreal.SharedT(t)
	m := onZooKeeper(t, addr, chroot)
	var (
		mu     sync.Mutex
		inside int
		tokens []int64
		wg     sync.WaitGroup
	)
	began := time.Now()
	for i := range 200 {
		wg.Go(func() {
			res, err := m.Acquire(t.Context(), locks.AcquireRequest{Lock: "hot", TTL: time.Minute, Wait: time.Minute, Owner: fmt.Sprint(i)})
			if err != nil {
				t.Errorf("client %d: %v", i, err)
				return
			}
			mu.Lock()
			if inside++; inside != 1 {
				t.Errorf("%d clients hold the lock", inside)
			}
			tokens = append(tokens, res.Lease.FencingToken)
			inside--
			mu.Unlock()
			assert.Nil(t, m.Release(t.Context(), locks.Anonymous, res.Lease.ID, res.Lease.Token), "client %d: release", i)
		})
	}
	wg.Wait()
	t.Logf("200 hand-overs in %v", time.Since(began))
	for i := 1; i < len(tokens); i++ {
		assert.Must(t, tokens[i] > tokens[i-1], "fencing token %d follows %d", tokens[i], tokens[i-1])
	}
	assert.That(t, len(tokens) == 200, "%d grants", len(tokens))
}

func BenchmarkLockCycles(b *testing.B) {
	addr, chroot := zkreal.SharedRealT(b)
	m := onZooKeeper(b, addr, chroot)
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			var wg sync.WaitGroup
			for i := range clients {
				wg.Go(func() {
					for range b.N / clients {
						name := fmt.Sprintf("lock-%d", i)
						res, err := m.Acquire(context.Background(), locks.AcquireRequest{Lock: name, TTL: time.Minute})
						if err != nil {
							var e *locks.Error
							errors.As(err, &e)
							b.Errorf("%v %+v", err, e)
							return
						}
						if err := m.Release(context.Background(), locks.Anonymous, res.Lease.ID, res.Lease.Token); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
		})
	}
}

// The programs that share a lock root may delete it when it is empty and create it
// again, and so may a namespace be read for the first time while it is not there.
func TestALockRootThatComesAndGoesIsFollowed(t *testing.T) {
	addr, chroot := zkreal.SharedT(t)
	running := onZooKeeper(t, addr, chroot)
	conn, events, err := gozk.Connect([]string{addr}, 10*time.Second, gozk.WithLogInfo(false))
	assert.NoError(t, err)
	t.Cleanup(conn.Close)
	go func() {
		for range events {
		}
	}()
	world := gozk.WorldACL(gozk.PermAll)
	do := func(_ any, err error) {
		t.Helper()
		assert.NoError(t, err)
	}
	add := func(path, data string, flags int32) string {
		t.Helper()
		made := assert.Value(conn.Create(chroot+path, []byte(data), flags, world))(t, "creating %s", path)
		return made
	}
	python := func() locks.NamespaceInfo {
		list, err := running.Namespaces(t.Context(), locks.Anonymous)
		if err != nil || len(list) < 2 {
			return locks.NamespaceInfo{}
		}
		return list[1]
	}

	// By hand, without a lock root.
	add("/lockkeeper/namespaces/python", `{"root":"/python","dialect":"kazoo"}`, 0)
	testkit.Eventually(t, 10*time.Second, func() bool { return python().Ready }, "the namespace is picked up")
	_, err = running.Acquire(t.Context(), locks.AcquireRequest{NS: "python", Lock: "deploy"})
	e := wantCode(t, err, locks.CodeUnavailable)
	assert.That(t, strings.Contains(e.Detail, "lock root"), "%v", e)

	for round := range 2 {
		add("/python", "", 0)
		add("/python/deploy", "", 0)
		contender := add("/python/deploy/0123456789abcdef0123456789abcdef__lock__", "", gozk.FlagEphemeral|gozk.FlagSequence)
		testkit.Eventually(t, 10*time.Second, func() bool { return python().Locks == 1 }, "its lock is seen, round %d", round)
		_, err = running.Acquire(t.Context(), locks.AcquireRequest{NS: "python", Lock: "deploy"})
		wantCode(t, err, locks.CodeHeldByOther)
		do(nil, conn.Delete(contender, -1))
		testkit.Eventually(t, 10*time.Second, func() bool { return python().Locks == 0 }, "and its end")
		res, err := running.Acquire(t.Context(), locks.AcquireRequest{NS: "python", Lock: "deploy"})
		assert.Must(t, err == nil && res.Lease.State == locks.Held, "%+v, %v", res, err)
		assert.NoError(t, running.Release(t.Context(), locks.Anonymous, res.Lease.ID, res.Lease.Token))
		do(nil, conn.Delete(chroot+"/python/deploy", -1))
		do(nil, conn.Delete(chroot+"/python", -1))
	}

	// A gateway whose configuration names it needs no new record, and leaves its root alone.
	other := onZooKeeper(t, addr, chroot, func(c *zk.Config) {
		c.Namespaces = map[string]zk.Namespace{"python": {Root: "/python", Dialect: "kazoo"}}
	})
	list, err := other.Namespaces(t.Context(), locks.Anonymous)
	assert.That(t, err == nil && len(list) == 2 && list[1].Ready && list[1].Root == "/python", "%+v, %v", list, err)
	there, _, err := conn.Exists(chroot + "/python")
	assert.That(t, err == nil && !there, "the lock root is there: %t, %v", there, err)
}

// Settings, and what is said of tokens, with two gateways on a real ZooKeeper.
func TestSettingsOnARealZooKeeper(t *testing.T) {
	addr, chroot := zkreal.SharedT(t)
	testkit.NoLeaks(t)
	gates := []anyone{onZooKeeper(t, addr, chroot), onZooKeeper(t, addr, chroot)}
	ctx := t.Context()

	// Eight ask at once, with two different limits: one limit is agreed upon, and all who gave that one are in.
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		leases  []locks.Lease
		refused int
	)
	for i := range 8 {
		wg.Go(func() {
			res, err := gates[i%2].Acquire(ctx, locks.AcquireRequest{Lock: "pool", Mode: locks.Semaphore, Limit: 4 + i%2, TTL: time.Minute, Async: true})
			mu.Lock()
			defer mu.Unlock()
			var e *locks.Error
			switch {
			case err == nil:
				leases = append(leases, res.Lease)
			case errors.As(err, &e) && e.Code == locks.CodeSettingsDiffer && e.Limit != 4+i%2:
				refused++
			default:
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	assert.Must(t, len(leases) == 4 && refused == 4, "%d leases, %d refused", len(leases), refused)
	limit := leases[0].Limit
	for i, l := range leases {
		testkit.Eventually(t, 10*time.Second, func() bool {
			v, err := gates[(i+1)%2].Fence(ctx, locks.FenceRequest{Lock: "pool", Token: heldToken(t, gates, l.ID)})
			return err == nil && v.Current && gates[(i+1)%2].StillValid(v.Term)
		}, "each holder's token is current on the other gateway")
	}
	lock, err := gates[1].Configure(ctx, locks.SettingsRequest{Lock: "pool", Limit: 9})
	assert.Must(t, err == nil && lock.Limit == 9 && !lock.LimitAgreed && len(lock.Holders) == 4, "%+v %v", lock, err)
	testkit.Eventually(t, 10*time.Second, func() bool {
		lock, err := gates[0].Lock(ctx, locks.LockRequest{Lock: "pool"})
		return err == nil && lock.Limit == 9
	}, "the other gateway sees the new limit: until then it has the old one, and the lock is only held")
	_, err = gates[0].Acquire(ctx, locks.AcquireRequest{Lock: "pool", Mode: locks.Semaphore, Limit: limit, TTL: time.Minute})
	assert.Equal(t, wantCode(t, err, locks.CodeSettingsDiffer).Limit, 9)
	res, err := gates[0].Acquire(ctx, locks.AcquireRequest{Lock: "pool", Mode: locks.Semaphore, Permits: 5, TTL: time.Minute})
	assert.Must(t, err == nil && res.Lease.State == locks.Held && res.Lease.Limit == 9, "%+v %v", res.Lease, err)
	wantCode(t, gates[1].Remove(ctx, locks.Anonymous, "", "pool"), locks.CodeLockInUse)
	for _, l := range append(leases, res.Lease) {
		var err error
		for _, m := range gates {
			if err = m.Release(ctx, locks.Anonymous, l.ID, m.fleet.ring.Tokens().Make(recipe.LeaseID(l.ID))); err == nil {
				break
			}
		}
		assert.NoError(t, err)
	}
	assert.NoError(t, gates[1].Remove(ctx, locks.Anonymous, "", "pool"))
	for _, m := range gates {
		lock, err := m.Lock(ctx, locks.LockRequest{Lock: "pool", Consistent: true})
		assert.That(t, err == nil && lock.Limit == 0 && lock.State == locks.LockFree, "%+v %v", lock, err)
	}
	if _, err := gates[0].Acquire(ctx, locks.AcquireRequest{Lock: "pool", Mode: locks.Semaphore, Limit: 1, TTL: time.Minute}); err != nil {
		t.Error(fmt.Errorf("after its removal: %w", err))
	}
}

// heldToken is the fencing token of a lease that one of the gateways runs, once it holds.
func heldToken(t *testing.T, gates []anyone, id string) int64 {
	t.Helper()
	for _, m := range gates {
		if v, err := m.Lease(t.Context(), locks.LeaseRequest{ID: id}); err == nil && v.State == locks.Held {
			return v.FencingToken
		}
	}
	return 1
}

// ZooKeeper's own command line makes and deletes a contender: both are told,
// as what happened to the queue and as what happened to the nodes.
func TestWhatZkCliDoesIsTold(t *testing.T) {
	addr, chroot := zkreal.SharedT(t)
	testkit.NoLeaks(t)
	hub := events.New(events.Options{})
	cfg := zk.Config{Servers: strings.Split(addr, ","), Chroot: chroot, Root: "/lockkeeper", SessionTimeout: 4 * time.Second, CreateRoot: true}
	m := runOnZooKeeper(t, Options{Store: &term.ZooKeeper{Config: cfg}, Root: cfg.Root, SessionTimeout: cfg.SessionTimeout, Events: hub})
	res := assert.Value(m.Acquire(t.Context(), locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: "me"}))(t)
	const foreign = "/lockkeeper/locks/deploy/x-72057594037927936-0000000001"
	if out, err := zkreal.CLI(addr, "create -s "+chroot+"/lockkeeper/locks/deploy/x-72057594037927936-",
		"delete "+chroot+res.Lease.Znode, "delete "+chroot+foreign); err != nil {
		t.Fatalf("zkCli: %v\n%s", err, out)
	}
	want := []string{
		"node.created /lockkeeper/locks/deploy", "node.created ours", "lease.queued ours", "lease.granted ours",
		"node.created foreign", "lease.queued foreign zookeeper-writelock",
		"node.deleted ours", "lease.removed ours removed", "lease.granted foreign zookeeper-writelock",
		"node.deleted foreign", "lease.removed foreign zookeeper-writelock removed",
	}
	names := strings.NewReplacer(res.Lease.Znode, "ours", foreign, "foreign")
	told := func() (words []string) {
		for _, e := range hub.Recent(events.Filter{Rules: access.Everything(), Types: events.AllTypes, Lock: "deploy"}, 100) {
			words = append(words, strings.Join(strings.Fields(e.Type.String()+" "+names.Replace(e.Path())+" "+e.Program+" "+e.Reason), " "))
		}
		return words
	}
	testkit.EventuallyNil(t, 10*time.Second, func() error {
		if got := told(); !slices.Equal(got, want) {
			return fmt.Errorf("told\n\t%s", strings.Join(got, "\n\t"))
		}
		return nil
	}, "everything is told, in order")
}

// sizedConn notes the largest request that goes over it: a request is one Write.
type sizedConn struct {
	net.Conn
	largest *atomic.Int64
}

func (c sizedConn) Write(b []byte) (int, error) {
	for n := int64(len(b)); ; {
		was := c.largest.Load()
		if n <= was || c.largest.CompareAndSwap(was, n) {
			break
		}
	}
	return c.Conn.Write(b)
}

// Attack 28: 20,000 contenders are destroyed with one request. Rule: pieces far below what ZooKeeper takes, from the
// tail. No request is larger than 256 KiB, and others' heartbeats and acquires are answered throughout.
func TestTwentyThousandContendersAreDestroyedAndOthersGoOn(t *testing.T) {
	testkit.NotShort(t, "20,000 acquires")
	addr, chroot := zkreal.SharedT(t)
	var largest atomic.Int64
	m := onZooKeeper(t, addr, chroot, func(cfg *zk.Config) {
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return sizedConn{nc, &largest}, nil
		}
	})
	watching := onZooKeeper(t, addr, chroot)
	const contenders, foreign = 20_000, 2_000
	var fill sync.WaitGroup
	for range 64 {
		fill.Go(func() {
			for range (contenders - foreign) / 64 {
				if _, err := m.Acquire(t.Context(), locks.AcquireRequest{Lock: "crowded", TTL: time.Hour, Async: true}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	fill.Wait()
	for n := m.Info(t.Context()).Contenders; n < contenders; n += 100 {
		w := &zk.Write{Alone: true}
		for range min(100, contenders-n) {
			w.Ops = append(w.Ops, zk.Op{Kind: zk.OpCreate, Sequential: true,
				Path: "/lockkeeper/locks/crowded/_c_0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0-lock-"})
		}
		assert.MustEqual(t, m.write(t.Context(), w).Outcome, zk.Done)
	}
	testkit.Eventually(t, 20*time.Second, func() bool {
		return m.Info(t.Context()).Contenders == contenders && watching.Info(t.Context()).Contenders == contenders
	}, "all stand in line")
	other := assert.Value(m.Acquire(t.Context(), locks.AcquireRequest{Lock: "other", TTL: time.Minute}))(t)
	largest.Store(0)
	done := make(chan struct{})
	var others sync.WaitGroup
	var beats, cycles int
	var slowBeat, slowCycle time.Duration
	timed := func(slowest *time.Duration, f func() error) {
		begun := time.Now()
		assert.Nil(t, f(), "while the lock is destroyed")
		*slowest = max(*slowest, time.Since(begun))
	}
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	others.Go(func() {
		for ; open(done); beats++ {
			timed(&slowBeat, func() error {
				h, err := m.Heartbeat(context.Background(), locks.Anonymous, other.Lease.ID, other.Lease.Token, 0)
				if err == nil && !m.StillValid(h.Term) {
					err = fmt.Errorf("the heartbeat stands on nothing")
				}
				return err
			})
			<-pace.C
		}
	})
	others.Go(func() {
		for ; open(done); cycles++ {
			timed(&slowCycle, func() error {
				res, err := m.Acquire(context.Background(), locks.AcquireRequest{Lock: "third", TTL: time.Minute})
				if err != nil {
					return err
				}
				return m.Release(context.Background(), locks.Anonymous, res.Lease.ID, res.Lease.Token)
			})
		}
	})
	begun := time.Now()
	answer, err := m.Destroy(t.Context(), locks.DestroyRequest{Lock: "crowded", Reason: "too many"})
	repeated := 0 // a machine that stands still may leave a batch unanswered: then the request is repeated, as clients do
	for ; codeOf(err) == locks.CodeOutcomeUnknown && repeated < 20; repeated++ {
		answer, err = m.Destroy(t.Context(), locks.DestroyRequest{Lock: "crowded", Reason: "too many"})
	}
	took := time.Since(begun)
	close(done)
	others.Wait()
	assert.Must(t, err == nil && (repeated > 0 || answer.Ended == contenders && answer.Foreign >= foreign), "%+v %v", answer, err)
	n := largest.Load()
	assert.That(t, n <= 256<<10 && n >= 1<<10, "the largest request had %d bytes", n)
	assert.That(t, slowBeat <= 2*time.Second && slowCycle <= 5*time.Second && beats != 0 && cycles != 0,
		"%d heartbeats, one took %v; %d cycles of another lock, one took %v", beats, slowBeat, cycles, slowCycle)
	testkit.Eventually(t, 20*time.Second, func() bool { return watching.Info(t.Context()).Contenders == 1 }, "the other gateway has seen it")
	lock, err := watching.Lock(t.Context(), locks.LockRequest{Lock: "crowded", Consistent: true})
	assert.That(t, err == nil && lock.State == locks.LockFree, "%+v %v", lock, err)
	assert.That(t, strings.Count(fmt.Sprint(m.CheckAll()), "\n") == 0 && m.CheckAll() == nil, "%v", m.CheckAll())
	t.Logf("destroyed in %v, largest request %d bytes; %d heartbeats (slowest %v), %d other cycles (slowest %v)",
		took, largest.Load(), beats, slowBeat, cycles, slowCycle)
}

func open(done chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
		return true
	}
}

func codeOf(err error) locks.Code {
	var e *locks.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
