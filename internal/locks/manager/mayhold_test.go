package manager

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// A lease that held, and whose grant its new gateway cannot make yet: its client was told that it holds. It must not hear that it
// waits, and its time goes on with each of its heartbeats.
func TestALeaseThatHeldDoesNotWaitAfterATakeover(t *testing.T) {
	const marker = "/lockkeeper/locks/deploy_INVALID"
	for name, c := range map[string]struct {
		take        func(one *gate) locks.Lease
		hinder, end func(s *fakeStore, h *hookedStore)
	}{
		"its period is being read": {
			func(one *gate) locks.Lease {
				req := daily("")
				req.TTL, req.IdempotencyKey = 10*time.Minute, "key-of-the-acquire"
				return one.once(req).Lease
			},
			func(_ *fakeStore, h *hookedStore) {
				var over atomic.Bool
				h.hooks.Store(&hooks{read: func(path string) {
					for strings.Contains(path, zk.NodePeriods) && !over.Load() {
						time.Sleep(time.Second)
					}
				}})
				time.AfterFunc(25*time.Minute, func() { over.Store(true) })
			},
			func(*fakeStore, *hookedStore) {},
		},
		"a marker hides the queue": {
			func(one *gate) locks.Lease {
				return one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Minute, IdempotencyKey: "key-of-the-acquire"})
			},
			func(s *fakeStore, _ *hookedStore) { s.plain(marker, "") },
			func(s *fakeStore, _ *hookedStore) { s.gone(marker) },
		},
	} {
		t.Run(name, in(withGateway, func(t *testing.T, s *fakeStore, one *gate) {
			l := c.take(one)
			h := s.hooked()
			c.hinder(s, h)
			one.crash()
			two := h.gateway(t)
			time.Sleep(15 * time.Second)
			for began := time.Now(); time.Since(began) < 24*time.Minute; time.Sleep(200 * time.Second) {
				_, err := two.heartbeat(l)
				assert.That(t, codeOf(err) == locks.CodeUnavailable, "a heartbeat after %v: %v", time.Since(began), err)
				many := two.m.Heartbeats(t.Context(), locks.Principal{}, []string{l.Token})
				assert.That(t, many[0].Err != nil && many[0].Err.Code == locks.CodeUnavailable, "of several, after %v: %+v", time.Since(began), many[0])
				_, err = two.m.Lease(t.Context(), locks.LeaseRequest{Token: l.Token})
				assert.That(t, codeOf(err) == locks.CodeUnavailable, "a look after %v: %v", time.Since(began), err)
			}
			c.end(s, h)
			time.Sleep(2 * time.Minute)
			beat, err := two.heartbeat(l)
			assert.That(t, err == nil && beat.State == locks.Held && beat.FencingToken == l.FencingToken, "at the end: %+v %v", beat, err)
			two.mustRelease(l)
		}))
	}
}

// A repeat of its acquire does not give such a lease up, whatever it wanted to wait.
func TestARepeatDoesNotEndALeaseThatMayHold(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		const marker = "/lockkeeper/locks/deploy_INVALID"
		req := locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Minute, IdempotencyKey: "key-of-a-single-try"}
		l := one.mustHold(req)
		s.plain(marker, "")
		one.crash()
		two := s.gateway(t)
		time.Sleep(15 * time.Second)
		for range 3 {
			_, err := two.acquire(req)
			assert.That(t, codeOf(err) == locks.CodeUnavailable, "a repeat: %v", err)
		}
		s.gone(marker)
		time.Sleep(time.Minute)
		again, err := two.acquire(req)
		assert.That(t, err == nil && again.ID == l.ID && again.State == locks.Held, "at the end: %+v %v", again, err)
	})
}

// An acquire that fails on deadlock asks the other gateways, and the session may end meanwhile.
func TestARefusalWithoutASessionIsUnavailable(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		h := s.hooked()
		g, two := h.gateway(t), s.gateway(t)
		// Contenders of another gateway, whose records the first one has to read.
		two.mustHold(locks.AcquireRequest{Lock: "other", Owner: "x", TTL: time.Hour})
		two.mustAcquire(locks.AcquireRequest{Lock: "other", Owner: "y", TTL: time.Hour, Async: true})
		g.mustHold(locks.AcquireRequest{Lock: "one", Owner: "a", TTL: time.Hour})
		g.mustHold(locks.AcquireRequest{Lock: "two", Owner: "b", TTL: time.Hour})
		g.mustAcquire(locks.AcquireRequest{Lock: "two", Owner: "a", TTL: time.Hour, Async: true})
		var gone atomic.Bool
		h.hooks.Store(&hooks{
			get: func(path string) error {
				if strings.Contains(path, "/other/") && gone.CompareAndSwap(false, true) {
					g.expireSession()
					time.Sleep(100 * time.Millisecond)
				}
				return nil
			},
			open: func() error { return zk.ErrUnavailable },
		})
		_, err := g.acquire(locks.AcquireRequest{Lock: "one", Owner: "b", TTL: time.Hour, Wait: time.Minute, Deadlock: locks.DeadlockFail, IdempotencyKey: "key-of-the-acquire"})
		assert.That(t, gone.Load() && codeOf(err) == locks.CodeUnavailable, "answered %v", err)
		h.hooks.Store(&hooks{})
		time.Sleep(time.Minute)
	})
}
