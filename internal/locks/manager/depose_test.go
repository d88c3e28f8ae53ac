package manager

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/cluster"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// deafen makes a gateway's session one that pings and commits nothing, or lets it
// write again.
func (g *gate) deafen(session *fakeSession, deaf bool) {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	session.deaf = deaf
}

// registered reports whether a gateway id is.
func (s *fakeStore) registered(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes["/lockkeeper/gateways/"+id] != nil
}

// Attack 22. Rule: a registered gateway whose guard has not moved for 3 W is
// succeeded, and its leases go on elsewhere.
func TestAGatewayThatPingsAndCommitsNothingIsDeposed(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 30 * time.Second})
		old := one.session()
		one.deafen(old, true)
		began := time.Now()
		for s.registered(old.id) {
			_, err := two.heartbeat(l)
			assert.Must(t, err != nil, "a gateway that has not taken it over confirms the lease")
			time.Sleep(100 * time.Millisecond)
			assert.Must(t, time.Since(began) <= time.Minute, "it is never deposed")
		}
		if silent := time.Since(began); silent < cluster.StalledAfter*fakeWindow-fakeWindow/3 || silent > (cluster.StalledAfter+1)*fakeWindow {
			t.Errorf("deposed after %v of silence", silent)
		}
		synctest.Wait()
		beat, err := two.heartbeat(l)
		assert.Must(t, err == nil && beat.State == locks.Held, "%+v %v", beat, err)
		wantWords(t, two.tells(events.GatewayLeft), "gateway.left deposed")
		wantWords(t, one.tells(events.GatewayLeft), "gateway.left deposed")
		// Its process goes on under another id, whatever became of the old session.
		time.Sleep(time.Second)
		now := one.session()
		assert.Must(t, now != nil && now.id != old.id && one.m.Trusted(), "the deposed gateway does not serve again")
		_, err = one.heartbeat(l)
		assert.That(t, err != nil, "the deposed gateway confirms a lease that it no longer runs")
		two.mustRelease(l)
		mine := one.mustHold(locks.AcquireRequest{Lock: "other"})
		one.mustRelease(mine)
	})
}

// The writer is told nothing. Rule: the fence closes for good when the gateway
// sees its own succession.
func TestAGatewayThatSeesItsSuccessionSaysNothingMore(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		old := one.session()
		one.deafen(old, true)
		_, err := one.heartbeat(l)
		assert.NoError(t, err, "its fence is open for a while")
		done := make(chan zk.Result, 1)
		two.session().Takeover(t.Context(), old.id, nil, func(r zk.Result) { done <- r })
		assert.MustEqual(t, (<-done).Outcome, zk.Done)
		synctest.Wait()
		_, err = one.heartbeat(l)
		assert.That(t, err != nil, "a deposed gateway that knows it confirms a lease")
		time.Sleep(2 * time.Second)
		now := one.session()
		assert.That(t, now != nil && now.id != old.id && one.m.Trusted(), "it does not serve under a new id")
	})
}

// Rule: the bare writes of an idle gateway move its guard.
func TestAnIdleGatewayIsNotDeposed(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		ids := []string{one.session().id, two.session().id}
		time.Sleep(time.Hour)
		for _, id := range ids {
			assert.That(t, s.registered(id), "%s is gone", id)
		}
		assert.Equal(t, len(s.names("/lockkeeper/succession")), 0, "successions")
	})
}

// Attack 38: what was looked at is old. Rule: the transaction names the version
// that was polled when the 3 W began, and the gateway that has written since stays;
// the 3 W begin again, also where the looks go on showing what is old.
func TestAGatewayThatHasWrittenSinceItWasPolledIsNotDeposed(t *testing.T) {
	for _, shown := range []bool{true, false} {
		withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
			s.gateway(t)
			old := one.session()
			one.deafen(old, true)
			var tried []time.Time
			s.mu.Lock()
			guard := s.nodes["/lockkeeper/guards/"+old.id]
			s.refuse = func(w *zk.Write) (int, error) { // its writes come just before
				if !writeTo("/succession/" + old.id)(w) {
					return -1, nil
				}
				tried = append(tried, time.Now())
				guard.stat.Version++
				_, _, _, culprit, err := s.tx(w.Ops)
				if !shown {
					guard.stat.Version--
				}
				assert.That(t, err != nil, "the transaction deposes the gateway that it finds")
				return culprit, err
			}
			s.mu.Unlock()
			pass(10 * fakeWindow)
			s.mu.Lock()
			defer s.mu.Unlock()
			assert.Must(t, s.nodes["/lockkeeper/gateways/"+old.id] != nil && len(tried) >= 2,
				"%d attempts; the gateway is registered: %v", len(tried), s.nodes["/lockkeeper/gateways/"+old.id] != nil)
			for i := range tried[1:] {
				again := tried[i+1].Sub(tried[i])
				assert.That(t, again >= cluster.StalledAfter*fakeWindow, "tried again after %v", again)
			}
		})
	}
}

// ZooKeeper was away, and everybody's guard stood still. Rule: only time counts in which
// one's own fence was open.
func TestNobodyIsDeposedForTheTimeInWhichZooKeeperWasAway(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		slow := one.session()
		time.Sleep(5 * time.Second)
		s.set(func() { s.away = true })
		time.Sleep(10 * fakeWindow)
		one.deafen(slow, true) // it is longer in coming back than the other
		s.set(func() { s.away = false })
		time.Sleep(2 * fakeWindow)
		assert.Must(t, two.m.Trusted(), "the other one is not back")
		assert.Must(t, s.registered(slow.id), "deposed for what was ZooKeeper's doing")
		one.deafen(slow, false)
		time.Sleep(10 * fakeWindow)
		assert.That(t, s.registered(slow.id), "deposed though it is well again")
	})
}

// This process stood still. The looks before and after find the same guard, if the
// other gateway was as unlucky.
func TestABlindIntervalOfOnesOwnBeginsTheWaitAnew(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		other := one.session()
		one.deafen(other, true)
		time.Sleep(fakeWindow)
		s.clock.(*jumpClock).jump(20 * fakeWindow)
		time.Sleep(2 * fakeWindow)
		assert.That(t, two.m.Trusted() && s.registered(other.id),
			"trusted: %v; the other one is registered: %v", two.m.Trusted(), s.registered(other.id))
		time.Sleep(2 * fakeWindow)
		assert.That(t, !s.registered(other.id), "it is not deposed at all any more")
	})
}
