package conformance

import (
	"slices"

	"lockkeeper/internal/locks"
)

var holds = []script{
	{"a lease ends with its last hold", func(a *actor) {
		name := a.lock("reentrant")
		l := a.hold(locks.AcquireRequest{Lock: name, Hold: "outer"})
		add := func(hold string, want ...string) {
			a.Helper()
			res, err := a.acquire(locks.AcquireRequest{Lock: name, Hold: hold, Token: l.Token})
			a.fine(err, "add a hold")
			if !res.HoldAdded || res.Lease.ID != l.ID || res.Lease.FencingToken != l.FencingToken || !slices.Equal(res.Lease.Holds, want) {
				a.Errorf("%+v", res)
			}
		}
		add("inner", "outer", "inner")
		add("inner", "outer", "inner") // a repeat
		if q := a.sees(name, 1, 0); !slices.Equal(q.Holders[0].Holds, []string{"outer", "inner"}) {
			a.Errorf("the lock shows %+v", q.Holders[0])
		}
		let := func(hold string) error { return a.ReleaseHold(a.Context(), locks.Anonymous, l.ID, l.Token, hold) }
		a.fine(let("outer"), "release a hold")
		a.fine(let("outer"), "again")
		if now := a.look(l); now.State != locks.Held || !slices.Equal(now.Holds, []string{"inner"}) {
			a.Errorf("%+v", now)
		}
		_, err := a.acquire(locks.AcquireRequest{Lock: name, Hold: "outer", Token: l.Token})
		a.refused(err, locks.CodeHoldReleased)
		a.refusedField(let("never"), "hold")
		a.fine(let("inner"), "release the last")
		a.ended(l, locks.ReasonReleased)
		a.fine(let("inner"), "again")
		_, err = a.acquire(locks.AcquireRequest{Lock: name, Hold: "late", Token: l.Token})
		a.refused(err, locks.CodeEnded)
		a.sees(name, 0, 0)
	}},
	{"a plain release ends a lease with any holds", func(a *actor) {
		name := a.lock("reentrant")
		l := a.hold(locks.AcquireRequest{Lock: name})
		_, err := a.acquire(locks.AcquireRequest{Lock: name, Hold: "inner", Token: l.Token})
		a.fine(err, "add a hold")
		a.fine(a.ReleaseHold(a.Context(), locks.Anonymous, "", l.Token, "inner"), "release it")
		if now := a.look(l); now.State != locks.Held || len(now.Holds) != 0 {
			a.Errorf("what was acquired without a name is let go with a name: %+v", now)
		}
		_, err = a.acquire(locks.AcquireRequest{Lock: name, Hold: "another", Token: l.Token})
		a.fine(err, "add a hold")
		a.letGo(l)
		a.ended(l, locks.ReasonReleased)
	}},
	{"a hold is added with the lease's token, to the lease's lock", func(a *actor) {
		name := a.lock("reentrant")
		l := a.hold(locks.AcquireRequest{Lock: name, Hold: "outer"})
		_, err := a.acquire(locks.AcquireRequest{Lock: a.lock("another"), Hold: "inner", Token: l.Token})
		a.refusedField(err, "lock")
		_, err = a.acquire(locks.AcquireRequest{Lock: name, Hold: "inner", Token: l.Token[:len(l.Token)-4] + "AAAA"})
		a.refused(err, locks.CodeTokenWrong)
		_, err = a.acquire(locks.AcquireRequest{Lock: name, Hold: "inner"})
		a.refused(err, locks.CodeHeldByOther) // without the token it may be another client's
	}},
}
