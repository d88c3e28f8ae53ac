package manager

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

const testDelay = 20 * time.Second

func delaying(on locks.DelayOn) locks.AcquireRequest {
	return locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second, Owner: "me", LockDelay: testDelay, LockDelayOn: on}
}

// patient waits in line for as long as it takes; the time of its grant comes on the channel.
func (g *gate) patient() <-chan time.Time {
	granted := make(chan time.Time, 1)
	p := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: locks.WaitForever})
	go func() {
		<-p.done
		if p.err == nil {
			granted <- time.Now()
		}
	}()
	p.finished()
	return granted
}

func (g *gate) lockState(lock string) locks.Lock {
	g.t.Helper()
	synctest.Wait()
	q := assert.Value(g.m.Lock(g.t.Context(), locks.LockRequest{Lock: lock}))(g.t)
	return q
}

func TestAnExpiredLeaseKeepsItsPlaceForItsLockDelay(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, g, other *gate) {
		l := g.mustHold(delaying(""))
		assert.That(t, l.LockDelay == testDelay && l.LockDelayOn == locks.DelayOnExpiry, "%+v", l)
		next := g.patient()
		time.Sleep(11 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonExpired)
		_, err := g.heartbeat(l)
		assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonExpired)
		assert.Equal(t, g.countOf(events.LeaseExpired, l), 1, "events tell of its end")
		p := g.mustPostmortem(l)
		assert.That(t, p.Reason == locks.ReasonExpired && about(p.HeldFor, 10*time.Second) && p.Next == nil, "%+v", p)
		for _, gate := range []*gate{g, other} {
			q := gate.lockState("deploy")
			if q.State != locks.LockDelayed || len(q.Holders) != 1 || !q.Holders[0].Delayed || q.Holders[0].Reason != locks.ReasonExpired || q.Holders[0].LeaseID != l.ID ||
				q.Holders[0].Owner != "me" || q.QueueLength != 1 {
				t.Errorf("%+v", q)
			}
		}
		q := g.lockState("deploy")
		assert.That(t, about(q.Holders[0].ExpiresIn, 19*time.Second), "%v are left", q.Holders[0].ExpiresIn)
		f, err := g.m.Fence(t.Context(), locks.FenceRequest{Lock: "deploy", Token: l.FencingToken})
		assert.That(t, err == nil && !f.Current && (f.Reason == "delayed" || f.Reason == "ended"), "its token: %+v %v", f, err)
		f, err = other.m.Fence(t.Context(), locks.FenceRequest{Lock: "deploy", Token: l.FencingToken})
		assert.That(t, err == nil && !f.Current && f.Reason == "delayed", "its token: %+v %v", f, err)
		checkAll(t, s, g, other)
		before := time.Now()
		at := <-next
		took := at.Sub(before)
		assert.That(t, took >= 18*time.Second && took <= 20*time.Second, "the next was granted after %v", took)
		synctest.Wait()
		assert.Equal(t, g.countOf(events.LeaseExpired, l)+g.countOf(events.LeaseRemoved, l), 1, "events tell of its end")
		p = g.mustPostmortem(l)
		assert.That(t, p.Next != nil && about(p.Next.After, testDelay), "next %+v", p.Next)
	})
}

func TestWhichEndsALockDelayFollows(t *testing.T) {
	for _, c := range []struct {
		name   string
		on     locks.DelayOn
		end    func(*gate, locks.Lease)
		follow bool
	}{
		{"expired", locks.DelayOnExpiry, func(*gate, locks.Lease) { time.Sleep(11 * time.Second) }, true},
		{"released", locks.DelayOnExpiry, func(g *gate, l locks.Lease) { g.mustRelease(l) }, false},
		{"released, always", locks.DelayAlways, func(g *gate, l locks.Lease) { g.mustRelease(l); g.mustRelease(l) }, true},
		{"expired, always", locks.DelayAlways, func(*gate, locks.Lease) { time.Sleep(11 * time.Second) }, true},
		{"revoked by force", locks.DelayOnExpiry, func(g *gate, l locks.Lease) {
			_, err := g.m.Revoke(g.t.Context(), locks.RevokeRequest{Lock: "deploy", ForceAfter: time.Second})
			assert.Nil(g.t, err)
			time.Sleep(2 * time.Second)
			g.wantState(l, locks.Ended, locks.ReasonRevoked)
		}, true},
		{"deleted by another program", locks.DelayAlways, func(g *gate, l locks.Lease) {
			g.s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
			synctest.Wait()
		}, false},
	} {
		t.Run(c.name, in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(delaying(c.on))
			next := g.patient()
			c.end(g, l)
			before := time.Now()
			assert.MustEqual(t, g.look(l).State, locks.Ended)
			took := (<-next).Sub(before)
			assert.That(t, (took > 15*time.Second) == c.follow && took <= testDelay+time.Second, "the next was granted after %v", took)
		}))
	}
}

