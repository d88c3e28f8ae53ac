package manager

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
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

func TestAWithdrawnRevocationForcesNobody(t *testing.T) {
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
				list := g.hub.Recent(events.Filter{Types: events.Types(events.LeaseRevokeWithdrawn)}, ring)
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
			t.Run(name, func(t *testing.T) {
				withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
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
				})
			})
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
		e := one.hub.Recent(events.Filter{Types: events.Types(events.LeaseRevoked)}, 1)
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
		if answer, err := two.withdraw(kept); err != nil || len(answer.Withdrawn) != 1 || answer.Withdrawn[0].LeaseID != kept.ID {
			t.Fatalf("%+v, %v", answer, err)
		}
		time.Sleep(21 * time.Second)
		one.wantState(kept, locks.Held, "")
		two.wantState(forced, locks.Ended, locks.ReasonRevoked)
		// It has ended: that cannot be taken back.
		_, err := one.withdraw(forced)
		e := wantCode(t, err, locks.CodeHolderChanged)
		assert.That(t, len(e.Holders) == 1 && e.Holders[0].LeaseID == kept.ID, "%+v", e)
	})
}

func TestCuratorsHolderCannotBeToldThatItIsNotAskedAnyMore(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		_, paths := s.foreignSeen(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/deploy/_c_12345678-1234-1234-1234-123456789abc-lock-"})
		if answer := g.mustWithdraw(0); len(answer.Not) != 0 {
			t.Errorf("%+v", answer)
		}
		g.mustRevoke("why", 0)
		answer, err := g.withdraw()
		if err != nil || len(answer.Withdrawn) != 0 || len(answer.Not) != 1 || answer.Not[0].Contender.Znode != paths[0] || !strings.Contains(answer.Not[0].Detail, "Curator") {
			t.Errorf("%+v, %v", answer, err)
		}
	})
}
