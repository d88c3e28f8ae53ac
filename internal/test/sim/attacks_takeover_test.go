package sim

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zktest"
	"lockkeeper/internal/zk/embedded/state"
	"lockkeeper/internal/zk/wire"
)

// Interleavings of gateways that are gone and those that take over.

func TestAttack07LeasesPassAlongAChainOfGateways(t *testing.T) {
	play(t, sessionOutlivesWindow, 3, 1, func(s *scene) {
		x := s.start(0)
		c := s.client(x)
		l := s.take(c, "a", "held", "ttl", "20s", "key", "chain")
		for number, dead := 1, x; number <= 2; number++ {
			next := s.start(number)
			s.die(dead)
			c.at, dead = next, next
			time.Sleep(s.timeout + time.Second) // until the session has expired and the takeover is done
			s.beatUntil(c, l, 10*time.Second)
			if n := len(s.below("/lockkeeper/succession")); n != number {
				s.Fatalf("%d takeovers where there should be %d", n, number)
			}
		}
		c.sleep(0)
		s.within(2*time.Minute, "a lease without heartbeats ends at the end of the chain", func() bool { return !s.there(l) })
		s.letGo(l.id)
		s.within(15*time.Minute, "the chain is swept", func() bool { return !s.takenOver() })
	})
}

func TestAttack31AGrantThatADeposedGatewayConfirmsIsClaimed(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		old, next := s.start(0), s.start(1)
		holder, c := s.client(old), s.client(old)
		first := s.take(holder, "a", "held", "ttl", "30s")
		l := s.take(c, "a", "waiting", "ttl", "1h", "async", "true")
		holder.release(first)
		time.Sleep(50 * time.Millisecond)
		for _, link := range s.linksToZooKeeper(old) {
			link.StallReplies() // it gets no replies, and its trust window is open for a while
		}
		s.administer(func(admin *session) {
			for _, path := range []string{s.audit.registration(old.name)} {
				assert.NoError(s, admin.delete(path))
			}
		})
		s.within(2*time.Second, "it is succeeded", s.takenOver)
		if a := s.beat(c, l); a.status != http.StatusOK || a.State != "held" {
			s.Fatalf("the deposed gateway confirms %d %s: its trust window is closed already", a.status, a.State)
		}
		c.at = next
		time.Sleep(5 * time.Minute)
		assert.That(s, s.there(l), "a lease that its client was told to hold for an hour has ended as unclaimed")
		s.beatUntil(c, l, 5*time.Second)
		c.release(l)
	})
}

func TestAttack39AHandoverWhileZooKeeperIsSlowEndsNoLease(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		old := s.start(0)
		next := s.start(1)
		c := s.client(old)
		l := s.take(c, "a", "held", "ttl", "2s")
		s.zk.Network.Slow(old.name, zktest.LeaderName, zktest.Delay{Min: 1200 * time.Millisecond, Max: 1500 * time.Millisecond})
		old.claimEnd()
		old.leave()
		refused := 0
		for began := time.Now(); time.Since(began) < 2500*time.Millisecond; time.Sleep(200 * time.Millisecond) {
			if s.beat(c, l).status != http.StatusOK {
				refused++
			}
		}
		assert.That(s, refused != 0, "no heartbeat was refused")
		c.at = next
		s.beatUntil(c, l, 10*time.Second)
		c.release(l)
	})
}

func TestAttack43ATakeoverIsSeenThoughItsEventIsLost(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		g, next := s.start(0), s.start(1)
		c := s.client(g)
		l := s.take(c, "a", "held", "ttl", "10s")
		link := s.observer(next)
		var cut atomic.Bool
		s.zk.OnCommit(func(txn *state.Txn) {
			for _, op := range txn.Ops {
				if op.Kind == state.TxnCreate && strings.HasPrefix(op.Path, "/lockkeeper/succession/") && !cut.Swap(true) {
					time.AfterFunc(time.Nanosecond, link.Cut) // the event is on its way
				}
			}
		})
		s.die(g)
		s.within(10*time.Second, "the takeover commits and its event is lost", cut.Load)
		c.at = next
		s.beatUntil(c, l, 10*time.Second)
		c.release(l)
	})
}

