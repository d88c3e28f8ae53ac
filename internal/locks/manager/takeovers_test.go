package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/cluster"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
)

// narrow is a store whose sessions write one transaction after the other, each for writeTakes, as the real writer does with
// transactions that travel alone, and refuse a write when too many wait.
type narrow struct{ *fakeStore }

const (
	writeTakes = 5 * time.Millisecond
	writesWait = 8192
)

func (n narrow) Open(ctx context.Context, id string, registration []byte, onCommit func(zk.Instant, int64)) (term.Session, error) {
	s, err := n.fakeStore.Open(ctx, id, registration, onCommit)
	if err != nil {
		return nil, err
	}
	return &narrowSession{fakeSession: s.(*fakeSession)}, nil
}

type narrowSession struct {
	*fakeSession
	line    sync.Mutex
	free    time.Time // when the last of those that wait is done
	waiting int
}

// turn waits for the place in line of one write.
func (n *narrowSession) turn(then func()) error {
	n.line.Lock()
	defer n.line.Unlock()
	if n.waiting >= writesWait {
		return zk.ErrQueueFull
	}
	n.waiting++
	if now := time.Now(); n.free.Before(now) {
		n.free = now
	}
	n.free = n.free.Add(writeTakes)
	time.AfterFunc(time.Until(n.free), func() {
		n.line.Lock()
		n.waiting--
		n.line.Unlock()
		then()
	})
	return nil
}

func (n *narrowSession) Submit(w *zk.Write) error {
	return n.turn(func() {
		if err := n.fakeSession.Submit(w); err != nil {
			w.Answer(zk.Result{Outcome: zk.NotDone, Err: err, Culprit: -1})
		}
	})
}

func (n *narrowSession) Takeover(ctx context.Context, dead string, polled *zk.Guard, done func(zk.Result)) {
	if err := n.turn(func() { n.fakeSession.Takeover(ctx, dead, polled, done) }); err != nil {
		done(zk.Result{Outcome: zk.NotDone, Err: err, Culprit: -1})
	}
}

// forge creates contenders of gateways that never existed, and returns their paths. letter is the first one of their ids.
func (s *fakeStore) forge(letter byte, ids int) []string {
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	var ops []zk.Op
	if len(s.names("/lockkeeper/locks/flood")) == 0 {
		ops = append(ops, zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/flood"})
	}
	for i := range ids {
		gateway := []byte(string(letter) + "aaaaaaaaaaaa")
		for at, n := len(gateway)-2, i; n > 0; at, n = at-1, n/len(letters) {
			gateway[at] = letters[n%len(letters)]
		}
		ops = append(ops, zk.Op{Kind: zk.OpCreate, Sequential: true,
			Path: fmt.Sprintf("/lockkeeper/locks/flood/write-v1.lk%s%s%s-lock-", s.layout.FleetID, gateway, strings.Repeat("a", 16))})
	}
	_, paths := s.foreign(ops...)
	return paths[len(paths)-ids:]
}

// remove takes nodes away, one transaction each.
func (s *fakeStore) remove(paths []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range paths {
		s.zxid++
		delete(s.nodes, p) // without tx, which looks for children among all nodes
		s.announce(zk.NodeRemoved, p)
	}
}

// Attack 45, with contenders. Rule: ids that no gateway is known to have had are taken over at a rate of their own.
func TestForgedGatewayIDsDelayNoTakeover(t *testing.T) {
	testkit.NotShort(t, "6,000 gateways")
	scene(t, func(t *testing.T, s *fakeStore) {
		one, two := s.gateway(t), s.gatewayOn(t, narrow{s})
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		forged := s.forge('a', 6000) // whose ids all come before that of a real gateway, more likely than not
		crashed := time.Now()
		one.crash()
		for {
			began := time.Now()
			other, err := two.acquire(locks.AcquireRequest{Lock: "other", TTL: time.Minute})
			if took := time.Since(began); err != nil || other.State != locks.Held || took > 500*time.Millisecond {
				t.Fatalf("an acquire takes %v: %+v %v", took, other, err)
			}
			two.mustRelease(other)
			if beat, err := two.heartbeat(l); err == nil && beat.State == locks.Held {
				break
			}
			assert.Must(t, time.Since(crashed) <= 15*time.Second, "no gateway runs the lease 5 s after the session timeout")
			time.Sleep(300 * time.Millisecond)
		}
		two.mustRelease(l)
		const seconds = 15
		time.Sleep(seconds * time.Second)
		entries := len(s.names("/lockkeeper/succession"))
		since := int(time.Since(crashed)/time.Second) + 1
		assert.That(t, entries >= seconds*cluster.ClaimsRate && entries <= 1+cluster.ClaimsBurst+since*cluster.ClaimsRate,
			"%d successions after %d s", entries, since)
		s.remove(forged)
		time.Sleep(time.Minute)
		left := s.names("/lockkeeper/succession")
		assert.That(t, len(left) <= 0, "%d successions are left a minute after the last contender", len(left))
	})
}

// A gateway that died before this process started is an unknown id, too. Rule: few of those are taken over at once.
func TestAGatewayThatDiedBeforeThisProcessStartedIsTakenOverAmongFewForgedIDs(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		one.crash()
		time.Sleep(11 * time.Second)
		s.forge('a', cluster.ClaimsBurst-1)
		two := s.gatewayOn(t, narrow{s})
		time.Sleep(3 * time.Second)
		beat, err := two.heartbeat(l)
		assert.Must(t, err == nil && beat.State == locks.Held, "%+v %v", beat, err)
		n := len(s.names("/lockkeeper/succession"))
		assert.That(t, n == cluster.ClaimsBurst, "%d successions of %d ids", n, cluster.ClaimsBurst)
	})
}

