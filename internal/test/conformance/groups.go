package conformance

import (
	"strings"
	"sync"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

var groups = []script{
	{"several locks are taken and let go as one", func(a *actor) {
		x, y, z := a.lock("x"), a.lock("y"), a.lock("z")
		reader := a.hold(locks.AcquireRequest{Lock: y, Mode: locks.Shared})
		all := []locks.Want{{Lock: z}, {Lock: y, Mode: locks.Shared}, {Lock: x, Mode: locks.Semaphore, Limit: 2}}
		group := a.hold(locks.AcquireRequest{Group: all, Owner: "mover"})
		assert.Must(a, group.Lock == "" && group.Mode == "" && len(group.Locks) == 3, "%+v", group)
		for i, k := range group.Locks {
			assert.That(a, k.Lock == all[i].Lock && k.FencingToken == group.FencingToken && k.Znode != "" && k.Position == 0, "%+v", k)
			if f := a.current(k.Lock, k.FencingToken); !f.Current {
				a.Errorf("%s: %+v", k.Lock, f)
			}
			q := a.see(k.Lock, "held", func(l locks.Lock) bool { return l.State == locks.LockHeld })
			if mine := q.Holders[len(q.Holders)-1]; mine.LeaseID != group.ID || mine.Owner != "mover" || len(mine.Group) != 2 {
				a.Errorf("%s shows %+v", k.Lock, mine)
			}
		}
		other := a.queue(locks.AcquireRequest{Group: []locks.Want{{Lock: y}, {Lock: z}}})
		a.letGo(group)
		if l := a.look(other); l.State != locks.Waiting || l.Locks[0].Position != 1 || l.Locks[1].Position != 0 {
			a.Errorf("with a reader still there: %+v", l)
		}
		a.letGo(reader)
		a.becomes(other, locks.Held)
		a.letGo(other)
		for _, name := range []string{x, y, z} {
			a.sees(name, 0, 0)
		}
	}},
	{"a group is tried whole, and leaves nothing behind", func(a *actor) {
		taken, free := a.lock("taken"), a.lock("free")
		l := a.hold(locks.AcquireRequest{Lock: taken})
		_, err := a.acquire(locks.AcquireRequest{Group: []locks.Want{{Lock: free}, {Lock: taken}}})
		if e := a.refused(err, locks.CodeHeldByOther); len(e.Holders) != 1 || e.Holders[0].LeaseID != l.ID || !strings.Contains(e.Detail, taken) {
			a.Errorf("%+v", e)
		}
		a.sees(free, 0, 0)
		a.sees(taken, 1, 0)
	}},
	{"groups in opposite orders do not block each other", func(a *actor) {
		x, y := a.lock("x"), a.lock("y")
		ask := func(names ...string) locks.AcquireRequest {
			req := locks.AcquireRequest{Wait: patience}
			for _, name := range names {
				req.Group = append(req.Group, locks.Want{Lock: name})
			}
			return req
		}
		var clients sync.WaitGroup
		for i := range 8 {
			req := ask(x, y)
			if i%2 == 1 {
				req = ask(y, x)
			}
			clients.Go(func() {
				res, err := a.acquire(req)
				if err == nil {
					err = a.Release(a.Context(), locks.Anonymous, res.Lease.ID, res.Lease.Token)
				}
				assert.Nil(a, err, "client %d", i)
			})
		}
		clients.Wait()
		a.sees(x, 0, 0)
		a.sees(y, 0, 0)
	}},
	{"a lock is in a group once", func(a *actor) {
		_, err := a.acquire(locks.AcquireRequest{Group: []locks.Want{{Lock: a.lock("x")}, {Lock: a.lock("y")}, {Lock: a.lock("x"), Mode: locks.Shared}}})
		a.refusedField(err, "locks[2].lock")
		_, err = a.acquire(locks.AcquireRequest{Group: []locks.Want{}})
		a.refusedField(err, "locks")
		_, err = a.acquire(locks.AcquireRequest{Group: make([]locks.Want, locks.MaxGroup+1)})
		a.refusedField(err, "locks")
		a.sees(a.lock("x"), 0, 0)
	}},
	{"a group with a key is queued once", func(a *actor) {
		req := locks.AcquireRequest{Group: []locks.Want{{Lock: a.lock("x")}, {Lock: a.lock("y"), Mode: locks.Shared}}, IdempotencyKey: a.lock("a-key-of-its-own")}
		l := a.hold(req)
		res, err := a.acquire(req)
		if a.fine(err, "again"); !res.Replayed || res.Lease.ID != l.ID || res.Lease.Token != l.Token || len(res.Lease.Locks) != 2 || res.Lease.Locks[1].Mode != locks.Shared {
			a.Errorf("%+v", res)
		}
		req.Group = []locks.Want{req.Group[0], {Lock: a.lock("y")}}
		_, err = a.acquire(req)
		a.refused(err, locks.CodeKeyReused)
	}},
	{"a group is downgraded whole", func(a *actor) {
		x, y := a.lock("x"), a.lock("y")
		l := a.hold(locks.AcquireRequest{Group: []locks.Want{{Lock: x}, {Lock: y, Mode: locks.Shared}}})
		now, err := a.Downgrade(a.Context(), locks.Anonymous, "", l.Token)
		if a.fine(err, "downgrade"); now.Locks[0].Mode != locks.Shared || now.Locks[1].Mode != locks.Shared || now.FencingToken != l.FencingToken {
			a.Errorf("%+v", now)
		}
		a.hold(locks.AcquireRequest{Lock: x, Mode: locks.Shared})
	}},
}
