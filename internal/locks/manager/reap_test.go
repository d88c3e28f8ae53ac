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
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func (g *gate) mustReap(req locks.ReapRequest) locks.ReapAnswer {
	g.t.Helper()
	req.Lock = "deploy"
	answer := assert.Value(g.m.Reap(g.t.Context(), req))(g.t, "reap")
	synctest.Wait()
	return answer
}

func TestAReapEndsWhatMatchesFromTheTail(t *testing.T) {
	foreign, ours := true, false
	for name, test := range map[string]struct {
		req  locks.ReapRequest
		want string // in the order of their ends
	}{
		"everything":      {locks.ReapRequest{}, "young foreign other reader me holder"},
		"older":           {locks.ReapRequest{OlderThan: 90 * time.Second}, "reader me holder"},
		"just as old":     {locks.ReapRequest{OlderThan: 20 * time.Second}, "young foreign other reader me holder"},
		"too old":         {locks.ReapRequest{OlderThan: time.Hour}, ""},
		"by owner":        {locks.ReapRequest{Owner: "me"}, "me"},
		"by other owner":  {locks.ReapRequest{Owner: "other"}, "other"},
		"held":            {locks.ReapRequest{State: locks.Held}, "holder"},
		"waiting":         {locks.ReapRequest{State: locks.Waiting, OlderThan: 90 * time.Second}, "reader me"},
		"shared":          {locks.ReapRequest{Mode: locks.Shared}, "reader"},
		"exclusive":       {locks.ReapRequest{Mode: locks.Exclusive, OlderThan: 90 * time.Second}, "me holder"},
		"foreign":         {locks.ReapRequest{Foreign: &foreign}, "foreign"},
		"ours":            {locks.ReapRequest{Foreign: &ours, OlderThan: time.Minute}, "other reader me holder"},
		"foreign by me":   {locks.ReapRequest{Foreign: &foreign, Owner: "me"}, ""},
		"nothing at once": {locks.ReapRequest{State: locks.Held, Owner: "me"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dry := range []bool{true, false} {
				scene(t, func(t *testing.T, s *fakeStore) {
					s.skew = -100 * time.Hour // ZooKeeper's clock is not ours
					g := s.gateway(t)
					names := map[string]string{}
					add := func(name string, req locks.AcquireRequest) {
						req.Lock, req.TTL, req.Async = "deploy", time.Hour, len(names) > 0
						names[g.mustAcquire(req).Znode] = name
					}
					add("holder", locks.AcquireRequest{Owner: "x"})
					add("me", locks.AcquireRequest{Owner: "me"})
					add("reader", locks.AcquireRequest{Mode: locks.Shared})
					stay := time.AfterFunc(0, func() {})
					defer stay.Stop()
					keep := func(d time.Duration) {
						for ; d > 0; d -= 10 * time.Second {
							g.keepAll()
							time.Sleep(10 * time.Second)
						}
					}
					keep(30 * time.Second)
					names[s.otherLease(t, "deploy", 0, `{"v":1,"owner":"other","ttl_ms":3600000}`)] = "other"
					names[s.foreignContender()] = "foreign"
					keep(40 * time.Second)
					add("young", locks.AcquireRequest{})
					keep(30 * time.Second)
					s.mu.Lock()
					before := len(s.writes)
					s.mu.Unlock()
					req := test.req
					req.DryRun = dry
					answer := g.mustReap(req)
					var reaped, deleted []string
					for _, c := range answer.Reaped {
						reaped = append(reaped, names[c.Znode])
						assert.That(t, req.OlderThan <= 0 || c.AgeKnown && c.Age >= req.OlderThan && c.Age <= 2*time.Minute,
							"%s is shown as %v old", names[c.Znode], c.Age)
					}
					s.mu.Lock()
					for _, w := range s.writes[before:] {
						for _, op := range w.Ops {
							if op.Kind == zk.OpDelete {
								deleted = append(deleted, names[op.Path])
							}
						}
					}
					s.mu.Unlock()
					if got := strings.Join(reaped, " "); got != test.want || len(answer.Not) != 0 || answer.More || answer.DryRun != dry {
						t.Errorf("dry %v: reaped %q, want %q: %+v", dry, got, test.want, answer)
					}
					assert.That(t, (!dry || len(deleted) == 0) && (dry || slices.Equal(deleted, reaped)),
						"dry %v: deleted %v", dry, deleted)
				})
			}
		})
	}
}

