package manager

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func (g *gate) withdraw(leases ...locks.Lease) (locks.WithdrawAnswer, error) {
	return g.m.Withdraw(g.t.Context(), locks.WithdrawRequest{Lock: "deploy", Shown: locks.Shown{LeaseIDs: idsOf(leases...)}})
}

func (g *gate) mustWithdraw(want int) locks.WithdrawAnswer {
	g.t.Helper()
	answer, err := g.withdraw()
	assert.Must(g.t, err == nil && len(answer.Withdrawn) == want && len(answer.Not) == 0 && !answer.More, "withdraw: %+v, %v", answer, err)
	synctest.Wait()
	return answer
}

func TestAWithdrawnRevocationEndsNoLease(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		for i, asker := range []*gate{one, two} {
			l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: "me", Metadata: "build 7"})
			asker.mustRevoke("the node goes down", 20*time.Second)
			seen := one.look(l)
			polled := make(chan *locks.Revocation, 1)
			go func() {
				v, _ := one.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Wait: time.Minute, Since: seen.Rev})
				polled <- v.Revoke
			}()
			synctest.Wait()
			answer := asker.mustWithdraw(1)
			assert.That(t, answer.Withdrawn[0].LeaseID == l.ID && answer.Withdrawn[0].Revoke == nil, "gateway %d: %+v", i, answer)
			assert.That(t, <-polled == nil, "gateway %d: a long poll is told", i)
			assert.Equal(t, one.asked(l), locks.Revocation{}, "gateway %d: its holder is told", i)
			for _, g := range []*gate{one, asker} {
				list := g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LeaseRevokeWithdrawn)}, ring)
				assert.That(t, len(list) != 0 && list[len(list)-1].LeaseID == l.ID, "gateway %d: told %+v", i, list)
			}
			r, ok := record.Parse(s.node(l.Znode).data)
			assert.That(t, ok && r.Revoke == nil && r.Owner == "me" && r.Metadata == "build 7", "gateway %d: written is %+v", i, r)
			asker.mustWithdraw(0) // a repeat changes nothing
			time.Sleep(time.Minute)
			one.wantState(l, locks.Held, "")
			one.mustRelease(l)
		}
	})
}

// The owner hears of a withdrawal and of what was asked after it at once: the old force does not go on in the new
// revocation, nor does an equal one count from when the old one was asked.
func TestNothingOfAWithdrawnRevocationGoesOnInTheNext(t *testing.T) {
	for name, force := range map[string]time.Duration{"none": 0, "later": 60 * time.Second, "the same": 20 * time.Second} {
		for _, held := range []bool{true, false} {
			t.Run(name, in(withGateways, func(t *testing.T, s *fakeStore, one, two *gate) {
				l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
				two.mustRevoke("why", 20*time.Second)
				time.Sleep(5 * time.Second)
				if held {
					one.w.hold() // it hears of nothing
				}
				two.mustWithdraw(1)
				two.mustRevoke("why", force)
				if held {
					one.w.release()
				}
				synctest.Wait()
				if asked := one.asked(l); asked.Reason != "why" || asked.Forced != (force > 0) || asked.ForceIn > force || asked.ForceIn < force-time.Second {
					t.Errorf("its holder is told %+v", asked)
				}
				time.Sleep(16 * time.Second)
				one.wantState(l, locks.Held, "")
				if time.Sleep(force); force > 0 {
					one.wantState(l, locks.Ended, locks.ReasonRevoked)
				}
			}))
		}
	}
}

// Its owner has not heard of the withdrawal when force is due: what was written first wins.
func TestForceDoesNotOvertakeAWithdrawalThatWasWritten(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Hour} {
		withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
			l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, LockDelay: delay})
			one.mustRevoke("why", 5*time.Second)
			one.w.hold()
			two.mustWithdraw(1)
			time.Sleep(5500 * time.Millisecond) // the replica is current for longer than that
			synctest.Wait()
			one.w.release()
			time.Sleep(time.Minute)
			one.wantState(l, locks.Held, "")
			assert.Equal(t, one.asked(l), locks.Revocation{}, "its holder is told")
			n := one.countOf(events.LeaseRevoked, l)
			assert.That(t, n == 0, "its end is told %d times", n)
			// And force works again.
			one.mustRevoke("now", 5*time.Second)
			time.Sleep(6 * time.Second)
			one.wantState(l, locks.Ended, locks.ReasonRevoked)
		})
	}
}

