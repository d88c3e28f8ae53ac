package sim

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zktest"
	"lockkeeper/internal/zk/embedded/state"
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