func TestALeaseThatOnlyWaitedKeepsNoPlace(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		first := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		req := delaying(locks.DelayAlways)
		req.Async = true
		ticket := g.mustAcquire(req)
		expiring := g.mustAcquire(req)
		g.mustRelease(ticket)
		time.Sleep(11 * time.Second)
		g.wantState(expiring, locks.Ended, locks.ReasonExpired)
		q := g.lockState("deploy")
		assert.That(t, q.State == locks.LockHeld && q.QueueLength == 0, "%+v", q)
		g.mustRelease(first)
		ticket = g.mustAcquire(req) // no request listened to its grant
		second := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		g.mustRelease(ticket)
		_ = second
	})
}

func TestAnUnclaimedGrantKeepsItsPlace(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		first := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		req := delaying(locks.DelayOnExpiry)
		req.Async = true
		ticket := g.mustAcquire(req)
		g.mustRelease(first)
		time.Sleep(11 * time.Second)
		g.wantState(ticket, locks.Ended, locks.ReasonUnclaimed)
		assert.Equal(t, g.lockState("deploy").State, locks.LockDelayed)
		time.Sleep(testDelay)
		assert.Equal(t, g.lockState("deploy").State, locks.LockFree)
	})
}

// Attack 27: a lease with a lock delay expires, then its owner dies. The
// successor must not revive it, and gives the delay again.
func TestASuccessorNeverRevivesALeaseThatIsClosed(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(delaying(""))
		time.Sleep(11 * time.Second)
		one.wantState(l, locks.Ended, locks.ReasonExpired)
		r := s.recordOf(l)
		assert.Must(t, r.Closed != nil && r.Closed.Reason == locks.ReasonExpired, "%+v", r)
		one.crash()
		two := s.gateway(t)
		next := two.patient()
		time.Sleep(12 * time.Second) // taken over, and the first delay is over
		read := time.Now()
		for range 3 {
			_, err := two.heartbeat(l)
			assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonExpired)
			time.Sleep(time.Second)
		}
		two.wantState(l, locks.Ended, locks.ReasonExpired)
		q := two.lockState("deploy")
		assert.That(t, q.State == locks.LockDelayed && q.Holders[0].Delayed, "%+v", q)
		assert.Equal(t, two.countOf(events.LeaseExpired, l), 1, "events tell its subscribers of the end")
		took := (<-next).Sub(read)
		assert.That(t, took >= testDelay-3*time.Second && took <= testDelay+time.Second, "the next was granted %v after the takeover", took)
	})
}

// Another program writes over the record of a place that is kept, and the gateway dies later.
func TestTheRecordOfAPlaceThatStaysIsWrittenBack(t *testing.T) {
	type faulty func(s *fakeStore, hit func(*zk.Write) bool)
	faults := map[string]faulty{
		"none": func(*fakeStore, func(*zk.Write) bool) {},
		"refused": func(s *fakeStore, hit func(*zk.Write) bool) {
			s.refuse = func(w *zk.Write) (int, error) {
				if hit(w) {
					return -1, zk.ErrNotApplied
				}
				return -1, nil
			}
		},
		"lost":               func(s *fakeStore, hit func(*zk.Write) bool) { s.vague, s.drop = hit, true },
		"lost but persisted": func(s *fakeStore, hit func(*zk.Write) bool) { s.vague = hit },
	}
	for name, fault := range faults {
		t.Run(name, in(withGateway, func(t *testing.T, s *fakeStore, one *gate) {
			l := one.mustHold(delaying(locks.DelayAlways))
			one.mustRelease(l)
			once := false
			s.mu.Lock()
			fault(s, func(w *zk.Write) bool {
				hit := !once && writeTo(l.Znode)(w)
				once = once || hit
				return hit
			})
			s.mu.Unlock()
			s.overwrite(l.Znode, "__REVOKE__")
			synctest.Wait()
			time.Sleep(3 * time.Second)
			r := s.recordOf(l)
			assert.Must(t, r.Closed != nil && r.Closed.Reason == locks.ReasonReleased && r.DelayAfter(*r.Closed) == testDelay && r.Owner == "me", "%+v", r)
			one.crash()
			two := s.gateway(t)
			time.Sleep(12 * time.Second)
			two.wantState(l, locks.Ended, locks.ReasonReleased)
			assert.Equal(t, two.lockState("deploy").State, locks.LockDelayed)
			checkAll(t, s, two)
		}))
	}
}

