package conformance

import (
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

var periods = []script{
	{"the work of a lock runs once per period", func(a *actor) {
		name := a.lock("once")
		today := locks.AcquireRequest{Lock: name, Owner: "me", OncePer: 24 * time.Hour, Period: "2026-11-22"}
		l := a.hold(today)
		assert.That(a, l.OncePer == 24*time.Hour && l.Period == "2026-11-22" && l.DoneOn == locks.DoneOnGrant, "%+v", l)
		waiting := today
		waiting.Wait = locks.WaitForever
		next := a.begin(waiting)
		a.sees(name, 1, 0) // the period is done with the grant, so nothing waits for it
		<-next.done
		a.isDone(next.result, next.err, today)
		a.letGo(l)
		res, err := a.acquire2(today)
		a.isDone(res, err, today)
		tomorrow := today
		tomorrow.Period = "2026-11-23"
		a.letGo(a.hold(tomorrow))
		a.fine(a.ForgetPeriod(a.Context(), locks.PeriodsRequest{Principal: locks.Anonymous, Lock: name, Period: "2026-11-22"}), "forget")
		a.refused(a.ForgetPeriod(a.Context(), locks.PeriodsRequest{Principal: locks.Anonymous, Lock: name, Period: "2026-11-22"}), locks.CodeNoPeriod)
		a.letGo(a.hold(today))
	}},
	{"a crash frees a period that only a release makes done", func(a *actor) {
		name := a.lock("once")
		today := locks.AcquireRequest{Lock: name, Owner: "me", OncePer: 24 * time.Hour, Period: "2026-11-22", DoneOn: locks.DoneOnRelease, TTL: time.Second}
		l := a.hold(today)
		waiting := today
		waiting.Wait, waiting.TTL = locks.WaitForever, time.Minute
		next, last := a.begin(waiting), a.begin(waiting)
		a.sees(name, 1, 2)
		a.ended(l, locks.ReasonExpired)
		select {
		case <-next.done:
		case <-last.done:
			next, last = last, next
		}
		l = a.granted(next)
		a.fine(a.Release(locks.WithUndone(a.Context()), locks.Anonymous, l.ID, l.Token), "release as not done")
		l = a.granted(last)
		a.letGo(l)
		res, err := a.acquire2(today)
		a.isDone(res, err, today)
		list, err := a.Periods(a.Context(), locks.PeriodsRequest{Principal: locks.Anonymous, Lock: name})
		a.fine(err, "list")
		assert.That(a, len(list) == 1 && list[0].Done && list[0].LeaseID == l.ID && list[0].Name == "2026-11-22" && list[0].KeptUntil.Sub(list[0].At) == 48*time.Hour, "%+v", list)
	}},
	{"what cannot be once is refused", func(a *actor) {
		name := a.lock("once")
		for field, req := range map[string]locks.AcquireRequest{
			"once_per": {Lock: name, OncePer: time.Millisecond},
			"period":   {Lock: name, Period: "2026-11-22"},
			"done_on":  {Lock: name, DoneOn: locks.DoneOnRelease},
		} {
			_, err := a.acquire(req)
			a.refusedField(err, field)
		}
		_, err := a.acquire(locks.AcquireRequest{Lock: name, OncePer: time.Hour, Mode: locks.Shared})
		a.refusedField(err, "once_per")
		l := a.hold(locks.AcquireRequest{Lock: name, OncePer: time.Hour})
		a.refusedField(a.Release(locks.WithUndone(a.Context()), locks.Anonymous, l.ID, l.Token), "done")
	}},
}

// acquire2 is acquire with all of its answer.
func (a *actor) acquire2(req locks.AcquireRequest) (locks.AcquireResult, error) {
	return a.Acquire(a.Context(), req)
}

// isDone checks that an acquire was answered with its period as done.
func (a *actor) isDone(res locks.AcquireResult, err error, req locks.AcquireRequest) {
	a.Helper()
	a.fine(err, "acquire")
	d := res.Done
	assert.Must(a, d != nil && res.Lease.ID == "", "it is not done: %+v", res)
	assert.That(a, d.By == req.Owner && d.Lock == req.Lock && d.Period == req.Period && !d.At.IsZero(), "%+v", d)
}
