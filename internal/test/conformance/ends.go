package conformance

import (
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// Ends that an administrator makes.
var ends = []script{
	{"a lease that is broken ends at once, and its client is told", func(a *actor) {
		name := a.lock("break")
		l := a.hold(locks.AcquireRequest{Lock: name, TTL: time.Hour})
		waits, next := a.queue(locks.AcquireRequest{Lock: name}), a.queue(locks.AcquireRequest{Lock: name})
		a.fine(a.Break(a.Context(), locks.BreakRequest{ID: waits.ID}), "break one that waits")
		a.ended(waits, locks.ReasonRevoked)
		a.sees(name, 1, 1)
		a.fine(a.Break(a.Context(), locks.BreakRequest{ID: l.ID, Reason: "it hangs", Client: "127.0.0.1"}), "break")
		a.ended(l, locks.ReasonRevoked)
		a.becomes(next, locks.Held)
		if e := a.refused(a.Release(a.Context(), locks.Anonymous, l.ID, l.Token), locks.CodeEnded); e.Reason != locks.ReasonRevoked || e.By == "" {
			a.Errorf("its client is told %+v", e)
		}
		if p, err := a.Postmortem(a.Context(), locks.Anonymous, l.ID); err != nil || p.Detail != "it hangs" || p.By == "" {
			a.Errorf("%+v, %v", p, err)
		}
		a.fine(a.Break(a.Context(), locks.BreakRequest{ID: l.ID}), "again")
		a.letGo(next)
		assert.Equal(a, a.refused(a.Break(a.Context(), locks.BreakRequest{ID: next.ID}), locks.CodeEnded).Reason, locks.ReasonReleased)
		a.refused(a.Break(a.Context(), locks.BreakRequest{Lock: name, Name: "absent-0000000000"}), locks.CodeNoContender)
		a.refused(a.Break(a.Context(), locks.BreakRequest{ID: "lkabc"}), locks.CodeNotFound)
	}},
	{"a group that is broken in one lock ends in all", func(a *actor) {
		x, y := a.lock("x"), a.lock("y")
		l := a.hold(locks.AcquireRequest{Group: []locks.Want{{Lock: x}, {Lock: y}}})
		a.fine(a.Break(a.Context(), locks.BreakRequest{Lock: y, Name: lastOf(l.Locks[1].Znode)}), "break")
		a.ended(l, locks.ReasonRevoked)
		a.sees(x, 0, 0)
		a.sees(y, 0, 0)
	}},
	{"another program's contender is respected, and can be broken", func(a *actor) {
		name, znode := a.lock("foreign"), "_c_7d6ecf4a-9d3f-4a5c-8d7e-1f2a3b4c5d6e-lock-0000000007"
		a.letGo(a.hold(locks.AcquireRequest{Lock: name}))
		a.Foreign(a, name, znode)
		q := a.sees(name, 1, 0)
		if c := q.Holders[0]; c.Foreign == nil || c.Foreign.Program != "curator" || c.Foreign.Kind == "" || c.LeaseID != "" || lastOf(c.Znode) != znode {
			a.Errorf("%+v", q.Holders)
		}
		_, err := a.acquire(locks.AcquireRequest{Lock: name, Mode: locks.Shared})
		if e := a.refused(err, locks.CodeHeldByOther); len(e.Holders) != 1 || e.Holders[0].Foreign == nil {
			a.Errorf("%+v", e)
		}
		ans, err := a.Revoke(a.Context(), locks.RevokeRequest{Lock: name})
		if a.fine(err, "revoke Curator's"); len(ans.Asked) != 1 || len(ans.Not) != 0 || lastOf(ans.Asked[0].Znode) != znode {
			a.Errorf("%+v", ans)
		}
		a.fine(a.Break(a.Context(), locks.BreakRequest{Lock: name, Name: znode}), "break")
		a.sees(name, 0, 0)
		znode = "x-72057594037927936-0000000008" // a WriteLock of ZooKeeper's cannot be asked
		a.Foreign(a, name, znode)
		a.sees(name, 1, 0)
		_, err = a.Revoke(a.Context(), locks.RevokeRequest{Lock: name})
		if e := a.refused(err, locks.CodeNothingToAsk); len(e.Holders) != 1 || e.Detail == "" || lastOf(e.Holders[0].Znode) != znode {
			a.Errorf("%+v", ans)
		}
		a.fine(a.Break(a.Context(), locks.BreakRequest{Lock: name, Name: znode}), "break")
		a.granted(a.begin(locks.AcquireRequest{Lock: name, Wait: patience}))
	}},
}