func TestAttack45AnInventedLeaseIDClaimsNothing(t *testing.T) {
	play(t, sessionOutlivesWindow, 1, 1, func(s *scene) {
		g := s.start(0)
		c := s.client(g)
		l := s.take(c, "a", "held", "ttl", "10s")
		const gatewayAt, gatewayEnd = 10, 23 // of an id, behind the tag and the fleet's id
		for _, letter := range []string{"a", "b", "q"} {
			id := l.id[:gatewayAt] + strings.Repeat(letter, gatewayEnd-gatewayAt-1) + "a" + l.id[gatewayEnd:]
			a, err := c.do(5*time.Second, http.MethodGet, "/v1/leases/"+id, nil, nil)
			if err != nil || a.status != http.StatusNotFound && a.status != http.StatusGone && a.status != http.StatusServiceUnavailable {
				s.Errorf("%s: %d %s, %v", id, a.status, a.raw, err)
			}
		}
		time.Sleep(5 * time.Second)
		assert.That(s, !s.takenOver(), "an invented id was succeeded")
		c.release(l)
	})
}

// Interleavings of gateways that live side by side: one is stalled, or cannot be reached, or leaves.

// mute makes a gateway commit nothing more though ZooKeeper has its pings, until end is called.
func (s *scene) mute(g *gateway) (end func()) {
	order := s.zk.Network.Swallow(g.name, func(op wire.Op) bool { return op == wire.OpMulti })
	return func() {
		s.zk.Network.Revoke(order)
		for _, l := range s.linksToZooKeeper(g) {
			if l.Sent(wire.OpMulti) > 0 {
				l.Cut() // what was swallowed is not answered any more
			}
		}
	}
}

// beatFor sends a heartbeat that a gateway writes down for another one.
func (s *scene) beatFor(g *gateway, l *lease) error {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	sent := time.Now()
	beat, err := g.manager.HeartbeatFor(ctx, locks.Anonymous, l.token)
	s.trace("%s writes a heartbeat of %s down: %s, %v", g.name, l.path, beat.State, err)
	if err == nil && (beat.State != locks.Held || g.manager.StillValid(beat.Term)) {
		s.believe(l, answer{sent: sent, received: time.Now(), gateway: g.name, status: http.StatusOK, State: string(beat.State),
			FencingToken: beat.FencingToken, TTL: beat.TTL.Milliseconds(), ExpiresIn: beat.ExpiresIn.Milliseconds()})
	}
	return err
}

func (s *scene) mustBeatFor(g *gateway, l *lease) {
	s.Helper()
	assert.NoError(s, s.beatFor(g, l), "no heartbeat is written down")
}

func TestAttack06WhatIsOnItsWayWhenAGatewayLeavesIsDoneOrNot(t *testing.T) {
	for _, after := range []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond} {
		play(t, windowOutlivesSession, 2, 1, func(s *scene) {
			old, next := s.start(0), s.start(1)
			silent, waiter, asker := s.client(old), s.client(next), s.client(old)
			expiring := s.take(silent, "a", "held", "ttl", "2s")
			w := s.take(waiter, "a", "waiting", "ttl", "30s", "async", "true")
			s.zk.Network.Slow(old.name, zktest.LeaderName, zktest.Delay{Min: 200 * time.Millisecond, Max: 500 * time.Millisecond})
			time.Sleep(1900*time.Millisecond - time.Since(s.sentLast(expiring)))
			asked := make(chan struct{})
			go func() { // a create that is on its way, and an expiry that will be
				defer close(asked)
				_, _, _ = s.ask(asker, "b", "ttl", "30s", "key", "leaving")
			}()
			time.Sleep(after)
			old.claimEnd()
			old.leave()
			<-asked
			asker.at = next
			l := (*lease)(nil)
			s.within(20*time.Second, "the create is found, or made", func() bool {
				time.Sleep(300 * time.Millisecond)
				_, l, _ = s.ask(asker, "b", "ttl", "30s", "key", "leaving")
				return l != nil
			})
			s.within(20*time.Second, "the next one is granted", func() bool {
				time.Sleep(300 * time.Millisecond)
				return s.beat(waiter, w).State == "held"
			})
			s.beatUntil(asker, l, 5*time.Second)
			assert.Equal(s, len(s.below(lockRoot+"/b")), 1, "contenders of one attempt")
			waiter.release(w)
			asker.release(l)
		})
	}
}

