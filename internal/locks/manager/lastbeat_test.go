package manager

import (
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

func TestTheLastHeartbeatIsShownByTheGatewayThatHeardIt(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		waiter := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Async: true})
		other := s.gateway(t)
		shows := func(g *gate, holds, waits time.Duration) {
			t.Helper()
			lock, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"})
			assert.Must(t, err == nil && len(lock.Holders) == 1 && len(lock.Waiters) == 1, "%+v %v", lock, err)
			assert.That(t, about(lock.Holders[0].LastHeartbeat, holds), "the holder's: %v, not %v", lock.Holders[0].LastHeartbeat, holds)
			assert.That(t, about(lock.Waiters[0].LastHeartbeat, waits), "the waiter's: %v, not %v", lock.Waiters[0].LastHeartbeat, waits)
		}
		shows(g, 0, 0) // none yet
		assert.That(t, g.look(l).LastHeartbeat == 0, "%v", g.look(l).LastHeartbeat)
		time.Sleep(10 * time.Second)
		for _, beats := range []locks.Lease{l, waiter} {
			_, err := g.heartbeat(beats)
			assert.NoError(t, err)
			time.Sleep(5 * time.Second)
		}
		shows(g, 10*time.Second, 5*time.Second)
		shows(other, 0, 0)
		assert.That(t, about(g.look(l).LastHeartbeat, 10*time.Second), "%v", g.look(l).LastHeartbeat)
		assert.That(t, about(g.look(waiter).LastHeartbeat, 5*time.Second), "%v", g.look(waiter).LastHeartbeat)
		g.mustRelease(l)
		assert.That(t, g.look(l).LastHeartbeat == 0, "of an ended lease: %v", g.look(l).LastHeartbeat)
	})
}
