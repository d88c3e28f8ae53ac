package clientsuite

import (
	"math"
	"time"
)

// keeps are about the deadline, the margin, and heartbeats.
var keeps = []transcript{
	{name: "work without a confirmed lease is stopped the margin before the deadline", play: func(s *scene) {
		s.play(heartbeat) // and answer none
		s.start()
		s.event("started")
		s.stopsAt(s.all(acquire)[0].at.Add(s.ttl))
		s.lost("deadline")
	}},
	{name: "the deadline counts from when the acquire was sent, not from its answer", play: func(s *scene) {
		s.play(acquire, heartbeat)
		s.start()
		x := s.next(acquire)
		time.Sleep(1200 * time.Millisecond)
		x.reply(201, s.lease("held", "waited_ms", 0))
		s.event("started")
		s.stopsAt(x.at.Add(s.ttl))
		s.lost("deadline")
	}},
	{name: "the deadline counts the time in the queue", play: func(s *scene) {
		s.play(acquire, heartbeat)
		s.start()
		x := s.next(acquire)
		time.Sleep(900 * time.Millisecond)
		x.reply(201, s.lease("held", "waited_ms", 900))
		s.event("started")
		s.stopsAt(x.at.Add(s.ttl + 900*time.Millisecond))
		s.lost("deadline")
	}},
	{name: "a heartbeat moves the deadline to when it was sent", play: func(s *scene) {
		s.play(heartbeat)
		s.start()
		s.event("started")
		x := s.next(heartbeat)
		time.Sleep(1300 * time.Millisecond) // a third of the TTL, and 300 ms late
		x.reply(200, s.lease("held"))
		s.stopsAt(x.at.Add(s.ttl))
		s.lost("deadline")
	}},
	{name: "a heartbeat never moves the deadline back", play: func(s *scene) {
		s.play(heartbeat)
		s.start()
		s.event("started")
		x := s.next(heartbeat)
		x.reply(200, s.lease("held", "ttl_ms", 1000))
		s.stopsAt(s.all(acquire)[0].at.Add(s.ttl))
		s.lost("deadline")
	}},
	{name: "a TTL that a heartbeat tells counts", play: func(s *scene) {
		s.play(heartbeat)
		s.start()
		s.event("started")
		x := s.next(heartbeat)
		x.reply(200, s.lease("held", "ttl_ms", 4000))
		s.stopsAt(x.at.Add(4 * time.Second))
		s.lost("deadline")
	}},
	{name: "a margin that is given counts", play: func(s *scene) {
		s.play(heartbeat)
		s.start(margin(1400 * time.Millisecond))
		s.event("started")
		s.stopsBetween(s.all(acquire)[0].at.Add(s.ttl), 1400*time.Millisecond)
		s.lost("deadline")
	}},
	{name: "the margin of a long lease is one second", play: func(s *scene) {
		s.play(heartbeat)
		s.start(ttl(10 * time.Second))
		s.event("started")
		s.stopsBetween(s.all(acquire)[0].at.Add(s.ttl), time.Second)
		s.lost("deadline")
	}},
	{name: "a negative margin is an error", play: func(s *scene) {
		s.start(margin(-time.Second))
		s.failed("Invalid")
		s.must(len(s.all(acquire)) == 0 || len(s.all(release)) > 0, "the lease was taken, and not released")
	}},
	{name: "a margin of half of the TTL is an error", play: func(s *scene) {
		s.start(margin(1500 * time.Millisecond))
		s.failed("Invalid")
		equal(s, s.count("started"), 0, "how often the work began")
		s.must(len(s.all(acquire)) == 0 || len(s.all(release)) > 0, "the lease was taken, and not released")
	}},
	{name: "one heartbeat follows the other, each held for a third of the TTL", play: func(s *scene) {
		s.play(heartbeat)
		s.start()
		s.event("started")
		for range 4 {
			x := s.next(heartbeat)
			hold := x.duration("wait")
			s.must(math.Abs(float64(hold-time.Second)) <= float64(time.Millisecond), "a heartbeat asks to be held for %v, not a third of the TTL", hold)
			s.mu.Lock()
			open := 0
			for _, other := range s.asked {
				if other.kind == heartbeat && other.answered.IsZero() {
					open++
				}
			}
			s.mu.Unlock()
			equal(s, open, 1, "the number of open heartbeats")
			time.Sleep(400 * time.Millisecond)
			x.reply(200, s.lease("held"))
		}
		s.hold()
	}},
	{name: "an answer that is late by a sixth of the TTL is given up, and the next heartbeat is not held", gateways: 2, play: func(s *scene) {
		s.play(heartbeat)
		s.start()
		s.event("started")
		x := s.next(heartbeat)
		x.silent()
		y := s.next(heartbeat)
		s.between(x.at, y.at, 1200*time.Millisecond, 2500*time.Millisecond, "giving up on a heartbeat")
		s.must(y.base != x.base, "the next heartbeat went to the same gateway")
		equal(s, y.duration("wait"), 0, "wait of the next heartbeat")
		s.leave(heartbeat)
		y.reply(200, s.lease("held"))
		s.listen(2500 * time.Millisecond)
		equal(s, s.count("stopped"), 0, "how often the work stopped")
		s.hold()
	}},
	{name: "a lease with a long margin goes on for as long as it is confirmed", play: func(s *scene) {
		// The margin leaves little of the TTL, and on a busy machine a client may be late by a second.
		s.start(ttl(9*time.Second), margin(4200*time.Millisecond))
		s.event("started")
		s.listen(s.ttl)
		equal(s, s.count("stopped"), 0, "how often the work stopped")
		s.hold()
	}},
	{name: "a lease goes on for as long as it is confirmed", play: func(s *scene) {
		s.start()
		s.event("started")
		s.listen(2 * s.ttl)
		equal(s, s.count("stopped"), 0, "how often the work stopped")
		s.hold()
	}},
}

// stopsAt waits for the work to stop, which must be the default margin before the deadline.
func (s *scene) stopsAt(deadline time.Time) {
	s.t.Helper()
	s.stopsBetween(deadline, min(time.Second, s.ttl/5))
}

// stopsBetween waits for the work to stop, which must be the margin before the deadline. The deadline is what the gateway
// knows: it counts from when requests came, which is later than when they were sent, on a busy machine by far.
func (s *scene) stopsBetween(deadline time.Time, margin time.Duration) {
	s.t.Helper()
	e := s.event("stopped")
	early := deadline.Add(-margin).Sub(e.At)
	s.must(early > -500*time.Millisecond, "the work stopped %v too late", -early)
	s.must(early < 300*time.Millisecond+patience/5, "the work stopped %v too early", early)
}

// lost waits for a LeaseLost.
func (s *scene) lost(reason string) Event {
	s.t.Helper()
	e := s.failed("LeaseLost")
	equal(s, e.Reason, reason, "the reason")
	equal(s, e.LeaseID, "lkmine", "the id of the lease")
	equal(s, s.count("started"), s.count("stopped"), "how often the work began")
	return e
}
