package sim

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/webhooks"
	"lockkeeper/internal/zk/embedded/state"
)

// askToRelease revokes a lock's leases; force is when they end if their holders do not release, 0 for never.
func (s *scene) askToRelease(c *client, lock string, force time.Duration) {
	s.Helper()
	done, _ := s.exemptions.intervene(intervention{lock: lock, force: force}, force > 0)
	query := url.Values{"reason": {"now"}}
	if force > 0 {
		query.Set("force_after", force.String())
	}
	a, err := c.do(5*time.Second, http.MethodPost, "/v1/locks/"+lock+"/revoke", query, nil)
	assert.Must(s, err == nil && a.status == http.StatusOK, "a revocation: %d %s, %v", a.status, a.raw, err)
	done()
}

// Force is due at the owner after the withdrawal was written, and before the owner's replica shows it.
func TestAttack52ForceDoesNotOvertakeAWithdrawal(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		owner, other := s.start(0), s.start(1)
		holder, admin := s.client(owner), s.client(other)
		l := s.take(holder, "a", "held", "ttl", "60s")
		const force = 3 * time.Second
		asked := time.Now()
		s.askToRelease(admin, "a", force)
		s.within(time.Second, "the owner knows of the revocation", func() bool { return s.beat(holder, l).Revoke != nil })
		known := time.Now()
		time.Sleep(time.Until(asked.Add(force - 200*time.Millisecond)))
		stalled := s.observer(owner)
		stalled.StallReplies()
		admin.withdraw("a")
		assert.Must(s, time.Since(asked) < force, "the withdrawal was written when force was due already")
		time.Sleep(time.Until(known.Add(force + 200*time.Millisecond)))
		assert.Must(s, s.observer(owner) == stalled, "the owner's observer has connected anew")
		stalled.Resume()
		s.stillHeld(holder, l, time.Second)
		holder.release(l)
	})
}

// The owner learns of the withdrawal and of the next revocation at once.
func TestAttack53ARevocationAfterAWithdrawalHasNothingOfTheOldForce(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		owner, other := s.start(0), s.start(1)
		holder, admin := s.client(owner), s.client(other)
		l := s.take(holder, "a", "held", "ttl", "60s")
		const force = 5 * time.Second
		s.askToRelease(admin, "a", force)
		s.within(time.Second, "the owner knows of the revocation", func() bool { return s.beat(holder, l).Revoke != nil })
		stalled := s.observer(owner)
		stalled.StallReplies()
		admin.withdraw("a")
		s.askToRelease(admin, "a", 0)
		assert.Must(s, s.beat(holder, l).Revoke != nil, "the owner has heard of the withdrawal alone")
		stalled.Resume()
		s.stillHeld(holder, l, force+time.Second)
		assert.That(s, s.beat(holder, l).Revoke != nil, "its holder is not asked to release any more")
		holder.release(l)
	})
}

// stillHeld checks that a lease that was revoked is there after that time.
func (s *scene) stillHeld(c *client, l *lease, after time.Duration) {
	s.Helper()
	time.Sleep(after)
	a := s.beat(c, l)
	assert.That(s, s.there(l) && a.status == http.StatusOK, "force that was withdrawn has ended the lease: %d %s", a.status, a.raw)
}

// A place is kept for its lock delay when another program writes over its record, and later the gateway dies.
func TestAttack56ALeaseThatHasEndedStaysSoWhenItsRecordIsOverwritten(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		one, two := s.start(0), s.start(1)
		c, next := s.client(one), s.client(two)
		l := s.take(c, "a", "held", "ttl", "2s", "lock_delay", "20s")
		s.ledger.agree(l.id, terms{delay: 20 * time.Second})
		n := s.take(next, "a", "waiting", "ttl", "30s", "async", "true")
		s.within(5*time.Second, "it expires", func() bool {
			s.beat(next, n)
			return !s.audit.at(l.id, "a").closed.IsZero()
		})
		s.administer(func(admin *session) { assert.NoError(s, admin.set(l.path, "__REVOKE__")) })
		time.Sleep(100 * time.Millisecond)
		s.die(one)
		c.at = two
		for began := time.Now(); time.Since(began) < 15*time.Second; time.Sleep(100 * time.Millisecond) {
			a := s.beat(c, l)
			assert.Must(s, a.status != http.StatusOK, "a lease that has expired is alive: %s", a.raw)
			s.beat(next, n)
		}
		assert.Must(s, s.takenOver() && s.there(l), "its place is not kept by a successor")
		s.within(30*time.Second, "the delay is over", func() bool { return s.beat(next, n).State == "held" })
		next.release(n)
	})
}

