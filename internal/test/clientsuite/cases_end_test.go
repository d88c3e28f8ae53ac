package clientsuite

import "time"

// endings are about leases that end, and what is given back.
var endings = []transcript{
	{name: "a lease that is broken stops the work at once, and tells who broke it", play: func(s *scene) {
		s.start()
		s.event("started")
		time.Sleep(300 * time.Millisecond)
		ended := s.end(410, "lease_ended", "reason", "revoked", "by", "alice", "detail", "the lease has ended: revoked: maintenance")
		s.between(ended, s.event("stopped").At, 0, 500*time.Millisecond, "stopping the work")
		e := s.lost("revoked")
		equal(s, e.By, "alice", "by")
		equal(s, e.Detail, "the lease has ended: revoked: maintenance", "the detail")
	}},
	{name: "404 from a gateway ends the lease", play: func(s *scene) { s.endsWith(404, "lease_not_found") }},
	{name: "403 from a gateway ends the lease", play: func(s *scene) { s.endsWith(403, "lease_token_wrong") }},
	{name: "a lease that had ended when the work returned is lost", play: func(s *scene) {
		s.play(heartbeat, release)
		s.start()
		s.event("started")
		s.call.finish()
		s.next(release).reply(410, problem(410, "lease_ended", "reason", "expired"))
		s.lost("expired")
	}},
	{name: "the lease is released when the work returns", play: func(s *scene) {
		s.start(forMS(50))
		s.done()
		s.released()
		equal(s, len(s.all(release)), 1, "the number of releases")
	}},
	{name: "the lease is released when the work fails", play: func(s *scene) {
		s.start()
		s.event("started")
		s.call.fail()
		s.must(len(s.failed("Work").Detail) > 0, "the work's error is not told")
		s.released()
	}},
	{name: "the lease is released when the caller gives up, and the work stops", play: func(s *scene) {
		s.start()
		s.event("started")
		cancelled := time.Now()
		s.call.cancel()
		s.between(cancelled, s.event("stopped").At, 0, time.Second, "stopping the work")
		s.failed("Cancelled")
		s.released()
	}},
	{name: "a release is repeated until a gateway answers", gateways: 2, play: func(s *scene) {
		s.play(release)
		s.start(forMS(10))
		s.next(release).reply(503, problem(503, "zookeeper_unavailable"))
		s.next(release).drop()
		s.next(release).page(502)
		s.next(release).reply(204, nil)
		s.done()
	}},
	{name: "a release without an answer is no error of the work", play: func(s *scene) {
		s.play(release)
		s.start(forMS(10))
		s.event("started")
		s.next(release).silent()
		first := time.Now()
		s.done()
		s.between(first, s.seen[len(s.seen)-1].At, 0, 7*time.Second, "giving up on a release")
	}},
	{name: "the work stops before the lease is released", play: func(s *scene) {
		s.play(release)
		s.start()
		s.event("started")
		s.call.cancel()
		x := s.next(release)
		s.must(s.event("stopped").T > 0, "the work tells no time")
		x.reply(204, nil)
		s.failed("Cancelled")
	}},
	{name: "a holder that is asked to release is told once, and goes on", play: func(s *scene) {
		s.play(heartbeat)
		s.start()
		s.event("started")
		asked := map[string]any{"reason": "deploy", "by": "alice", "force_in_ms": 60000}
		s.next(heartbeat).reply(200, s.lease("held", "revoke_requested", asked))
		s.next(heartbeat).reply(200, s.lease("held", "revoke_requested", asked))
		s.next(heartbeat).reply(200, s.lease("held", "revoke_requested", asked))
		equal(s, s.event("revoke").Reason, "deploy", "the reason")
		s.next(heartbeat)
		s.listen(50 * time.Millisecond)
		equal(s, s.count("revoke"), 1, "how often the holder is told")
		equal(s, s.count("stopped"), 0, "how often the work stopped")
		s.hold()
	}},
}

func (s *scene) endsWith(status int, code string) {
	s.t.Helper()
	s.start()
	s.event("started")
	ended := s.end(status, code)
	s.between(ended, s.event("stopped").At, 0, 500*time.Millisecond, "stopping the work")
	s.lost("gone")
}
