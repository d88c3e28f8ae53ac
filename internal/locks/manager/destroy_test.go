package manager

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func (g *gate) destroy(reason string) (locks.DestroyAnswer, error) {
	answer, err := g.m.Destroy(g.t.Context(), locks.DestroyRequest{Lock: "deploy", Reason: reason})
	synctest.Wait()
	return answer, err
}

// deletions are the names of contenders that were deleted, one list for each transaction.
func (s *fakeStore) deletions(dir string) (pieces [][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.writes {
		var names []string
		for _, op := range w.Ops {
			if op.Kind == zk.OpDelete && path.Dir(op.Path) == dir && path.Base(op.Path) != queues.RemovalProbe {
				names = append(names, path.Base(op.Path))
			}
		}
		if names != nil {
			pieces = append(pieces, names)
		}
	}
	return pieces
}

// Attack 4, the part of destroying: watchers are told of {delete holder, delete
// waiters} one by one. Rule: from the tail of the queue to its head, so that
// whoever watches, here or on another gateway, grants nothing on the way.
func TestNobodyIsGrantedWhileALockIsDestroyed(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		var leases []locks.Lease
		add := func(g *gate, req locks.AcquireRequest) {
			req.TTL, req.Async = time.Hour, true
			leases = append(leases, g.mustAcquire(req))
		}
		for i := range 10 {
			add(one, locks.AcquireRequest{Lock: "deploy"})
			add(two, locks.AcquireRequest{Lock: "deploy", Mode: []locks.Mode{locks.Exclusive, locks.Shared}[i%2]})
			s.foreignContender()
			add(two, locks.AcquireRequest{Group: []locks.Want{{Lock: fmt.Sprint("a", i)}, {Lock: "deploy"}, {Lock: "z"}}})
		}
		events_ := len(one.told())
		var granted []string
		s.mu.Lock()
		s.deleted = func(p string) {
			// What any watcher can think between two deletions: is somebody first now who was not?
			if first := slices.Min(append(s.left(path.Dir(p)), "~")); path.Dir(p) == "/lockkeeper/locks/deploy" && first != "~" &&
				!strings.HasSuffix(first, "0000000000") {
				granted = append(granted, first)
			}
		}
		s.mu.Unlock()
		answer, err := one.destroy("the service is no more")
		assert.Must(t, err == nil && answer.Ended == 40 && answer.Foreign == 10, "%+v %v", answer, err)
		assert.That(t, len(granted) <= 0, "at the front on the way: %v", granted)
		for _, g := range []*gate{one, two} {
			var told []string
			for _, e := range g.hub.Recent(events.Filter{Types: events.Types(events.LeaseGranted), Lock: "deploy"}, ring) {
				told = append(told, e.Path())
			}
			assert.That(t, len(told) == 1 && told[0] == leases[0].Znode, "granted were %v", told)
		}
		one.wantState(leases[0], locks.Ended, locks.ReasonDestroyed)
		_, err = one.heartbeat(leases[0])
		e := wantCode(t, err, locks.CodeEnded)
		assert.That(t, e.Reason == locks.ReasonDestroyed && strings.Contains(e.Detail, "no more"), "its client is told %+v", e)
		assert.Equal(t, two.look(leases[1]).State, locks.Ended)
		ended, destroyed := 0, 0
		for _, e := range one.told()[events_:] {
			switch {
			case e.Type == events.LeaseRevoked && e.Lock == "deploy" && e.Reason == "destroyed" && e.Detail == "the service is no more":
				ended++
			case e.Type == events.LockDestroyed && e.Lock == "deploy" && e.Detail == "the service is no more" && ended == 40:
				destroyed++
			}
		}
		assert.That(t, ended == 40 && destroyed == 1, "told %d ends and %d destructions", ended, destroyed)
		assert.That(t, s.node("/lockkeeper/locks/deploy").stat.Czxid == 0 && s.waiting("z") == 0, "something is left of it")
		checkAll(t, s, one, two)
		one.mustHold(deploy()) // and it can be used again
	})
}

// left are the names in a directory, by their numbers; s.mu is held.
func (s *fakeStore) left(dir string) (numbers []string) {
	for p := range s.nodes {
		if path.Dir(p) == dir {
			numbers = append(numbers, p[len(p)-10:])
		}
	}
	return numbers
}

