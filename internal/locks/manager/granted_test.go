package manager

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// holderOf is the only holder of a lock, as a gateway shows it.
func (g *gate) holderOf(lock string) locks.Contender {
	g.t.Helper()
	v, err := g.m.Lock(g.t.Context(), locks.LockRequest{Lock: lock})
	assert.Must(g.t, err == nil && len(v.Holders) == 1, "%+v %v", v, err)
	return v.Holders[0]
}

// wantHeld checks for how long a gateway says that a lock has been held: exactly, to a second.
func (g *gate) wantHeld(lock string, held time.Duration) {
	g.t.Helper()
	c := g.holderOf(lock)
	assert.That(g.t, (c.HeldFor-held).Abs() <= time.Second && !c.HeldLonger && c.HeldAtMost == 0, "held for %v, longer %v, at most %v; want %v", c.HeldFor, c.HeldLonger, c.HeldAtMost, held)
}

// handOver has a lease wait behind another one for a while, and returns it once it is granted.
func (g *gate) handOver(req locks.AcquireRequest, waits time.Duration) locks.Lease {
	g.t.Helper()
	first := g.mustHold(locks.AcquireRequest{Lock: req.Lock, TTL: locks.MaxTTL})
	req.Wait = locks.WaitForever
	waiting := g.begin(req)
	pass(waits)
	g.mustRelease(first)
	assert.Must(g.t, waiting.finished() && waiting.err == nil, "it is not granted: %v", waiting.err)
	return waiting.lease
}

// For how long a lease has held is told exactly after its gateway was killed: by the one that takes it over, by one that starts
// later, and of one that waited as of one that did not.
func TestTheTimeOfTheGrantSurvivesItsGateway(t *testing.T) {
	for _, way := range []string{"at once", "waited"} {
		t.Run(way, in(withGateway, func(t *testing.T, s *fakeStore, one *gate) {
			req := locks.AcquireRequest{Lock: "deploy", TTL: time.Hour}
			var l locks.Lease
			if way == "at once" {
				l = one.mustHold(req)
			} else {
				l = one.handOver(req, 7*time.Minute)
			}
			granted := time.Now()
			pass(10 * time.Minute)
			one.wantHeld("deploy", 10*time.Minute)
			two := s.gateway(t)
			two.wantHeld("deploy", 10*time.Minute) // another gateway's lease
			one.crash()
			pass(10 * time.Minute)
			two.wantState(l, locks.Held, "")
			two.wantHeld("deploy", time.Since(granted)) // its own
			two.crash()
			pass(time.Minute)
			three := s.gateway(t) // alone, as after kill -9
			pass(time.Minute)
			three.wantState(l, locks.Held, "")
			three.wantHeld("deploy", time.Since(granted))
			three.mustRelease(l)
			p, err := three.m.Postmortem(t.Context(), locks.Anonymous, l.ID)
			assert.That(t, err == nil && about(p.HeldFor, time.Since(granted)), "%+v %v", p, err)
		}))
	}
}

// A hold that ends soon costs no write besides its create and its deletion; a longer one costs one, and never a second.
func TestTheTimeOfTheGrantCostsAShortHoldNothing(t *testing.T) {
	for _, c := range []struct {
		held   time.Duration
		waits  time.Duration
		writes int
	}{{grantAfter - time.Second, time.Minute, 0}, {time.Hour, time.Minute, 1}, {time.Hour, 0, 0}} {
		t.Run(fmt.Sprint(c.held, " after ", c.waits), in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			req := locks.AcquireRequest{Lock: "deploy", TTL: time.Minute}
			var l locks.Lease
			if c.waits == 0 {
				l = g.mustHold(req)
			} else {
				l = g.handOver(req, c.waits)
			}
			for left := c.held; left > 0; left -= 10 * time.Second {
				pass(min(left, 10*time.Second))
				assert.Value(g.heartbeat(l))(t)
			}
			g.mustRelease(l)
			assert.Equal(t, s.writesTo(l.Znode)-1, c.writes, "writes besides its create and its deletion")
		}))
	}
}

