package manager

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// Interleavings of loss: of a gateway, of a session, of an answer; see attacks_test.go.

// The gateway is killed and restarted: its successor, here itself, goes on with id, token, fencing token, owner,
// metadata and place, and the first deadline is takeover + W + TTL.
func TestARestartedGatewayGoesOnWithItsLeases(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 40 * time.Second, Owner: "me", Metadata: "m"})
		ticket := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: 40 * time.Second, Async: true})
		key := locks.AcquireRequest{Lock: "keyed", TTL: 40 * time.Second, IdempotencyKey: "abcdefghijklmnop"}
		keyed := one.mustHold(key)
		one.crash()
		two := s.gateway(t)
		began := time.Now()
		for {
			_, err := two.heartbeat(l)
			if err == nil {
				break
			}
			var e *locks.Error
			if !errors.As(err, &e) || e.Code != locks.CodeUnavailable && e.Code != locks.CodeNotOwner {
				t.Fatal(err) // the registration of the dead one lives as long as its session
			}
			assert.Must(t, time.Since(began) <= 15*time.Second, "not taken over")
			time.Sleep(100 * time.Millisecond)
		}
		v := two.look(l)
		if v.FencingToken != l.FencingToken || v.Owner != "me" || v.Metadata != "m" || v.TTL != 40*time.Second || v.Znode != l.Znode {
			t.Errorf("%+v", v)
		}
		w := two.look(ticket)
		assert.That(t, w.State == locks.Waiting && w.Position == 1, "ticket %+v", w)
		again := two.mustHold(key)
		assert.That(t, again.ID == keyed.ID && again.Token == keyed.Token, "the key found %+v", again)
		assert.Value(two.heartbeat(ticket))(t)
		two.mustRelease(l)
		two.wantState(ticket, locks.Held, "")
		two.mustRelease(withToken(two.look(ticket), ticket.Token))
		// A dead client's lease ends at takeover + W + TTL, no earlier.
		time.Sleep(fakeWindow + 40*time.Second - 2*time.Second)
		two.wantState(keyed, locks.Held, "")
		pass(5 * time.Second)
		two.wantState(keyed, locks.Ended, locks.ReasonExpired)
		// What the dead one left behind is swept.
		pass(keyLife + 3*scanEvery)
		for _, dir := range []string{"succession", "keys", "locks"} {
			names := s.names("/lockkeeper/" + dir)
			assert.That(t, len(names) == 0, "left behind in %s: %v", dir, names)
		}
	})
}

func withToken(l locks.Lease, token string) locks.Lease { l.Token = token; return l }

// The session expires under a living process: it goes on under a new gateway id, open requests included.
func TestAnExpiredSessionCostsNoLease(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(deploy())
		p := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: time.Minute})
		p.finished()
		time.Sleep(time.Second)
		g.session().expire()
		if _, err := g.heartbeat(l); err != nil { // the promise window is still good
			wantCode(t, err, locks.CodeUnavailable)
		}
		time.Sleep(time.Second)
		beat, err := g.heartbeat(l)
		assert.Must(t, err == nil && beat.FencingToken == l.FencingToken, "%+v %v", beat, err)
		g.mustRelease(l)
		<-p.done
		assert.Must(t, p.err == nil && p.lease.State == locks.Held, "%+v %v", p.lease, p.err)
	})
}

// The reply to a create is lost with the session: once not applied, once
// applied. The repeat with the same key finds out, and nothing queues twice.
func TestALostAcquireIsFoundByItsKey(t *testing.T) {
	faultTwice(t, func(t *testing.T, persisted bool) {
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			g.mustRelease(g.mustHold(deploy()))
			req := deploy()
			req.IdempotencyKey = "abcdefghijklmnop"
			s.set(func() { s.lose(persisted, writeTo("/deploy/write-")) })
			_, err := g.acquire(req)
			wantCode(t, err, locks.CodeOutcomeUnknown)
			g.session().expire()
			s.set(func() { s.away, s.loseReply = false, nil })
			time.Sleep(5 * time.Second)
			l := g.mustHold(req)
			assert.MustEqual(t, len(s.names("/lockkeeper/locks/deploy")), 1, "contenders")
			g.mustRelease(l)
		})
	})
}