// sentLast is when a lease's newest successful request was sent.
func (s *scene) sentLast(l *lease) (at time.Time) {
	for _, b := range s.beliefs.list() {
		if b.lease == l.id {
			at = b.sent
		}
	}
	return at
}

func TestAttack22AnOwnerThatPingsAndCommitsNothingIsDeposed(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		stalled, next := s.start(0), s.start(1)
		c, later := s.client(stalled), s.client(stalled)
		l := s.take(c, "a", "held", "ttl", "30s")
		heal := s.mute(stalled)
		began := time.Now()
		s.within(5*s.window, "it is deposed", s.takenOver)
		silent := time.Since(began)
		assert.That(s, silent >= 5*s.window/2, "deposed after %v; the window is %v", silent, s.window)
		c.at = next
		s.beatUntil(c, l, 5*time.Second)
		a := s.beat(later, l)
		assert.That(s, a.status != http.StatusOK, "the deposed gateway confirms the lease: %s", a.raw)
		heal()
		var other *lease
		s.within(20*time.Second, "the deposed gateway serves under a new id", func() bool {
			time.Sleep(200 * time.Millisecond)
			_, other, _ = s.ask(later, "b", "ttl", "30s", "key", "anew")
			return other != nil
		})
		later.release(other)
		c.release(l)
	})
}

// ZooKeeper was away for all gateways, and one takes longer to come back.
func TestAttack22NoGatewayIsDeposedForAnOutageOfZooKeeper(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		slow, quick := s.start(0), s.start(1)
		c := s.client(slow)
		l := s.take(c, "a", "held", "ttl", "30s")
		looks := s.writer(quick)
		seen := looks.Sent(wire.OpExists) // what is found after the outage was found before it
		s.within(s.window, "a look", func() bool { return looks.Sent(wire.OpExists) > seen })
		time.Sleep(2 * time.Millisecond)
		s.zk.KillLeader()
		time.Sleep(4 * s.window)
		heal := s.mute(slow)
		assert.NoError(s, s.zk.StartLeader())
		s.within(s.window, "the other one is back", func() bool { return quick.manager.Trusted() })
		time.Sleep(2 * s.window)
		assert.That(s, !s.takenOver(), "it was deposed for the time in which ZooKeeper was away")
		heal()
		s.beatUntil(c, l, 10*time.Second)
		assert.That(s, !s.takenOver(), "it was deposed after all")
		c.release(l)
	})
}

// The owner reaches ZooKeeper; its clients do not reach the owner.
func TestAttack22ALeaseWhoseOwnerCannotBeReachedLivesByWrittenHeartbeats(t *testing.T) {
	play(t, sessionOutlivesWindow, 3, 1, func(s *scene) {
		owner, one, two := s.start(0), s.start(1), s.start(2)
		c := s.client(owner)
		l := s.take(c, "a", "held", "ttl", "5s")
		for i := range 15 {
			time.Sleep(4 * time.Second)
			s.mustBeatFor([]*gateway{one, two}[i%2], l)
		}
		assert.Must(s, s.there(l), "it has gone")
		s.within(8*time.Second, "it ends without heartbeats", func() bool { return !s.there(l) })
	})
}