// What was written while the gateway had no connection is found when it has one again.
func TestTheRecordOfAPlaceThatStaysIsLookedAtAfterAGap(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(delaying(locks.DelayAlways))
		g.mustRelease(l)
		synctest.Wait()
		g.w.disconnect()
		s.overwrite(l.Znode, "__REVOKE__")
		time.Sleep(time.Second)
		g.w.reconnect()
		time.Sleep(time.Second)
		assert.That(t, s.recordOf(l).Closed != nil, "the record is %s", s.node(l.Znode).data)
	})
}

// Another program writes over the record while the answer to the closing write is on its way.
func TestARecordThatIsOverwrittenRightAfterTheEndIsWrittenBack(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		l := g.mustHold(delaying(locks.DelayAlways))
		h.hooks.Store(&hooks{result: func(w *zk.Write, _ *zk.Result) {
			if writeTo(l.Znode)(w) {
				h.hooks.Store(&hooks{})
				s.overwrite(l.Znode, "__REVOKE__")
				time.Sleep(10 * time.Millisecond)
			}
		}})
		g.mustRelease(l)
		time.Sleep(2 * time.Second)
		assert.That(t, s.recordOf(l).Closed != nil, "the record is %s", s.node(l.Znode).data)
	})
}

// Attack 35: a closed lease is heartbeaten before its record has been read.
func TestNothingIsPromisedToALeaseWhoseRecordHasNotBeenRead(t *testing.T) {
	for _, other := range []bool{false, true} {
		t.Run(map[bool]string{false: "after its session was lost", true: "by a successor"}[other], func(t *testing.T) {
			scene(t, func(t *testing.T, s *fakeStore) {
				h := s.hooked()
				start := h.gateway
				if other {
					start = s.gateway
				}
				g := start(t)
				l := g.mustHold(delaying(""))
				lost{session: true, persisted: true}.arm(s, l)
				time.Sleep(9 * time.Second)
				g.w.hold()
				time.Sleep(2 * time.Second)
				assert.Must(t, s.recordOf(l).Closed != nil, "it was not closed")
				h.failReads(l.Znode)
				if other {
					g.crash()
					g = h.gateway(t)
					s.set(func() { s.loseReply = nil })
					time.Sleep(12 * time.Second)
				} else {
					g.w.release()
					lost{session: true, persisted: true}.disarm(s, g)
				}
				for range 5 {
					_, err := g.heartbeat(l)
					wantCode(t, err, locks.CodeUnavailable)
					_, err = g.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Token: l.Token, Verify: true})
					assert.That(t, err != nil, "a verification succeeds")
					v, err := g.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID})
					assert.That(t, err != nil || !other, "a successor shows it before it has read it: %+v", v)
				}
				h.hooks.Store(&hooks{})
				time.Sleep(2 * time.Second)
				_, err := g.heartbeat(l)
				wantCode(t, err, locks.CodeEnded)
				assert.Equal(t, g.lockState("deploy").State, locks.LockDelayed)
				time.Sleep(testDelay)
				assert.Equal(t, g.lockState("deploy").State, locks.LockFree)
			})
		})
	}
}

// The answer to the closing write is lost. Whatever became of it: the lease ends
// once, and the next holder comes a delay after the end, no earlier.
func TestAnEndWhoseWriteWasLostKeepsItsPlace(t *testing.T) {
	for _, end := range []string{"expired", "released"} {
		for _, way := range waysToLose {
			t.Run(end+", "+way.name, in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
				l := g.mustHold(delaying(locks.DelayAlways))
				next := g.patient()
				time.Sleep(9 * time.Second)
				way.arm(s, l)
				reason := locks.ReasonExpired
				if end == "released" {
					reason = locks.ReasonReleased
					if err := g.release(l); err != nil {
						wantCode(t, err, locks.CodeOutcomeUnknown)
					}
				} else {
					time.Sleep(3 * time.Second)
				}
				way.disarm(s, g)
				if end == "released" {
					g.mustRelease(l)
				}
				var ended time.Time
				for range 100 {
					synctest.Wait()
					if v := g.look(l); v.State == locks.Ended {
						ended = time.Now()
						break
					}
					time.Sleep(time.Second)
				}
				g.wantState(l, locks.Ended, reason)
				p := g.mustPostmortem(l)
				assert.That(t, way.session || !way.persisted || end != "expired" || about(p.HeldFor, 10*time.Second),
					"it was written that it ended, and it was revived: held for %v", p.HeldFor)
				if took := (<-next).Sub(ended) + p.EndedAgo; took < testDelay-100*time.Millisecond || took > testDelay+2*time.Second {
					t.Errorf("the next was granted %v after the end", took)
				}
				synctest.Wait()
				assert.Equal(t, g.countOf(reports.EndType(reason), l)+g.countOf(events.LeaseRemoved, l), 1, "events tell of its end")
			}))
		}
	}
}

