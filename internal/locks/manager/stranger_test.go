package manager

import (
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// A gateway starts and grants a lease; the replica of another one is behind, as
// it may be for a promise window, and has heard of neither. The client, or a
// proxy, turns to that one: it must not be told that its lease has ended.
func TestALeaseOfAGatewayThatTheReplicaHasNotHeardOfHasNotEnded(t *testing.T) {
	ask := map[string]func(g *gate, l locks.Lease) error{
		"heartbeat": func(g *gate, l locks.Lease) error { _, err := g.heartbeat(l); return err },
		"heartbeats": func(g *gate, l locks.Lease) error {
			if e := g.m.Heartbeats(g.t.Context(), locks.Anonymous, []string{l.Token})[0].Err; e != nil {
				return e
			}
			return nil
		},
		"release": func(g *gate, l locks.Lease) error { return g.release(l) },
		"look": func(g *gate, l locks.Lease) error {
			_, err := g.m.Lease(g.t.Context(), locks.LeaseRequest{ID: l.ID, Token: l.Token})
			return err
		},
		"repeat": func(g *gate, l locks.Lease) error { _, err := g.acquire(keyed()); return err },
	}
	for name, ask := range ask {
		t.Run(name, func(t *testing.T) {
			withGateway(t, func(t *testing.T, s *fakeStore, old *gate) {
				old.w.hold()
				young := s.gateway(t)
				l := young.mustHold(keyed())
				begun := time.Now()
				wantCode(t, ask(old, l), locks.CodeUnavailable)
				took := time.Since(begun)
				assert.That(t, took <= 2*time.Second, "answered after %v", took)
				go func() {
					time.Sleep(100 * time.Millisecond)
					old.w.releaseSoon()
				}()
				wantCode(t, ask(old, l), locks.CodeNotOwner)
				young.wantState(l, locks.Held, "")
			})
		})
	}
}

func keyed() locks.AcquireRequest {
	return locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, IdempotencyKey: "abcdefghijklmnop"}
}

// A token of a gateway that is long gone is still told that its lease has ended.
func TestALeaseOfAGatewayThatNobodyRemembersHasEnded(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, young *gate) {
		l := young.mustHold(deploy())
		young.mustRelease(l)
		young.crash()
		time.Sleep(time.Minute)
		g := s.gateway(t)
		_, err := g.heartbeat(l)
		assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonUnknown, "reason")
		assert.Nil(t, g.release(l), "a repeated release")
	})
}
