package manager

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func (g *gate) breakLease(l locks.Lease, reason string) error {
	err := g.m.Break(g.t.Context(), locks.BreakRequest{ID: l.ID, Reason: reason, Client: "10.0.0.7"})
	synctest.Wait()
	return err
}

func (g *gate) breakNamed(name string) error {
	err := g.m.Break(g.t.Context(), locks.BreakRequest{Lock: "deploy", Name: name, Reason: "stuck"})
	synctest.Wait()
	return err
}

func TestABrokenLeaseEndsWithTheAdministratorsWords(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		holder := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		waiter := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		next := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		for _, l := range []locks.Lease{waiter, holder} {
			assert.NoError(t, g.breakLease(l, "its host burnt down"))
			g.wantState(l, locks.Ended, locks.ReasonRevoked)
			_, err := g.heartbeat(l)
			if e := wantCode(t, err, locks.CodeEnded); e.Reason != locks.ReasonRevoked || !strings.Contains(e.Detail, "burnt down") {
				t.Errorf("its client is told %+v", e)
			}
			e := g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LeaseRevoked)}, 1)
			assert.That(t, len(e) == 1 && e[0].LeaseID == l.ID && e[0].Reason == "revoked" && e[0].Detail == "its host burnt down",
				"told %+v", e)
			assert.Nil(t, g.breakLease(l, "again"), "broken again")
		}
		g.wantState(next, locks.Held, "")
	})
}

func TestALeaseOfAnotherGatewayIsBroken(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		for _, req := range []locks.AcquireRequest{
			{Lock: "deploy", TTL: time.Hour},
			{TTL: time.Hour, Group: []locks.Want{{Lock: "a"}, {Lock: "b"}, {Lock: "c"}}},
		} {
			l := one.mustHold(req)
			writes := s.committed()
			assert.NoError(t, two.breakLease(l, "its host burnt down"))
			assert.Equal(t, s.waiting("deploy", "a", "b", "c"), 0, "contenders are left")
			assert.Equal(t, s.committed()-writes, 2, "transactions: want a barrier and one for the whole lease")
			one.wantState(l, locks.Ended, locks.ReasonRemoved) // as far as its own gateway can know
			_, err := two.heartbeat(l)
			if e := wantCode(t, err, locks.CodeEnded); e.Reason != locks.ReasonRevoked || !strings.Contains(e.Detail, "burnt down") {
				t.Errorf("who asks the gateway that broke it is told %+v", e)
			}
			e := two.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LeaseRevoked)}, 1)
			assert.That(t, len(e) == 1 && e[0].LeaseID == l.ID && e[0].Detail == "its host burnt down", "told %+v", e)
			assert.Nil(t, two.breakLease(l, "again"), "broken again")
		}
	})
}

func TestALeaseThatHasEndedOtherwiseCannotBeBroken(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(deploy())
		one.mustRelease(l)
		assert.Equal(t, wantCode(t, one.breakLease(l, ""), locks.CodeEnded).Reason, locks.ReasonReleased)
		wantCode(t, two.breakLease(l, ""), locks.CodeNotFound)
		for _, id := range []string{"nonsense", strings.Repeat("a", len(l.ID)), ""} {
			req := locks.BreakRequest{ID: id, Lock: "deploy", Name: "x"}
			want := locks.CodeNotFound
			if id == "" {
				want = locks.CodeNoContender
			}
			wantCode(t, one.m.Break(t.Context(), req), want)
		}
		wantCode(t, one.breakLease(l, strings.Repeat("x", locks.MaxReasonText+1)), locks.CodeInvalid)
	})
}

func TestAForeignContenderIsBrokenByItsName(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		for _, name := range []string{"_c_0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0-lock-", "x-144115188075855872-", "a b%2Fc?ü\"\\-", "-"} {
			_, paths := s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy/" + name, Sequential: true, Data: []byte("1")})
			s.foreign(zk.Op{Kind: zk.OpSetData, Path: paths[0], Data: []byte("2"), Version: -1})
			waiter := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
			if err := g.breakNamed(path.Base(paths[0])); err != nil {
				t.Fatalf("%s: %v", paths[0], err)
			}
			g.wantState(waiter, locks.Held, "")
			e := g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LeaseRevoked)}, 1)
			assert.That(t, len(e) == 1 && e[0].Path() == paths[0] && e[0].Foreign && e[0].Detail == "stuck", "told %+v", e)
			wantCode(t, g.breakNamed(path.Base(paths[0])), locks.CodeNoContender)
			g.mustRelease(waiter)
		}
	})
}