func TestAPlaceThatAnotherProgramDeletesIsFree(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(delaying(""))
		next := g.patient()
		time.Sleep(11 * time.Second)
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
		before := time.Now()
		took := (<-next).Sub(before)
		assert.That(t, took <= time.Second, "granted after %v", took)
		time.Sleep(2 * testDelay)
		assert.Equal(t, g.lockState("deploy").State, locks.LockHeld)
	})
}

// A listing of a server that lags lacks the contender, and then it is back.
func TestAPlaceThatAListingLackedIsStillFreedInTheEnd(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(delaying(""))
		time.Sleep(11 * time.Second)
		q := g.lockState("deploy")
		assert.Must(t, q.State == locks.LockDelayed, "%+v", q)
		g.m.mu.Lock()
		queue := g.m.replica.Namespaces[locks.DefaultNamespace].Find("deploy")
		c := queue.Contenders.Get(base(l.Znode))
		g.m.delays.removed(queue, c, true)
		g.m.removeContender(queue, c.Name, 0)
		again := *c
		g.m.addContender(queue, &again, true, 0)
		g.m.adoptIfOwned(queue, &again, g.m.clock.Now().Boot())
		g.m.evaluate(queue, g.m.clock.Now().Boot())
		g.m.unlock()
		assert.Equal(t, g.lockState("deploy").State, locks.LockDelayed)
		time.Sleep(testDelay)
		assert.Equal(t, g.lockState("deploy").State, locks.LockFree)
	})
}

func TestALeaseOfSeveralLocksKeepsAllItsPlaces(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "b"}}, TTL: 10 * time.Second, LockDelay: testDelay})
		time.Sleep(11 * time.Second)
		one.wantState(l, locks.Ended, locks.ReasonExpired)
		one.crash()
		two := s.gateway(t)
		time.Sleep(12 * time.Second)
		for _, lock := range []string{"a", "b"} {
			assert.Equal(t, two.lockState(lock).State, locks.LockDelayed)
		}
		_, err := two.heartbeat(l)
		wantCode(t, err, locks.CodeEnded)
		time.Sleep(testDelay + time.Second)
		for _, lock := range []string{"a", "b"} {
			assert.Equal(t, two.lockState(lock).State, locks.LockFree)
		}
	})
}

// The session is lost while a place stays: it goes on staying, and goes in the end.
func TestAPlaceStaysAcrossALostSession(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(delaying(""))
		next := g.patient()
		time.Sleep(11 * time.Second)
		ended := time.Now()
		g.expireSession()
		time.Sleep(5 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonExpired)
		took := (<-next).Sub(ended)
		assert.That(t, took >= testDelay-2*time.Second && took <= testDelay+2*time.Second, "the next was granted %v after the end", took)
	})
}

func TestALockDelayIsRefusedByTheNameOfWhatIsWrong(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for _, c := range []struct {
			delay time.Duration
			on    locks.DelayOn
			field string
		}{{-1, "", "lock_delay"}, {locks.MaxLockDelay + 1, "", "lock_delay"}, {time.Second, "never", "lock_delay_on"}, {0, locks.DelayAlways, "lock_delay_on"}} {
			_, err := g.acquire(locks.AcquireRequest{Lock: "deploy", LockDelay: c.delay, LockDelayOn: c.on})
			e := wantCode(t, err, locks.CodeInvalid)
			assert.That(t, e.Field == c.field, "%+v: the field is %s", c, e.Field)
		}
	})
}

