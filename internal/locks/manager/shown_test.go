package manager

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// idsOf are the ids of leases.
func idsOf(leases ...locks.Lease) (ids []string) {
	for _, l := range leases {
		ids = append(ids, l.ID)
	}
	return ids
}

func (g *gate) revokeShown(force time.Duration, leases ...locks.Lease) (locks.RevokeAnswer, error) {
	return g.m.Revoke(g.t.Context(), locks.RevokeRequest{Lock: "deploy", Reason: "why", ForceAfter: force, Shown: locks.Shown{LeaseIDs: idsOf(leases...)}})
}

// The holder changes between the look and the click: who holds now has not been seen.
func TestWhoHoldsNowIsNotAskedInThePlaceOfTheOneThatWasShown(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		for _, asker := range []*gate{one, two} {
			alice := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: "alice"})
			bob := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: "bob", Async: true})
			one.mustRelease(alice)
			_, err := asker.revokeShown(time.Second, alice)
			e := wantCode(t, err, locks.CodeHolderChanged)
			assert.That(t, len(e.Holders) == 1 && e.Holders[0].LeaseID == bob.ID && e.Holders[0].Owner == "bob", "told are %+v", e.Holders)
			assert.Equal(t, one.asked(bob), locks.Revocation{}, "bob is told")
			time.Sleep(10 * time.Second)
			one.wantState(bob, locks.Held, "")
			one.mustRelease(bob)
		}
	})
}

// A revocation stays with its lease. The next holder is another one.
func TestTheForceOfARevocationDoesNotMoveToTheNextHolder(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		for _, asker := range []*gate{one, two} {
			alice := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
			bob := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
			answer, err := asker.revokeShown(20*time.Second, alice)
			assert.Must(t, err == nil && len(answer.Asked) == 1 && answer.Asked[0].LeaseID == alice.ID, "%+v, %v", answer, err)
			synctest.Wait()
			one.mustRelease(alice)
			assert.Equal(t, one.asked(bob), locks.Revocation{}, "bob is told")
			time.Sleep(time.Minute)
			one.wantState(bob, locks.Held, "")
			assert.Equal(t, one.asked(bob), locks.Revocation{}, "bob is told")
			one.mustRelease(bob)
		}
	})
}

func TestOnlyTheHoldersThatWereShownAreAsked(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		var readers []locks.Lease
		for _, g := range []*gate{one, two, one} {
			readers = append(readers, g.mustHold(locks.AcquireRequest{Lock: "deploy", Mode: locks.Shared, TTL: time.Hour}))
		}
		answer, err := one.m.Revoke(t.Context(), locks.RevokeRequest{Lock: "deploy", ForceAfter: 10 * time.Second,
			Shown: locks.Shown{LeaseIDs: idsOf(readers[0]), Znodes: []string{readers[1].Znode}}})
		assert.Must(t, err == nil && len(answer.Asked) == 2 && len(answer.Not) == 0, "%+v, %v", answer, err)
		time.Sleep(11 * time.Second)
		one.wantState(readers[0], locks.Ended, locks.ReasonRevoked)
		two.wantState(readers[1], locks.Ended, locks.ReasonRevoked)
		one.wantState(readers[2], locks.Held, "")
		// One of two has gone: neither is asked.
		if _, err := one.revokeShown(time.Second, readers[2], readers[0]); wantCode(t, err, locks.CodeHolderChanged) != nil {
			time.Sleep(10 * time.Second)
		}
		one.wantState(readers[2], locks.Held, "")
	})
}

// A lease that stands first here and waits for another lock of its group is shown as a waiter.
func TestAGroupThatWaitsForItsOtherLockIsNotAsked(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustHold(locks.AcquireRequest{Lock: "b", TTL: time.Hour})
		group := g.mustAcquire(locks.AcquireRequest{TTL: time.Hour, Async: true, Group: []locks.Want{{Lock: "deploy"}, {Lock: "b"}}})
		g.asksNone("no lease holds the lock")
		assert.Equal(t, g.asked(group), locks.Revocation{}, "who waits is told")
		time.Sleep(10 * time.Second)
		g.wantState(group, locks.Waiting, "")
	})
}

