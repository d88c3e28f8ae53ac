package sim

import (
	"net/http"
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
