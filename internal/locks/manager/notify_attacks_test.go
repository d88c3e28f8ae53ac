package manager

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// unread makes the records of contenders unreadable on the observer's connection: there is very much to read before them.
func unread() *hooks {
	return &hooks{get: func(path string) error {
		if strings.Contains(path, "-lock-") {
			return zk.ErrUnavailable
		}
		return nil
	}}
}

// administration are the ends of a lease on deploy that are no client's.
var administration = map[string]func(by *gate, l locks.Lease) error{
	"a break": func(by *gate, l locks.Lease) error { return by.m.Break(by.t.Context(), locks.BreakRequest{ID: l.ID}) },
	"a reap": func(by *gate, _ locks.Lease) error {
		answer, err := by.m.Reap(by.t.Context(), locks.ReapRequest{Lock: "deploy"})
		if err == nil && len(answer.Reaped) != 1 {
			err = errors.New("nothing was reaped")
		}
		return err
	},
	"a destruction": func(by *gate, _ locks.Lease) error {
		_, err := by.m.Destroy(by.t.Context(), locks.DestroyRequest{Lock: "deploy"})
		return err
	},
}

// The records of a hundred thousand leases take a while to be read.
func TestNoLeaseEndsBeforeTheOutboxKnowsItsWebhooks(t *testing.T) {
	for name, end := range administration {
		for _, taken := range []bool{true, false} {
			notingScene(t, func(t *testing.T, s *fakeStore) {
				h := s.hooked()
				g, by := s.notingGateway(t), h.gateway(t)
				time.Sleep(time.Second)
				l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, NotifyURL: someURL})
				h.hooks.Store(unread())
				if taken {
					g.crash()
					time.Sleep(20 * time.Second)
				}
				synctest.Wait()
				err := end(by, l)
				synctest.Wait()
				_, ends := told(l, by)
				if err != nil {
					wantCode(t, err, locks.CodeUnavailable)
					if n := len(s.names("/lockkeeper/locks/deploy")); n != 1 || len(ends) != 0 {
						t.Fatalf("%s, taken over %v: refused, and %d contenders are there; told %+v", name, taken, n, ends)
					}
					h.hooks.Store(&hooks{})
					time.Sleep(10 * time.Second)
					assert.NoError(t, end(by, l), "%s, taken over %v, repeated", name, taken)
				}
				synctest.Wait()
				if _, ends := told(l, by); len(ends) != 1 || ends[0].Notify != someURL || ends[0].Waiting || len(s.names("/lockkeeper/locks/deploy")) != 0 {
					t.Errorf("%s, taken over %v: %+v", name, taken, ends)
				}
				h.hooks.Store(&hooks{})
			})
		}
	}
}

// What may not be read at all holds up no administrator.
func TestALeaseWhoseRecordMayNotBeReadCanBeEnded(t *testing.T) {
	for name, end := range administration {
		for _, taken := range []bool{true, false} {
			notingScene(t, func(t *testing.T, s *fakeStore) {
				h := s.hooked()
				g, by := s.notingGateway(t), h.gateway(t)
				time.Sleep(time.Second)
				l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, NotifyURL: someURL})
				h.hooks.Store(&hooks{get: func(path string) error {
					if strings.Contains(path, "-lock-") {
						return zk.ErrNoAuth
					}
					return nil
				}, noAuth: "-lock-"})
				if taken {
					g.crash()
					time.Sleep(20 * time.Second)
				}
				synctest.Wait()
				assert.Nil(t, end(by, l), "%s, taken over %v", name, taken)
			})
		}
	}
}

