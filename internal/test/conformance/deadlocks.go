package conformance

import (
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// Owners that wait for each other.
var deadlocks = []script{
	{"two owners that wait for each other are a cycle, until one gives up", func(a *actor) {
		one, two := a.lock("one"), a.lock("two")
		ann, bob := a.prefix+"ann", a.prefix+"bob"
		first := a.hold(locks.AcquireRequest{Lock: one, Owner: ann})
		a.hold(locks.AcquireRequest{Lock: two, Owner: bob})
		a.queue(locks.AcquireRequest{Lock: two, Owner: ann})
		wait := a.queue(locks.AcquireRequest{Lock: one, Owner: bob})
		v := assert.Value(a.Graph(a.Context(), locks.GraphRequest{Principal: locks.Anonymous, Lock: one}))(a, "graph")
		assert.Must(a, len(v.Cycles) == 1 && v.Cycles[0].Certain && len(v.Cycles[0].Waits) == 2 && len(v.Parties) == 2 && v.Parties[0].Stuck, "%+v", v)
		c := v.Cycles[0]
		assert.That(a, c.Waits[c.Youngest].Waiter.LeaseID == wait.ID && c.Waits[c.Youngest].Blocker.LeaseID == first.ID && c.Waits[c.Youngest].Lock == one, "%+v", c)
		a.letGo(wait)
		v = assert.Value(a.Graph(a.Context(), locks.GraphRequest{Principal: locks.Anonymous, Lock: two}))(a, "graph")
		assert.That(a, len(v.Cycles) == 0 && len(v.Waits) == 1 && v.Waits[0].From == "owner:"+ann && v.Waits[0].To == "owner:"+bob, "%+v", v)
	}},
	{"with deadlock=fail the wait that closes a cycle is refused, and the older one goes on", func(a *actor) {
		one, two := a.lock("one"), a.lock("two")
		ann, bob := a.prefix+"ann", a.prefix+"bob"
		a.hold(locks.AcquireRequest{Lock: one, Owner: ann})
		held := a.hold(locks.AcquireRequest{Lock: two, Owner: bob})
		wait := a.queue(locks.AcquireRequest{Lock: two, Owner: ann, Deadlock: locks.DeadlockFail})
		_, err := a.acquire(locks.AcquireRequest{Lock: one, Owner: bob, Async: true, Deadlock: locks.DeadlockFail})
		e := a.refused(err, locks.CodeWouldDeadlock)
		assert.That(a, e.Cycle != nil && len(e.Cycle.Waits) == 2 && e.Cycle.Certain, "%+v", e)
		a.sees(one, 1, 0)
		a.letGo(held)
		a.becomes(wait, locks.Held)
	}},
	{"with deadlock=fail a wait ends in a cycle that another one closes", func(a *actor) {
		one, two := a.lock("one"), a.lock("two")
		ann, bob := a.prefix+"ann", a.prefix+"bob"
		a.hold(locks.AcquireRequest{Lock: one, Owner: ann})
		a.hold(locks.AcquireRequest{Lock: two, Owner: bob})
		wait := a.queue(locks.AcquireRequest{Lock: two, Owner: ann, Deadlock: locks.DeadlockFail})
		a.queue(locks.AcquireRequest{Lock: one, Owner: bob})
		ended := a.becomes(wait, locks.Ended)
		assert.That(a, ended.Reason == locks.ReasonWouldDeadlock, "%+v", ended)
	}},
	{"deadlock=fail needs an owner's name", func(a *actor) {
		_, err := a.acquire(locks.AcquireRequest{Lock: a.lock("x"), Owner: "10.0.0.7", Deadlock: locks.DeadlockFail})
		e := a.refused(err, locks.CodeInvalid)
		assert.That(a, e.Field == "owner", "%+v", e)
	}},
}