func TestAReapEndsOnlyWhatWasShown(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		wait := func(g *gate, owner string) locks.Lease {
			l := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: owner, Async: true})
			return l
		}
		alice := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: "alice"})
		first := wait(one, "ci-1")
		theirs := s.foreignContender()
		req := locks.ReapRequest{Lock: "deploy", State: locks.Waiting}
		req.DryRun = true
		preview, err := two.m.Reap(t.Context(), req)
		assert.Must(t, err == nil && len(preview.Reaped) == 2, "%+v, %v", preview, err)
		req.DryRun = false
		for _, c := range preview.Reaped {
			if c.Foreign != nil {
				req.Shown.Znodes = append(req.Shown.Znodes, c.Znode)
			} else {
				req.Shown.LeaseIDs = append(req.Shown.LeaseIDs, c.LeaseID)
			}
		}
		later := []locks.Lease{wait(one, "ci-2"), wait(one, "ci-3"), wait(one, "ci-4")}
		answer, err := two.m.Reap(t.Context(), req)
		assert.Must(t, err == nil && len(answer.Reaped) == 2 && len(answer.Not) == 0, "%+v, %v", answer, err)
		synctest.Wait()
		two.wantState(first, locks.Ended, locks.ReasonRevoked)
		assert.That(t, s.node(theirs).stat.Czxid == 0, "what was shown of another program is still there")
		for _, l := range later {
			one.wantState(l, locks.Waiting, "")
		}
		// ci-2 was shown waiting, and holds now; ci-3 was shown with it.
		req.Shown = locks.Shown{LeaseIDs: idsOf(later[0], later[1])}
		one.mustRelease(alice)
		_, err = two.m.Reap(t.Context(), req)
		e := wantCode(t, err, locks.CodeHolderChanged)
		assert.That(t, len(e.Holders) == 1 && e.Holders[0].LeaseID == later[0].ID, "told are %+v", e.Holders)
		one.wantState(later[0], locks.Held, "")
		one.wantState(later[1], locks.Waiting, "")
		assert.Equal(t, len(two.hub.Recent(events.Filter{Types: events.Types(events.LeaseRevoked)}, ring)), 2, "ends are told")
	})
}

func TestWhatWasShownIsRefusedWhereItMakesNoSense(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		many := make([]string, locks.MaxReap+1)
		for i := range many {
			many[i] = l.ID
		}
		for field, shown := range map[string][]locks.Shown{
			"lease_ids": {{LeaseIDs: []string{}}, {LeaseIDs: []string{"lease"}}, {LeaseIDs: many}, {LeaseIDs: []string{l.ID, ""}}},
			"znodes":    {{Znodes: []string{}}, {Znodes: []string{""}}, {LeaseIDs: many[1:], Znodes: many[:1]}},
		} {
			for _, one := range shown {
				for _, err := range []error{
					func() error {
						_, err := g.m.Revoke(t.Context(), locks.RevokeRequest{Lock: "deploy", Shown: one})
						return err
					}(),
					func() error {
						_, err := g.m.Withdraw(t.Context(), locks.WithdrawRequest{Lock: "deploy", Shown: one})
						return err
					}(),
					func() error {
						_, err := g.m.Reap(t.Context(), locks.ReapRequest{Lock: "deploy", Shown: one})
						return err
					}(),
				} {
					e := wantCode(t, err, locks.CodeInvalid)
					assert.That(t, e.Field == field, "%d, %d: %v", len(one.LeaseIDs), len(one.Znodes), e)
				}
			}
		}
		g.wantState(l, locks.Held, "")
	})
}
