package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
)

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

// Attack 28: 20,000 contenders are destroyed with one request. Rule: pieces far
// below what ZooKeeper takes, from the tail. No request is larger than 256 KiB, and others'
// heartbeats and acquires are answered throughout.
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
