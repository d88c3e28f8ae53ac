package conformance

import (
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

var reservations = []script{
	{"a reservation ends at its time, and not before", func(a *actor) {
		name := a.lock("staging")
		began := time.Now()
		l := a.hold(locks.AcquireRequest{Lock: name, Owner: "mia", Purpose: "load test", For: 2 * time.Second})
		assert.That(a, l.Purpose == "load test" && l.ReservedFor == 2*time.Second && l.TTL > 0 && l.TTL <= 2*time.Second+time.Millisecond, "%+v", l)
		beat := a.beat(l)
		assert.That(a, beat.TTL <= l.TTL, "a heartbeat extends it: %+v", beat)
		next := a.begin(locks.AcquireRequest{Lock: name, Wait: locks.WaitForever})
		a.ended(l, locks.ReasonExpired)
		assert.That(a, time.Since(began) >= 2*time.Second, "it ended after %s", time.Since(began))
		a.granted(next)
		p, err := a.Postmortem(a.Context(), locks.Anonymous, l.ID)
		assert.That(a, err == nil && p.Purpose == "load test", "%+v, %v", p, err)
	}},
	{"a reservation's end moves, and its owner releases it", func(a *actor) {
		name := a.lock("staging")
		until := time.Now().Add(time.Hour).Truncate(time.Second)
		l := a.hold(locks.AcquireRequest{Lock: name, Owner: "mia", Until: until})
		assert.That(a, l.EndsAt.Equal(until), "%+v", l)
		later, why := until.Add(time.Hour), "longer than planned"
		v, err := a.Update(a.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token, Until: later, Purpose: &why})
		assert.That(a, err == nil && v.EndsAt.Equal(later) && v.Purpose == why, "%+v, %v", v, err)
		q := a.see(name, "held until later", func(q locks.Lock) bool { return len(q.Holders) == 1 && q.Holders[0].EndsAt.Equal(later) })
		assert.That(a, q.Holders[0].Purpose == why && q.Holders[0].Owner == "mia", "%+v", q)
		page, err := a.Locks(a.Context(), locks.LockFilter{Purpose: "THAN planned", Contains: name})
		assert.That(a, err == nil && len(page.Items) == 1, "%+v, %v", page, err)
		none, err := a.Leases(a.Context(), locks.LeaseFilter{Purpose: name})
		assert.That(a, err == nil && len(none.Items) == 0, "%+v, %v", none, err)
		a.letGo(l)
		a.ended(l, locks.ReasonReleased)
	}},
	{"a reservation keeps its place in the queue until its time is over", func(a *actor) {
		name := a.lock("staging")
		l := a.hold(locks.AcquireRequest{Lock: name})
		short := a.queue(locks.AcquireRequest{Lock: name, Owner: "mia", Until: time.Now().Add(2 * time.Second)})
		long := a.queue(locks.AcquireRequest{Lock: name, Owner: "ada", For: time.Hour})
		a.ended(short, locks.ReasonExpired)
		a.letGo(l)
		held := a.becomes(long, locks.Held)
		assert.That(a, held.ReservedFor == time.Hour && held.TTL > 59*time.Minute && !held.EndsAt.IsZero(), "%+v", held)
	}},
	{"a reservation that cannot be is refused", func(a *actor) {
		for _, c := range []struct {
			field string
			req   locks.AcquireRequest
		}{{"owner", locks.AcquireRequest{For: time.Hour}}, {"ttl", locks.AcquireRequest{For: time.Hour, TTL: time.Minute, Owner: "mia"}}, {"for", locks.AcquireRequest{For: 2 * locks.MaxReserve, Owner: "mia"}},
			{"until", locks.AcquireRequest{Until: time.Now().Add(-time.Minute), Owner: "mia"}}} {
			c.req.Lock = a.lock("staging")
			_, err := a.acquire(c.req)
			a.refusedField(err, c.field)
		}
		l := a.hold(locks.AcquireRequest{Lock: a.lock("plain")})
		_, err := a.Update(a.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token, For: time.Hour})
		a.refusedField(err, "for")
	}},
}