// The owner is dead when another program writes over the record: which holds the lease had is not known any more. A client that
// releases its last hold by its name, over and over, is refused, and releases the lease plainly.
func TestAttack57AHoldThatIsNotKnownAnyMoreIsNotReleasedByItsName(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		one, two := s.start(0), s.start(1)
		c := s.client(one)
		l := s.take(c, "a", "held", "ttl", "30s", "hold", "outer")
		l.reentrant, l.holds = true, []string{"outer"}
		kept := s.take(c, "b", "held", "ttl", "30s", "hold", "outer")
		s.die(one)
		c.at = two
		go func() {
			time.Sleep(500 * time.Millisecond) // the release has been sent
			s.administer(func(admin *session) {
				for _, path := range []string{l.path, kept.path} {
					assert.NoError(s, admin.set(path, "__REVOKE__"))
				}
			})
		}()
		c.release(l)
		assert.Must(s, s.takenOver() && !s.there(l), "the lease has not ended")
		a, err := c.do(5*time.Second, http.MethodDelete, "/v1/leases/self", url.Values{"hold": {"outer"}}, kept.header())
		assert.That(s, err == nil && a.status == http.StatusUnprocessableEntity, "the release of a hold is answered %d %s, %v", a.status, a.raw, err)
		assert.That(s, s.there(kept), "a hold that is not known has ended the lease")
		c.release(kept)
	})
}

// Another gateway's administrator ends a lease of two locks right before its owner does. The owner sees that deletion before
// its own one is answered.
func TestAttack58WhichEndOfALeaseOfSeveralLocksCameFirstIsToldAlikeOfEachLock(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		owner, other := s.start(0), s.start(1)
		c, admin := s.client(owner), s.client(other)
		l := s.several(c, "held", []wish{{"a", claim{mode: exclusive}}, {"b", claim{mode: exclusive}}}, "ttl", "3s")
		time.Sleep(2800 * time.Millisecond)
		observer, writer := s.observer(owner), s.writer(owner)
		observer.StallReplies()
		writer.StallReplies()
		admin.terminate(intervention{lock: "a"}, "/v1/locks/a/reap", url.Values{"older_than": {"1s"}})
		assert.Must(s, !s.there(l), "the administrator's gateway has not ended the lease")
		time.Sleep(400 * time.Millisecond) // the owner's deletion is on its way
		observer.Resume()
		time.Sleep(10 * time.Millisecond)
		writer.Resume()
		time.Sleep(time.Second)
		assert.Equal(s, s.beat(c, l).Reason, "revoked")
	})
}

// Another program writes over a lease's record while no gateway runs the lease: its lock delay is not known any more. A release in
// the place of the next owner, which is dead too, writes down that the lease has ended, and frees the place at once.
func TestAttack61ALockDelayThatIsNotKnownAnyMoreIsNotKept(t *testing.T) {
	play(t, windowOutlivesSession, 3, 1, func(s *scene) {
		one, two := s.start(0), s.start(1)
		c := s.client(one)
		l := s.take(c, "a", "held", "ttl", "60s", "lock_delay", "20s", "lock_delay_on", "always")
		s.ledger.agree(l.id, terms{delay: 20 * time.Second, always: true})
		s.die(one)
		s.administer(func(admin *session) { assert.NoError(s, admin.set(l.path, "__REVOKE__")) })
		c.at = two
		s.beatUntil(c, l, 30*time.Second)
		s.die(two)
		c.at = s.start(2)
		c.release(l)
		s.within(5*time.Second, "its place is free", func() bool { return s.audit.at(l.id, "a").gone != time.Time{} })
		assert.That(s, !s.audit.at(l.id, "a").closed.IsZero(), "the release did not write down that the lease has ended")
	})
}

// The same for a place that a released lease has left: its successor does not know that the lease has ended, and tells of another end.
func TestAttack62AnEndThatIsNotKnownAnyMoreIsToldASecondTime(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		one, two := s.start(0), s.start(1)
		c := s.client(one)
		l := s.take(c, "a", "held", "ttl", "60s", "lock_delay", "50s", "lock_delay_on", "always")
		s.ledger.agree(l.id, terms{delay: 50 * time.Second, always: true})
		c.release(l)
		s.die(one)
		s.administer(func(admin *session) { assert.NoError(s, admin.set(l.path, "__REVOKE__")) })
		s.within(30*time.Second, "a successor", s.takenOver)
		time.Sleep(time.Second)
		admin := s.client(two)
		admin.terminate(intervention{lock: "a"}, "/v1/locks/a/destroy", url.Values{"reason": {"a test"}})
		assert.That(s, s.audit.at(l.id, "a").gone != time.Time{}, "its place is not free")
	})
}