// Where no record says when the grant was, the bounds are told: at least as seen, at most since it was queued.
func TestAHoldWithoutAWrittenGrantIsToldByItsBounds(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		one.handOver(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour}, 5*time.Minute)
		one.crash() // before the grant is written
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/other"}, zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/other/_c_0123-lock-"})
		pass(10 * time.Minute)
		two := s.gateway(t)
		pass(2 * time.Minute)
		c := two.holderOf("deploy")
		assert.That(t, c.HeldLonger && about(c.HeldFor, 2*time.Minute) && about(c.HeldAtMost, 17*time.Minute), "held for %v, at most %v", c.HeldFor, c.HeldAtMost)
		c = two.holderOf("other")
		assert.That(t, c.HeldLonger && about(c.HeldFor, 2*time.Minute) && about(c.HeldAtMost, 12*time.Minute), "held for %v, at most %v", c.HeldFor, c.HeldAtMost)
	})
}

// A lease counts as granted at once only if no contender came between what its gateway knew and its create: ZooKeeper's number tells.
func TestALeaseThatWasOvertakenIsNotTakenForGrantedAtOnce(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		one.mustRelease(one.mustHold(locks.AcquireRequest{Lock: "deploy"})) // the directory is there
		synctest.Wait()
		var foreign string
		s.beforeWrites(func(w *zk.Write) {
			if foreign == "" && w.Ops[0].Sequential {
				_, paths, _, _, err := s.tx([]zk.Op{{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/deploy/_c_0123-lock-"}})
				assert.NoError(t, err)
				foreign = paths[0]
			}
		})
		waiting := one.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: locks.WaitForever})
		pass(5 * time.Minute)
		assert.Must(t, foreign != "" && !waiting.finished(), "it does not wait")
		s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: foreign, Version: -1})
		assert.Must(t, waiting.finished(), "it is not granted")
		one.crash()
		two := s.gateway(t)
		pass(time.Minute)
		c := two.holderOf("deploy")
		assert.That(t, c.HeldLonger && about(c.HeldFor, time.Minute) && about(c.HeldAtMost, 6*time.Minute), "held for %v, longer %v, at most %v", c.HeldFor, c.HeldLonger, c.HeldAtMost)
	})
}

// Other writes of the record keep the time of the grant, or bring it in.
func TestOtherWritesOfTheRecordKeepTheTimeOfTheGrant(t *testing.T) {
	for way, write := range map[string]func(t *testing.T, one, two *gate, l locks.Lease){
		"metadata": func(t *testing.T, one, _ *gate, l locks.Lease) {
			text := "x"
			assert.Value(one.m.Update(t.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token, Metadata: &text}))(t)
		},
		"downgrade": func(t *testing.T, one, _ *gate, l locks.Lease) { assert.Value(one.downgrade(l))(t) },
		"revocation": func(t *testing.T, _, two *gate, _ locks.Lease) {
			assert.Value(two.m.Revoke(t.Context(), locks.RevokeRequest{Lock: "deploy", Reason: "why"}))(t)
		},
		"another program": func(t *testing.T, one, _ *gate, l locks.Lease) { one.s.overwrite(l.Znode, "unlock") },
	} {
		for _, waits := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprint(way, " after ", waits), in(withGateways, func(t *testing.T, s *fakeStore, one, two *gate) {
				req := locks.AcquireRequest{Lock: "deploy", TTL: time.Hour}
				var l locks.Lease
				if waits == 0 {
					l = one.mustHold(req)
				} else {
					l = one.handOver(req, waits)
				}
				granted := time.Now()
				pass(time.Second)
				write(t, one, two, l)
				pass(time.Second)
				if way == "revocation" && waits > 0 {
					pass(time.Minute) // it keeps what is there, and brings in nothing
				}
				one.crash()
				two.crash()
				pass(time.Minute)
				three := s.gateway(t)
				pass(time.Minute)
				three.wantHeld("deploy", time.Since(granted))
			}))
		}
	}
}

// The first record of a lease of several locks does not say that it was granted at once: that is written after a while.
func TestTheTimeOfTheGrantOfALeaseOfSeveralLocksIsWritten(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		one.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "b"}}, TTL: time.Hour})
		granted := time.Now()
		pass(time.Minute)
		one.crash()
		two := s.gateway(t)
		pass(time.Minute)
		two.wantHeld("a", time.Since(granted))
		two.wantHeld("b", time.Since(granted))
	})
}

// After a takeover very many leases may be due at once: so many are written in a second, the others later.
func TestTheWritesOfGrantsAreBounded(t *testing.T) {
	var b grantBudget
	taken := 0
	for i := range 10 * grantsASecond {
		if b.take(time.Hour + time.Duration(i)*time.Second/(2*grantsASecond)) {
			taken++
		}
	}
	assert.Equal(t, taken, 5*grantsASecond, "of five seconds")
}