func TestALockIsDestroyedInPiecesFromItsTail(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for range 1200 {
			g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		}
		all := s.names("/lockkeeper/locks/deploy")
		slices.SortFunc(all, func(a, b string) int { return strings.Compare(b[len(b)-10:], a[len(a)-10:]) })
		assert.Value(g.destroy(""))(t)
		pieces := s.deletions("/lockkeeper/locks/deploy")
		got := slices.Concat(pieces...)
		assert.That(t, slices.Equal(got, all), "not from the tail: %d deleted of %d", len(got), len(all))
		assert.That(t, len(pieces) >= 3, "%d pieces", len(pieces))
		for _, p := range pieces {
			size := len(strings.Join(p, "/lockkeeper/locks/deploy"))
			assert.That(t, size <= batchBytes, "a piece of %d bytes", size)
		}
	})
}

func TestNewcomersAreDestroyedTooAndNotForEver(t *testing.T) {
	for _, rounds := range []int{2, 100} {
		withGateways(t, func(t *testing.T, s *fakeStore, g, other *gate) {
			for range 3 {
				g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
			}
			came := 0
			s.beforeWrites(func(w *zk.Write) {
				if len(w.Ops) > 0 && w.Ops[0].Kind == zk.OpDelete && strings.HasPrefix(w.Ops[0].Path, "/lockkeeper/locks/deploy/") && came < rounds {
					came++
					s.tx([]zk.Op{{Kind: zk.OpCreate, Path: foreignName, Sequential: true}})
				}
			})
			answer, err := g.destroy("")
			if rounds == 2 {
				assert.That(t, err == nil && answer.Ended == 5 && answer.Foreign == 2 && s.waiting("deploy") == 0, "%+v %v", answer, err)
				return
			}
			e := wantCode(t, err, locks.CodeLockInUse)
			assert.That(t, answer.Ended == 2+destroyRounds && e.Detail != "", "%+v %v", answer, e)
			n := len(g.tells(events.LockDestroyed))
			assert.That(t, n == 0, "told %d destructions", n)
		})
	}
}

func TestAPieceWhoseAnswerIsLostIsDoneOnce(t *testing.T) {
	faultTwice(t, func(t *testing.T, persisted bool) {
		withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
			var leases []locks.Lease
			for i := range 8 {
				leases = append(leases, []*gate{one, two}[i%2].mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true}))
			}
			lost := 0
			s.mu.Lock()
			s.drop = !persisted
			s.vague = func(w *zk.Write) bool {
				hit := len(w.Ops) == 8 && lost < 2
				if hit {
					lost++
				}
				return hit
			}
			s.mu.Unlock()
			_, err := one.destroy("why")
			assert.Must(t, err == nil && lost != 0, "%v, %d lost", err, lost)
			for _, l := range leases[:1] {
				one.wantState(l, locks.Ended, locks.ReasonDestroyed)
			}
			assert.That(t, s.node("/lockkeeper/locks/deploy").stat.Czxid == 0, "something is left of it")
			assert.Equal(t, len(two.tells(events.LeaseGranted)), 1, "grants")
		})
	})
}

func TestWhoLeavesMeanwhileDoesNotStopADestruction(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		var paths []string
		for i := range 12 {
			l := []*gate{one, two}[i%2].mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
			paths = append(paths, l.Znode, s.foreignContender())
		}
		gone := 0
		s.beforeWrites(func(w *zk.Write) {
			if len(w.Ops) > 1 && w.Ops[0].Kind == zk.OpDelete && gone < 12 {
				gone += 3
				for _, p := range paths[gone : gone+3] {
					s.tx([]zk.Op{{Kind: zk.OpDelete, Path: p, Version: -1}})
				}
			}
		})
		answer, err := one.destroy("")
		assert.That(t, err == nil && answer.Ended <= 24 && answer.Ended >= 12, "%+v %v", answer, err)
		assert.That(t, s.node("/lockkeeper/locks/deploy").stat.Czxid == 0, "something is left of it")
	})
}

