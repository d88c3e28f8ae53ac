package manager

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// Interleavings of time; see attacks_test.go.

// A heartbeat with a TTL of 60 s is answered, then one with 5 s, and the owner
// dies. Rule: a deadline never moves back, and the shorter TTL is written only
// when the old deadline has passed.
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

// ZooKeeper is away for longer than the TTL. Rule: nothing expires while the
// fence is closed, and when it opens every deadline has moved by the blind time
// and a little more, so that heartbeats that wait are heard first.
func TestNothingExpiresWhileTheGatewayIsBlind(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(deploy())
		s.set(func() { s.away = true })
		time.Sleep(9 * time.Second)
		if _, err := g.heartbeat(l); err != nil {
			t.Fatalf("the fence is open: %v", err)
		}
		time.Sleep(5 * time.Minute)
		_, err := g.heartbeat(l)
		assert.That(t, wantCode(t, err, locks.CodeUnavailable).RetryAfter != 0, "no Retry-After")
		s.set(func() { s.away = false })
		time.Sleep(5 * time.Second) // the next guard write opens the fence
		g.wantState(l, locks.Held, "")
		assert.Value(g.heartbeat(l))(t)
		// A client that is dead still expires: its last promise moved by the
		// blind time and 15 s at most.
		pass(46 * time.Second)
		g.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}

// The same, right after the start: ZooKeeper goes away before the clock loop has
// looked for the first time.
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

// An acquire or a release meets a ZooKeeper that is away: answered within a
// second, nothing hangs.
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
			g.m.timers.tick(g.m, now)
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

// An expiry meets a newer version of the contender: somebody wrote a heartbeat
// into it. Rule: the delete names the version that was seen, and "not done"
// makes the lease held again.
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

// A deadline that was moved because heartbeats could not be heard is this
// gateway's own affair: a successor gives what the contender tells, so no more
// than that is promised.
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