// The same without a key: no client can ever use the lease, so it must not stay.
func TestALostAcquireWithoutAKeyLeavesNothing(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		s.set(func() { s.loseReply = writeTo("/deploy/write-") })
		_, err := g.acquire(deploy())
		wantCode(t, err, locks.CodeOutcomeUnknown)
		g.session().expire()
		s.set(func() { s.loseReply = nil })
		time.Sleep(5 * time.Second)
		assert.Equal(t, len(s.names("/lockkeeper/locks/deploy")), 0, "contenders that no client can use")
		g.mustHold(deploy())
	})
}

// The reply to a release is lost with the session. What the client asked for
// goes on, and the repeat is answered as done.
func TestALostReleaseIsCarriedOut(t *testing.T) {
	faultTwice(t, func(t *testing.T, persisted bool) {
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(deploy())
			s.set(func() { s.lose(persisted, writeTo(l.Znode)) })
			// Where it persisted, the deleted event tells before the reply would.
			if err := g.release(l); !persisted || err != nil {
				wantCode(t, err, locks.CodeOutcomeUnknown)
			}
			g.session().expire()
			s.set(func() { s.away, s.loseReply = false, nil })
			time.Sleep(5 * time.Second)
			g.wantState(l, locks.Ended, locks.ReasonReleased)
			g.mustRelease(l)
			g.mustHold(deploy())
		})
	})
}

// SIGTERM: the registration goes in the last transaction, requests are answered 503, and the successor begins at once.
func TestAHandoverLosesNothingAndIsQuick(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(deploy())
		_, err := two.heartbeat(l)
		wantCode(t, err, locks.CodeNotOwner)
		p := one.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: time.Minute, IdempotencyKey: "abcdefghijklmnop"})
		p.finished()
		time.Sleep(time.Second)
		assert.NoError(t, one.m.Drain(t.Context()))
		<-p.done
		assert.That(t, p.err == nil && p.lease.State == locks.Waiting, "a keyed waiter is told that it still waits: %+v %v", p.lease, p.err)
		_, err = one.heartbeat(l)
		wantCode(t, err, locks.CodeUnavailable)
		time.Sleep(time.Second)
		beat, err := two.heartbeat(l)
		assert.Must(t, err == nil && beat.FencingToken == l.FencingToken, "%+v %v", beat, err)
		again := two.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: time.Minute, IdempotencyKey: "abcdefghijklmnop"})
		again.finished()
		two.mustRelease(l)
		<-again.done
		assert.That(t, again.err == nil && again.lease.ID == p.lease.ID && again.lease.State == locks.Held,
			"%+v %v", again.lease, again.err)
	})
}

// What became of a write stays unknown while the session lives on: another program touched what it left. Nothing of it
// can commit any more, so the replica tells.
func TestAnOutcomeThatStaysUnknownIsReadFromTheReplica(t *testing.T) {
	faultTwice(t, func(t *testing.T, persisted bool) {
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			g.mustRelease(g.mustHold(deploy()))
			unknown := func(path string) {
				s.set(func() { s.vague, s.drop = writeTo(path), !persisted })
			}
			known := func() {
				s.set(func() { s.vague = nil })
			}
			unknown("/deploy/write-")
			p := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: time.Minute})
			time.Sleep(time.Second)
			known()
			assert.Must(t, p.finished(), "no answer")
			if !persisted {
				wantCode(t, p.err, locks.CodeUnavailable)
				p.lease = g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
			} else if p.err != nil || p.lease.FencingToken != s.node(p.lease.Znode).stat.Czxid {
				t.Fatalf("%+v %v", p.lease, p.err)
			}
			unknown("/deploy/write-")
			released := make(chan error, 1)
			go func() { released <- g.release(p.lease) }()
			time.Sleep(100 * time.Millisecond)
			known()
			err := <-released
			assert.Must(t, err == nil || !persisted, "%v", err)
			time.Sleep(5 * time.Second)
			g.wantState(p.lease, locks.Ended, locks.ReasonReleased)
			l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
			unknown("/deploy/write-")
			time.Sleep(61 * time.Second)
			known()
			pass(2 * time.Minute)
			assert.MustEqual(t, g.look(l).State, locks.Ended, "an expiry whose outcome is unknown")
		})
	})
}