// Nothing nearer to the head is ended when something cannot be: nobody is let in
// by a destruction that fails.
func TestADestructionStopsAtWhatMayNotBeDeleted(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		holder := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		for range 3 {
			s.otherLease(t, "deploy", 0, `{"v":1,"ttl_ms":5000}`)
		}
		stuck := s.foreignContender()
		s.foreignSeen(zk.Op{Kind: zk.OpCreate, Path: stuck + "/child"})
		answer, err := g.destroy("why")
		e := wantCode(t, err, locks.CodeUnavailable)
		assert.That(t, strings.Contains(e.Detail, "below its node") && answer.Ended == 0, "%+v %v", answer, e)
		assert.That(t, s.node(stuck).stat.Czxid != 0 && s.waiting("deploy") == 5, "%d are left", s.waiting("deploy"))
		g.wantState(holder, locks.Held, "")
		_, err = g.heartbeat(holder)
		assert.Nil(t, err)
	})
}

func TestALockThatNobodyUsesIsDestroyed(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for range 2 {
			answer, err := g.destroy("why")
			assert.That(t, err == nil && answer == (locks.DestroyAnswer{}), "%+v %v", answer, err)
		}
		if _, err := g.m.Configure(t.Context(), locks.SettingsRequest{Lock: "deploy", Limit: 3}); err != nil {
			t.Fatal(err)
		}
		g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Mode: locks.Semaphore})
		if answer, err := g.destroy("why"); err != nil || answer.Ended != 1 {
			t.Errorf("%+v %v", answer, err)
		}
		assert.Equal(t, len(s.names("/lockkeeper/settings")), 0, "settings are left")
		_, err := g.m.Destroy(t.Context(), locks.DestroyRequest{Lock: "deploy", Reason: "\n"})
		wantCode(t, err, locks.CodeInvalid)
	})
}

// The caller goes away half way: what is ending ends all the same.
func TestADestructionThatIsGivenUpLeavesNothingEnding(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		var leases []locks.Lease
		for range 4 {
			leases = append(leases, g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true}))
		}
		ctx, cancel := context.WithCancel(t.Context())
		s.mu.Lock()
		s.drop = true
		s.vague = func(w *zk.Write) bool {
			if len(w.Ops) == 4 {
				cancel()
				return true
			}
			return false
		}
		s.mu.Unlock()
		_, err := g.m.Destroy(ctx, locks.DestroyRequest{Lock: "deploy"})
		wantCode(t, err, locks.CodeCancelled)
		time.Sleep(5 * time.Second)
		for _, l := range leases {
			g.wantState(l, locks.Ended, locks.ReasonDestroyed)
		}
	})
}

// A lease whose create has not been answered yet is ended with the others: the lock has no holder any more when it is destroyed.
func TestALeaseThatIsBeingCreatedIsDestroyedToo(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(map[bool]string{false: "answered late", true: "lost but persisted"}[lost], func(t *testing.T) {
			scene(t, func(t *testing.T, s *fakeStore) {
				h := s.hooked()
				g := h.gateway(t)
				h.hooks.Store(&hooks{result: func(w *zk.Write, res *zk.Result) {
					if len(w.Ops) > 0 && w.Ops[0].Kind == zk.OpCreate && writeTo("-lock-")(w) {
						time.Sleep(time.Second) // its event comes first
						if lost {
							*res = zk.Result{Outcome: zk.Unknown}
						}
					}
				}})
				p := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
				time.Sleep(100 * time.Millisecond)
				answer, err := g.destroy("enough")
				assert.Must(t, err == nil && answer.Ended == 1, "%+v, %v", answer, err)
				story := []string{"lease.granted", "lease.revoked destroyed", "lock.destroyed"}
				types := []events.Type{events.LeaseGranted, events.LeaseRevoked, events.LockDestroyed}
				assert.Slices(t, g.tells(types...), story, "told")
				time.Sleep(5 * time.Second)
				assert.Equal(t, g.lockState("deploy").State, locks.LockFree)
				assert.Slices(t, g.tells(types...), story, "told in the end")
				<-p.done
				assert.That(t, p.err != nil || p.lease.State == locks.Held, "its client is told %+v, %v", p.lease, p.err)
				checkAll(t, s, g)
			})
		})
	}
}