// Rule: a succession goes when no contender has the id and no other entry names it, hundreds in a second.
func TestSuccessionsAreSweptManyAtOnce(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.gatewayOn(t, narrow{s})
		forged := s.forge('a', 2*cluster.ClaimsBurst)
		pass(10 * time.Second)
		n := len(s.names("/lockkeeper/succession"))
		assert.Must(t, n == len(forged), "%d successions of %d", n, len(forged))
		kept := forged[0]
		s.remove(forged[1:])
		time.Sleep(3 * time.Second)
		left := s.names("/lockkeeper/succession")
		assert.That(t, len(left) == 1 && strings.Contains(kept, left[0]), "left: %v; %s has a contender", left, kept)
	})
}

// deafen makes a gateway's session one that pings and commits nothing, or lets it write again.
func (g *gate) deafen(session *fakeSession, deaf bool) {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	session.deaf = deaf
}

// registered reports whether a gateway id is.
// The session of an owner ends while it expires a lease, and the expiry is not done. Its successor, which the owner does not know
// yet, ends the lease in another way: the owner does not tell that it has expired.
func TestAnExpiryThatASuccessorHasOvertakenIsNotTold(t *testing.T) {
	for _, locksOf := range [][]locks.Want{{{Lock: "a"}}, {{Lock: "a"}, {Lock: "b"}}} {
		t.Run(fmt.Sprint(len(locksOf)), in(scene, func(t *testing.T, s *fakeStore) {
			h := s.hooked()
			one, two := h.gateway(t), s.gateway(t)
			l := one.mustHold(locks.AcquireRequest{Group: locksOf, TTL: 20 * time.Second})
			h.failReads("/succession/")
			s.set(func() { s.loseAlone(false, writeTo(l.Znode)) })
			pass(21 * time.Second)
			s.set(func() { s.loseReply, s.refuse = nil, nil })
			one.m.port.Session().(*hookedSession).expire()
			pass(5 * time.Second)
			two.mustRelease(l)
			synctest.Wait()
			for _, e := range one.told() {
				if e.Reason != "" && e.LeaseID == l.ID {
					assert.Equal(t, e.Reason, string(locks.ReasonRemoved), "told of %s", e.Lock)
				}
			}
			assert.That(t, slices.Contains(one.tells(events.LeaseRemoved), "lease.removed removed"), "the end is not told")
		}))
	}
}

func (s *fakeStore) registered(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes["/lockkeeper/gateways/"+id] != nil
}

// Attack 22. Rule: a registered gateway whose guard has not moved for 3 W is succeeded, and its leases go on elsewhere.
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

// The writer is told nothing. Rule: the fence closes for good when the gateway sees its own succession.
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

// Attack 38: what was looked at is old. Rule: the transaction names the version that was polled when the 3 W began, and
// the gateway that has written since stays; the 3 W begin again, also where the looks go on showing what is old.
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

// ZooKeeper was away, and everybody's guard stood still. Rule: only time counts in which one's own fence was open.
func TestNoGatewayIsDeposedForTheTimeInWhichZooKeeperWasAway(t *testing.T) {
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

// This process stood still. The looks before and after find the same guard, if the other gateway was as unlucky.
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

// A gateway's session ends, another gateway takes its leases over, and its next session begins before its replica shows that. The wait of
// an acquire ends meanwhile. The lease is the other gateway's, whose client may hold it by now: the new session must not delete it.
func TestANewSessionDeletesNoLeaseThatAnotherGatewayHasTakenOver(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		holder := two.mustHold(deploy())
		req := locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: 20 * time.Second, IdempotencyKey: "abcdefghijklmnop"}
		first := one.begin(req)
		time.Sleep(18 * time.Second)
		one.w.hold()
		one.expireSession()
		time.Sleep(time.Second) // taken over
		again := two.begin(req)
		synctest.Wait()
		two.mustRelease(holder)
		assert.Must(t, again.finished() && again.err == nil && again.lease.State == locks.Held, "%+v %v", again.lease, again.err)
		time.Sleep(2 * time.Second) // the first wait is over
		assert.Equal(t, len(s.names("/lockkeeper/locks/deploy")), 1, "contenders")
		one.w.release()
		assert.That(t, first.finished() && first.err != nil, "%+v %v", first.lease, first.err)
		two.wantState(again.lease, locks.Held, "")
		checkAll(t, s, one, two)
	})
}
