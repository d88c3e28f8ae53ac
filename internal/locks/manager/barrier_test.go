package manager

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// toll holds every barrier of a gateway until it is let pass.
type toll struct {
	handed atomic.Int32 // barriers that were handed over
	pass   chan struct{}
	given  atomic.Int32 // barriers that were given up while they were held
}

func (h *hookedStore) toll() *toll {
	b := &toll{pass: make(chan struct{})}
	h.hooks.Store(&hooks{barrier: func(ctx context.Context) error {
		b.handed.Add(1)
		select {
		case <-b.pass:
			return nil
		case <-ctx.Done():
			b.given.Add(1)
			return ctx.Err()
		}
	}})
	return b
}

// crosser is a call of barrier on a goroutine of its own.
type crosser struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (g *gate) cross() *crosser {
	ctx, cancel := context.WithCancel(g.t.Context())
	c := &crosser{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = g.m.barrier(ctx)
	}()
	return c
}

func (c *crosser) over() bool {
	synctest.Wait()
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// A transaction that may have been sent before a question proves nothing about
// it. Rule: a call after the transaction was handed over waits for the next.
func TestACallAfterTheTransactionWasHandedOverWaitsForTheNext(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		toll := h.toll()
		first := g.cross()
		first.over()
		second, third := g.cross(), g.cross()
		second.over()
		assert.MustEqual(t, toll.handed.Load(), 1, "barriers were handed over, want 1: the others wait for the next")
		toll.pass <- struct{}{}
		time.Sleep(10 * time.Millisecond)
		assert.Must(t, first.over() && first.err == nil, "the first is not over: %v", first.err)
		assert.Must(t, !second.over() && !third.over(), "answered by a transaction that had been sent before the question")
		toll.pass <- struct{}{}
		time.Sleep(10 * time.Millisecond)
		assert.Must(t, second.over() && third.over() && second.err == nil && third.err == nil,
			"the second: %v, the third: %v", second.err, third.err)
		assert.Equal(t, toll.handed.Load(), 2, "barriers for three callers, want 2")
	})
}

// One for all that wait, however many, and none when none waits.
func TestAThousandQuestionsAtOnceCostTwoTransactions(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		var handed atomic.Int32
		h.hooks.Store(&hooks{barrier: func(context.Context) error { handed.Add(1); return nil }})
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				v, err := g.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Verify: true})
				assert.That(t, err == nil && v.State == locks.Held, "%+v %v", v, err)
			})
		}
		wg.Wait()
		n := handed.Load()
		assert.That(t, n <= 2, "%d transactions, want at most 2", n)
	})
}

// While the observer is behind, barriers wait for it; their number is bounded.
func TestBarriersThatWaitForTheObserverAreBounded(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		var handed atomic.Int32
		h.hooks.Store(&hooks{barrier: func(context.Context) error { handed.Add(1); return nil }})
		g.w.hold()
		var waiting []*crosser
		for range 40 {
			waiting = append(waiting, g.cross())
			time.Sleep(10 * time.Millisecond)
		}
		assert.Equal(t, handed.Load(), 4, "are under way, want 4")
		g.w.release()
		time.Sleep(time.Second)
		for i, c := range waiting {
			assert.That(t, c.over() && c.err == nil, "the %dth: %v", i, c.err)
		}
	})
}

// A caller that goes away ends no other barrier; when all have gone, so does the barrier.
func TestACallerThatGoesAwayEndsNoOtherBarrier(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		toll := h.toll()
		first := g.cross()
		first.over()
		one, other, late := g.cross(), g.cross(), g.cross()
		one.over()
		one.cancel()
		assert.Must(t, one.over(), "it still waits")
		wantCode(t, one.err, locks.CodeCancelled)
		first.cancel()
		first.over()
		assert.MustEqual(t, toll.given.Load(), 1, "barriers were given up, want that of the caller that was alone")
		toll.pass <- struct{}{}
		time.Sleep(10 * time.Millisecond)
		assert.Must(t, other.over() && late.over() && other.err == nil && late.err == nil, "%v, %v", other.err, late.err)
	})
}

// A barrier that is never answered ends, by its bound or with ZooKeeper's
// silence, and leaves nothing behind (the scene's end would hang).
func TestABarrierThatIsNeverAnsweredEnds(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		h.toll()
		began := time.Now()
		first := g.cross()
		first.over()
		second := g.cross()
		<-first.done
		<-second.done
		wantCode(t, first.err, locks.CodeUnavailable)
		wantCode(t, second.err, locks.CodeUnavailable)
		took := time.Since(began)
		assert.That(t, took <= 6*time.Second, "it took %v", took)
	})
}

// The session ends while some wait for its barrier and others for the next.
func TestABarrierEndsWithItsSession(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		s.set(func() { s.away = true })
		first := g.cross()
		first.over()
		second := g.cross()
		second.over()
		g.m.mu.Lock()
		session := g.m.port.Session().(*hookedSession)
		g.m.mu.Unlock()
		s.mu.Lock()
		session.end(zk.ErrSessionGone) // releases mu
		<-first.done
		<-second.done
		wantCode(t, first.err, locks.CodeUnavailable)
		wantCode(t, second.err, locks.CodeUnavailable)
		s.set(func() { s.away = false })
		time.Sleep(time.Second)
		if third := g.cross(); g.m.Trusted() {
			<-third.done
			assert.That(t, third.err == nil, "under the next session: %v", third.err)
		} else {
			t.Error("no session")
		}
	})
}
