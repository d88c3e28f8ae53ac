package sim

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/embedded/state"
)

// More interleavings that the recipes must withstand; see attacks_recipes_test.go.

// The successor knows that the lease is its own, and has not read what its contender says. When exactly that is depends on what the
// network's delays are; so it is tried at one moment after the other.
func TestAttack35ALeaseIsReadBeforeItIsHeartbeatenByASuccessor(t *testing.T) {
	waited := 0 // heartbeats that had to wait for the read
	for after := 400 * time.Microsecond; after < 4*time.Millisecond; after += 200 * time.Microsecond {
		play(t, windowOutlivesSession, 2, 1, func(s *scene) {
			one, two := s.start(0), s.start(1)
			c := s.client(one)
			l := s.take(c, "a", "held", "ttl", "2s", "lock_delay", "60s")
			s.ledger.agree(l.id, terms{delay: time.Minute})
			s.within(5*time.Second, "it expires", func() bool { return !s.audit.at(l.id, "a").closed.IsZero() })
			observer := s.observer(two)
			stalled := make(chan struct{}, 1)
			s.zk.OnCommit(func(txn *state.Txn) {
				for _, op := range txn.Ops {
					if op.Kind == state.TxnCreate && strings.HasPrefix(op.Path, "/lockkeeper/succession/") && len(stalled) == 0 {
						time.AfterFunc(after, func() {
							observer.StallReplies()
							stalled <- struct{}{}
						})
					}
				}
			})
			s.die(one)
			c.at = two
			<-stalled
			a := s.beat(c, l)
			assert.That(s, a.status != http.StatusOK, "after %v a lease that has expired is alive: %s", after, a.raw)
			if a.received.Sub(a.sent) > 500*time.Millisecond {
				waited++
			}
			observer.Resume()
			s.within(20*time.Second, "the successor says that it has ended", func() bool { return s.beat(c, l).status == http.StatusGone })
		})
	}
	assert.That(t, waited != 0, "no heartbeat came between the takeover and the read")
}

// A gateway was deposed, and its trust window is open for a while.
func TestAttack36ADeposedGatewayDoesNotSayThatATokenIsCurrent(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		old, next := s.start(0), s.start(1)
		holder, asker := s.client(old), s.client(old)
		l := s.take(holder, "a", "held", "ttl", "30s")
		token := s.beat(holder, l).FencingToken
		for _, link := range s.linksToZooKeeper(old) {
			link.StallReplies()
		}
		s.administer(func(admin *session) { assert.NoError(s, admin.delete(s.audit.registration(old.name))) })
		s.within(2*time.Second, "it is succeeded", s.takenOver)
		holder.at = next
		holder.release(l)
		assert.Must(s, !s.there(l), "the successor has not ended it")
		assert.MustEqual(s, s.beat(asker, l).status, http.StatusOK, "the deposed gateway is not trusted")
		for range 3 {
			a := s.fence(asker, "a", token)
			assert.That(s, a.status != http.StatusOK || !a.Current, "the token of a lease that has ended is current: %s", a.raw)
		}
	})
}

func TestAttack44ALeaseOfSeveralLocksSurvivesItsDowngrade(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		one, two := s.start(0), s.start(1)
		c, reader := s.client(one), s.client(two)
		wishes := []wish{{"c", claim{mode: exclusive}}, {"a", claim{mode: exclusive}}, {"b", claim{mode: shared}}}
		l := s.several(c, "held", wishes, "ttl", "30s")
		r := s.several(reader, "waiting", []wish{{"a", claim{mode: shared}}, {"c", claim{mode: shared}}}, "ttl", "30s", "async", "true")
		replaced := s.counting(state.TxnCreate, lockRoot+"/")
		s.downgrade(c, l)
		assert.MustEqual(s, replaced(), 2, "contenders were replaced")
		s.within(time.Second, "readers are let in", func() bool { return s.beat(reader, r).State == "held" })
		s.stays(c, l, "held", "a lease of several locks after its downgrade")
		for _, p := range s.audit.places(l.id) {
			assert.That(s, p.mode == shared && strings.Contains(p.path, "/read-"), "%s is %s", p.path, p.mode)
		}
		reader.release(r)
		c.release(l)
	})
}