// Another write of the record while force is due takes nothing back.
func TestForceGoesOnWhenTheRecordWasWrittenMeanwhile(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		one.mustRevoke("why", 5*time.Second)
		one.w.hold()
		two.mustRevoke("other words", time.Minute)
		pass(5500 * time.Millisecond)
		one.w.release()
		time.Sleep(3 * time.Second)
		one.wantState(l, locks.Ended, locks.ReasonRevoked)
		e := one.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LeaseRevoked)}, 1)
		assert.That(t, len(e) == 1 && e[0].Detail == "other words", "told %+v", e)
	})
}

func TestAWithdrawalSurvivesATakeover(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		one.mustRevoke("why", 30*time.Second)
		one.mustWithdraw(1)
		one.crash()
		pass(11 * time.Second)
		assert.MustEqual(t, two.asked(l), locks.Revocation{}, "its holder is told")
		time.Sleep(2 * time.Minute)
		two.wantState(l, locks.Held, "")
		// The successor counts on: what it withdraws is forgotten, too.
		two.mustRevoke("why", 0)
		two.mustWithdraw(1)
		r, _ := record.Parse(s.node(l.Znode).data)
		assert.That(t, r.Revoke == nil && r.RevokeRound == 2, "written is %+v", r)
	})
}

func TestAWithdrawalWhoseAnswerIsLostIsTold(t *testing.T) {
	for _, persisted := range []bool{true, false} {
		withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
			for _, asker := range []*gate{one, two} {
				l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
				asker.mustRevoke("why", 20*time.Second)
				s.set(func() { s.vague, s.drop = once(t, rewrites), !persisted })
				asker.mustWithdraw(1)
				time.Sleep(time.Minute)
				one.wantState(l, locks.Held, "")
				one.mustRelease(l)
			}
		})
	}
}

// A withdrawal that another program has written over, unread, may have been there: force is forgotten.
func TestForceIsForgottenWhenAWithdrawalMayHaveBeenOverwritten(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		one.mustRevoke("why", 20*time.Second)
		one.w.hold()
		two.mustWithdraw(1)
		s.foreign(zk.Op{Kind: zk.OpSetData, Path: l.Znode, Data: []byte(interop.CuratorRevokes), Version: -1})
		one.w.release()
		time.Sleep(time.Minute)
		one.wantState(l, locks.Held, "")
		asked := one.asked(l)
		assert.That(t, !asked.Forced && asked.Reason != "", "its holder is told %+v", asked)
	})
}

func TestWhatIsNamedAloneIsWithdrawn(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		kept := one.mustHold(locks.AcquireRequest{Lock: "deploy", Mode: locks.Shared, TTL: time.Hour})
		forced := two.mustHold(locks.AcquireRequest{Lock: "deploy", Mode: locks.Shared, TTL: time.Hour})
		one.mustRevoke("why", 20*time.Second)
		answer, err := two.withdraw(kept)
		assert.Must(t, err == nil && len(answer.Withdrawn) == 1 && answer.Withdrawn[0].LeaseID == kept.ID, "%+v, %v", answer, err)
		time.Sleep(21 * time.Second)
		one.wantState(kept, locks.Held, "")
		two.wantState(forced, locks.Ended, locks.ReasonRevoked)
		// It has ended: that cannot be taken back.
		_, err = one.withdraw(forced)
		e := wantCode(t, err, locks.CodeHolderChanged)
		assert.That(t, len(e.Holders) == 1 && e.Holders[0].LeaseID == kept.ID, "%+v", e)
	})
}

func TestCuratorsHolderCannotBeToldThatItIsNotAskedAnyMore(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		_, paths := s.foreignSeen(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/deploy/_c_12345678-1234-1234-1234-123456789abc-lock-"})
		answer := g.mustWithdraw(0)
		assert.That(t, len(answer.Not) == 0, "%+v", answer)
		g.mustRevoke("why", 0)
		answer, err := g.withdraw()
		if err != nil || len(answer.Withdrawn) != 0 || len(answer.Not) != 1 || answer.Not[0].Contender.Znode != paths[0] || !strings.Contains(answer.Not[0].Detail, "Curator") {
			t.Errorf("%+v, %v", answer, err)
		}
	})
}

// Two writers of one record: a writer that read an older version starts over, and what the other one wrote stays.
func TestTwoGatewaysThatAskAtOnceBothCount(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		one, two, three := s.gateway(t), s.gateway(t), s.gateway(t)
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: "me", Metadata: "build 7"})
		done := make(chan error, 2)
		for _, g := range []*gate{two, three} {
			go func() {
				force := time.Minute
				if g == three {
					force = 0
				}
				_, err := g.revoke(fmt.Sprint(force), force)
				done <- err
			}()
		}
		for range 2 {
			assert.Nil(t, <-done)
		}
		synctest.Wait()
		asked := one.asked(l)
		assert.That(t, asked.Forced, "its holder is told %+v", asked)
		r, ok := record.Parse(s.node(l.Znode).data)
		assert.That(t, ok && r.Owner == "me" && r.Metadata == "build 7" && r.TTL == time.Hour.Milliseconds() && r.Enqueued != 0,
			"the record is %+v", r)
	})
}