// Interleavings of ends, subscriptions and deliveries.

// subscribeAt makes a webhook for some types, without any for all ends, and gives its id.
func (s *scene) subscribeAt(g *gateway, types ...string) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	sub := assert.Value(g.hooks.Create(ctx, &webhooks.Subscription{URL: "http://receiver.example/a", Enabled: true, Events: types}))(s)
	return sub.ID
}

func (s *scene) toldOf(hook string, l *lease) bool {
	s.receivers.mu.Lock()
	defer s.receivers.mu.Unlock()
	return !s.receivers.told[hook+" "+l.id].IsZero()
}

// setDown has receivers take nothing, or everything again.
func (s *scene) setDown(down bool) {
	s.receivers.mu.Lock()
	defer s.receivers.mu.Unlock()
	s.receivers.down = down
}

func TestAttack19AReleaseAtAGatewayThatHasNotHeardOfTheSubscriptionIsTold(t *testing.T) {
	playIn(t, Plan{Seed: sessionOutlivesWindow, Gateways: 2, Servers: 1, Hooks: 1}, func(s *scene) {
		stalled, other := s.start(0), s.start(1)
		c := s.client(stalled)
		l := s.take(c, "a", "held", "ttl", "1h")
		watch := s.observer(stalled)
		watch.StallReplies() // it gets no replies, and may write
		hook := s.subscribeAt(other)
		released := make(chan struct{})
		go func() { c.release(l); close(released) }()
		time.Sleep(time.Second)
		watch.Resume()
		<-released
		s.within(10*time.Second, "the end is told", func() bool { return s.toldOf(hook, l) })
	})
}

// Whose administrator breaks a lease notes the end; the gateway that ran it has heard so, and has nothing to add.
func TestHooksABreakAtAnotherGatewayIsToldOnce(t *testing.T) {
	playIn(t, Plan{Seed: sessionOutlivesWindow, Gateways: 2, Servers: 1, Hooks: 1}, func(s *scene) {
		runs, breaks := s.start(0), s.start(1)
		hook := s.subscribeAt(runs)
		time.Sleep(time.Second)
		admin, watch, broken := s.client(breaks), s.observer(runs), 0
		for _, lock := range lockNames {
			l := s.take(s.client(runs), lock, "held", "ttl", "1h")
			watch.StallReplies() // the word is quicker than its watch
			admin.terminate(intervention{lease: l.id}, "/v1/leases/"+l.id+"/break", url.Values{})
			time.Sleep(300 * time.Millisecond)
			watch.Resume()
			s.within(10*time.Second, "the end is told", func() bool { return s.toldOf(hook, l) })
			if s.audit.at(l.id, lock).endedBy == breaks.name {
				broken++
			}
		}
		assert.That(s, broken != 0, "the gateway that runs the leases has ended them all by itself: nothing is shown")
		time.Sleep(time.Minute)
		s.receivers.mu.Lock()
		defer s.receivers.mu.Unlock()
		assert.That(s, len(s.receivers.took) == len(lockNames), "%d messages", len(s.receivers.took))
		for id, n := range s.receivers.took {
			assert.That(s, n == 1, "%s is told %d times", id, n)
		}
	})
}

// When a gateway is gone what it has left falls to any of the others, until one of them is its successor. One that has not heard yet that there
// is one leaves it to the other, which has, and leaves it to the successor.
func TestHooksASuccessorDeliversWhatWasLeftToAnotherGatewayBefore(t *testing.T) {
	playIn(t, Plan{Seed: sessionOutlivesWindow, Gateways: 3, Servers: 1, Hooks: 1}, func(s *scene) {
		dead, next, other := s.start(0), s.start(1), s.start(2)
		hook := s.subscribeAt(next)
		time.Sleep(time.Second)
		s.take(s.client(dead), "a", "held", "ttl", "1h") // or there would be nothing to succeed to
		s.setDown(true)
		var ended []*lease
		for i := range 12 {
			c := s.client(dead)
			ended = append(ended, s.take(c, fmt.Sprint("left-", i), "held", "ttl", "1h"))
			c.release(ended[i])
		}
		registration := s.audit.registration(dead.name)
		nextWatch, otherWatch := s.observer(next), s.observer(other)
		gone, succeeded := make(chan struct{}), make(chan struct{})
		s.zk.OnCommit(func(txn *state.Txn) {
			for _, op := range txn.Ops {
				switch {
				case op.Path == registration && gone != nil:
					otherWatch.StallReplies() // until there is a successor
					close(gone)
					gone = nil
				case strings.HasPrefix(op.Path, "/lockkeeper/succession/") && succeeded != nil:
					nextWatch.StallReplies() // it does not hear that it is
					close(succeeded)
					succeeded = nil
				}
			}
		})
		over := succeeded
		s.die(dead)
		<-over
		otherWatch.Resume()
		s.setDown(false)
		time.Sleep(500 * time.Millisecond)
		nextWatch.Resume()
		untold := func() (n int) {
			for _, l := range ended {
				if !s.toldOf(hook, l) {
					n++
				}
			}
			return n
		}
		s.within(5*time.Minute, "all that it left is told", func() bool { return untold() == 0 })
	})
}