// The settings that a gateway has read are deleted and made anew with another limit.
func TestAttack48SettingsThatWereMadeAnewDoNotPassForTheOldOnes(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		one, behind := s.start(0), s.start(1)
		a, b := s.client(one), s.client(behind)
		permit := []string{"mode", "semaphore", "permits", "2", "ttl", "30s"}
		a.release(s.take(a, "a", "held", append(permit, "limit", "2")...))
		time.Sleep(200 * time.Millisecond)
		stalled := s.observer(behind)
		stalled.StallReplies()
		// The gateway that is behind believes in a limit of 2; it is 3 now.
		a.remove("a")
		if n := len(s.below(settingsRoot)); n != 0 {
			s.Fatalf("the settings are there: %v", s.below(settingsRoot))
		}
		x := s.take(a, "a", "held", "mode", "semaphore", "permits", "1", "limit", "3", "ttl", "30s")
		answered := make(chan answer, 1)
		go func() {
			got, _, _ := s.ask(b, "a", append(permit, "async", "true")...)
			answered <- got
		}()
		time.Sleep(200 * time.Millisecond)
		assert.Must(s, s.observer(behind) == stalled, "it has connected anew")
		stalled.Resume()
		got := <-answered
		assert.Must(s, got.Token != "", "the acquire is answered %d %s", got.status, got.raw)
		assert.That(s, got.Limit == 3, "it was enqueued under a limit of %d; the lock's is 3", got.Limit)
		l := newLease([]wish{{"a", claim{semaphore, 2, got.Limit}}}, got, 30*time.Second)
		s.stays(b, l, "held", "three permits of three")
		a.release(x)
		b.release(l)
	})
}

// Its holder goes on heartbeating, and never lets go.
func TestAttack50ForceOutlivesTheGatewayThatWasToUseIt(t *testing.T) {
	play(t, sessionOutlivesWindow, 2, 1, func(s *scene) {
		one := s.start(0)
		holder, admin := s.client(one), s.client(one)
		l := s.take(holder, "a", "held", "ttl", "20s")
		done, _ := s.exemptions.intervene(intervention{lock: "a", force: 15 * time.Second}, true)
		a, err := admin.do(5*time.Second, http.MethodPost, "/v1/locks/a/revoke", url.Values{"reason": {"now"}, "force_after": {"15s"}}, nil)
		assert.Must(s, err == nil && a.status == http.StatusOK, "a revocation: %d %s, %v", a.status, a.raw, err)
		done()
		assert.That(s, s.beat(holder, l).Revoke != nil, "its holder is not asked to let go")
		two := s.start(1)
		s.die(one)
		time.Sleep(s.timeout + time.Second)
		holder.at = two
		s.beatUntil(holder, l, 2*s.window)
		assert.That(s, s.takenOver(), "no gateway has taken over")
		end := time.Now().Add(s.window + 15*time.Second + 2*slack) // it counts anew from the takeover
		for s.beat(holder, l).status == http.StatusOK {
			assert.Must(s, !time.Now().After(end), "it holds although force is due")
			time.Sleep(time.Second)
		}
	})
}

// The gateway was deposed, and its session lives: the contender is there.
func TestAttack51ASuccessorDoesNotRunAnEphemeralLease(t *testing.T) {
	play(t, windowOutlivesSession, 2, 1, func(s *scene) {
		old, two := s.start(0), s.start(1)
		c, next := s.client(old), s.client(two)
		l := s.take(c, "a", "held", "ttl", "10s", "ephemeral", "true")
		n := s.take(next, "a", "waiting", "ttl", "30s", "async", "true")
		l.fencing = s.beat(c, l).FencingToken
		time.Sleep(s.window + slack) // a gateway's replica shows by now that it holds
		links := s.linksToZooKeeper(old)
		s.administer(func(admin *session) {
			for _, link := range links {
				link.StallReplies() // its pings arrive, and so it lives
			}
			assert.NoError(s, admin.delete(s.audit.registration(old.name)))
		})
		s.within(2*time.Second, "it is succeeded", s.takenOver)
		assert.Must(s, s.there(l), "its contender has gone with its registration")
		f := s.fence(next, "a", l.fencing)
		assert.That(s, f.status == http.StatusOK && !f.Current && f.Reason == "ended", "its fencing token: %d %s", f.status, f.raw)
		c.at = two
		for began := time.Now(); time.Since(began) < s.window; time.Sleep(100 * time.Millisecond) {
			a := s.beat(c, l)
			assert.Must(s, a.status != http.StatusOK, "the successor runs it: %s", a.raw)
		}
		for _, link := range links {
			link.Resume()
		}
		s.within(time.Minute, "its turn comes", func() bool { return s.beat(next, n).State == "held" })
		next.release(n)
	})
}
