package manager

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
)

// paths are all nodes that there are.
func (s *fakeStore) paths() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.nodes))
}

// wantRefused demands that a request is refused with that code and a time to wait, and that it leaves nothing behind: no
// node, and nothing in the gateway's memory.
func (g *gate) wantRefused(code locks.Code, req locks.AcquireRequest) {
	g.t.Helper()
	before, keys := g.s.paths(), g.m.keys.Len()
	_, err := g.acquire(req)
	assert.That(g.t, wantCode(g.t, err, code).RetryAfter > 0, "%s does not say when to repeat", code)
	if after := g.s.paths(); !slices.Equal(before, after) {
		g.t.Errorf("%s: the nodes were\n%s\nand are\n%s", code, strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	n := g.m.keys.Len()
	assert.That(g.t, n == keys, "%s: %d keys in memory, there were %d", code, n, keys)
	for _, space := range g.m.replica.Namespaces {
		assert.That(g.t, space.Find(req.Lock) == nil || slices.Contains(before, space.Path(req.Lock)),
			"%s: the lock is kept in memory", code)
	}
}

// wantUsed demands what Info says of a bound.
func (g *gate) wantUsed(b quota.Bound, want int64) {
	g.t.Helper()
	synctest.Wait()
	for _, s := range g.m.Info(g.t.Context()).Bounds {
		assert.That(g.t, s.Bound != b || s.Used == want, "%d of the bound on %s are in use, not %d", s.Used, b, want)
	}
}

func onLock(name string) locks.AcquireRequest {
	return locks.AcquireRequest{Lock: name, TTL: time.Hour}
}

func TestAtTheBoundOnLeasesNewOnesAreRefusedAndTheOthersGoOn(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.limits = quota.Limits{quota.Leases: 5}
		g := s.gateway(t)
		one := g.mustHold(onLock("one"))
		two := g.mustHold(locks.AcquireRequest{Lock: "two", TTL: time.Hour, LockDelay: time.Minute, LockDelayOn: locks.DelayAlways})
		group := g.mustHold(locks.AcquireRequest{TTL: time.Hour, Group: []locks.Want{{Lock: "x"}, {Lock: "y"}, {Lock: "z"}}}) // counts for three
		g.wantUsed(quota.Leases, 5)
		for _, req := range []locks.AcquireRequest{
			onLock("new"),
			{Lock: "one", TTL: time.Hour, Wait: locks.WaitForever},
			{Lock: "new", TTL: time.Hour, Async: true},
			{Lock: "new", TTL: time.Hour, IdempotencyKey: "abcdefghijklmnop"},
			{Lock: "new", TTL: time.Hour, Mode: locks.Semaphore, Limit: 3},
			{TTL: time.Hour, Group: []locks.Want{{Lock: "new"}, {Lock: "newer"}}},
			{Lock: "new", TTL: time.Hour, DryRun: true},
		} {
			g.wantRefused(locks.CodeTooManyWaiters, req)
		}
		for _, l := range []locks.Lease{one, two, group} {
			_, err := g.heartbeat(l)
			assert.Nil(t, err)
		}
		g.mustRelease(two) // its place stays for a minute
		g.wantUsed(quota.Leases, 5)
		g.wantRefused(locks.CodeTooManyWaiters, onLock("new"))
		time.Sleep(2 * time.Minute)
		g.mustHold(onLock("new"))
		g.wantRefused(locks.CodeTooManyWaiters, onLock("newer"))
		g.mustRelease(group)
		g.mustHold(onLock("newer"))
	})
}

func TestARepeatAtTheBoundFindsItsLease(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.limits = quota.Limits{quota.Leases: 1, quota.Keys: 1, quota.MetadataBytes: 2}
		one := s.gateway(t)
		two := s.gateway(t)
		req := locks.AcquireRequest{Lock: "keyed", Owner: "me", TTL: time.Hour, IdempotencyKey: "abcdefghijklmnop"}
		first := one.mustHold(req)
		two.mustHold(onLock("other"))
		res, err := one.m.Acquire(t.Context(), req)
		assert.That(t, err == nil && res.Replayed && res.Lease.ID == first.ID, "%+v %v", res, err)
		// The other gateway, which is at its bound, has never heard of the key.
		waits := req
		waits.Wait = time.Minute
		for _, repeat := range []locks.AcquireRequest{req, waits} {
			_, err = two.acquire(repeat)
			wantCode(t, err, locks.CodeNotOwner)
		}
		two.wantRefused(locks.CodeTooManyWaiters, locks.AcquireRequest{Lock: "free", TTL: time.Hour, IdempotencyKey: "another-fresh-key"})
		one.crash()
		time.Sleep(30 * time.Second)
		res, err = two.m.Acquire(t.Context(), req)
		assert.That(t, err == nil && res.Replayed && res.Lease.ID == first.ID && res.Lease.State == locks.Held,
			"after the takeover: %+v %v", res, err)
	})
}

