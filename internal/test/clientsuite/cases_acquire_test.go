package clientsuite

import (
	"encoding/json"
	"time"
)

// acquires are about the request that takes a lock.
var acquires = []transcript{
	{name: "an acquire that may wait asks for a ticket", play: func(s *scene) {
		s.play(acquire)
		s.start(func(l *Lock) { l.Metadata = "job 42"; l.LockDelay = new(int64(500)) })
		x := s.next(acquire)
		equal(s, x.path, "/v1/locks/report/leases", "the path")
		equal(s, x.field("async"), "true", "async")
		equal(s, x.duration("ttl"), 3*time.Second, "ttl")
		equal(s, x.duration("lock_delay"), 500*time.Millisecond, "lock_delay")
		equal(s, x.field("owner"), "w1", "owner")
		equal(s, x.field("metadata"), "job 42", "metadata")
		x.reply(201, s.lease("held", "waited_ms", 0))
		e := s.event("started")
		equal(s, e.Fence, 7, "the fencing token")
		equal(s, e.LeaseID, "lkmine", "the id of the lease")
		s.hold()
	}},
	{name: "a try does not ask for a ticket", play: func(s *scene) {
		s.play(acquire)
		s.start(try)
		x := s.next(acquire)
		s.must(x.field("async") == "" || x.field("async") == "false", "a try asks with async=%s", x.field("async"))
		x.reply(201, s.lease("held", "waited_ms", 0))
		s.hold()
	}},
	{name: "a try of a lock that others hold tells who holds it", play: func(s *scene) {
		s.play(acquire)
		s.start(try)
		s.next(acquire).reply(409, problem(409, "held_by_other", "holders", holders, "queue_length", 2, "retry_after_ms", 2000), "Retry-After", "2")
		s.notAcquired()
		equal(s, len(s.all(acquire)), 1, "the number of acquires of a try")
	}},
	{name: "a lock's mode, permits and namespace are asked for", play: func(s *scene) {
		s.play(acquire)
		s.start(func(l *Lock) {
			l.Locks = []Wanted{{Lock: "pool:a+b", NS: "team", Mode: "semaphore", Permits: 2, Limit: 3}}
		})
		x := s.next(acquire)
		equal(s, x.path, "/v1/locks/pool:a+b/leases", "the path")
		equal(s, x.field("ns"), "team", "ns")
		equal(s, x.field("mode"), "semaphore", "mode")
		equal(s, x.field("permits"), "2", "permits")
		equal(s, x.field("limit"), "3", "limit")
		x.reply(201, s.lease("held", "waited_ms", 0, "lock", "pool:a+b", "ns", "team", "mode", "semaphore", "permits", 2, "limit", 3))
		s.hold()
	}},
	{name: "a shared lock is asked for", play: func(s *scene) {
		s.play(acquire)
		s.start(func(l *Lock) { l.Locks[0].Mode = "shared" })
		x := s.next(acquire)
		equal(s, x.field("mode"), "shared", "mode")
		x.reply(201, s.lease("held", "waited_ms", 0, "mode", "shared"))
		s.hold()
	}},
	{name: "several locks are taken with one request", play: func(s *scene) {
		s.play(acquire)
		s.start(func(l *Lock) { l.Locks = []Wanted{{Lock: "a"}, {Lock: "b", Mode: "shared", NS: "team"}} })
		x := s.next(acquire)
		equal(s, x.path, "/v1/leases", "the path")
		text, _ := json.Marshal(x.body["locks"])
		var locks []Wanted
		s.must(json.Unmarshal(text, &locks) == nil && len(locks) == 2, "the locks are %s", text)
		equal(s, locks[0].Lock, "a", "the first lock")
		equal(s, locks[1], Wanted{Lock: "b", NS: "team", Mode: "shared"}, "the second lock")
		x.reply(201, s.lease("held", "waited_ms", 0, "fencing_token", 9, "locks", []map[string]any{
			{"lock": "a", "ns": "default", "fencing_token": 8}, {"lock": "b", "ns": "team", "fencing_token": 9}}))
		equal(s, s.event("started").Fence, 9, "the fencing token, the highest of the locks'")
		s.hold()
	}},
	{name: "each repeat of an acquire carries the same key", gateways: 2, play: func(s *scene) {
		s.play(acquire)
		s.start()
		first := s.next(acquire)
		first.reply(503, problem(503, "zookeeper_unavailable"))
		second := s.next(acquire)
		s.must(second.base != first.base, "the repeat went to the same gateway")
		second.drop()
		third := s.next(acquire)
		third.reply(200, s.lease("held", "waited_ms", 0), "Idempotency-Replayed", "true")
		s.hold()
		equal(s, len(s.keys()), 1, "the number of keys")
		for _, name := range []string{"ttl", "owner", "async"} {
			equal(s, third.field(name), first.field(name), name+" of the repeat")
		}
	}},
	{name: "two calls have two keys", play: func(s *scene) {
		s.start(forMS(1))
		s.done()
		s.seen = nil
		s.start(forMS(1))
		s.done()
		equal(s, len(s.keys()), 2, "the number of keys")
	}},
	{name: "the name of a lock cannot leave its path", play: func(s *scene) {
		s.play(acquire)
		s.start(try, func(l *Lock) { l.Locks[0].Lock = "a/b?c" })
		x := s.next(acquire)
		equal(s, x.path, "/v1/locks/a/b?c/leases", "the decoded path")
		equal(s, len(x.query), 0, "the number of parameters")
		x.reply(422, problem(422, "invalid_field", "field", "lock"))
		s.failed("Problem")
	}},
}

// notAcquired waits for the end of a call that did not get its lock.
func (s *scene) notAcquired() {
	s.t.Helper()
	e := s.failed("NotAcquired")
	equal(s, e.Lock, "report", "the lock")
	s.must(len(e.Holders) == 1 && e.Holders[0] == Holder{"somebody", "lkother", 5}, "the holders are %v", e.Holders)
	equal(s, e.QueueLength, 2, "the length of the queue")
	equal(s, s.count("started"), 0, "how often the work began")
}
