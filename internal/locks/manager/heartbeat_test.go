package manager

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
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
			testkit.Nothing(t, answer, "answered without need")
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

// Only the change of the TTL waits for ZooKeeper. A lease whose client was heard in time does not expire while the write of a
// longer TTL is slow, nor when it is done.
func TestAHeartbeatWithALongerTTLRenewsTheLeaseBeforeTheTTLIsWritten(t *testing.T) {
	slowly := func(t *testing.T, beat func(g *gate, l locks.Lease) error) {
		withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
			l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
			written := make(chan struct{})
			h.hooks.Store(&hooks{late: func(w *zk.Write) <-chan struct{} {
				if rewrites(w) {
					return written
				}
				return nil
			}})
			time.Sleep(15 * time.Second)
			heard := time.Now()
			wantCode(t, beat(g, l), locks.CodeUnavailable)
			v := g.look(l)
			assert.That(t, v.TTL == 20*time.Second && v.ExpiresIn <= 20*time.Second-time.Since(heard), "before the TTL is written: %+v", v)
			time.Sleep(10*time.Second - time.Since(heard)) // the first deadline is over
			close(written)
			pass(loadRetry + time.Second) // an end by time waits for a write of the record
			g.wantState(l, locks.Held, "")
			pass(20*time.Second - time.Since(heard) + time.Second)
			g.wantState(l, locks.Ended, locks.ReasonExpired)
		})
	}
	t.Run("alone", func(t *testing.T) {
		slowly(t, func(g *gate, l locks.Lease) error {
			_, err := g.m.Heartbeat(g.t.Context(), locks.Anonymous, l.ID, l.Token, time.Minute)
			return err
		})
	})
	t.Run("among many", func(t *testing.T) {
		slowly(t, func(g *gate, l locks.Lease) error {
			shorter := g.s.recordOf(l) // another program writes it: the gateway writes its own TTL before it promises that
			shorter.SetTTL(5 * time.Second)
			g.s.foreignSeen(zk.Op{Kind: zk.OpSetData, Path: l.Znode, Data: shorter.Encode(), Version: -1})
			return g.m.Heartbeats(g.t.Context(), locks.Anonymous, []string{l.Token})[0].Err
		})
	})
}

// A client holds its lease until it sent the request + Waited + TTL. So no answer may promise more than the gateway's own deadline.
func TestAGrantTellsWhenItsTTLBegan(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		promised := func(what string, sent time.Duration, l locks.Lease, waited time.Duration) {
			t.Helper()
			assert.Must(t, l.WaitedKnown, "%s: it is not told when the TTL began", what)
			if late := l.Waited - waited; late < 0 || late > 5*time.Millisecond { // a write takes one millisecond
				t.Errorf("%s: waited %v, want %v", what, l.Waited, waited)
			}
			g.m.mu.Lock()
			defer g.m.mu.Unlock()
			until, deadline := sent+l.Waited+l.TTL, g.m.leases.lease(g.m.mustID(l.ID)).deadline
			assert.That(t, until <= deadline, "%s: the client counts until %v, the gateway until %v", what, until, deadline)
		}
		now := func() time.Duration { return s.clock.Now().Boot() }
		sent := now()
		first := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		promised("at once", sent, first, 0)

		sent = now()
		p := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: 5 * time.Second, Wait: time.Minute, IdempotencyKey: "abcdefghijklmnop"})
		time.Sleep(9 * time.Second)
		g.mustRelease(first)
		assert.Must(t, p.finished() && p.err == nil, "no grant: %v", p.err)
		promised("after a wait", sent, p.lease, 9*time.Second)

		time.Sleep(3 * time.Second)
		sent = now()
		again := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 5 * time.Second, Wait: time.Minute, IdempotencyKey: "abcdefghijklmnop"})
		promised("a repeat", sent, again, 0)

		time.Sleep(3 * time.Second)
		sent = now()
		held := g.mustHold(locks.AcquireRequest{Lock: "deploy", Token: again.Token, Hold: "more"})
		promised("a hold", sent, held, 0)

		time.Sleep(time.Second)
		look := assert.Value(g.m.Lease(t.Context(), locks.LeaseRequest{ID: again.ID, Token: again.Token}))(t, "look")
		assert.Must(t, !look.WaitedKnown, "a look renews nothing, and counts a TTL from now: %v", look.Waited)

		ticket := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second, Async: true})
		assert.Must(t, !ticket.WaitedKnown, "a ticket has no TTL that has begun")
		sent = now()
		done := make(chan locks.Lease, 1)
		go func() {
			l, err := g.m.Lease(t.Context(), locks.LeaseRequest{ID: ticket.ID, Token: ticket.Token, Wait: time.Minute, Since: ticket.Rev})
			assert.Nil(t, err)
			done <- l
		}()
		time.Sleep(2 * time.Second)
		g.mustRelease(again)
		promised("a poll", sent, <-done, 2*time.Second)
	})
}