func TestATakeoverIsNeverRefused(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.limits = quota.Limits{quota.Leases: 3, quota.Tickets: 1, quota.MetadataBytes: 12, quota.Keys: 1}
		one, two := s.gateway(t), s.gateway(t)
		var theirs, own []locks.Lease
		for i := range 2 {
			theirs = append(theirs, one.mustHold(locks.AcquireRequest{Lock: fmt.Sprint("their-", i), Owner: "abcdef", TTL: time.Hour}))
			own = append(own, two.mustHold(locks.AcquireRequest{Lock: fmt.Sprint("own-", i), Owner: "abcdef", TTL: time.Hour}))
		}
		theirs = append(theirs, one.mustAcquire(locks.AcquireRequest{Lock: "own-0", TTL: time.Hour, Async: true}))
		own = append(own, two.mustAcquire(locks.AcquireRequest{Lock: "their-0", TTL: time.Hour, Async: true}))
		one.crash()
		time.Sleep(20 * time.Second)
		for _, l := range theirs {
			_, err := two.heartbeat(l)
			assert.Nil(t, err, "a lease that was taken over")
		}
		two.wantUsed(quota.Leases, 6)
		two.wantUsed(quota.Tickets, 2)
		two.wantUsed(quota.MetadataBytes, 24)
		for _, l := range append(theirs[:2], own[0]) {
			two.wantRefused(locks.CodeTooManyWaiters, onLock("new"))
			two.mustRelease(l)
		}
		two.wantRefused(locks.CodeTooManyWaiters, onLock("new"))
		two.mustRelease(own[1])
		two.mustHold(onLock("new"))
	})
}

func TestTicketsLeavePlacesForThoseThatWaitInPerson(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.limits = quota.Limits{quota.Leases: 8, quota.Tickets: 2}
		g := s.gateway(t)
		holder := g.mustHold(onLock("busy"))
		ticket := locks.AcquireRequest{Lock: "busy", TTL: 24 * time.Hour, Async: true}
		first := g.mustAcquire(ticket)
		g.mustAcquire(ticket)
		g.wantUsed(quota.Tickets, 2)
		g.wantRefused(locks.CodeTooManyTickets, ticket)
		g.wantRefused(locks.CodeTooManyTickets, locks.AcquireRequest{Lock: "busy", TTL: time.Hour, Async: true, IdempotencyKey: "abcdefghijklmnop"})
		free := g.mustHold(locks.AcquireRequest{Lock: "free", TTL: time.Hour, Async: true}) // it does not wait
		waiting := g.begin(locks.AcquireRequest{Lock: "free", TTL: time.Hour, Wait: time.Hour})
		synctest.Wait()
		g.mustRelease(free)
		assert.That(t, waiting.finished() && waiting.err == nil, "a client that waits in person: %v", waiting.err)
		g.mustRelease(holder) // the first ticket is granted, and waits no more
		g.wantState(first, locks.Held, "")
		g.wantUsed(quota.Tickets, 1)
		g.mustAcquire(ticket)
		g.wantUsed(quota.Tickets, 2)
	})
}

func TestALeaseWhoseClientWentAwayIsATicketUntilItEnds(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustHold(onLock("busy"))
		waiting := g.begin(locks.AcquireRequest{Lock: "busy", TTL: time.Hour, Wait: time.Hour, IdempotencyKey: "abcdefghijklmnop"})
		synctest.Wait()
		g.wantUsed(quota.Tickets, 0)
		waiting.stop()
		assert.Must(t, waiting.finished(), "it waits")
		g.wantUsed(quota.Tickets, 1)
		time.Sleep(time.Minute)
		g.wantUsed(quota.Tickets, 0)
	})
}

