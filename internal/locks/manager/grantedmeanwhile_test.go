package manager

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// The deletion of somebody who waits is on its way when he is granted the lock.
func TestWhoIsGrantedTheLockWhileAnotherGatewayEndsHimIsNotedAsAHolder(t *testing.T) {
	for name, want := range map[string]locks.AcquireRequest{
		"exclusive":    {Lock: "deploy", TTL: time.Hour, NotifyURL: someURL},
		"shared":       {Lock: "deploy", TTL: time.Hour, Mode: locks.Shared},
		"a group":      {Group: []locks.Want{{Lock: "other"}, {Lock: "deploy"}}, TTL: time.Hour},
		"some permits": {Lock: "pool", TTL: time.Hour, Mode: locks.Semaphore, Limit: 3, Permits: 2},
	} {
		for _, how := range []string{"a break", "a reap", "a destruction"} {
			notingScene(t, func(t *testing.T, s *fakeStore) {
				s.peerReports = true
				h := s.hooked()
				g, by := s.notingGateway(t), h.gateway(t)
				time.Sleep(time.Second)
				talk(g, by)
				lock := "deploy"
				first := locks.AcquireRequest{Lock: lock, TTL: time.Hour}
				if want.Mode == locks.Semaphore {
					lock = "pool"
					first = locks.AcquireRequest{Lock: lock, TTL: time.Hour, Mode: locks.Semaphore, Limit: 3, Permits: 1}
					g.mustHold(first)
				}
				holder := g.mustHold(first)
				want.Async = true
				waits := g.mustAcquire(want)
				assert.Must(t, waits.State == locks.Waiting, "nothing is shown")
				granted := make(chan struct{})
				var began atomic.Bool
				h.hooks.Store(&hooks{late: func(w *zk.Write) <-chan struct{} {
					deletes := func(op zk.Op) bool {
						return op.Kind == zk.OpDelete && strings.Contains(op.Path, waits.ID)
					}
					if slices.ContainsFunc(w.Ops, deletes) && began.CompareAndSwap(false, true) {
						return granted
					}
					return nil
				}})
				done := make(chan error, 1)
				go func() {
					var err error
					switch how {
					case "a break":
						err = by.m.Break(t.Context(), locks.BreakRequest{ID: waits.ID})
					case "a reap":
						_, err = by.m.Reap(t.Context(), locks.ReapRequest{Lock: lock, State: locks.Waiting})
					default:
						_, err = by.m.Destroy(t.Context(), locks.DestroyRequest{Lock: lock})
					}
					done <- err
				}()
				time.Sleep(100 * time.Millisecond)
				assert.Must(t, began.Load(), "%s, %s: nothing is shown", name, how)
				g.mustRelease(holder)
				g.wantState(waits, locks.Held, "")
				close(granted)
				err := <-done
				pass(5 * time.Second)
				_, ends := told(waits, g, by)
				assert.That(t, err == nil && len(ends) == 1 && !ends[0].Waiting, "%s, %s: %v, told %+v", name, how, err, ends)
			})
		}
	}
}

func TestWhoStandsBehindSomebodyWhoMayNotBeLookedAtCanBeEnded(t *testing.T) {
	for _, name := range []string{"a break", "a reap"} {
		withOutboxes(t, func(t *testing.T, s *fakeStore, g, by *gate) {
			g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
			waits := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true, TTL: time.Hour, Owner: "me", NotifyURL: someURL})
			refused := 0
			s.mu.Lock()
			s.refuse = func(w *zk.Write) (int, error) {
				for i, op := range w.Ops {
					if op.Kind == zk.OpCheck && strings.Contains(op.Path, "-lock-") && !strings.Contains(op.Path, waits.ID) {
						refused++
						return i, zk.ErrNoAuth
					}
				}
				return -1, nil
			}
			s.mu.Unlock()
			var err error
			if name == "a break" {
				err = by.m.Break(t.Context(), locks.BreakRequest{ID: waits.ID})
			} else {
				_, err = by.m.Reap(t.Context(), locks.ReapRequest{Lock: "deploy", Owner: "me"})
			}
			synctest.Wait()
			s.mu.Lock()
			n := refused
			s.mu.Unlock()
			if _, ends := told(waits, g, by); err != nil || n != 1 || len(ends) != 1 || !ends[0].Waiting || len(s.names("/lockkeeper/locks/deploy")) != 1 {
				t.Errorf("%s: %v after %d refusals, told %+v", name, err, n, ends)
			}
		})
	}
}