// keepAll moves the clocks of all leases, as their clients' heartbeats do.
func (g *gate) keepAll() {
	g.m.mu.Lock()
	defer g.m.unlock()
	for l := range g.m.leases.byID.All() {
		l.extend(g.m.Manager, g.m.clock.Now().Boot(), time.Hour)
	}
}

// The waiters go before the holder: none of them is let in on the way.
func TestAReapGrantsNothingThatItReaps(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		var leases []locks.Lease
		for i := range 40 {
			g := []*gate{one, two}[i%2]
			leases = append(leases, g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true}))
		}
		answer := two.mustReap(locks.ReapRequest{Reason: "a test"})
		assert.Must(t, len(answer.Reaped) == len(leases) && len(answer.Not) == 0, "%d reaped, %d not", len(answer.Reaped), len(answer.Not))
		for _, g := range []*gate{one, two} {
			assert.Equal(t, len(g.tells(events.LeaseGranted)), 1, "grants are told")
		}
		two.wantState(leases[1], locks.Ended, locks.ReasonRevoked)
	})
}

func TestAReapEndsAtMostMaxReapAndSaysSo(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for range locks.MaxReap + 5 {
			g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		}
		answer := g.mustReap(locks.ReapRequest{})
		assert.Must(t, len(answer.Reaped) == locks.MaxReap && answer.More, "%d reaped, more %v", len(answer.Reaped), answer.More)
		if answer := g.mustReap(locks.ReapRequest{}); len(answer.Reaped) != 5 || answer.More || s.waiting("deploy") != 0 {
			t.Errorf("then %d reaped, more %v", len(answer.Reaped), answer.More)
		}
	})
}

// What is written between the look and the end may match no longer.
func TestAReapHitsOnlyWhatItHasLookedAt(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		changed := s.foreignContender()
		other := s.otherLease(t, "deploy", 0, `{"v":1,"owner":"me","ttl_ms":3600000}`)
		gone := s.foreignContender()
		synctest.Wait()
		s.beforeWrites(func(w *zk.Write) {
			if len(w.Ops) == 3 && w.Ops[0].Kind == zk.OpDelete {
				s.tx([]zk.Op{{Kind: zk.OpSetData, Path: changed, Version: -1}, {Kind: zk.OpSetData, Path: other, Version: -1},
					{Kind: zk.OpDelete, Path: gone, Version: -1}})
			}
		})
		answer := g.mustReap(locks.ReapRequest{})
		if len(answer.Reaped) != 0 || len(answer.Not) != 2 || answer.Not[0].Contender.Znode != other || answer.Not[1].Contender.Znode != changed {
			t.Errorf("%+v", answer)
		}
		assert.Equal(t, s.waiting("deploy"), 2, "are left")
	})
}

// A contender whose ACL hides it has an age all the same.
func TestAHiddenContenderIsReapedByItsAge(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.hidden = func(p string) bool { return strings.HasPrefix(p, foreignName) }
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy"})
		old := s.foreignContender()
		time.Sleep(time.Minute)
		young := s.foreignContender()
		time.Sleep(10 * time.Second)
		g := s.gateway(t)
		time.Sleep(2 * time.Second)
		answer := g.mustReap(locks.ReapRequest{OlderThan: 30 * time.Second})
		if len(answer.Reaped) != 1 || path.Base(answer.Reaped[0].Znode) != path.Base(old) || s.node(young).stat.Czxid == 0 || s.node(old).stat.Czxid != 0 {
			t.Errorf("%+v", answer)
		}
	})
}

