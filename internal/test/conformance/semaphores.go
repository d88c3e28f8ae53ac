package conformance

import (
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

var semaphores = []script{
	{"a semaphore gives its permits in order of the queue", func(a *actor) {
		name := a.lock("pool")
		take := func(permits int) locks.AcquireRequest {
			return locks.AcquireRequest{Lock: name, Mode: locks.Semaphore, Limit: 5, Permits: permits}
		}
		two, one := a.hold(take(2)), a.hold(take(1))
		assert.That(a, two.Mode == locks.Semaphore && two.Permits == 2 && two.Limit == 5, "%+v", two)
		large := a.queue(take(3)) // 2 are left
		small := a.queue(take(1)) // they would do, but it came later
		q := a.see(name, "2 hold it, 2 wait, and its limit has been read", func(l locks.Lock) bool {
			return len(l.Holders) == 2 && l.QueueLength == 2 && l.LimitAgreed
		})
		assert.That(a, q.Limit == 5 && q.Holders[0].Permits == 2 && q.Waiters[0].Permits == 3, "%+v", q)
		a.letGo(one)
		a.becomes(large, locks.Held)
		if l := a.look(small); l.State != locks.Waiting || l.Position != 1 {
			a.Errorf("%+v", l)
		}
		a.letGo(two)
		a.becomes(small, locks.Held)
	}},
	{"a whole lock waits for all permits, and permits for a whole lock", func(a *actor) {
		name := a.lock("pool")
		permit := locks.AcquireRequest{Lock: name, Mode: locks.Semaphore, Limit: 2}
		l := a.hold(permit)
		whole := a.queue(locks.AcquireRequest{Lock: name})
		behind := a.queue(permit)
		a.letGo(l)
		a.becomes(whole, locks.Held)
		assert.Equal(a, a.look(behind).State, locks.Waiting)
		a.letGo(whole)
		a.becomes(behind, locks.Held)
	}},
	{"a limit is agreed upon by the first, and kept to by all", func(a *actor) {
		name := a.lock("pool")
		_, err := a.acquire(locks.AcquireRequest{Lock: name, Mode: locks.Semaphore})
		a.refusedField(err, "limit")
		a.hold(locks.AcquireRequest{Lock: name, Mode: locks.Semaphore, Limit: 3})
		_, err = a.acquire(locks.AcquireRequest{Lock: name, Mode: locks.Semaphore, Limit: 4})
		assert.Equal(a, a.refused(err, locks.CodeSettingsDiffer).Limit, 3, "the limit in force")
		if l := a.hold(locks.AcquireRequest{Lock: name, Mode: locks.Semaphore}); l.Limit != 3 || l.Permits != 1 {
			a.Errorf("with the lock's own limit: %+v", l)
		}
		_, err = a.acquire(locks.AcquireRequest{Lock: name, Mode: locks.Semaphore, Permits: 4})
		a.refusedField(err, "permits")
	}},
	{"a limit that is set counts for later contenders", func(a *actor) {
		name := a.lock("pool")
		set := func(limit int) locks.Lock {
			a.Helper()
			l, err := a.Configure(a.Context(), locks.SettingsRequest{Lock: name, Limit: limit})
			if a.fine(err, "configure"); l.Limit != limit || l.LimitAgreed {
				a.Errorf("%+v", l)
			}
			return l
		}
		set(1)
		take := locks.AcquireRequest{Lock: name, Mode: locks.Semaphore}
		first := a.hold(take)
		waits := a.queue(take)
		set(2)
		set(2)
		if l := a.look(waits); l.State != locks.Waiting || l.Limit != 1 {
			a.Errorf("the earlier contender: %+v", l)
		}
		_, err := a.acquire(locks.AcquireRequest{Lock: name, Mode: locks.Semaphore, Limit: 1})
		a.refused(err, locks.CodeSettingsDiffer)
		after := a.queue(take)
		assert.That(a, after.Limit == 2, "the later contender: %+v", after)
		a.letGo(first)
		a.becomes(waits, locks.Held)
		a.becomes(after, locks.Held)
		e := a.refused(a.Remove(a.Context(), locks.Anonymous, "", name), locks.CodeLockInUse)
		assert.That(a, len(e.Holders) == 2, "%+v", e)
		a.letGo(waits)
		a.letGo(after)
		for range 2 {
			a.fine(a.Remove(a.Context(), locks.Anonymous, "", name), "remove")
		}
		assert.Equal(a, a.sees(name, 0, 0).Limit, 0)
		for _, limit := range []int{-1, locks.MaxLimit + 1} {
			_, err := a.Configure(a.Context(), locks.SettingsRequest{Lock: name, Limit: limit})
			a.refusedField(err, "limit")
		}
	}},
}
