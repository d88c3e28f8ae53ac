package sim

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

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
		s.administer(func(admin *session) {
			assert.NoError(s, admin.set(l.path, "__REVOKE__"))
		})
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
