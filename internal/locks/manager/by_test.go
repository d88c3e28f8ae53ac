package manager

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

// ops is a principal that may do everything and has said who it is.
func ops() locks.Principal {
	return locks.Principal{Name: "token:ops", Rules: access.Everything(), Counts: true}
}

// bys are who asked for ends or made them, as the events of a lock tell.
func (g *gate) bys(lock string, types ...events.Type) (names []string) {
	synctest.Wait()
	for _, e := range g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(types...)}, ring) {
		if e.Lock == lock {
			names = append(names, e.By)
		}
	}
	return names
}

func TestWhoEndedALeaseIsToldToItsClientAndRememberedByEachGateway(t *testing.T) {
	ends := map[string]func(g *gate, l locks.Lease, p locks.Principal) error{
		"broken": func(g *gate, l locks.Lease, p locks.Principal) error {
			return g.m.Manager.Break(g.t.Context(), locks.BreakRequest{Principal: p, Client: "10.0.0.7", ID: l.ID})
		},
		"reaped": func(g *gate, l locks.Lease, p locks.Principal) error {
			_, err := g.m.Manager.Reap(g.t.Context(), locks.ReapRequest{Principal: p, Client: "10.0.0.7", Lock: "deploy", NS: "default"})
			return err
		},
		"destroyed": func(g *gate, l locks.Lease, p locks.Principal) error {
			_, err := g.m.Manager.Destroy(g.t.Context(), locks.DestroyRequest{Principal: p, Client: "10.0.0.7", Lock: "deploy", NS: "default"})
			return err
		},
		"revoked with force": func(g *gate, l locks.Lease, p locks.Principal) error {
			_, err := g.m.Manager.Revoke(g.t.Context(), locks.RevokeRequest{Principal: p, Client: "10.0.0.7", Lock: "deploy", NS: "default", ForceAfter: time.Second})
			return err
		},
	}
	for name, end := range ends {
		for want, p := range map[string]locks.Principal{"token:ops": ops(), "10.0.0.7": locks.Anonymous} {
			for _, own := range []bool{true, false} {
				t.Run(name, in(withPeers, func(t *testing.T, s *fakeStore, one, two *gate) {
					talk(one, two)
					l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, LockDelay: time.Second})
					by := two
					if own {
						by = one
					}
					assert.NoError(t, end(by, l, p))
					time.Sleep(3 * time.Second)
					_, err := one.heartbeat(l)
					assert.Equal(t, wantCode(t, err, locks.CodeEnded).By, want, "its client is told of")
					for i, g := range []*gate{one, two} {
						assert.Equal(t, g.mustPostmortem(l).By, want, "gateway %d remembers", i)
						assert.Slices(t, g.bys("deploy", events.LeaseRevoked), []string{want})
						if name == "destroyed" {
							assert.Slices(t, g.bys("deploy", events.LockDestroyed), []string{want})
						}
					}
					one.crash()
					time.Sleep(time.Minute)
					_, err = two.heartbeat(l)
					assert.Equal(t, wantCode(t, err, locks.CodeEnded).By, want, "after a takeover its client is told of")
				}))
			}
		}
	}
}

func TestAnEndThatNoAdministratorMadeNamesNone(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for _, end := range []func(locks.Lease){g.mustRelease, func(locks.Lease) { time.Sleep(2 * time.Minute) }} {
			l := g.mustHold(deploy())
			_, err := g.m.Manager.Revoke(t.Context(), locks.RevokeRequest{Principal: ops(), Lock: "deploy", NS: "default", Reason: "please"})
			assert.NoError(t, err)
			end(l)
			assert.Equal(t, g.mustPostmortem(l).By, "")
		}
		assert.Slices(t, g.bys("deploy", events.LeaseReleased, events.LeaseExpired), []string{"", ""})
	})
}

func TestAHolderLearnsWhoAsksForItsLeaseAlsoAfterATakeover(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		ask := func(g *gate, p locks.Principal) {
			_, err := g.m.Manager.Revoke(t.Context(), locks.RevokeRequest{Principal: p, Client: "10.0.0.7", Lock: "deploy", NS: "default", Reason: "please", ForceAfter: time.Minute})
			assert.NoError(t, err)
			synctest.Wait()
		}
		ask(two, locks.Anonymous)
		assert.Equal(t, one.asked(l).By, "10.0.0.7")
		ask(one, ops()) // the last who asks is the one to talk to
		assert.Equal(t, one.asked(l).By, "token:ops")
		assert.Equal(t, two.lock().Holders[0].Revoke.By, "token:ops")
		assert.Slices(t, one.bys("deploy", events.LeaseRevokeRequested), []string{"10.0.0.7", "token:ops"})
		assert.Slices(t, two.bys("deploy", events.LeaseRevokeRequested), []string{"10.0.0.7"}) // its own: those of another gateway's lease are told there
		one.crash()
		time.Sleep(11 * time.Second)
		assert.Equal(t, two.asked(l).By, "token:ops")
		time.Sleep(2 * time.Minute)
		_, err := two.heartbeat(l)
		assert.Equal(t, wantCode(t, err, locks.CodeEnded).By, "token:ops")
		assert.Equal(t, two.mustPostmortem(l).By, "token:ops")
	})
}