func TestTheTextsOfLeasesAreBoundedTogether(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.limits = quota.Limits{quota.MetadataBytes: 100}
		one := s.gateway(t)
		two := s.gateway(t)
		large := one.mustHold(locks.AcquireRequest{Lock: "large", Owner: "0123456789", Metadata: strings.Repeat("m", 70), Hold: "h", TTL: time.Hour})
		small := one.mustHold(locks.AcquireRequest{Lock: "small", Owner: "0123456789", TTL: time.Hour})
		one.wantUsed(quota.MetadataBytes, 91)
		one.wantRefused(locks.CodeTooMuchMetadata, locks.AcquireRequest{Lock: "new", Owner: "0123456789", TTL: time.Hour})
		one.mustHold(onLock("without"))
		update := func(l locks.Lease, metadata string) error {
			_, err := one.m.Update(t.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token, Metadata: &metadata})
			synctest.Wait()
			return err
		}
		wantCode(t, update(small, "0123456789"), locks.CodeTooMuchMetadata)
		one.wantUsed(quota.MetadataBytes, 91)
		_, err := one.acquire(locks.AcquireRequest{Lock: "large", Token: large.Token, Hold: "another-name"})
		wantCode(t, err, locks.CodeTooMuchMetadata)
		_, err = one.m.Downgrade(t.Context(), locks.Anonymous, large.ID, large.Token)
		assert.Nil(t, err)
		assert.Nil(t, update(large, strings.Repeat("m", 50)), "a shorter one")
		one.wantUsed(quota.MetadataBytes, 71)
		assert.Nil(t, update(small, "0123456789"), "there is room")
		// A write that is not done counts no longer than it is under way.
		s.set(func() { s.refuse = func(*zk.Write) (int, error) { return 0, zk.ErrNoAuth } })
		assert.That(t, update(small, strings.Repeat("m", 29)) != nil, "it was written")
		s.set(func() { s.refuse = nil })
		one.wantUsed(quota.MetadataBytes, 81)
		one.crash()
		time.Sleep(20 * time.Second)
		two.wantUsed(quota.MetadataBytes, 81)
		two.mustRelease(large)
		two.wantUsed(quota.MetadataBytes, 20)
	})
}

func TestAtTheBoundOnKeysAcquiresWithoutOneGoOn(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.limits = quota.Limits{quota.Keys: 2}
		g := s.gateway(t)
		keyed := func(lock, key string) locks.AcquireRequest {
			return locks.AcquireRequest{Lock: lock, TTL: time.Hour, IdempotencyKey: key}
		}
		g.mustHold(keyed("one", "abcdefghijklmnop"))
		two := g.mustHold(keyed("two", "ponmlkjihgfedcba"))
		g.wantRefused(locks.CodeTooManyKeys, keyed("three", "0123456789abcdef"))
		g.mustHold(onLock("three"))
		res, err := g.m.Acquire(t.Context(), keyed("two", "ponmlkjihgfedcba"))
		assert.That(t, err == nil && res.Replayed, "%+v %v", res, err)
		g.mustRelease(two)
		g.wantRefused(locks.CodeTooManyKeys, keyed("four", "0123456789abcdef")) // the key lives on for its time
		time.Sleep(keyLife + time.Minute)
		g.mustHold(keyed("four", "0123456789abcdef"))
	})
}

func TestSettingsAreBoundedForTheWholeFleet(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.limits = quota.Limits{quota.Settings: 2}
		one, two := s.gateway(t), s.gateway(t)
		put := func(g *gate, lock string, limit int) error {
			_, err := g.m.Configure(t.Context(), locks.SettingsRequest{Lock: lock, Limit: limit})
			synctest.Wait()
			return err
		}
		for _, lock := range []string{"a", "b"} {
			assert.NoError(t, put(one, lock, 3))
		}
		for _, g := range []*gate{one, two} {
			g.wantUsed(quota.Settings, 2)
			before := s.paths()
			assert.That(t, wantCode(t, put(g, "c", 3), locks.CodeTooManySettings).RetryAfter > 0, "it does not say when to repeat")
			after := s.paths()
			assert.That(t, slices.Equal(before, after), "%v is left of a refused PUT; there was %v", after, before)
			g.wantUsed(quota.Settings, 2)
		}
		assert.Nil(t, put(two, "a", 4), "another limit for a lock that has one")
		// Semaphores agree on their limits all the same, for as long as they are used, as often as there are places again.
		agree := func(lock string) locks.AcquireRequest {
			return locks.AcquireRequest{Lock: lock, TTL: time.Hour, Mode: locks.Semaphore, Limit: 2}
		}
		x := two.mustHold(agree("x"))
		one.mustHold(agree("y"))
		one.mustHold(agree("y"))
		one.mustHold(locks.AcquireRequest{Lock: "a", TTL: time.Hour, Mode: locks.Semaphore})
		one.wantRefused(locks.CodeTooManySettings, agree("z"))
		one.mustHold(onLock("plain"))
		two.mustRelease(x)
		time.Sleep(3 * time.Minute)
		one.mustHold(agree("z"))
		for _, lock := range []string{"b"} {
			assert.NoError(t, two.m.Remove(t.Context(), locks.Anonymous, "", lock))
		}
		synctest.Wait()
		one.wantUsed(quota.Settings, 3)
	})
}

