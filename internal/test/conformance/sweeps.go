package conformance

import (
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// Ends of many at once.
var sweeps = []script{
	{"what is old is reaped, as the filters say", func(a *actor) {
		name := a.lock("reap")
		reader := a.hold(locks.AcquireRequest{Lock: name, Mode: locks.Shared, Owner: "r"})
		another := a.hold(locks.AcquireRequest{Lock: name, Mode: locks.Shared, Owner: "s"})
		writer := a.queue(locks.AcquireRequest{Lock: name, Owner: "w"})
		late := a.queue(locks.AcquireRequest{Lock: name, Owner: "w", Mode: locks.Shared})
		reap := func(req locks.ReapRequest, want ...locks.Lease) {
			a.Helper()
			req.Lock = name
			for _, dry := range []bool{true, false} {
				req.DryRun = dry
				ans, err := a.Reap(a.Context(), req)
				a.fine(err, "reap")
				assert.Must(a, len(ans.Reaped) == len(want) && ans.DryRun == dry && !ans.More && len(ans.Not) == 0, "%+v", ans)
				got := map[string]bool{}
				for _, c := range ans.Reaped {
					got[c.LeaseID] = true
				}
				for _, l := range want {
					assert.That(a, got[l.ID], "%s is not among %+v", l.ID, ans.Reaped)
					if now := a.look(l); dry && now.State == locks.Ended {
						a.Errorf("a dry run ended %+v", now)
					}
				}
			}
			for _, l := range want {
				a.ended(l, locks.ReasonRevoked)
			}
		}
		reap(locks.ReapRequest{OlderThan: time.Hour})
		reap(locks.ReapRequest{Foreign: new(true)})
		reap(locks.ReapRequest{Mode: locks.Exclusive, State: locks.Held})
		reap(locks.ReapRequest{State: locks.Held, Owner: "s"}, another)
		newer := a.queue(locks.AcquireRequest{Lock: name, Owner: "x"})
		reap(locks.ReapRequest{State: locks.Waiting, Mode: locks.Exclusive, Shown: locks.Shown{LeaseIDs: []string{writer.ID}}}, writer)
		_, err := a.Reap(a.Context(), locks.ReapRequest{Lock: name, State: locks.Held, Shown: locks.Shown{LeaseIDs: []string{reader.ID, newer.ID}}})
		a.refused(err, locks.CodeHolderChanged)
		reap(locks.ReapRequest{Owner: "x"}, newer)
		a.becomes(late, locks.Held)
		reap(locks.ReapRequest{Mode: locks.Shared, Foreign: new(false), Reason: "spring clean"}, reader, late)
		a.sees(name, 0, 0)
	}},
	{"a lock that is destroyed has no contender any more", func(a *actor) {
		name, other := a.lock("destroy"), a.lock("other")
		holder := a.hold(locks.AcquireRequest{Lock: name, Mode: locks.Semaphore, Limit: 1})
		begun := a.begin(locks.AcquireRequest{Lock: name, Wait: locks.WaitForever})
		a.sees(name, 1, 1)
		// Its answer comes after that to begun's create: an end does not find leases that are being created.
		group := a.queue(locks.AcquireRequest{Group: []locks.Want{{Lock: name}, {Lock: other}}})
		a.sees(name, 1, 2)
		a.Foreign(a, name, "_c_7d6ecf4a-9d3f-4a5c-8d7e-1f2a3b4c5d6e-lock-0000009999")
		a.sees(name, 1, 3)
		ans, err := a.Destroy(a.Context(), locks.DestroyRequest{Lock: name, Reason: "the end"})
		if a.fine(err, "destroy"); ans.Ended != 4 || ans.Foreign != 1 {
			a.Errorf("%+v", ans)
		}
		a.ended(holder, locks.ReasonDestroyed)
		a.ended(group, locks.ReasonDestroyed)
		<-begun.done
		assert.Equal(a, a.refused(begun.err, locks.CodeEnded).Reason, locks.ReasonDestroyed)
		a.sees(other, 0, 0)
		assert.Equal(a, a.see(name, "free", func(l locks.Lock) bool { return l.State == locks.LockFree }).Limit, 0,
			"its settings are still there")
		ans, err = a.Destroy(a.Context(), locks.DestroyRequest{Lock: name})
		if a.fine(err, "again"); ans.Ended != 0 {
			a.Errorf("%+v", ans)
		}
		a.hold(locks.AcquireRequest{Lock: name})
	}},
}
