package manager

import (
	"encoding/json"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

const testAtLeast = 40 * time.Second

func atLeast() locks.AcquireRequest {
	return locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second, Owner: "me", AtLeast: testAtLeast}
}

func TestTheLockStaysTakenForAtLeastThatLongHoweverTheLeaseEnds(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*locks.AcquireRequest)
		end    func(*gate, locks.Lease)
		least  time.Duration // from the grant to the next
	}{
		{"released", nil, func(g *gate, l locks.Lease) { g.mustRelease(l); g.mustRelease(l) }, testAtLeast},
		{"released late", nil, func(g *gate, l locks.Lease) { g.keep(l, 15*time.Second); g.mustRelease(l) }, testAtLeast},
		{"released after it", nil, func(g *gate, l locks.Lease) { g.keep(l, testAtLeast+5*time.Second); g.mustRelease(l) }, testAtLeast + 5*time.Second},
		{"expired", nil, func(*gate, locks.Lease) { time.Sleep(11 * time.Second) }, testAtLeast},
		{"revoked by force", nil, func(g *gate, l locks.Lease) {
			_, err := g.m.Revoke(g.t.Context(), locks.RevokeRequest{Lock: "deploy", ForceAfter: time.Second})
			assert.Nil(g.t, err)
			time.Sleep(2 * time.Second)
			g.wantState(l, locks.Ended, locks.ReasonRevoked)
		}, testAtLeast},
		{"released, with a longer lock delay", func(r *locks.AcquireRequest) { r.LockDelay, r.LockDelayOn = time.Minute, locks.DelayAlways },
			func(g *gate, l locks.Lease) { g.mustRelease(l) }, time.Minute},
		{"released, with a lock delay that does not follow", func(r *locks.AcquireRequest) { r.LockDelay = time.Minute },
			func(g *gate, l locks.Lease) { g.mustRelease(l) }, testAtLeast},
		{"broken", nil, func(g *gate, l locks.Lease) {
			assert.Nil(g.t, g.m.Break(g.t.Context(), locks.BreakRequest{ID: l.ID}))
		}, 0},
		{"released, then broken", nil, func(g *gate, l locks.Lease) {
			g.mustRelease(l)
			assert.Nil(g.t, g.m.Break(g.t.Context(), locks.BreakRequest{ID: l.ID}))
		}, 0},
	} {
		t.Run(c.name, in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			req := atLeast()
			if c.change != nil {
				c.change(&req)
			}
			granted := time.Now()
			l := g.mustHold(req)
			assert.Equal(t, l.AtLeast, testAtLeast)
			next := g.patient()
			c.end(g, l)
			assert.MustEqual(t, g.look(l).State, locks.Ended)
			took := (<-next).Sub(granted)
			assert.That(t, took >= c.least && took <= c.least+2*time.Second, "the next was granted %v after the grant", took)
			checkAll(t, s, g)
		}))
	}
}

// keep heartbeats a lease for so long.
func (g *gate) keep(l locks.Lease, span time.Duration) {
	g.t.Helper()
	for until := time.Now().Add(span); time.Now().Before(until); {
		time.Sleep(min(5*time.Second, time.Until(until)))
		_, err := g.heartbeat(l)
		assert.Nil(g.t, err)
	}
}

func TestAWaiterThatIsNeverGrantedKeepsNoPlaceForAtLeast(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		first := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		req := atLeast()
		req.Async = true
		ticket := g.mustAcquire(req)
		expiring := g.mustAcquire(req)
		g.mustRelease(ticket)
		time.Sleep(11 * time.Second)
		g.wantState(expiring, locks.Ended, locks.ReasonExpired)
		g.mustRelease(first)
		assert.Equal(t, g.lockState("deploy").State, locks.LockFree)
	})
}

// The owner dies: the record of the closing write says how much is left.
func TestASuccessorKeepsThePlaceForWhatWasLeft(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(atLeast())
		one.keep(l, 30*time.Second)
		one.mustRelease(l)
		r := s.recordOf(l)
		assert.Must(t, r.Closed != nil && about(time.Duration(r.Closed.Stays)*time.Millisecond, 10*time.Second), "%+v", r)
		one.crash()
		crashed := time.Now()
		two := s.gateway(t)
		next := two.patient()
		took := (<-next).Sub(crashed) // the takeover comes first
		assert.That(t, took >= 10*time.Second && took <= 25*time.Second, "the next was granted %v after the crash", took)
		two.wantState(l, locks.Ended, locks.ReasonReleased)
	})
}