// The owner has not heard of the heartbeat when it has the lease expire.
func TestAttack33AnExpiryThatMeetsAWrittenHeartbeatIsNotDone(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		owner, other := s.start(0), s.start(1)
		c := s.client(owner)
		l := s.take(c, "a", "held", "ttl", "10s")
		time.Sleep(9 * time.Second)
		link := s.observer(owner)
		link.StallReplies()
		s.mustBeatFor(other, l)
		sent := s.writer(owner).Sent(wire.OpMulti)
		time.Sleep(1500 * time.Millisecond)
		assert.That(s, s.writer(owner).Sent(wire.OpMulti) != sent, "the owner has not tried to end it")
		link.Resume()
		time.Sleep(8 * time.Second)
		assert.That(s, s.there(l), "a heartbeat that was answered with success has been swallowed")
		s.beatUntil(c, l, 2*time.Second)
		c.release(l)
	})
}

// Another program writes over the heartbeat before the owner has read it.
func TestAttack34AVersionIsNotSeenBeforeItsHeartbeatIsApplied(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		owner, other := s.start(0), s.start(1)
		c := s.client(owner)
		l := s.take(c, "a", "held", "ttl", "10s")
		time.Sleep(9 * time.Second)
		link := s.observer(owner)
		link.StallReplies()
		s.mustBeatFor(other, l)
		s.administer(func(admin *session) { s.weather.revoke(admin, l.path) })
		time.Sleep(100 * time.Millisecond)
		link.Resume()
		time.Sleep(9 * time.Second)
		assert.That(s, s.there(l), "a heartbeat that was answered with success has been swallowed")
		s.beatUntil(c, l, 2*time.Second)
		c.release(l)
	})
}

// What a gateway has looked at is old when it acts upon it: the other one has written since.
func TestAttack38AGatewayThatHasWrittenSinceItWasLookedAtIsNotDeposed(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		healthy, other := s.start(0), s.start(1)
		c := s.client(healthy)
		l := s.take(c, "a", "held", "ttl", "30s")
		heal := s.mute(healthy)
		// The looks are a third of a window apart: with the tenth the three windows are over.
		link := s.writer(other)
		last := link.Sent(wire.OpExists) + 10
		s.within(4*s.window, "nine looks", func() bool { return link.Sent(wire.OpExists) == last-1 })
		for link.Sent(wire.OpExists) < last {
			time.Sleep(20 * time.Microsecond)
		}
		link.StallReplies()
		time.Sleep(time.Millisecond) // until the look has been answered
		heal()
		s.within(300*time.Millisecond, "it writes again", func() bool { return s.beat(c, l).status == http.StatusOK })
		link.Resume()
		s.within(100*time.Millisecond, "it is to be deposed: its registration is looked at", func() bool { return link.Sent(wire.OpExists) > last })
		time.Sleep(time.Second)
		assert.That(s, !s.takenOver(), "a gateway that has written since was deposed")
		s.beatUntil(c, l, time.Second)
		c.release(l)
	})
}

// Another program deletes one contender of a lease of several locks whose gateway is gone. The lease holds none of them
// any more, though a successor leaves the others in place for a while.
func TestAttack60TheTokenOfALeaseThatHasLostAContenderIsNotCurrent(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		one, two := s.start(0), s.start(1)
		c, other := s.client(one), s.client(two)
		l := s.several(c, "held", []wish{{"b", claim{mode: exclusive}}, {"a", claim{mode: exclusive}}}, "ttl", "30s")
		l.fencing = s.beat(c, l).FencingToken
		time.Sleep(s.window + slack)
		s.die(one)
		broken := s.audit.at(l.id, "a").path
		s.exemptions.excuse(broken)
		s.administer(func(admin *session) { assert.NoError(s, admin.delete(broken)) })
		time.Sleep(100 * time.Millisecond)
		f := s.fence(other, "b", l.fencing)
		assert.That(s, f.status == http.StatusOK && !f.Current && s.audit.at(l.id, "b").gone.IsZero(), "its token: %d %s", f.status, f.raw)
		s.within(time.Minute, "the rest of it ends, too", func() bool { return !s.audit.at(l.id, "b").gone.IsZero() })
	})
}