// A gateway has told of its leases what is best effort. Its successor tells what happens to them from then on, and what it tells again has
// the id that it had (receivers.arrived).
func TestHooksASuccessorTellsWhatHappensToTheLeasesThatItHasTakenOver(t *testing.T) {
	playIn(t, Plan{Seed: sessionOutlivesWindow, Gateways: 3, Servers: 1, Hooks: 1}, func(s *scene) {
		dead, next, _ := s.start(0), s.start(1), s.start(2)
		hook := s.subscribeAt(next, slices.Concat(webhooks.Durable, webhooks.BestEffort)...)
		time.Sleep(time.Second)
		told := func(kind string, l *lease) int {
			s.receivers.mu.Lock()
			defer s.receivers.mu.Unlock()
			return s.receivers.besides[kind+" "+l.id]
		}
		holder := s.take(s.client(dead), "a", "held", "ttl", "1h")
		waiter := s.take(s.client(dead), "a", "waiting", "ttl", "1h", "async", "true")
		s.within(10*time.Second, "what the first gateway has to tell is told", func() bool {
			return told(webhooks.Queued, holder) > 0 && told(webhooks.Granted, holder) > 0 && told(webhooks.Queued, waiter) > 0
		})
		s.die(dead)
		c := s.client(next)
		s.within(5*time.Minute, "the holder is released at another gateway, and that is told", func() bool {
			c.release(holder)
			return s.toldOf(hook, holder)
		})
		s.within(5*time.Minute, "the successor tells that the waiter is granted", func() bool { return told(webhooks.Granted, waiter) > 0 })
		time.Sleep(time.Minute)
		s.receivers.mu.Lock()
		defer s.receivers.mu.Unlock()
		for what, n := range s.receivers.besides {
			assert.That(s, n == 1, "%s is told %d times", what, n)
		}
	})
}

// A client releases a lease at a gateway that cannot reach the owner, which lives: the owner learns of the end from the
// record, and keeps the place for the lock delay.
func TestAttack59AReleaseInTheOwnersPlaceIsAnEndLikeTheOwners(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		owner, other := s.start(0), s.start(1)
		c, next := s.client(owner), s.client(other)
		l := s.take(c, "a", "held", "ttl", "30s", "lock_delay", "10s", "lock_delay_on", "always")
		s.ledger.agree(l.id, terms{delay: 10 * time.Second, always: true})
		plain := s.take(c, "b", "held", "ttl", "30s")
		n := s.take(next, "a", "waiting", "ttl", "30s", "async", "true")
		for _, p := range [][2]string{{asPeer(owner.name), other.name}, {asPeer(other.name), owner.name}} {
			s.zk.Network.Part(p[0], p[1])
			s.zk.Network.CutAll(s.zk.Network.Links(p[0], p[1]))
		}
		for _, released := range []*lease{l, plain} {
			s.letGo(released.id)
			a, err := next.do(5*time.Second, http.MethodDelete, "/v1/leases/self", nil, released.header())
			assert.Must(s, err == nil && a.status == http.StatusNoContent, "a release: %d %s, %v", a.status, a.raw, err)
			a = s.beat(c, released)
			assert.That(s, a.status == http.StatusGone && a.Reason == "released", "at the owner: %d %s", a.status, a.raw)
		}
		assert.Must(s, s.there(n) && s.beat(next, n).State == "waiting" && !s.there(plain), "the lock delay is not kept")
		s.within(time.Minute, "the delay is over", func() bool { return s.beat(next, n).State == "held" })
		next.release(n)
	})
}
