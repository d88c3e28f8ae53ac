package clientsuite

import (
	"time"
)

// waits are about tickets, and the beginning of the lease's time.
var waits = []transcript{
	{name: "a ticket is polled, its grant is confirmed by a heartbeat, and the work begins", play: func(s *scene) {
		s.play(acquire, poll, heartbeat)
		s.start()
		s.next(acquire).reply(202, s.lease("waiting", "position", 2, "rev", "r-1"))
		x := s.next(poll)
		equal(s, x.duration("wait"), 25*time.Second, "wait of a poll")
		equal(s, x.query.Get("since"), "r-1", "since of the first poll")
		x.reply(200, s.lease("waiting", "position", 1, "rev", "r-2"))
		x = s.next(poll)
		equal(s, x.query.Get("since"), "r-2", "since of the second poll")
		x.reply(200, s.lease("held", "rev", "r-3"))
		x = s.next(heartbeat)
		equal(s, x.duration("wait"), 0, "wait of the heartbeat that confirms")
		s.listen(100 * time.Millisecond)
		equal(s, s.count("started"), 0, "how often the work began before the heartbeat was answered")
		s.leave(heartbeat)
		x.reply(200, s.lease("held"))
		e := s.event("started")
		equal(s, e.Fence, 7, "the fencing token")
		var places []int
		for _, e := range s.seen {
			if e.Event == "queued" {
				places = append(places, e.Position)
			}
		}
		s.must(len(places) == 2 && places[0] == 2 && places[1] == 1, "the places in the queue are told as %v", places)
		s.hold()
	}},
	{name: "a grant without waited_ms is confirmed by a heartbeat", play: func(s *scene) {
		s.play(acquire, heartbeat)
		s.start()
		s.next(acquire).reply(200, s.lease("held"), "Idempotency-Replayed", "true")
		x := s.next(heartbeat)
		s.listen(100 * time.Millisecond)
		equal(s, s.count("started"), 0, "how often the work began before the heartbeat was answered")
		x.reply(200, s.lease("held"))
		s.hold()
	}},
	{name: "a poll that fails goes on at the next gateway", gateways: 2, play: func(s *scene) {
		s.play(acquire, poll)
		s.start()
		s.next(acquire).reply(202, s.lease("waiting", "rev", "r-1"))
		first := s.next(poll)
		first.reply(503, problem(503, "shutting_down")) // some HTTP clients repeat a GET by themselves when its connection ends
		second := s.next(poll)
		s.must(second.base != first.base, "the poll went to the same gateway again")
		equal(s, second.query.Get("since"), "r-1", "since")
		second.page(404)
		third := s.next(poll)
		third.reply(200, s.lease("held", "rev", "r-2"))
		s.hold()
	}},
	{name: "a place that was lost is asked for again, with a key of its own", play: func(s *scene) {
		s.play(acquire, poll)
		s.start()
		s.next(acquire).reply(202, s.lease("waiting", "rev", "r-1"))
		s.next(poll).reply(410, problem(410, "lease_ended", "reason", "unclaimed"))
		s.next(acquire).reply(201, s.lease("held", "waited_ms", 0))
		s.hold()
		equal(s, len(s.keys()), 2, "the number of keys")
	}},
	{name: "a grant that had passed on when it was confirmed is asked for again", play: func(s *scene) {
		s.play(acquire, poll, heartbeat)
		s.start()
		s.next(acquire).reply(202, s.lease("waiting", "rev", "r-1"))
		s.next(poll).reply(200, s.lease("held", "rev", "r-2"))
		s.next(heartbeat).reply(410, problem(410, "lease_ended", "reason", "unclaimed"))
		equal(s, s.count("started"), 0, "how often the work began")
		s.next(acquire).reply(201, s.lease("held", "waited_ms", 0))
		s.hold()
	}},
	{name: "a lease that had ended before its acquire was answered is asked for again, with a key of its own", play: func(s *scene) {
		s.play(acquire)
		s.start()
		s.next(acquire).reply(503, problem(503, "zookeeper_unavailable"))
		s.next(acquire).reply(410, problem(410, "lease_ended", "reason", "expired"))
		s.next(acquire).reply(201, s.lease("held", "waited_ms", 0))
		s.hold()
		equal(s, len(s.keys()), 2, "the number of keys")
	}},
	{name: "a try whose lease had ended before its acquire was answered tries again, with a key of its own", play: func(s *scene) {
		s.play(acquire)
		s.start(try)
		s.next(acquire).reply(503, problem(503, "zookeeper_unavailable"))
		s.next(acquire).reply(410, problem(410, "lease_ended", "reason", "expired"))
		s.next(acquire).reply(201, s.lease("held", "waited_ms", 0))
		s.hold()
		equal(s, len(s.keys()), 2, "the number of keys")
	}},
	{name: "the end of the wait leaves the queue, and tells who holds the lock", play: func(s *scene) {
		s.play(acquire, poll)
		began := time.Now()
		s.start(wait(700 * time.Millisecond))
		s.next(acquire).reply(202, s.lease("waiting", "rev", "r-1"))
		s.next(poll).silent()
		s.notAcquired()
		s.released()
		s.between(began, s.seen[len(s.seen)-1].At, 600*time.Millisecond, 2500*time.Millisecond, "a wait of 700 ms")
	}},
	{name: "a caller that gives up while it waits leaves the queue at once", play: func(s *scene) {
		s.play(acquire, poll)
		s.start()
		s.next(acquire).reply(202, s.lease("waiting", "rev", "r-1"))
		s.next(poll).silent()
		cancelled := time.Now()
		s.call.cancel()
		e := s.failed("Cancelled")
		s.released()
		s.between(cancelled, e.At, 0, time.Second, "giving up")
		equal(s, s.count("started"), 0, "how often the work began")
	}},
	{name: "a caller that gives up gives back what an acquire without an answer took", play: func(s *scene) {
		s.play(acquire)
		s.start()
		s.next(acquire).silent()
		s.call.cancel()
		s.next(acquire).reply(200, s.lease("held", "waited_ms", 0), "Idempotency-Replayed", "true")
		s.failed("Cancelled")
		s.released()
		equal(s, len(s.keys()), 1, "the number of keys")
	}},
	{name: "giving up an acquire ends soon when no gateway answers", play: func(s *scene) {
		s.play(acquire, release)
		s.start()
		s.next(acquire).silent()
		s.givesUp()
	}},
	{name: "giving up a place in the queue ends soon when no gateway answers", gateways: 2, play: func(s *scene) {
		s.play(acquire, poll, release)
		s.start()
		s.next(acquire).reply(202, s.lease("waiting", "rev", "r-1"))
		s.next(poll).silent()
		s.givesUp()
		s.released()
	}},
	{name: "an acquire that waits is not over before its wait", play: func(s *scene) {
		s.play(acquire)
		s.start(wait(5 * time.Second))
		s.next(acquire).reply(409, problem(409, "held_by_other", "holders", holders, "queue_length", 2))
		s.next(acquire).reply(201, s.lease("held", "waited_ms", 0))
		s.hold()
	}},
}

// givesUp cancels a call whose gateways are silent.
func (s *scene) givesUp() {
	s.t.Helper()
	cancelled := time.Now()
	s.call.cancel()
	s.between(cancelled, s.failed("Cancelled").At, 0, 6*time.Second, "giving up without an answer")
}