func TestALeaseIsBrokenByTheNameOfItsContenderToo(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		for _, g := range []*gate{one, two} {
			l := one.mustHold(deploy())
			assert.NoError(t, g.breakNamed(path.Base(l.Znode)))
			assert.Equal(t, one.look(l).State, locks.Ended)
		}
	})
}

// Who writes its node between the look and the end is looked at again: the
// version that is deleted is one that was seen.
func TestAForeignContenderThatIsWrittenMeanwhileIsLookedAtAgain(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		foreign := s.foreignContender()
		synctest.Wait()
		looked, seen := 0, int32(-2)
		s.beforeWrites(func(w *zk.Write) {
			if len(w.Ops) == 1 && w.Ops[0].Path == foreign {
				if looked++; looked < 3 {
					s.tx([]zk.Op{{Kind: zk.OpSetData, Path: foreign, Version: -1}})
				}
				seen = w.Ops[0].Version
			}
		})
		err := g.breakNamed(path.Base(foreign))
		assert.That(t, err == nil && looked == 3 && seen == 2, "%v after %d looks, deleted at version %d", err, looked, seen)
	})
}

func TestWhatMayNotBeDeletedIsSaidToBe(t *testing.T) {
	for err, want := range map[error]string{zk.ErrNoAuth: "ACL", zk.ErrNotEmpty: "below its node"} {
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			g.mustRelease(g.mustHold(deploy()))
			foreign := s.foreignContender()
			other := s.otherLease(t, "deploy", 0, `{"v":1,"ttl_ms":5000}`)
			s.set(func() { s.refuse = refusing(begins(zk.OpDelete), 0, err) })
			for _, p := range []string{foreign, other} {
				e := wantCode(t, g.breakNamed(path.Base(p)), locks.CodeUnavailable)
				assert.That(t, strings.Contains(e.Detail, want) && e.RetryAfter == 0, "%+v", e)
			}
			s.set(func() { s.refuse = nil })
			s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: foreign, Version: -1})
			if e := g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LeaseRevoked)}, 1); len(e) != 0 {
				t.Errorf("told %+v of what was not broken", e[0])
			}
		})
	}
}

// A break whose answer is lost is looked for, and submitted again if it was not done.
func TestABreakWhoseAnswerIsLostIsDoneOnce(t *testing.T) {
	faultTwice(t, func(t *testing.T, persisted bool) {
		withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
			group := one.mustHold(locks.AcquireRequest{TTL: time.Hour, Group: []locks.Want{{Lock: "a"}, {Lock: "b"}}})
			own := two.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
			foreign := s.foreignContender()
			synctest.Wait()
			once := map[string]bool{}
			s.mu.Lock()
			s.drop = !persisted
			s.vague = func(w *zk.Write) bool {
				if len(w.Ops) == 0 || w.Ops[0].Kind != zk.OpDelete || once[w.Ops[0].Path] {
					return false
				}
				once[w.Ops[0].Path] = true
				return true
			}
			s.mu.Unlock()
			assert.Nil(t, two.breakLease(group, "why"))
			assert.Nil(t, two.breakLease(own, "why"))
			err := two.breakNamed(path.Base(foreign))
			assert.That(t, err == nil || persisted && strings.Contains(err.Error(), "contender_not_found"), "%v", err)
			n := s.waiting("deploy", "a", "b")
			assert.That(t, n == 0 && len(once) >= 3, "%d contenders are left, %d answers were lost", n, len(once))
			for _, l := range []locks.Lease{group, own} {
				two.wantState(l, locks.Ended, locks.ReasonRevoked)
			}
		})
	})
}

// One of a lease's contenders is gone already: the others go.
func TestWhatIsLeftOfALeaseIsBroken(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{TTL: time.Hour, Group: []locks.Want{{Lock: "a"}, {Lock: "b"}, {Lock: "c"}}})
		one.w.hold() // its gateway is slow
		s.beforeWrites(func(w *zk.Write) {
			if len(w.Ops) == 3 && w.Ops[0].Kind == zk.OpDelete {
				s.tx([]zk.Op{{Kind: zk.OpDelete, Path: w.Ops[1].Path, Version: -1}})
			}
		})
		assert.Nil(t, two.breakLease(l, "why"))
		assert.Equal(t, s.waiting("a", "b", "c"), 0, "contenders are left")
		one.w.release()
	})
}

