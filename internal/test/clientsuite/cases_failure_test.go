package clientsuite

import (
	"net/http"
	"time"
)

// failures are about gateways that do not answer, or not as gateways.
var failures = []transcript{
	{name: "an acquire without an answer is given up and repeated", gateways: 2, play: func(s *scene) {
		s.play(acquire)
		s.start()
		x := s.next(acquire)
		x.silent()
		y := s.next(acquire)
		s.must(y.base != x.base, "the repeat went to the same gateway")
		s.between(x.at, y.at, 9*time.Second, 12*time.Second, "giving up on an acquire")
		y.reply(200, s.lease("held", "waited_ms", 0))
		s.hold()
		equal(s, len(s.keys()), 1, "the number of keys")
	}},
	{name: "a refused connection leads to the next gateway", gateways: 2, play: func(s *scene) {
		s.bases[0].Close()
		s.start(try)
		s.hold()
	}},
	{name: "503 at an acquire leads to the next gateway", gateways: 3, play: func(s *scene) { s.acquireAfter(func(x *exchange) { x.reply(503, problem(503, "shutting_down")) }) }},
	{name: "429 at an acquire leads to the next gateway", gateways: 3, play: func(s *scene) { s.acquireAfter(func(x *exchange) { x.reply(429, problem(429, "rate_limited")) }) }},
	{name: "408 at an acquire leads to the next gateway", gateways: 3, play: func(s *scene) { s.acquireAfter(func(x *exchange) { x.reply(408, problem(408, "request_timeout")) }) }},
	{name: "500 at an acquire leads to the next gateway", gateways: 3, play: func(s *scene) { s.acquireAfter(func(x *exchange) { x.reply(500, problem(500, "internal_error")) }) }},
	{name: "a connection that ends at an acquire leads to the next gateway", gateways: 3, play: func(s *scene) { s.acquireAfter((*exchange).drop) }},
	{name: "a proxy's 502 at an acquire leads to the next gateway", gateways: 3, play: func(s *scene) { s.acquireAfter(func(x *exchange) { x.page(502) }) }},
	{name: "a proxy's 404 at an acquire leads to the next gateway", gateways: 3, play: func(s *scene) { s.acquireAfter(func(x *exchange) { x.page(404) }) }},
	{name: "a proxy's 403 at an acquire leads to the next gateway", gateways: 3, play: func(s *scene) { s.acquireAfter(func(x *exchange) { x.page(403) }) }},
	{name: "a page with 200 at an acquire leads to the next gateway", gateways: 3, play: func(s *scene) { s.acquireAfter(func(x *exchange) { x.page(200) }) }},
	{name: "JSON with 200 that is no lease leads to the next gateway", gateways: 3, play: func(s *scene) { s.acquireAfter(func(x *exchange) { x.reply(200, map[string]any{"status": "ok"}) }) }},
	{name: "a redirect is not followed", gateways: 3, play: func(s *scene) {
		elsewhere := newScene(s.t, s.driver, 1)
		s.acquireAfter(func(x *exchange) {
			x.answer <- func(w http.ResponseWriter) {
				w.Header().Set("Location", elsewhere.bases[0].URL+x.path)
				w.WriteHeader(307)
			}
		})
		equal(s, len(elsewhere.asked), 0, "the number of requests where the redirect led")
	}},
	{name: "a gateway that refuses for a reason is not asked again", gateways: 2, play: func(s *scene) {
		s.play(acquire)
		s.start()
		s.next(acquire).reply(401, problem(401, "unauthorized"), "WWW-Authenticate", "Bearer")
		e := s.failed("Problem")
		equal(s, e.Status, 401, "the status")
		equal(s, e.Code, "unauthorized", "the code")
		equal(s, e.Detail, "detail of unauthorized", "the detail")
		equal(s, len(s.all(acquire)), 1, "the number of acquires")
	}},
	{name: "a field that is wrong is named", play: func(s *scene) {
		s.play(acquire)
		s.start()
		s.next(acquire).reply(422, problem(422, "invalid_field", "field", "ttl"))
		e := s.failed("Problem")
		equal(s, e.Status, 422, "the status")
		equal(s, e.Field, "ttl", "the field")
	}},
	{name: "a rule that forbids the lock is an error of the call", play: func(s *scene) {
		s.play(acquire)
		s.start()
		s.next(acquire).reply(403, problem(403, "forbidden"))
		equal(s, s.failed("Problem").Code, "forbidden", "the code")
	}},
	{name: "Retry-After is obeyed by an acquire", play: func(s *scene) {
		s.play(acquire)
		s.start()
		x := s.next(acquire)
		x.reply(503, problem(503, "zookeeper_unavailable", "retry_after_ms", 2000), "Retry-After", "2")
		y := s.next(acquire)
		s.between(x.at, y.at, 1950*time.Millisecond, 4*time.Second, "the repeat of an acquire")
		y.reply(201, s.lease("held", "waited_ms", 0))
		s.hold()
	}},
	{name: "repeats wait from 50 ms to twice as long each time", play: func(s *scene) {
		s.play(acquire)
		s.start()
		last := time.Time{}
		least := 50 * time.Millisecond
		for range 5 {
			x := s.next(acquire)
			if !last.IsZero() {
				s.between(last, x.at, least-5*time.Millisecond, least+time.Second, "the pause before a repeat")
				least *= 2
			}
			last = x.at
			x.reply(503, problem(503, "zookeeper_unavailable"))
		}
		s.next(acquire).reply(201, s.lease("held", "waited_ms", 0))
		s.hold()
	}},
	{name: "503 at a heartbeat leads to the next gateway at once", gateways: 2, play: func(s *scene) {
		s.heartbeatAfter(func(x *exchange) { x.reply(503, problem(503, "zookeeper_unavailable"), "Retry-After", "5") })
	}},
	{name: "a connection that ends at a heartbeat leads to the next gateway at once", gateways: 2, play: func(s *scene) { s.heartbeatAfter((*exchange).drop) }},
	{name: "a proxy's 404 at a heartbeat does not end the lease", gateways: 2, play: func(s *scene) { s.heartbeatAfter(func(x *exchange) { x.page(404) }) }},
	{name: "a proxy's 403 at a heartbeat does not end the lease", gateways: 2, play: func(s *scene) { s.heartbeatAfter(func(x *exchange) { x.page(403) }) }},
	{name: "a proxy's 410 at a heartbeat does not end the lease", gateways: 2, play: func(s *scene) { s.heartbeatAfter(func(x *exchange) { x.page(410) }) }},
	{name: "a page with 200 at a heartbeat does not confirm the lease", play: func(s *scene) {
		s.play(heartbeat)
		s.start()
		s.event("started")
		go func() {
			for {
				select {
				case x := <-s.played[heartbeat]:
					x.page(200)
				case <-s.closed:
					return
				}
			}
		}()
		s.stopsAt(s.all(acquire)[0].at.Add(s.ttl))
		s.lost("deadline")
	}},
}

