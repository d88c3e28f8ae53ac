package manager

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

func TestAHeartbeatIsHeldUntilThereIsSomethingToTell(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 30 * time.Second})
		type told struct {
			beat  locks.Heartbeat
			err   error
			after time.Duration
		}
		begin := func(l locks.Lease) <-chan told {
			answer, sent := make(chan told, 1), time.Now()
			assert.Value(g.heartbeat(l))(t, "heartbeat")
			go func() {
				beat, err := g.m.AwaitChange(t.Context(), locks.Anonymous, l.ID, l.Token, time.Minute)
				answer <- told{beat, err, time.Since(sent)}
			}()
			synctest.Wait()
			return answer
		}
		none := func(answer <-chan told) {
			t.Helper()
			synctest.Wait()
			select {
			case a := <-answer:
				t.Fatalf("answered without need: %+v", a)
			default:
			}
		}
		one := func(answer <-chan told) told {
			t.Helper()
			synctest.Wait()
			select {
			case a := <-answer:
				return a
			default:
			}
			t.Fatal("no answer")
			return told{}
		}

		quiet := <-begin(l)
		assert.Must(t, quiet.err == nil && quiet.beat.State == locks.Held, "%+v", quiet)
		assert.That(t, quiet.after >= 9*time.Second && quiet.after <= 11*time.Second,
			"answered after %v: a third of the TTL is 10s", quiet.after)

		waits := begin(l)
		none(waits)
		ticket := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Async: true})
		a := one(waits)
		assert.That(t, a.err == nil && a.beat.Waiters == 1, "a waiter: %+v", a)
		waits = begin(l)
		none(waits) // it has been told
		assert.Value(g.m.Revoke(t.Context(), locks.RevokeRequest{Lock: "deploy", Reason: "please"}))(t, "revoke")
		a = one(waits)
		assert.That(t, a.err == nil && a.beat.Revoke != nil && a.beat.Revoke.Reason == "please", "a revocation: %+v", a)
		waits = begin(l)
		none(waits)
		assert.Value(g.m.Withdraw(t.Context(), locks.WithdrawRequest{Lock: "deploy"}))(t, "withdraw")
		a = one(waits)
		assert.That(t, a.err == nil && a.beat.Revoke == nil, "no revocation any more: %+v", a)

		granted := begin(ticket)
		none(granted)
		waits = begin(l)
		none(waits)
		assert.NoError(t, g.m.Break(t.Context(), locks.BreakRequest{ID: l.ID, Reason: "stuck"}), "break")
		e := wantCode(t, one(waits).err, locks.CodeEnded)
		assert.That(t, e.Reason == locks.ReasonRevoked, "broken: %+v", e)
		a = one(granted)
		assert.That(t, a.err == nil && a.beat.State == locks.Held && a.beat.FencingToken != 0, "granted: %+v", a)
	})
}