// ZooKeeper's writer sends what was in a refused transaction with others once more, and what came later may overtake it.
func TestAGrantThatIsOvertakenByTheEndIsNotNotedThoughThePlaceStays(t *testing.T) {
	notingScene(t, func(t *testing.T, s *fakeStore) {
		h := s.hooked()
		overtaken := make(chan struct{})
		h.hooks.Store(&hooks{late: func(w *zk.Write) <-chan struct{} {
			if writeTo("-granted")(w) {
				return overtaken
			}
			return nil
		}})
		g := h.gateway(t)
		time.Sleep(time.Second)
		req := delaying(locks.DelayAlways)
		req.NotifyURL = someURL
		l := g.mustHold(req)
		g.mustRelease(l)
		close(overtaken)
		pass(5 * time.Second)
		grants, ends := told(l, g)
		assert.That(t, len(grants) == 0 && len(ends) == 1, "granted %+v, ended %+v", grants, ends)
		assert.Equal(t, len(s.names("/lockkeeper/locks/deploy")), 1, "contenders: nothing is shown")
	})
}

func TestTheGrantOfALeaseThatIsWrittenMeanwhileIsNoted(t *testing.T) {
	notingScene(t, func(t *testing.T, s *fakeStore) {
		h := s.hooked()
		late := make(chan struct{})
		h.hooks.Store(&hooks{late: func(w *zk.Write) <-chan struct{} {
			if writeTo("-granted")(w) {
				return late
			}
			return nil
		}})
		g := h.gateway(t)
		time.Sleep(time.Second)
		req := delaying(locks.DelayAlways)
		req.TTL, req.NotifyURL = time.Hour, someURL
		l := g.mustHold(req)
		metadata := "changed"
		assert.Value(g.m.Update(t.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token, Metadata: &metadata}))(t)
		h.hooks.Store(&hooks{})
		close(late)
		pass(5 * time.Second)
		grants, _ := told(l, g)
		assert.That(t, len(grants) == 1, "granted %+v", grants)
	})
}

func TestFreeingAPlaceThatStaysForItsDelayTellsNoSecondEnd(t *testing.T) {
	for _, name := range []string{"a break", "a reap", "a destruction"} {
		withOutboxes(t, func(t *testing.T, s *fakeStore, g, by *gate) {
			req := delaying(locks.DelayAlways)
			req.LockDelay, req.NotifyURL = time.Hour, someURL
			l := g.mustHold(req)
			g.mustRelease(l)
			s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/outbox/" + l.ID, Version: -1}) // it is told
			assert.NoError(t, administration[name](by, l), "%s", name)
			pass(5 * time.Second)
			if _, ends := told(l, by); len(ends) != 0 || len(by.outbox.gone)+len(g.outbox.gone) != 0 || len(s.names("/lockkeeper/locks/deploy")) != 0 {
				t.Errorf("%s: told once more: %+v, %+v, %+v", name, ends, by.outbox.gone, g.outbox.gone)
			}
			for who, gate := range map[string]*gate{"its gateway": g, "the other one": by} {
				if released, otherwise := gate.countOf(events.LeaseReleased, l), gate.countOf(events.LeaseRevoked, l)+gate.countOf(events.LeaseRemoved, l); released != 1 || otherwise != 0 {
					t.Errorf("%s: by %s the release is told %d times, another end %d times", name, who, released, otherwise)
				}
			}
		})
	}
}

