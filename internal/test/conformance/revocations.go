package conformance

import (
	"errors"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

var revocations = []script{
	{"a heartbeat that waits is answered when there is something to tell", func(a *actor) {
		name := a.lock("news")
		l := a.hold(locks.AcquireRequest{Lock: name, TTL: locks.MaxTTL})
		told := make(chan error, 1)
		next := func() (h locks.Heartbeat) {
			go func() {
				var err error
				h, err = a.AwaitChange(a.Context(), locks.Anonymous, l.ID, l.Token, locks.MaxPollWait)
				told <- err
			}()
			a.fine(testkit.Receive(a, patience, told, "a heartbeat is answered"), "heartbeat")
			return h
		}
		a.queue(locks.AcquireRequest{Lock: name})
		if h := next(); h.State != locks.Held || h.Waiters != 1 || h.Revoke != nil {
			a.Errorf("with a waiter: %+v", h)
		}
		_, err := a.Revoke(a.Context(), locks.RevokeRequest{Lock: name, Reason: "a release is due", Client: "127.0.0.1"})
		a.fine(err, "revoke")
		if h := next(); h.Revoke == nil || h.Revoke.Reason != "a release is due" || h.Revoke.By == "" {
			a.Errorf("with a revocation: %+v", h)
		}
		go func() {
			_, err := a.AwaitChange(a.Context(), locks.Anonymous, l.ID, l.Token, locks.MaxPollWait)
			told <- err
		}()
		err = a.Break(a.Context(), locks.BreakRequest{ID: l.ID})
		a.fine(err, "break")
		if e, ok := errors.AsType[*locks.Error](testkit.Receive(a, patience, told, "a heartbeat of a broken lease is answered")); !ok || e.Code != locks.CodeEnded {
			a.Errorf("of a broken lease: %v", e)
		}
	}},
	{"a holder that is asked to release learns of it, and may", func(a *actor) {
		name := a.lock("revoke")
		l := a.hold(locks.AcquireRequest{Lock: name})
		waits := a.queue(locks.AcquireRequest{Lock: name})
		rev := a.look(l).Rev
		told := make(chan error, 1)
		go func() {
			now, err := a.Lease(a.Context(), locks.LeaseRequest{ID: l.ID, Token: l.Token, Wait: patience, Since: rev})
			if err == nil && now.Rev == rev {
				err = errors.New("a poll did not see it")
			}
			told <- err
		}()
		ans, err := a.Revoke(a.Context(), locks.RevokeRequest{Lock: name, Reason: "a release is due"})
		a.fine(err, "revoke")
		assert.That(a, len(ans.Asked) == 1 && ans.Asked[0].LeaseID == l.ID && len(ans.Not) == 0, "%+v", ans)
		if h := a.beat(l); h.State != locks.Held || h.Revoke == nil || h.Revoke.Reason != "a release is due" || h.Revoke.Forced {
			a.Errorf("%+v", h.Revoke)
		}
		assert.Equal(a, a.poll(l, "asked to let go", func(l locks.Lease) bool { return l.Revoke != nil }).Revoke.Reason, "a release is due")
		a.fine(testkit.Receive(a, patience, told, "a poll is answered"), "poll")
		if q := a.sees(name, 1, 1); q.Holders[0].Revoke == nil || q.Waiters[0].Revoke != nil {
			a.Errorf("%+v", q)
		}
		a.letGo(l)
		a.becomes(waits, locks.Held)
		if h := a.beat(waits); h.Revoke != nil {
			a.Errorf("a waiter was asked: %+v", h.Revoke)
		}
	}},
	{"a lease that is not let go in time is taken back", func(a *actor) {
		name := a.lock("revoke")
		l := a.hold(locks.AcquireRequest{Lock: name, TTL: time.Hour})
		next := a.begin(locks.AcquireRequest{Lock: name, Wait: locks.WaitForever})
		ans, err := a.Revoke(a.Context(), locks.RevokeRequest{Lock: name, Reason: "now", ForceAfter: time.Second})
		if a.fine(err, "revoke"); len(ans.Asked) != 1 || ans.Asked[0].Revoke == nil || !ans.Asked[0].Revoke.Forced {
			a.Errorf("%+v", ans)
		}
		a.granted(next)
		a.ended(l, locks.ReasonRevoked)
		_, err = a.Heartbeat(a.Context(), locks.Anonymous, l.ID, l.Token, 0)
		assert.Equal(a, a.refused(err, locks.CodeEnded).Reason, locks.ReasonRevoked)
		if p, err := a.Postmortem(a.Context(), locks.Anonymous, l.ID); err != nil || p.Reason != locks.ReasonRevoked || p.Detail != "now" {
			a.Errorf("%+v, %v", p, err)
		}
	}},
	{"all holders are asked, and a lock without holders has none to ask", func(a *actor) {
		name := a.lock("revoke")
		_, err := a.Revoke(a.Context(), locks.RevokeRequest{Lock: name})
		a.refused(err, locks.CodeNothingToAsk)
		a.hold(locks.AcquireRequest{Lock: name, Mode: locks.Shared})
		a.hold(locks.AcquireRequest{Lock: name, Mode: locks.Shared})
		if ans, err := a.Revoke(a.Context(), locks.RevokeRequest{Lock: name}); err != nil || len(ans.Asked) != 2 {
			a.Errorf("%+v, %v", ans, err)
		}
	}},
	{"only the holders that were shown are asked", func(a *actor) {
		name := a.lock("revoke")
		first := a.hold(locks.AcquireRequest{Lock: name, Mode: locks.Shared})
		second := a.hold(locks.AcquireRequest{Lock: name, Mode: locks.Shared})
		waits := a.queue(locks.AcquireRequest{Lock: name})
		ans, err := a.Revoke(a.Context(), locks.RevokeRequest{Lock: name, Shown: locks.Shown{LeaseIDs: []string{first.ID}}})
		if a.fine(err, "revoke"); len(ans.Asked) != 1 || ans.Asked[0].LeaseID != first.ID {
			a.Errorf("%+v", ans)
		}
		a.letGo(first)
		a.letGo(second)
		a.becomes(waits, locks.Held)
		for _, shown := range []locks.Shown{{LeaseIDs: []string{first.ID}}, {LeaseIDs: []string{waits.ID}, Znodes: []string{second.Znode}}} {
			_, err = a.Revoke(a.Context(), locks.RevokeRequest{Lock: name, ForceAfter: time.Second, Shown: shown})
			if e := a.refused(err, locks.CodeHolderChanged); len(e.Holders) != 1 || e.Holders[0].LeaseID != waits.ID {
				a.Errorf("%+v", e)
			}
		}
		if h := a.beat(waits); h.Revoke != nil {
			a.Errorf("a holder that was not named was asked: %+v", h.Revoke)
		}
	}},
	{"a revocation is withdrawn, and its force ends nothing", func(a *actor) {
		name := a.lock("revoke")
		l := a.hold(locks.AcquireRequest{Lock: name, TTL: time.Hour})
		_, err := a.Revoke(a.Context(), locks.RevokeRequest{Lock: name, Reason: "now", ForceAfter: 2 * time.Hour})
		a.fine(err, "revoke")
		ans, err := a.Withdraw(a.Context(), locks.WithdrawRequest{Lock: name, Shown: locks.Shown{LeaseIDs: []string{l.ID}}})
		if a.fine(err, "withdraw"); len(ans.Withdrawn) != 1 || ans.Withdrawn[0].LeaseID != l.ID || ans.Withdrawn[0].Revoke != nil || len(ans.Not) != 0 {
			a.Errorf("%+v", ans)
		}
		if h := a.beat(l); h.State != locks.Held || h.Revoke != nil {
			a.Errorf("it is still asked: %+v", h.Revoke)
		}
		ans, err = a.Withdraw(a.Context(), locks.WithdrawRequest{Lock: name})
		if a.fine(err, "again"); len(ans.Withdrawn) != 0 || len(ans.Not) != 0 {
			a.Errorf("%+v", ans)
		}
		// What is asked now begins anew.
		_, err = a.Revoke(a.Context(), locks.RevokeRequest{Lock: name, Reason: "please"})
		a.fine(err, "revoke")
		if h := a.beat(l); h.Revoke == nil || h.Revoke.Reason != "please" || h.Revoke.Forced {
			a.Errorf("%+v", h.Revoke)
		}
	}},
}
