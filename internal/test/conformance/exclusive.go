package conformance

import (
	"fmt"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

var exclusive = []script{
	{"a try of a taken lock names its holder", func(a *actor) {
		name := a.lock("deploy")
		l := a.hold(locks.AcquireRequest{Lock: name, Owner: "me", Metadata: "build 7"})
		if l.Mode != locks.Exclusive || l.NS != locks.DefaultNamespace || l.Lock != name || l.TTL != time.Minute || l.Owner != "me" || l.Metadata != "build 7" || l.QueueLength != 0 {
			a.Errorf("%+v", l)
		}
		_, err := a.acquire(locks.AcquireRequest{Lock: name})
		e := a.refused(err, locks.CodeHeldByOther)
		if len(e.Holders) != 1 || e.Holders[0].LeaseID != l.ID || e.Holders[0].Owner != "me" || e.Holders[0].Metadata != "build 7" || e.RetryAfter <= 0 {
			a.Errorf("%+v", e)
		}
		a.sees(name, 1, 0) // the try has left nothing behind
		a.letGo(l)
		if next := a.hold(locks.AcquireRequest{Lock: name}); next.FencingToken <= l.FencingToken || next.ID == l.ID {
			a.Errorf("after %+v came %+v", l, next)
		}
	}},
	{"locks are granted in the order of the queue, with rising fencing tokens", func(a *actor) {
		name := a.lock("line")
		holder := a.hold(locks.AcquireRequest{Lock: name})
		var waiting []locks.Lease
		for i := range 4 {
			l := a.queue(locks.AcquireRequest{Lock: name, Owner: fmt.Sprint(i)})
			assert.That(a, l.Position == i+1 && l.QueueLength == i+1, "ticket %d: %+v", i, l)
			waiting = append(waiting, l)
		}
		q := a.sees(name, 1, 4)
		for i, c := range q.Waiters {
			assert.That(a, c.LeaseID == waiting[i].ID && c.Position == i+1 && c.Owner == fmt.Sprint(i), "place %d: %+v", i, c)
		}
		if h := a.beat(holder); h.Waiters != 4 {
			a.Errorf("the holder is told of %d others", h.Waiters)
		}
		for i, l := range waiting {
			a.letGo(holder)
			next := a.becomes(l, locks.Held)
			assert.That(a, next.FencingToken > holder.FencingToken && next.Position == 0,
				"holder %d: %+v after %d", i, next, holder.FencingToken)
			holder = next
			holder.Token = l.Token
			a.beat(holder)
		}
		a.letGo(holder)
		a.see(name, "free", func(l locks.Lock) bool { return l.State == locks.LockFree })
	}},
	{"a waiter is answered when the lock is released", func(a *actor) {
		name := a.lock("wait")
		l := a.hold(locks.AcquireRequest{Lock: name})
		for _, wait := range []time.Duration{time.Hour, locks.WaitForever} {
			b := a.begin(locks.AcquireRequest{Lock: name, Wait: wait})
			a.sees(name, 1, 1)
			a.letGo(l)
			next := a.granted(b)
			assert.That(a, next.FencingToken > l.FencingToken, "%+v", next)
			l = next
		}
	}},
	{"a wait that is over gives its place up", func(a *actor) {
		name := a.lock("wait")
		l := a.hold(locks.AcquireRequest{Lock: name})
		_, err := a.acquire(locks.AcquireRequest{Lock: name, Wait: 20 * time.Millisecond})
		if e := a.refused(err, locks.CodeWaitElapsed); len(e.Holders) != 1 || e.Holders[0].LeaseID != l.ID {
			a.Errorf("%+v", e)
		}
		a.sees(name, 1, 0)
	}},
	{"a waiter that disconnects leaves the queue", func(a *actor) {
		name := a.lock("wait")
		a.hold(locks.AcquireRequest{Lock: name})
		b := a.begin(locks.AcquireRequest{Lock: name, Wait: time.Hour})
		a.sees(name, 1, 1)
		b.leave()
		a.sees(name, 1, 0)
		if <-b.done; b.err == nil {
			a.Errorf("it was answered: %+v", b.result)
		}
	}},
	{"a ticket can be given back", func(a *actor) {
		name := a.lock("ticket")
		a.hold(locks.AcquireRequest{Lock: name})
		ticket := a.queue(locks.AcquireRequest{Lock: name})
		if h := a.beat(ticket); h.State != locks.Waiting || h.Position != 1 || h.ExpiresIn <= 0 {
			a.Errorf("%+v", h)
		}
		a.letGo(ticket)
		a.ended(ticket, locks.ReasonCancelled)
		a.sees(name, 1, 0)
		a.letGo(ticket)
	}},
	{"a ticket for a free lock is held at once", func(a *actor) {
		l := a.hold(locks.AcquireRequest{Lock: a.lock("free"), Async: true})
		a.beat(l)
	}},
	{"a ticket that is granted and not claimed passes on", func(a *actor) {
		name := a.lock("unclaimed")
		holder := a.hold(locks.AcquireRequest{Lock: name})
		ticket := a.queue(locks.AcquireRequest{Lock: name, TTL: 2 * time.Second})
		next := a.begin(locks.AcquireRequest{Lock: name, Wait: time.Hour})
		a.sees(name, 1, 2)
		a.beat(ticket)
		a.letGo(holder)
		a.ended(ticket, locks.ReasonUnclaimed)
		a.granted(next)
	}},
	{"a lease without heartbeats ends, and the next one holds", func(a *actor) {
		name := a.lock("expiry")
		l := a.hold(locks.AcquireRequest{Lock: name, TTL: time.Second, Owner: "gone"})
		assert.That(a, !l.FailoverSafe, "a lease of a second is said to ride over the crash of a gateway")
		next := a.granted(a.begin(locks.AcquireRequest{Lock: name, Wait: time.Hour}))
		a.ended(l, locks.ReasonExpired)
		_, err := a.Heartbeat(a.Context(), locks.Anonymous, l.ID, l.Token, 0)
		assert.Equal(a, a.refused(err, locks.CodeEnded).Reason, locks.ReasonExpired)
		assert.Equal(a, a.refused(a.Release(a.Context(), locks.Anonymous, l.ID, l.Token), locks.CodeEnded).Reason, locks.ReasonExpired)
		p, err := a.Postmortem(a.Context(), locks.Anonymous, l.ID)
		a.fine(err, "postmortem")
		if p.LeaseID != l.ID || p.Lock != name || p.Owner != "gone" || p.Reason != locks.ReasonExpired || p.TTL != time.Second || p.HeldFor < time.Second ||
			p.FencingToken != l.FencingToken || p.EndedAt.IsZero() || p.Next == nil || p.Next.LeaseID != next.ID || p.Next.FencingToken != next.FencingToken {
			a.Errorf("%+v, next %+v", p, p.Next)
		}
		_, err = a.Postmortem(a.Context(), locks.Anonymous, next.ID)
		a.refused(err, locks.CodeNotFound)
	}},
	{"a lease lives by its heartbeats", func(a *actor) {
		name := a.lock("alive")
		sent := time.Now()
		l := a.hold(locks.AcquireRequest{Lock: name, TTL: time.Second})
		b := a.begin(locks.AcquireRequest{Lock: name, Wait: 2500 * time.Millisecond})
		for beating := true; beating; {
			select {
			case <-b.done:
				beating = false
			case <-time.After(100 * time.Millisecond): // the beat of the heart
				now := time.Now()
				h, err := a.Heartbeat(a.Context(), locks.Anonymous, l.ID, l.Token, 0)
				if err != nil && time.Since(sent) >= time.Second {
					a.Logf("this machine stood still for longer than the lease lives: %v", err)
					return
				}
				if a.fine(err, "heartbeat"); h.State != locks.Held || h.FencingToken != l.FencingToken || h.ExpiresIn > time.Second || h.TTL != time.Second {
					a.Fatalf("%+v", h)
				}
				sent = now
			}
		}
		a.refused(b.err, locks.CodeWaitElapsed)
		h, err := a.Heartbeat(a.Context(), locks.Anonymous, "", l.Token, time.Hour)
		if err != nil && time.Since(sent) >= time.Second {
			return
		}
		if a.fine(err, "a longer ttl"); h.TTL != time.Hour || h.ExpiresIn <= 59*time.Minute {
			a.Errorf("%+v", h)
		}
	}},
}