// Requests that come at once do not pass the bound between them.
func TestManyPutsAtOnceStayWithinTheBound(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.limits = quota.Limits{quota.Settings: 5}
		g := s.gateway(t)
		done := make(chan error)
		for i := range 20 {
			go func() {
				_, err := g.m.Configure(t.Context(), locks.SettingsRequest{Lock: fmt.Sprint("lock-", i), Limit: 3})
				done <- err
			}()
		}
		refused := 0
		for range 20 {
			if err := <-done; err != nil {
				wantCode(t, err, locks.CodeTooManySettings)
				refused++
			}
		}
		// One more may be refused for a moment: settings have two places while their reservation and the replica both count them.
		assert.That(t, refused >= 15 && refused != 20, "%d of 20 were refused", refused)
		g.wantUsed(quota.Settings, int64(20-refused))
	})
}

func TestManyTicketsAtOnceStayWithinTheBound(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.limits = quota.Limits{quota.Leases: 20, quota.Tickets: 5}
		g := s.gateway(t)
		g.mustHold(onLock("busy"))
		var all []*pending
		for range 20 {
			all = append(all, g.begin(locks.AcquireRequest{Lock: "busy", TTL: time.Hour, Async: true}))
		}
		time.Sleep(time.Second)
		granted := 0
		for _, p := range all {
			assert.Must(t, p.finished(), "it waits")
			if p.err == nil {
				granted++
			}
		}
		assert.That(t, granted == 5, "%d tickets", granted)
	})
}

func TestUnusedLocksAreBoundedToo(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.limits = quota.Limits{quota.Locks: 3}
		g := s.gateway(t)
		for _, lock := range []string{"a", "b", "c"} {
			g.mustRelease(g.mustHold(onLock(lock)))
		}
		g.wantUsed(quota.Locks, 3)
		g.wantRefused(locks.CodeTooManyLocks, onLock("d"))
		g.wantRefused(locks.CodeTooManyLocks, locks.AcquireRequest{TTL: time.Hour, Group: []locks.Want{{Lock: "a"}, {Lock: "d"}}})
		g.mustRelease(g.mustHold(onLock("a")))
		time.Sleep(2 * time.Minute) // they are removed
		g.mustHold(onLock("d"))
	})
}

// A client that takes and releases very many locks, each once, leaves a directory of each. They go faster the more there are.
func TestManyIdleLocksAreSweptQuickly(t *testing.T) {
	testkit.NotShort(t, "4,000 locks")
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		const count = 4000
		for i := range count {
			l := assert.Value(g.acquire(onLock(fmt.Sprint("once-", i))))(t)
			assert.NoError(t, g.release(l))
		}
		time.Sleep(idleLock + 50*time.Second)
		g.wantUsed(quota.Locks, 0)
	})
}

func TestANotifyURLCountsAlsoAfterATakeover(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.outboxes = true
		one, two := s.gateway(t), s.gateway(t)
		url := "https://hooks.example.com/0123456789"
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, NotifyURL: url})
		one.wantUsed(quota.MetadataBytes, int64(len(url)))
		one.crash()
		time.Sleep(20 * time.Second)
		two.wantUsed(quota.MetadataBytes, int64(len(url)))
		two.mustRelease(l)
		two.wantUsed(quota.MetadataBytes, 0)
	})
}

// Where ZooKeeper answers no removal, sweeps do not pile more up behind those that acquires would have to wait for.
func TestASweepWaitsForWhatItHasAskedFor(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		const count = 1000
		for i := range count {
			l := assert.Value(g.acquire(onLock(fmt.Sprint("once-", i))))(t)
			assert.NoError(t, g.release(l))
		}
		asked := 0
		s.mu.Lock()
		s.loseReply = func(w *zk.Write) bool {
			lost := w.Alone && w.Ops[len(w.Ops)-1].Kind == zk.OpDelete
			if lost {
				asked++
			}
			return lost
		}
		s.mu.Unlock()
		time.Sleep(idleLock + 30*time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		assert.That(t, asked != 0 && asked <= sweepMost, "%d removals were asked for and none was answered", asked)
		s.loseReply = nil
	})
}
