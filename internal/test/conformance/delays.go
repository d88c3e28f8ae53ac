package conformance

import (
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

var delays = []script{
	{"a lock delay follows a lease that expired, and can be broken", func(a *actor) {
		name := a.lock("delay")
		l := a.hold(locks.AcquireRequest{Lock: name, TTL: time.Second, LockDelay: time.Hour})
		assert.That(a, l.LockDelay == time.Hour && l.LockDelayOn == locks.DelayOnExpiry, "%+v", l)
		next := a.begin(locks.AcquireRequest{Lock: name, Wait: locks.WaitForever})
		a.ended(l, locks.ReasonExpired)
		q := a.see(name, "delayed", func(l locks.Lock) bool { return l.State == locks.LockDelayed && l.QueueLength == 1 })
		if c := q.Holders[0]; !c.Delayed || c.Reason != locks.ReasonExpired || c.LeaseID != l.ID || c.ExpiresIn <= 59*time.Minute || c.ExpiresIn > time.Hour {
			a.Errorf("%+v", q)
		}
		if f := a.current(name, l.FencingToken); f.Current || f.Reason != "delayed" {
			a.Errorf("%+v", f)
		}
		_, err := a.acquire(locks.AcquireRequest{Lock: name})
		if e := a.refused(err, locks.CodeLockDelayed); e.RetryAfter <= 59*time.Minute || e.RetryAfter > time.Hour {
			a.Errorf("the rest of the delay is told as %s", e.RetryAfter)
		}
		_, err = a.Heartbeat(a.Context(), locks.Anonymous, l.ID, l.Token, 0)
		a.refused(err, locks.CodeEnded)
		a.fine(a.Break(a.Context(), locks.BreakRequest{Lock: name, Name: lastOf(q.Holders[0].Znode)}), "break the delay")
		a.granted(next)
	}},
	{"a lock delay follows a release when it is asked for always", func(a *actor) {
		name := a.lock("delay")
		l := a.hold(locks.AcquireRequest{Lock: name, LockDelay: time.Second, LockDelayOn: locks.DelayAlways})
		next := a.begin(locks.AcquireRequest{Lock: name, Wait: locks.WaitForever})
		a.sees(name, 1, 1)
		a.letGo(l)
		a.letGo(l)
		a.ended(l, locks.ReasonReleased)
		a.granted(next)
		if p, err := a.Postmortem(a.Context(), locks.Anonymous, l.ID); err != nil || p.Next == nil || p.Next.After < 800*time.Millisecond {
			a.Errorf("the next one came early: %+v, %v", p.Next, err)
		}
	}},
	{"no lock delay follows a release unless it was asked for, nor a break", func(a *actor) {
		name := a.lock("delay")
		l := a.hold(locks.AcquireRequest{Lock: name, LockDelay: time.Hour})
		a.letGo(l)
		l = a.hold(locks.AcquireRequest{Lock: name, LockDelay: time.Hour, LockDelayOn: locks.DelayAlways})
		a.fine(a.Break(a.Context(), locks.BreakRequest{ID: l.ID}), "break")
		a.granted(a.begin(locks.AcquireRequest{Lock: name, Wait: patience}))
	}},
	{"a delay that cannot be is refused", func(a *actor) {
		_, err := a.acquire(locks.AcquireRequest{Lock: a.lock("delay"), LockDelay: 2 * locks.MaxLockDelay})
		a.refusedField(err, "lock_delay")
		_, err = a.acquire(locks.AcquireRequest{Lock: a.lock("delay"), LockDelayOn: locks.DelayAlways})
		a.refusedField(err, "lock_delay_on")
	}},
	{"the lock stays taken for at_least from the grant on, however the lease ends", func(a *actor) {
		name := a.lock("least")
		l := a.hold(locks.AcquireRequest{Lock: name, AtLeast: time.Hour})
		assert.That(a, l.AtLeast == time.Hour, "%+v", l)
		a.letGo(l)
		a.ended(l, locks.ReasonReleased)
		q := a.see(name, "delayed", func(l locks.Lock) bool { return l.State == locks.LockDelayed })
		if c := q.Holders[0]; !c.Delayed || c.Reason != locks.ReasonReleased || c.LeaseID != l.ID || c.ExpiresIn <= 59*time.Minute || c.ExpiresIn > time.Hour {
			a.Errorf("%+v", q)
		}
		_, err := a.acquire(locks.AcquireRequest{Lock: name})
		a.refused(err, locks.CodeLockDelayed)
		a.fine(a.Break(a.Context(), locks.BreakRequest{ID: l.ID}), "break what stays")
		l = a.hold(locks.AcquireRequest{Lock: name, TTL: time.Second, AtLeast: 3 * time.Second})
		next := a.begin(locks.AcquireRequest{Lock: name, Wait: locks.WaitForever})
		a.ended(l, locks.ReasonExpired)
		a.granted(next)
		if p, err := a.Postmortem(a.Context(), locks.Anonymous, l.ID); err != nil || p.Next == nil || p.HeldFor+p.Next.After < 2900*time.Millisecond {
			a.Errorf("the next one came early: %+v, %v", p, err)
		}
		_, err = a.acquire(locks.AcquireRequest{Lock: name, AtLeast: locks.MaxAtLeast + 1})
		a.refusedField(err, "at_least")
		_, err = a.acquire(locks.AcquireRequest{Lock: name, AtLeast: time.Hour, Ephemeral: true})
		a.refusedField(err, "at_least")
	}},
}