// An expiry that is not done does not save a lease from being broken.
func TestALeaseThatIsExpiringIsBrokenWhenItLives(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 2 * time.Second})
		h.hooks.Store(&hooks{result: func(w *zk.Write, res *zk.Result) {
			if res.Err != nil {
				time.Sleep(100 * time.Millisecond) // the break comes before it is known
			}
		}})
		done := make(chan error, 1)
		s.mu.Lock()
		s.refuse = func(w *zk.Write) (int, error) {
			if len(w.Ops) == 1 && w.Ops[0].Path == l.Znode && w.Ops[0].Version >= 0 {
				go func() { done <- g.m.Break(t.Context(), locks.BreakRequest{ID: l.ID, Reason: "why"}) }()
				return 0, zk.ErrBadVersion
			}
			return -1, nil
		}
		s.mu.Unlock()
		assert.NoError(t, <-done)
		synctest.Wait()
		g.wantState(l, locks.Ended, locks.ReasonRevoked)
	})
}

// An administrator does not wait for a lock delay: neither of a lease that has ended,
// which cannot be asked for the lock any more, nor of one that he ends himself.
func TestNoLockDelayStandsAgainstAnAdministrator(t *testing.T) {
	ends := map[string]func(g *gate, l locks.Lease) error{
		"break":         func(g *gate, l locks.Lease) error { return g.breakLease(l, "why") },
		"break by name": func(g *gate, l locks.Lease) error { return g.breakNamed(path.Base(l.Znode)) },
		"reap":          func(g *gate, _ locks.Lease) error { g.mustReap(locks.ReapRequest{State: locks.Held}); return nil },
		"destroy":       func(g *gate, _ locks.Lease) error { _, err := g.destroy("why"); return err },
	}
	for name, end := range ends {
		for _, over := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", over: ", over), in(withGateways, func(t *testing.T, s *fakeStore, one, two *gate) {
				for _, g := range []*gate{one, two} {
					l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 2 * time.Second, LockDelay: time.Hour})
					if over {
						time.Sleep(5 * time.Second)
						one.wantState(l, locks.Ended, locks.ReasonExpired)
						g.asksNone("lock delay")
					}
					assert.NoError(t, end(g, l))
					assert.Equal(t, s.waiting("deploy"), 0, "contenders are left")
					v := one.look(l)
					assert.That(t, v.State == locks.Ended && (!over || v.Reason == locks.ReasonExpired), "%+v", v)
					checkAll(t, s, one, two)
				}
			}))
		}
	}
}

// Force is no end by an administrator: who still believes to hold the lock gets the delay.
func TestForceIsFollowedByTheLockDelay(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, LockDelay: time.Minute})
		g.mustRevoke("why", 5*time.Second)
		time.Sleep(6 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonRevoked)
		assert.That(t, s.waiting("deploy") == 1, "its place is gone at once")
		time.Sleep(time.Minute)
		assert.That(t, s.waiting("deploy") == 0, "its place stays")
	})
}

// The replica showed the name that the lease had before its downgrade.
func TestALeaseIsBrokenThatIsDowngradedAtThatMoment(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(deploy())
		own := one.leases()[l.Znode]
		next := *own.contender
		next.Mode, next.FirstCzxid = recipe.Shared, own.czxid
		downgraded := false
		s.beforeWrites(func(w *zk.Write) {
			if !downgraded && len(w.Ops) > 0 && w.Ops[0].Kind == zk.OpDelete {
				downgraded = true
				s.tx([]zk.Op{{Kind: zk.OpCreate, Path: own.q.Path + "/" + next.Format(), Data: own.record(own.ttl)},
					{Kind: zk.OpDelete, Path: l.Znode, Version: -1}})
			}
		})
		err := two.breakLease(l, "stuck")
		assert.Must(t, err == nil && downgraded, "%v", err)
		assert.Equal(t, s.waiting("deploy"), 0, "contenders are left")
		if err := two.breakLease(l, "stuck"); err != nil { // repeated
			t.Error(err)
		}
	})
}

// The end of a lease that is being downgraded waits for the downgrade, and its administrator is answered when it is gone.
func TestWhatIsReapedWhileItIsDowngradedIsGoneWhenThatIsAnswered(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		l := g.mustHold(deploy())
		sent := make(chan struct{})
		h.hooks.Store(&hooks{late: func(w *zk.Write) <-chan struct{} {
			if writeTo("/read-v1")(w) {
				return sent
			}
			return nil
		}})
		go func() { _, _ = g.downgrade(l) }()
		synctest.Wait()
		time.AfterFunc(20*time.Millisecond, func() { close(sent) })
		answer, err := g.m.Reap(t.Context(), locks.ReapRequest{Lock: "deploy"})
		assert.That(t, err == nil && len(answer.Reaped) == 1 && len(answer.Not) == 0, "%+v %v", answer, err)
		assert.Equal(t, s.waiting("deploy"), 0, "contenders when it is answered")
		g.wantState(l, locks.Ended, locks.ReasonRevoked)
	})
}