// A success that was decided under one session is about to be written when the next session is there already, with its
// fence open. Rule: an answer stands on the session under which it was decided.
func TestAnAnswerDoesNotPassUnderTheNextSessionsFence(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(deploy())
		beat, err := g.heartbeat(l)
		assert.Must(t, err == nil && g.m.StillValid(beat.Term) && g.m.StillValid(l.Term), "%+v %v", beat, err)
		g.session().expire()
		time.Sleep(time.Second)
		assert.Must(t, g.m.Trusted(), "the next session is not usable yet")
		assert.That(t, !g.m.StillValid(beat.Term), "an answer of the former session passes")
		again, err := g.heartbeat(l)
		assert.That(t, err == nil && g.m.StillValid(again.Term), "%+v %v", again, err)
		assert.That(t, !g.m.StillValid(0), "no basis at all passes")
	})
}

// Interleavings of time; see attacks_test.go.

// A heartbeat with a TTL of 60 s is answered, then one with 5 s, and the owner dies. Rule: a deadline never moves back,
// and the shorter TTL is written only when the old deadline has passed.
func TestAShorterTTLNeverTakesBackWhatWasPromised(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		beat, err := g.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, time.Minute)
		assert.Must(t, err == nil && beat.TTL == time.Minute && beat.ExpiresIn == time.Minute, "%+v %v", beat, err)
		if r, _ := record.Parse(s.node(l.Znode).data); r.LeaseTTL() != time.Minute {
			t.Fatalf("the longer TTL was answered before it was written: %v", r.LeaseTTL())
		}
		promised := time.Now().Add(time.Minute)
		beat, err = g.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, 5*time.Second)
		assert.Must(t, err == nil && beat.TTL == 5*time.Second && beat.ExpiresIn >= 59*time.Second, "%+v %v", beat, err)
		for time.Until(promised) > 4*time.Second {
			if r, _ := record.Parse(s.node(l.Znode).data); r.LeaseTTL() != time.Minute {
				t.Fatalf("%v before the promised end the record says %v", time.Until(promised), r.LeaseTTL())
			}
			time.Sleep(4 * time.Second)
			assert.Value(g.heartbeat(l))(t)
		}
		for range 3 {
			time.Sleep(4 * time.Second)
			assert.Value(g.heartbeat(l))(t)
		}
		if r, _ := record.Parse(s.node(l.Znode).data); r.LeaseTTL() != 5*time.Second {
			t.Errorf("the record still says %v", r.LeaseTTL())
		}
		pass(6 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}

// ZooKeeper is away for longer than the TTL. Rule: nothing expires while the fence is closed, and when it opens every
// deadline has moved by the blind time and a little more, so that heartbeats that wait are heard first.
func TestNothingExpiresWhileTheGatewayIsBlind(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(deploy())
		s.set(func() { s.away = true })
		time.Sleep(9 * time.Second)
		_, err := g.heartbeat(l)
		assert.NoError(t, err, "the fence is open")
		time.Sleep(5 * time.Minute)
		_, err = g.heartbeat(l)
		assert.That(t, wantCode(t, err, locks.CodeUnavailable).RetryAfter != 0, "no Retry-After")
		s.set(func() { s.away = false })
		time.Sleep(5 * time.Second) // the next guard write opens the fence
		g.wantState(l, locks.Held, "")
		assert.Value(g.heartbeat(l))(t)
		// A client that is dead still expires: its last promise moved by the blind time and 15 s at most.
		pass(46 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}

// The same, right after the start: ZooKeeper goes away before the clock loop has looked for the first time.
func TestNothingExpiresWhenTheGatewayGoesBlindInItsFirstMoment(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(deploy())
		g.w.disconnect()
		time.Sleep(5 * time.Minute)
		g.w.reconnect()
		time.Sleep(5 * time.Second) // the next guard write proves the replica
		g.wantState(l, locks.Held, "")
		assert.Value(g.heartbeat(l))(t)
	})
}

