package sim

import (
	"fmt"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zktest"
)

// A gateway adds a namespace, takes a lease there and is gone while the other one still reads what is in it: there are many locks,
// and the way to ZooKeeper is long.
func TestAttack25AGatewayIsNotSucceededBeforeItsNamespaceIsRead(t *testing.T) {
	for _, dialect := range []string{"kazoo", "curator-rw", "all"} {
		plan := Plan{Seed: sessionOutlivesWindow, Gateways: 2, Servers: 1, Space: Space{Dialect: dialect, By: 1}}
		playIn(t, plan, func(s *scene) {
			successor := s.start(0)
			s.administer(func(admin *session) {
				_, err := admin.create(spaceRoot, "", 0)
				for i := 0; i < 3000 && err == nil; i++ {
					_, err = admin.create(fmt.Sprintf("%s/a%04d", spaceRoot, i), "", 0)
				}
				assert.NoError(s, err)
			})
			s.zk.Network.Slow(successor.name, zktest.LeaderName, zktest.Delay{Min: 190 * time.Millisecond, Max: 210 * time.Millisecond})
			adds := s.start(1)
			c := s.client(adds)
			l := s.take(c, spaceLock, "held", "ttl", "30s")
			if n := len(s.audit.places(l.id)); n != map[string]int{"kazoo": 1, "curator-rw": 1, "all": 3}[dialect] {
				s.Errorf("%s: a lease with %d contenders", dialect, n)
			}
			s.die(adds)
			s.administer(func(admin *session) {
				if err := admin.delete(s.audit.registration(adds.name)); err != nil { // as when its session is over
					s.Fatal(err)
				}
			})
			c.at = successor
			s.beatUntil(c, l, 60*time.Second)
			assert.That(s, s.takenOver(), "%s: it was never taken over", dialect)
			assert.That(s, s.there(l), "%s: the lease has lost a contender", dialect)
			c.release(l)
			s.within(10*time.Second, "all of the lease goes", func() bool { return !s.anyOf(l) })
		})
	}
}

// anyOf says whether a contender of a lease is left.
func (s *scene) anyOf(l *lease) bool {
	for _, c := range s.audit.places(l.id) {
		if c.gone.IsZero() {
			return true
		}
	}
	return false
}