// The answer to the closing write is lost, and so is the event: the observer had no connection at that moment. A tree
// read tells names, not data, so the record is read before the lease goes on.
func TestAnEndThatOnlyTheRecordTellsOfIsNotTakenBack(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		l := g.mustHold(delaying(""))
		hit := false
		s.mu.Lock()
		s.vague = func(w *zk.Write) bool {
			if hit || !writeTo(l.Znode)(w) {
				return false
			}
			hit, g.w.connected = true, false
			return true
		}
		s.mu.Unlock()
		time.Sleep(10*time.Second + 10*time.Millisecond)
		assert.Must(t, s.recordOf(l).Closed != nil, "it was not closed")
		h.failReads(l.Znode)
		g.w.disconnect()
		g.w.reconnect()
		time.AfterFunc(3*time.Second, func() { h.hooks.Store(&hooks{}) })
		for range 60 {
			beat, err := g.heartbeat(l)
			assert.Must(t, err != nil, "%+v", beat)
			time.Sleep(100 * time.Millisecond)
		}
		g.wantState(l, locks.Ended, locks.ReasonExpired)
		assert.Equal(t, g.lockState("deploy").State, locks.LockDelayed)
	})
}

func TestAnAdministratorFreesAPlaceThatStays(t *testing.T) {
	for _, byName := range []bool{false, true} {
		t.Run(map[bool]string{false: "by the lease", true: "by the contender"}[byName], func(t *testing.T) {
			withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
				l := g.mustHold(delaying(""))
				next := g.patient()
				time.Sleep(11 * time.Second)
				req := locks.BreakRequest{ID: l.ID, Reason: "enough"}
				if byName {
					req = locks.BreakRequest{Lock: "deploy", Name: base(l.Znode), Reason: "enough"}
				}
				before := time.Now()
				assert.NoError(t, g.m.Break(t.Context(), req))
				took := (<-next).Sub(before)
				assert.That(t, took <= time.Second, "granted after %v", took)
				g.wantState(l, locks.Ended, locks.ReasonExpired)
				synctest.Wait()
				n := g.countOf(events.LeaseExpired, l) + g.countOf(events.LeaseRevoked, l) + g.countOf(events.LeaseRemoved, l)
				assert.That(t, n == 1, "%d events tell of its end", n)
			})
		})
	}
}

// A break ends the lease and keeps no place.
func TestWhatAnAdministratorBreaksKeepsNoPlace(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(delaying(locks.DelayAlways))
		next := g.patient()
		before := time.Now()
		assert.NoError(t, g.m.Break(t.Context(), locks.BreakRequest{ID: l.ID}))
		took := (<-next).Sub(before)
		assert.That(t, took <= time.Second, "granted after %v", took)
		g.wantState(l, locks.Ended, locks.ReasonRevoked)
	})
}

func TestADestroyedLockKeepsNoPlace(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, g, other *gate) {
		for _, by := range []*gate{g, other} {
			l := g.mustHold(delaying(""))
			time.Sleep(11 * time.Second)
			assert.MustEqual(t, g.lockState("deploy").State, locks.LockDelayed)
			assert.Value(by.m.Destroy(t.Context(), locks.DestroyRequest{Lock: "deploy", Reason: "enough"}))(t)
			for _, gate := range []*gate{g, other} {
				assert.Equal(t, gate.lockState("deploy").State, locks.LockFree)
			}
			g.wantState(l, locks.Ended, locks.ReasonExpired)
			checkAll(t, s, g, other)
		}
	})
}

// The write that closes a lease deletes nothing: when its contender vanishes meanwhile, another one ended it, and the reply says so.
func TestALeaseThatVanishesWhileItIsClosedDidNotExpire(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(delaying(""))
		time.Sleep(9900 * time.Millisecond)
		s.set(func() { g.session().deaf = true }) // the write that closes it gets there late
		time.Sleep(time.Second)
		s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
		s.set(func() { g.session().deaf = false })
		time.Sleep(time.Second)
		g.wantState(l, locks.Ended, locks.ReasonRemoved)
		assert.Equal(t, g.countOf(events.LeaseRemoved, l), 1, "events tell of its end")
		assert.Equal(t, g.countOf(events.LeaseExpired, l), 0, "events tell that it expired")
	})
}

// Another gateway takes the lease over while its place is being deleted: the delay is dropped, and the reply comes later.
func TestAPlaceThatStaysIsTakenOffTheCountsOnce(t *testing.T) {
	d := newDelays()
	one := &delay{id: "lease", at: []queues.Location{{}, {}}}
	d.byID[one.id], d.slots = one, len(one.at)
	d.put(one, time.Second)
	d.drop(one)
	d.leave(one, func(queues.Location) bool { return true })
	assert.Equal(t, d.slots, 0, "places")
	assert.Equal(t, len(d.byID)+d.line.Len(), 0, "delays")
}