// An acquire or a release meets a ZooKeeper that is away: answered within a second, nothing hangs.
func TestZooKeeperAwayIsAnsweredWithinASecond(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "other", TTL: time.Hour})
		s.set(func() { s.away = true })
		began := time.Now()
		_, err := g.acquire(deploy())
		wantCode(t, err, locks.CodeOutcomeUnknown)
		wantCode(t, g.release(l), locks.CodeOutcomeUnknown)
		_, err = g.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Verify: true})
		wantCode(t, err, locks.CodeUnavailable)
		took := time.Since(began)
		assert.That(t, took <= 4*time.Second, "three answers took %v", took)
		_, err = g.heartbeat(l)
		wantCode(t, err, locks.CodeUnavailable) // ending: the outcome is not known yet
		time.Sleep(20 * time.Second)
		_, err = g.acquire(deploy())
		wantCode(t, err, locks.CodeUnavailable)
		s.set(func() { s.away = false })
		time.Sleep(5 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonReleased)
		assert.Equal(t, len(s.names("/lockkeeper/locks/deploy")), 0, "contenders of an acquire whose answer no client got")
		g.mustHold(deploy())
	})
}

// A machine so loaded that it wakes late once a minute. Rule: a late wake moves
// deadlines by the blind time and at most 15 s, so dead clients still expire.
func TestDeadClientsExpireOnAMachineThatIsOftenLate(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 3 * time.Minute})
		began := time.Now()
		for range 12 {
			time.Sleep(time.Minute)
			// The loop finds that it should have woken two seconds ago.
			g.m.mu.Lock()
			now := g.m.clock.Now().Boot()
			g.m.timers.expected = now - 2*time.Second
			g.m.timers.tick(g.m.Manager, now)
			g.m.unlock()
			synctest.Wait()
			if g.look(l).State == locks.Ended {
				break
			}
		}
		g.wantState(l, locks.Ended, locks.ReasonExpired)
		took := time.Since(began)
		assert.That(t, took >= 3*time.Minute && took <= 6*time.Minute, "expired after %v", took)
	})
}

// The owner was stopped for longer than the TTL: its timers are due before the
// heartbeats in its sockets are read. Rule: as above.
func TestAStoppedOwnerHearsHeartbeatsBeforeItExpiresAnything(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second})
		time.Sleep(8 * time.Second)
		s.clock.(*jumpClock).jump(9 * time.Second) // the process stood still
		time.Sleep(6 * time.Second)
		g.wantState(l, locks.Held, "")
		assert.Value(g.heartbeat(l))(t)
	})
}

// An expiry meets a newer version of the contender: another gateway wrote a heartbeat into it. Rule: the delete names the
// version that was seen, and "not done" makes the lease held again.
func TestAnExpiryThatMeetsANewerVersionMakesTheLeaseHeldAgain(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(deploy())
		time.Sleep(29999 * time.Millisecond)
		g.w.hold() // the news of the write comes late
		s.mu.Lock()
		n := s.nodes[l.Znode]
		s.tx([]zk.Op{{Kind: zk.OpSetData, Path: l.Znode, Data: n.data, Version: -1}})
		s.mu.Unlock()
		pass(time.Second)
		g.w.release()
		g.wantState(l, locks.Held, "")
		beat, err := g.heartbeat(l)
		assert.Must(t, err == nil && beat.ExpiresIn == 30*time.Second, "%+v %v", beat, err)
		pass(31 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}

// A deadline that was moved because heartbeats could not be heard is this gateway's own affair: a successor gives what
// the contender tells, so no more than that is promised.
func TestNoMoreIsPromisedThanASuccessorGives(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		held := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		waiting := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second, Async: true})
		s.set(func() { s.away = true })
		time.Sleep(15 * time.Second)
		s.set(func() { s.away = false })
		time.Sleep(4 * time.Second) // the next guard write opens the fence
		for _, l := range []locks.Lease{held, waiting} {
			v, err := g.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID})
			assert.That(t, err == nil && v.ExpiresIn <= 20*time.Second, "a %s lease: %v, %v", l.State, v.ExpiresIn, err)
		}
	})
}

// Where one blind interval follows the other, what is owed for each does not
// add up: a dead client's lease ends soon after the last.
func TestBlindIntervalsInARowDoNotKeepADeadClientsLease(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 30 * time.Second})
		for range 20 {
			g.w.disconnect()
			time.Sleep(3 * time.Second)
			g.w.reconnect()
			time.Sleep(4 * time.Second)
		}
		g.wantState(l, locks.Held, "")
		pass(31 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}