func TestAReapIsRefusedWhereItMakesNoSense(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for field, req := range map[string]locks.ReapRequest{
			"lock": {}, "older_than": {Lock: "deploy", OlderThan: -1}, "mode": {Lock: "deploy", Mode: "x"}, "state": {Lock: "deploy", State: locks.Ended},
			"owner": {Lock: "deploy", Owner: strings.Repeat("x", locks.MaxOwner+1)}, "reason": {Lock: "deploy", Reason: "\x00"},
		} {
			_, err := g.m.Reap(t.Context(), req)
			e := wantCode(t, err, locks.CodeInvalid)
			assert.That(t, e.Field == field, "%s: %v", field, e)
		}
	})
}

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

// Attack 4, the part of destroying: watchers are told of {delete holder, delete waiters} one by one. Rule: from the
// tail of the queue to its head, so that no gateway that watches grants anything on the way.
func TestNothingIsGrantedWhileALockIsDestroyed(t *testing.T) {
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
			// What any watcher can think between two deletions: is a contender first now that was not?
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
			for _, e := range g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LeaseGranted), Lock: "deploy"}, ring) {
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

func TestALeaseThatEndsMeanwhileDoesNotStopADestruction(t *testing.T) {
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

// Nothing nearer to the head is ended when something cannot be: a destruction that fails grants nothing.
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

func TestAnUnusedLockIsDestroyed(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for range 2 {
			answer, err := g.destroy("why")
			assert.That(t, err == nil && answer == (locks.DestroyAnswer{}), "%+v %v", answer, err)
		}
		assert.Value(g.m.Configure(t.Context(), locks.SettingsRequest{Lock: "deploy", Limit: 3}))(t)
		g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Mode: locks.Semaphore})
		answer, err := g.destroy("why")
		assert.That(t, err == nil && answer.Ended == 1, "%+v %v", answer, err)
		assert.Equal(t, len(s.names("/lockkeeper/settings")), 0, "settings are left")
		_, err = g.m.Destroy(t.Context(), locks.DestroyRequest{Lock: "deploy", Reason: "\n"})
		wantCode(t, err, locks.CodeInvalid)
	})
}

// A contender that the administrator was not shown is not ended, whenever it comes; one that was shown and has gone is no obstacle.
func TestADestructionEndsOnlyWhatWasShown(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		join := func() locks.Lease {
			return g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		}
		alice, bob := join(), join()
		shown := locks.Shown{LeaseIDs: []string{alice.ID, bob.ID}}
		carol := join()
		_, err := g.m.Destroy(t.Context(), locks.DestroyRequest{Lock: "deploy", Shown: shown})
		e := wantCode(t, err, locks.CodeHolderChanged)
		assert.That(t, strings.Contains(e.Detail, path.Base(carol.Znode)) && len(e.Holders) == 1 && e.QueueLength == 2, "%+v", e)
		g.wantState(alice, locks.Held, "")
		g.wantState(bob, locks.Waiting, "")
		g.wantState(carol, locks.Waiting, "")
		g.mustRelease(alice)
		shown.LeaseIDs = append(shown.LeaseIDs, carol.ID)
		answer, err := g.m.Destroy(t.Context(), locks.DestroyRequest{Lock: "deploy", Shown: shown})
		assert.That(t, err == nil && answer.Ended == 2, "%+v %v", answer, err)
		_, err = g.m.Destroy(t.Context(), locks.DestroyRequest{Lock: "deploy", Shown: locks.Shown{Znodes: []string{}}})
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
			withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
				h.hooks.Store(&hooks{result: func(w *zk.Write, res *zk.Result) {
					if len(w.Ops) > 0 && w.Ops[0].Kind == zk.OpCreate && writeTo("-lock-")(w) {
						time.Sleep(answerWithin / 2) // its event comes first
						if lost {
							*res = zk.Result{Outcome: zk.Unknown}
						}
					}
				}})
				p := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: locks.WaitForever, IdempotencyKey: "abcdefghijklmnop"})
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
			})
		})
	}
}
