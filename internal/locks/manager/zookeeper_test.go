package manager

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/locks"
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
func onZooKeeper(t testing.TB, addr, chroot string, change ...func(*zk.Config)) *Manager {
	t.Helper()
	cfg := zk.Config{Servers: strings.Split(addr, ","), Chroot: chroot, Root: "/lockkeeper", SessionTimeout: 4 * time.Second, CreateRoot: true}
	for _, f := range change {
		f(&cfg)
	}
	return runOnZooKeeper(t, Options{Store: &term.ZooKeeper{Config: cfg}, Root: cfg.Root, SessionTimeout: cfg.SessionTimeout})
}

func runOnZooKeeper(t testing.TB, opt Options) *Manager {
	t.Helper()
	m := New(opt)
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

// Two hundred clients on one lock: their own intervals never overlap, and the
// fencing tokens rise.
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