// Every write of a lease's record keeps the notify_url in it: the next gateway knows it from there alone.
func TestTheNotifyURLSurvivesEveryWriteOfItsRecord(t *testing.T) {
	metadata := strings.Repeat(`<&"`, locks.MaxMetadata/3)
	address := someURL + strings.Repeat("&", locks.MaxNotifyURL-len(someURL)) // the largest record that there is: each & takes six bytes in it
	for name, write := range map[string]func(s *fakeStore, g, other *gate, l locks.Lease) error{
		"no write": func(*fakeStore, *gate, *gate, locks.Lease) error { return nil },
		"an update": func(_ *fakeStore, g, _ *gate, l locks.Lease) error {
			_, err := g.m.Update(g.t.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token, Metadata: &metadata, TTL: 2 * time.Minute})
			return err
		},
		"a longer heartbeat": func(_ *fakeStore, g, _ *gate, l locks.Lease) error {
			_, err := g.m.Heartbeat(g.t.Context(), locks.Anonymous, l.ID, l.Token, 3*time.Minute)
			return err
		},
		"another gateway's heartbeat": func(_ *fakeStore, _, other *gate, l locks.Lease) error {
			_, err := other.beatFor(l)
			return err
		},
		"a hold": func(_ *fakeStore, g, _ *gate, l locks.Lease) error {
			_, err := g.acquire(locks.AcquireRequest{Lock: "deploy", Hold: "h", Token: l.Token})
			return err
		},
		"a revocation": func(_ *fakeStore, _, other *gate, _ locks.Lease) error {
			_, err := other.m.Revoke(other.t.Context(), locks.RevokeRequest{Lock: "deploy", Reason: "please"})
			return err
		},
		"a downgrade": func(_ *fakeStore, g, _ *gate, l locks.Lease) error {
			_, err := g.m.Downgrade(g.t.Context(), locks.Anonymous, l.ID, l.Token)
			return err
		},
		"another program": func(s *fakeStore, _, _ *gate, l locks.Lease) error {
			s.overwrite(l.Znode, interop.CuratorRevokes)
			return nil
		},
	} {
		for _, group := range []bool{false, true} {
			withOutboxes(t, func(t *testing.T, s *fakeStore, g, other *gate) {
				req := locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, NotifyURL: address, IdempotencyKey: strings.Repeat("k", 16), LockDelay: time.Second}
				if group {
					if name == "a revocation" || name == "another program" || name == "a hold" {
						return // of one lock
					}
					req.Lock, req.Group = "", []locks.Want{{Lock: "deploy"}, {Lock: "more"}}
				}
				l := g.mustHold(req)
				assert.NoError(t, write(s, g, other, l), "%s", name)
				time.Sleep(time.Second)
				g.crash()
				pass(30 * time.Second)
				again, err := other.acquire(req)
				assert.That(t, err == nil && again.ID == l.ID && again.NotifyURL == address && again.NotifySecret == l.NotifySecret,
					"after %s, group %v, a repeat: %v, of %s with %d bytes of address", name, group, err, again.ID, len(again.NotifyURL))
				pass(10 * time.Minute)
				if _, ends := told(l, g, other); len(ends) != 1 || ends[0].Notify != address || ends[0].Reason != locks.ReasonExpired || ends[0].Waiting {
					t.Errorf("after %s, group %v: told %d times", name, group, len(ends))
				}
			})
		}
	}
}

// The deletion of a waiter is under way when it is granted the lock.
func TestALeaseGrantedWhileAnotherGatewayEndsItIsNotedAsAHolder(t *testing.T) {
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

func TestAContenderBehindOneThatMayNotBeReadCanBeEnded(t *testing.T) {
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

func TestAnEndThatWasNotDoneAfterAllIsToldWhenAnotherClientEndsTheLease(t *testing.T) {
	for _, lost := range []string{"the answer", "the session"} {
		withOutbox(t, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second, NotifyURL: someURL})
			s.mu.Lock()
			if lost == "the answer" {
				s.vague, s.drop = writeTo(l.Znode), true
			} else {
				s.loseReply = writeTo(l.Znode)
				s.refuse = refusing(writeTo(l.Znode), -1, errors.New("lost"))
			}
			session := s.sessions[g.m.GatewayID()]
			s.mu.Unlock()
			time.Sleep(10*time.Second + 500*time.Millisecond) // it expires, and no answer tells whether it has
			s.set(func() { s.vague, s.drop, s.loseReply, s.refuse = nil, false, nil, nil })
			if lost == "the session" {
				session.expire()
				time.Sleep(5 * time.Second)
			}
			synctest.Wait()
			assert.Value(g.heartbeat(l))(t, "%s is lost", lost)
			s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
			if gone := g.outbox.gone; len(gone) != 1 || gone[0].LeaseID != l.ID || gone[0].Reason != locks.ReasonRemoved || gone[0].Notify != someURL {
				t.Errorf("%s is lost: told %+v", lost, gone)
			}
		})
	}
}