// Gateways that are restarted again and again do not keep a place for good: each takeover costs what was not noted yet.
func TestTakeoversDoNotBeginTheStayOfAPlaceAnew(t *testing.T) {
	for name, req := range map[string]locks.AcquireRequest{
		"at_least":   {Lock: "deploy", TTL: 10 * time.Second, Owner: "me", Metadata: "m", AtLeast: 2 * time.Hour},
		"lock delay": {Lock: "deploy", TTL: 10 * time.Second, Owner: "me", Metadata: "m", LockDelay: 2 * time.Hour, LockDelayOn: locks.DelayAlways},
	} {
		t.Run(name, in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			granted := time.Now()
			l := g.mustHold(req)
			g.mustRelease(l)
			const takeovers = 4
			for range takeovers {
				time.Sleep(25 * time.Minute)
				r := s.recordOf(l)
				assert.Must(t, r.Closed != nil && r.Metadata == "m", "%+v", r)
				g.crash()
				g = s.gateway(t)
			}
			next := g.patient()
			took := (<-next).Sub(granted)
			assert.That(t, took >= 2*time.Hour && took <= 2*time.Hour+takeovers*(noteLeftEvery+time.Minute), "the next was granted %v after the grant", took)
			checkAll(t, s, g)
		}))
	}
}

// The owner dies while it holds: its successor does not know when the lease was granted, and begins the whole span anew.
func TestASuccessorBeginsAtLeastAnew(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(atLeast())
		one.keep(l, 30*time.Second)
		one.crash()
		two := s.gateway(t)
		time.Sleep(12 * time.Second)
		synced := time.Now()
		_, err := two.heartbeat(l)
		assert.Nil(t, err)
		next := two.patient()
		two.mustRelease(l)
		took := (<-next).Sub(synced)
		assert.That(t, took >= testAtLeast-13*time.Second && took <= testAtLeast, "the next was granted %v after the takeover", took)
	})
}

// A closing write that was lost is looked for in the record, also when at_least has passed meanwhile.
func TestAnEndWhoseClosingWriteWasLostIsFoundInTheRecord(t *testing.T) {
	for _, persisted := range []bool{true, false} {
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			granted := time.Now()
			l := g.mustHold(atLeast())
			next := g.patient()
			once := false
			s.mu.Lock()
			s.vague, s.drop = func(w *zk.Write) bool {
				hit := !once && writeTo(l.Znode)(w)
				once = once || hit
				return hit
			}, !persisted
			s.mu.Unlock()
			g.mustRelease(l)
			g.wantState(l, locks.Ended, locks.ReasonReleased)
			took := (<-next).Sub(granted)
			assert.That(t, took >= testAtLeast && took <= testAtLeast+time.Second, "the next was granted after %v", took)
		})
	}
}

// A gateway of a release that does not keep at_least could take the lease over.
func TestTermsThatARegisteredGatewayDoesNotKeepAreRefused(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		path := g.m.opt.Root + "/gateways/mnopqrstuvwxy"
		register := func(terms int) {
			data, err := json.Marshal(Registration{Version: "0.9", Terms: terms})
			assert.Nil(t, err)
			s.foreign(zk.Op{Kind: zk.OpCreate, Path: path, Data: data})
			time.Sleep(time.Second)
		}
		register(0)
		for _, req := range []locks.AcquireRequest{atLeast(), {Lock: "deploy", LockDelay: 2 * time.Hour}} {
			_, err := g.acquire(req)
			assert.That(t, wantCode(t, err, locks.CodeUnavailable).RetryAfter == time.Minute, "%v", err)
		}
		g.mustRelease(g.mustHold(locks.AcquireRequest{Lock: "deploy", LockDelay: time.Hour}))
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: path, Version: -1})
		time.Sleep(time.Second)
		register(leaseTerms)
		g.mustHold(atLeast())
	})
}