// acquireAfter has the acquire fail at two gateways in the same way; the third grants it.
func (s *scene) acquireAfter(fail func(*exchange)) {
	s.t.Helper()
	s.play(acquire)
	s.start(try)
	asked := map[int]bool{}
	for range 2 {
		x := s.next(acquire)
		asked[x.base] = true
		fail(x)
	}
	x := s.next(acquire)
	asked[x.base] = true
	equal(s, len(asked), 3, "the number of gateways that were asked")
	x.reply(201, s.lease("held", "waited_ms", 0))
	s.hold()
	equal(s, len(s.keys()), 1, "the number of keys")
}

// heartbeatAfter has a heartbeat fail; the next one, at the next gateway, is answered.
func (s *scene) heartbeatAfter(fail func(*exchange)) {
	s.t.Helper()
	s.play(heartbeat)
	s.start()
	s.event("started")
	x := s.next(heartbeat)
	failed := time.Now()
	fail(x)
	y := s.next(heartbeat)
	s.must(y.base != x.base, "the next heartbeat went to the same gateway")
	s.between(failed, y.at, 0, time.Second, "the repeat of a heartbeat")
	equal(s, y.duration("wait"), 0, "wait of the repeat")
	s.leave(heartbeat)
	y.reply(200, s.lease("held"))
	s.listen(s.ttl)
	equal(s, s.count("stopped"), 0, "how often the work stopped")
	s.hold()
}