// The place of a lease that force has ended stays for its lock delay. Its record tells a successor who asked.
func TestASuccessorKnowsWhoEndedALeaseWhosePlaceStays(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, LockDelay: 5 * time.Minute})
		_, err := one.m.Manager.Revoke(t.Context(), locks.RevokeRequest{Principal: ops(), Lock: "deploy", NS: "default", ForceAfter: time.Second})
		assert.NoError(t, err)
		time.Sleep(2 * time.Second)
		closed := s.recordOf(l).Closed
		assert.Must(t, closed != nil && closed.By == "token:ops", "the record says %+v", closed)
		one.crash()
		two := s.gateway(t)
		time.Sleep(time.Minute)
		_, err = two.heartbeat(l)
		assert.Equal(t, wantCode(t, err, locks.CodeEnded).By, "token:ops")
		assert.Equal(t, two.mustPostmortem(l).By, "token:ops")
	})
}

// A lease of several locks can be ended by an operator of one of them. Readers of another one need not know that operator.
func TestWhoEndsALeaseOfSeveralLocksIsForThoseWhoMayReadAllOfThem(t *testing.T) {
	withPeers(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		talk(one, two)
		reader, everyone := principal(t, "read"), ops()
		operator := locks.Principal{Name: "token:other-team", Counts: true, Rules: assert.Value(access.New(access.Grant{NS: "default", Locks: "shop:*", Verbs: []access.Verb{access.Acquire, access.Operate}}))(t)}
		whole := assert.Value(access.New(access.Grant{NS: "*", Locks: "*", Verbs: []access.Verb{access.Read}}))(t)
		l := one.mustHold(locks.AcquireRequest{TTL: time.Hour, Group: []locks.Want{{Lock: "shop:web"}, {Lock: "secret"}}})
		_, err := two.m.Manager.Revoke(t.Context(), locks.RevokeRequest{Principal: operator, Lock: "shop:web", NS: "default"})
		assert.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, one.asked(l).By, operator.Name, "its client is told of")
		for _, g := range []*gate{one, two} {
			for want, p := range map[string]locks.Principal{"": reader, operator.Name: {Rules: whole}} {
				lock := assert.Value(g.m.Manager.Lock(t.Context(), locks.LockRequest{Principal: p, NS: "default", Lock: "shop:web"}))(t)
				assert.Equal(t, lock.Holders[0].Revoke.By, want)
			}
			assert.Slices(t, g.bys("shop:web", events.LeaseRevokeRequested), []string{""})
			assert.Slices(t, g.bys("secret", events.LeaseRevokeRequested), []string{""})
		}
		for want, p := range map[string]locks.Principal{"": reader, operator.Name: everyone} {
			shown := assert.Value(one.m.Manager.Lease(t.Context(), locks.LeaseRequest{Principal: p, ID: l.ID}))(t)
			assert.Equal(t, shown.Revoke.By, want)
		}
		assert.NoError(t, two.m.Manager.Break(t.Context(), locks.BreakRequest{Principal: operator, ID: l.ID}))
		time.Sleep(3 * time.Second)
		_, err = one.heartbeat(l)
		assert.Equal(t, wantCode(t, err, locks.CodeEnded).By, operator.Name, "its client is told of")
		for _, g := range []*gate{one, two} {
			for want, p := range map[string]locks.Principal{"": reader, operator.Name: {Rules: whole}} {
				assert.Equal(t, assert.Value(g.m.Manager.Postmortem(t.Context(), p, l.ID))(t).By, want)
			}
			assert.Slices(t, g.bys("shop:web", events.LeaseRevoked), []string{""})
			assert.Slices(t, g.bys("secret", events.LeaseRevoked), []string{""})
		}
		// The gateway that runs a lease is gone and reports nothing: the one that ended it remembers.
		l = one.mustHold(locks.AcquireRequest{TTL: time.Hour, Group: []locks.Want{{Lock: "shop:web"}, {Lock: "secret"}}})
		one.crash()
		assert.NoError(t, two.m.Manager.Break(t.Context(), locks.BreakRequest{Principal: operator, ID: l.ID}))
		for want, p := range map[string]locks.Principal{"": reader, operator.Name: {Rules: whole}} {
			assert.Equal(t, assert.Value(two.m.Manager.Postmortem(t.Context(), p, l.ID))(t).By, want)
		}
	})
}