// What this release does not know in a record stays when it asks the holder.
func TestAskingChangesNothingElseInARecord(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		path := s.otherLease(t, "deploy", recipe.Exclusive, `{"v":1,"owner":"me","ttl_ms":5000,"enqueued_ms":1763766246123,"x":{"y":[1,2]},"z":9007199254740991}`)
		g.mustRevoke("why", 0)
		const want = `{"enqueued_ms":1763766246123,"owner":"me","revoke":{"reason":"why"},"ttl_ms":5000,"v":1,"x":{"y":[1,2]},"z":9007199254740991}`
		got := string(s.node(path).data)
		assert.That(t, got == want, "written is\n\t%s\nwant\n\t%s", got, want)
	})
}

// otherLease makes the contender of a lease that a gateway runs which is not part of the test.
func (s *fakeStore) otherLease(t *testing.T, lock string, mode recipe.Mode, data string) string {
	t.Helper()
	const other = "/lockkeeper/gateways/"
	id := assert.Value(recipe.NewGatewayID(rand.Reader))(t)
	fleet, _ := recipe.ParseFleetID(s.layout.FleetID)
	lease := assert.Value(recipe.NewLeaseID(fleet, id, rand.Reader))(t)
	s.foreign(zk.Op{Kind: zk.OpCreate, Path: other + string(id)})
	c := recipe.Contender{LeaseID: lease, Mode: mode}
	_, paths := s.foreignSeen(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/" + lock + "/" + c.Prefix(), Sequential: true, Data: []byte(data)})
	return paths[0]
}

func TestAllHoldersAreAskedAndEachAtMostMaxReapAtATime(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		var paths []string
		for range locks.MaxReap + 7 {
			paths = append(paths, s.otherLease(t, "deploy", recipe.Shared, `{"v":1,"ttl_ms":5000}`))
		}
		asked := func() (n int) {
			for _, p := range paths {
				if r, _ := record.Parse(s.node(p).data); r.Revoke != nil {
					n++
				}
			}
			return n
		}
		answer := g.mustRevoke("why", 0)
		assert.Must(t, len(answer.Asked) == locks.MaxReap && answer.More && asked() == locks.MaxReap,
			"%d asked, more %v, %d written", len(answer.Asked), answer.More, asked())
		answer = g.mustRevoke("why", 0)
		assert.That(t, len(answer.Asked) == locks.MaxReap && !answer.More && asked() == locks.MaxReap+7,
			"the second time %d asked, more %v, %d written", len(answer.Asked), answer.More, asked())
	})
}

// A tree read lists names. What was written while the observer had no connection is found all the same.
func TestARevocationThatTheStreamHasMissedIsFound(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		one.w.disconnect()
		two.mustRevoke("the node goes down", 20*time.Second)
		if one.w.reconnect(); true {
			synctest.Wait()
		}
		asked := one.asked(l)
		assert.Must(t, asked.Reason == "the node goes down" && asked.Forced, "its holder is told %+v", asked)
		time.Sleep(21 * time.Second)
		one.wantState(l, locks.Ended, locks.ReasonRevoked)
	})
}

// Another gateway writes the record between an own write and its answer.
func TestARevocationBehindAnOwnWriteIsFound(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		h := s.hooked()
		one, two := h.gateway(t), s.gateway(t)
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		var once atomic.Bool
		h.hooks.Store(&hooks{result: func(w *zk.Write, _ *zk.Result) {
			if len(w.Ops) == 1 && w.Ops[0].Kind == zk.OpSetData && !once.Swap(true) {
				_, err := two.revoke("why", time.Minute)
				assert.Nil(t, err)
				time.Sleep(100 * time.Millisecond) // its event comes before this write's answer
			}
		}})
		assert.Value(one.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, time.Hour))(t)
		asked := one.asked(l)
		assert.That(t, once.Load() && asked.Reason == "why" && asked.Forced, "its holder is told %+v", asked)
	})
}

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
func TestAnotherHolderIsNotAskedInThePlaceOfTheOneThatWasShown(t *testing.T) {
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
		assert.Equal(t, g.asked(group), locks.Revocation{}, "the revocation of a waiter")
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
		assert.Equal(t, len(two.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LeaseRevoked)}, ring)), 2, "ends are told")
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
