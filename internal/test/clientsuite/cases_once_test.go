package clientsuite

import "time"

// onces are about work that is done once in each period.
var onces = []transcript{
	{name: "what a lock is taken for, once in which period, and for how long at least, is asked for", play: func(s *scene) {
		s.play(acquire)
		s.start(daily, func(l *Lock) { l.Reason = "release 42"; l.AtLeast = new(int64(600_000)) })
		x := s.next(acquire)
		equal(s, x.field("reason"), "release 42", "reason")
		equal(s, x.duration("at_least"), 10*time.Minute, "at_least")
		equal(s, x.duration("once_per"), 24*time.Hour, "once_per")
		equal(s, x.field("period"), "2026-11-22", "period")
		equal(s, x.field("done_on"), "release", "done_on")
		x.reply(201, s.lease("held", "waited_ms", 0))
		s.hold()
	}},
	{name: "what is not asked for is not sent", play: func(s *scene) {
		s.play(acquire)
		s.start()
		x := s.next(acquire)
		for _, name := range []string{"reason", "at_least", "once_per", "period", "done_on"} {
			_, sent := x.body[name]
			s.must(!sent && !x.query.Has(name), "%s is sent", name)
		}
		x.reply(201, s.lease("held", "waited_ms", 0))
		s.hold()
	}},
	{name: "work that is done is not run, and that is no error", play: func(s *scene) {
		s.play(acquire)
		s.start(daily)
		s.next(acquire).reply(200, alreadyDone)
		s.already()
		equal(s, len(s.all(acquire)), 1, "the number of acquires")
	}},
	{name: "a try of work that is done does not run it", play: func(s *scene) {
		s.play(acquire)
		s.start(daily, try)
		s.next(acquire).reply(200, alreadyDone)
		s.already()
	}},
	{name: "a repeat of an acquire may tell that the work is done", gateways: 2, play: func(s *scene) {
		s.play(acquire)
		s.start(daily)
		s.next(acquire).drop()
		s.next(acquire).reply(503, problem(503, "zookeeper_unavailable"))
		s.next(acquire).reply(200, alreadyDone)
		s.already()
		equal(s, len(s.keys()), 1, "the number of keys")
	}},
	{name: "a waiter whose work another one has done does not run it", play: func(s *scene) {
		s.play(acquire, poll)
		s.start(daily)
		s.next(acquire).reply(202, s.lease("waiting"))
		s.next(poll).reply(200, s.lease("ended", "reason", "done"))
		s.next(acquire).reply(200, alreadyDone)
		s.already()
		equal(s, len(s.keys()), 2, "the number of keys")
	}},
	{name: "that work is done is no answer to an acquire that does not ask", gateways: 2, play: func(s *scene) {
		s.play(acquire)
		s.start()
		first := s.next(acquire)
		first.reply(200, alreadyDone)
		second := s.next(acquire)
		s.must(second.base != first.base, "the repeat went to the same gateway")
		second.reply(201, s.lease("held", "waited_ms", 0))
		s.hold()
	}},
	{name: "a proxy does not say that work is done", gateways: 2, play: func(s *scene) {
		s.play(acquire)
		s.start(daily)
		s.next(acquire).reply(200, map[string]any{"done": true})
		s.next(acquire).reply(201, s.lease("held", "waited_ms", 0))
		s.hold()
	}},
	{name: "work that succeeds is released as done", play: func(s *scene) {
		s.start(daily)
		s.event("started")
		s.call.finish()
		s.done()
		equal(s, s.all(release)[0].query.Get("done"), "", "done")
	}},
	{name: "work that fails is released as not done", play: func(s *scene) {
		s.start(daily)
		s.event("started")
		s.call.fail()
		s.failed("Work")
		s.undone()
	}},
	{name: "work whose caller gives up is released as not done", play: func(s *scene) {
		s.start(daily)
		s.event("started")
		s.call.cancel()
		s.failed("Cancelled")
		s.undone()
	}},
	{name: "work that never began is given back as not done", play: func(s *scene) {
		s.play(acquire, poll)
		s.start(daily)
		s.next(acquire).reply(202, s.lease("waiting"))
		s.next(poll)
		s.call.cancel()
		s.failed("Cancelled")
		s.undone()
	}},
	{name: "without done_on=release a failure is not told", play: func(s *scene) {
		s.start(func(l *Lock) { l.OncePer = new(int64(60_000)) })
		s.event("started")
		s.call.fail()
		s.failed("Work")
		equal(s, s.all(release)[0].query.Get("done"), "", "done")
	}},
}

// daily is work of a day, which is done with its release.
func daily(l *Lock) {
	l.OncePer, l.Period, l.DoneOn = new(int64(86_400_000)), "2026-11-22", "release"
}

// alreadyDone is what a gateway answers when the work of the period is done.
var alreadyDone = map[string]any{"done": true, "lock": "report", "ns": "default", "period": "2026-11-22", "by": "w2", "at": "2026-11-22T03:00:05.120Z"}

// already waits for the end of a call whose work another one has done.
func (s *scene) already() {
	s.t.Helper()
	e := s.event("done")
	s.must(e.Already, "the call must say that the work was done: %v", e)
	equal(s, e.By, "w2", "by")
	equal(s, e.Period, "2026-11-22", "the period")
	at, err := time.Parse(time.RFC3339, e.DoneAt)
	s.must(err == nil && at.Equal(time.Date(2026, 11, 22, 3, 0, 5, 120e6, time.UTC)), "it was done at %q", e.DoneAt)
	equal(s, s.count("started"), 0, "how often the work began")
	equal(s, len(s.all(heartbeat)), 0, "the heartbeats")
}

// undone checks that the lease was given back as one whose work is not done.
func (s *scene) undone() {
	s.t.Helper()
	s.released()
	equal(s, s.all(release)[0].query.Get("done"), "false", "done")
}
