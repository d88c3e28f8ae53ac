package manager

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func deploy() locks.AcquireRequest {
	return locks.AcquireRequest{Lock: "deploy", TTL: 30 * time.Second}
}

func TestAFreeLockIsGrantedWithItsCzxidAsFencingToken(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 10 * time.Second, Owner: "me", Metadata: "build 7"})
		names := s.names("/lockkeeper/locks/deploy")
		assert.Must(t, len(names) == 1 && l.Znode == "/lockkeeper/locks/deploy/"+names[0], "znode %s, directory %v", l.Znode, names)
		assert.That(t, l.FencingToken == s.node(l.Znode).stat.Czxid && l.Position == 0 && l.ExpiresIn == 10*time.Second, "lease %+v", l)
		assert.That(t, !l.FailoverSafe, "a TTL of 10 s with a session timeout of 10 s does not ride over a crash")
		g.mustRelease(l)
		g.mustRelease(l) // repeated
		assert.That(t, len(s.names("/lockkeeper/locks/deploy")) == 0, "the contender is still there")
	})
}

func TestTryOnAHeldLockNamesTheHolderAndWritesNothing(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Owner: "alice", Metadata: "v1"})
		time.Sleep(5 * time.Second)
		before := s.committed()
		_, err := g.acquire(deploy())
		e := wantCode(t, err, locks.CodeHeldByOther)
		if len(e.Holders) != 1 || e.Holders[0].Owner != "alice" || e.Holders[0].Metadata != "v1" || e.Holders[0].FencingToken != l.FencingToken ||
			e.Holders[0].Age < 5*time.Second || e.RetryAfter == 0 {
			t.Errorf("%+v", e)
		}
		assert.That(t, s.committed() == before, "%d writes for a refused try", s.committed()-before)
	})
}

func TestWaitersAreGrantedInOrder(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		first := g.mustHold(deploy())
		var queue []*pending
		for range 3 {
			req := deploy()
			req.Wait = time.Minute
			queue = append(queue, g.begin(req))
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
		}
		last := first
		for i, p := range queue {
			assert.Must(t, !p.finished(), "waiter %d was granted early", i)
			g.mustRelease(last)
			<-p.done
			assert.Must(t, p.err == nil && p.lease.State == locks.Held && p.lease.FencingToken > last.FencingToken,
				"waiter %d: %+v %v", i, p.lease, p.err)
			last = p.lease
			checkAll(t, s, g)
		}
	})
}

func TestWaitElapsesIntoARefusalAndLeavesTheQueue(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustHold(deploy())
		req := deploy()
		req.Wait = 3 * time.Second
		req.IdempotencyKey = "0123456789abcdef"
		began := time.Now()
		_, err := g.acquire(req)
		wantCode(t, err, locks.CodeWaitElapsed)
		took := time.Since(began)
		assert.That(t, took >= 3*time.Second && took <= 3500*time.Millisecond, "took %v", took)
		names := s.names("/lockkeeper/locks/deploy")
		assert.That(t, len(names) == 1, "left behind: %v", names)
		_, err = g.acquire(req)
		wantCode(t, err, locks.CodeWaitElapsed)
	})
}

func TestALeaseExpiresAtItsTTLAndHeartbeatsMoveIt(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(deploy())
		for range 5 {
			time.Sleep(20 * time.Second)
			if beat, err := g.heartbeat(l); err != nil || beat.ExpiresIn != 30*time.Second || beat.FencingToken != l.FencingToken {
				t.Fatalf("heartbeat: %+v %v", beat, err)
			}
		}
		pass(30*time.Second - time.Millisecond)
		g.wantState(l, locks.Held, "")
		pass(10 * time.Millisecond)
		g.wantState(l, locks.Ended, locks.ReasonExpired)
		_, err := g.heartbeat(l)
		assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonExpired, "reason")
		assert.Equal(t, wantCode(t, g.release(l), locks.CodeEnded).Reason, locks.ReasonExpired, "reason")
		assert.That(t, len(s.names("/lockkeeper/locks/deploy")) == 0, "the contender is still there")
	})
}

func TestAnAsyncTicketKeepsItsPlaceWhilePolledAndIsGranted(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		holder := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		ticket := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		if ticket.State != locks.Waiting || ticket.Position != 1 || ticket.QueueLength != 1 || ticket.ExpiresIn != 30*time.Second {
			t.Fatalf("ticket %+v", ticket)
		}
		for range 4 {
			v, err := g.m.Lease(t.Context(), locks.LeaseRequest{ID: ticket.ID, Token: ticket.Token, Wait: 25 * time.Second, Since: ticket.Rev})
			assert.Must(t, err == nil && v.State == locks.Waiting, "poll: %+v %v", v, err)
		}
		granted := make(chan locks.Lease)
		go func() {
			v, _ := g.m.Lease(t.Context(), locks.LeaseRequest{ID: ticket.ID, Token: ticket.Token, Wait: time.Minute, Since: ticket.Rev})
			granted <- v
		}()
		synctest.Wait()
		g.mustRelease(holder)
		v := <-granted
		assert.Must(t, v.State == locks.Held && v.ExpiresIn == time.Hour, "granted %+v", v)
		// A client listened: the grant has its whole TTL.
		time.Sleep(59 * time.Minute)
		g.wantState(ticket, locks.Held, "")
	})
}

func TestAWaiterWithoutASignOfLifeLeavesAfterThirtySeconds(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		ticket := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: 24 * time.Hour, Async: true})
		time.Sleep(29 * time.Second)
		g.wantState(ticket, locks.Waiting, "")
		assert.Value(g.heartbeat(ticket))(t)
		time.Sleep(29 * time.Second)
		// An outsider's look keeps nothing alive.
		g.wantState(ticket, locks.Waiting, "")
		pass(2 * time.Second)
		g.wantState(ticket, locks.Ended, locks.ReasonExpired)
	})
}

func TestAGrantThatNoClientClaimsPassesOn(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		holder := g.mustHold(deploy())
		ticket := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		next := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		time.Sleep(20 * time.Second)
		assert.Value(g.heartbeat(next))(t)
		assert.Value(g.heartbeat(ticket))(t)
		g.mustRelease(holder)
		lock, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"})
		assert.That(t, err == nil && lock.State == locks.LockUnclaimed, "lock %+v %v", lock, err)
		time.Sleep(15 * time.Second)
		assert.Value(g.heartbeat(next))(t)
		g.wantState(ticket, locks.Held, "")
		pass(20 * time.Second)
		g.wantState(ticket, locks.Ended, locks.ReasonUnclaimed)
		// The first request with its token claims the next one.
		beat, err := g.heartbeat(next)
		assert.Must(t, err == nil && beat.State == locks.Held && beat.ExpiresIn == time.Hour, "%+v %v", beat, err)
		time.Sleep(50 * time.Minute)
		g.wantState(next, locks.Held, "")
	})
}

func TestABlockingAcquireWhoseClientLeavesIsCancelled(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		holder := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		p := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: 24 * time.Hour, Wait: locks.WaitForever})
		assert.Must(t, !p.finished(), "%v", p.err)
		time.Sleep(time.Minute) // an open request keeps its place
		assert.MustEqual(t, len(s.names("/lockkeeper/locks/deploy")), 2, "contenders")
		p.stop()
		<-p.done
		wantCode(t, p.err, locks.CodeCancelled)
		time.Sleep(10 * time.Millisecond)
		assert.Equal(t, len(s.names("/lockkeeper/locks/deploy")), 1, "contenders after the client left")
		g.mustRelease(holder)
		checkAll(t, s, g)
		assert.Equal(t, len(s.names("/lockkeeper/locks/deploy")), 0, "contenders at the end")
	})
}

func TestABlockingAcquireWithAKeyKeepsItsPlaceWhenItsClientLeaves(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		holder := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		req := locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: locks.WaitForever, IdempotencyKey: "abcdefghijklmnop"}
		p := g.begin(req)
		p.finished()
		time.Sleep(time.Second)
		p.stop()
		<-p.done
		time.Sleep(10 * time.Second)
		again := g.begin(req)
		again.finished()
		assert.MustEqual(t, len(s.names("/lockkeeper/locks/deploy")), 2, "contenders, want the holder and one waiter")
		g.mustRelease(holder)
		<-again.done
		assert.Must(t, again.err == nil && again.lease.State == locks.Held && again.res.Replayed, "%+v %v", again.res, again.err)
	})
}

func TestARepeatWithTheSameKeyFindsTheSameLease(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		req := deploy()
		req.IdempotencyKey = "abcdefghijklmnop"
		first := g.mustHold(req)
		res, err := g.m.Acquire(t.Context(), req)
		assert.Must(t, err == nil && res.Replayed && res.Lease.ID == first.ID && res.Lease.Token == first.Token, "%+v %v", res, err)
		other := req
		other.TTL = time.Minute
		_, err = g.acquire(other)
		wantCode(t, err, locks.CodeKeyReused)
		waiting := req
		waiting.Wait = time.Minute // not part of the fingerprint
		assert.That(t, g.mustHold(waiting).ID == first.ID, "another lease")
		g.mustRelease(first)
		_, err = g.acquire(req)
		assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonReleased, "reason")
		keys := s.names("/lockkeeper/keys")
		assert.Must(t, len(keys) == 1, "keys %v", keys)
		pass(keyLife + 2*sweepEvery)
		keys = s.names("/lockkeeper/keys")
		assert.That(t, len(keys) == 0, "keys left behind: %v", keys)
		g.mustHold(req)
	})
}

func TestAContenderThatAnotherClientDeletesEndsItsLease(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		p := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: time.Minute})
		p.finished()
		time.Sleep(time.Second)
		s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
		g.wantState(l, locks.Ended, locks.ReasonRemoved)
		<-p.done
		assert.Must(t, p.err == nil && p.lease.State == locks.Held, "the next in line: %+v %v", p.lease, p.err)
	})
}

func TestIdleLockDirectoriesAreSwept(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		held := g.mustHold(locks.AcquireRequest{Lock: "other", TTL: time.Hour})
		pass(idleLock + 3*sweepEvery)
		names := s.names("/lockkeeper/locks")
		assert.That(t, len(names) == 1 && names[0] == "other", "directories %v", names)
		g.mustHold(deploy())
		g.mustRelease(held)
	})
}

func TestListsAndQueuesComeFromMemory(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for _, name := range []string{"a1", "a2", "b1"} {
			g.mustHold(locks.AcquireRequest{Lock: name, TTL: time.Hour, Owner: "owner of " + name})
		}
		s.foreignSeen(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/a1/_c_0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0-lock-", Sequential: true, Data: []byte("10.0.0.7")})
		page, err := g.m.Locks(t.Context(), locks.LockFilter{Prefix: "a", Limit: 1})
		if err != nil || len(page.Items) != 1 || page.Items[0].Name != "a1" || page.Items[0].QueueLength != 1 || page.NextCursor == "" {
			t.Fatalf("%+v %v", page, err)
		}
		page, err = g.m.Locks(t.Context(), locks.LockFilter{Prefix: "a", Limit: 1, Cursor: page.NextCursor})
		assert.Must(t, err == nil && len(page.Items) == 1 && page.Items[0].Name == "a2" && page.NextCursor == "", "%+v %v", page, err)
		lock, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "a1"})
		assert.Must(t, err == nil && len(lock.Holders) == 1 && lock.Holders[0].Owner == "owner of a1" && len(lock.Waiters) == 1,
			"%+v %v", lock, err)
		if f := lock.Waiters[0].Foreign; f == nil || f.Program != "curator" || string(f.Data) != "10.0.0.7" || lock.Waiters[0].Position != 1 {
			t.Errorf("foreign waiter %+v %+v", lock.Waiters[0], f)
		}
		free, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "unused"})
		assert.That(t, err == nil && free.State == locks.LockFree, "%+v %v", free, err)
		leases, err := g.m.Leases(t.Context(), locks.LeaseFilter{Owner: "owner of b1"})
		assert.That(t, err == nil && len(leases.Items) == 1 && leases.Items[0].Lock == "b1", "%+v %v", leases, err)
	})
}

func TestOneReleaseWakesOneWaiterAndNoHerd(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		holder := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		var polls []chan struct{}
		for range 50 {
			l := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
			done := make(chan struct{})
			polls = append(polls, done)
			go func() {
				defer close(done)
				_, _ = g.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Token: l.Token, Wait: time.Minute, Since: l.Rev})
			}()
		}
		synctest.Wait()
		written := s.committed()
		g.mustRelease(holder)
		woken := 0
		for _, done := range polls {
			select {
			case <-done:
				woken++
			default:
			}
		}
		assert.That(t, woken == 1, "one release woke %d of %d waiters", woken, len(polls))
		writes := s.committed() - written
		assert.That(t, writes == 1, "a release and a grant cost %d writes", writes)
		for _, done := range polls {
			<-done // at the end of its wait
		}
	})
}

func TestAPollOnAnUnusedLockWaits(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		look := func(since string, wait time.Duration) locks.Lock {
			t.Helper()
			lock := assert.Value(g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy", Since: since, Wait: wait}))(t)
			return lock
		}
		began, first := time.Now(), look("", 0)
		if again := look(first.Rev, time.Minute); again.Rev != first.Rev || time.Since(began) != time.Minute {
			t.Errorf("answered after %v with rev %s, was %s", time.Since(began), again.Rev, first.Rev)
		}
		taken := make(chan error, 1)
		go func() {
			time.Sleep(time.Second)
			_, err := g.acquire(deploy())
			taken <- err
		}()
		used := look(first.Rev, time.Minute)
		assert.That(t, used.Rev != first.Rev && (used.State != locks.LockFree || len(used.Holders) <= 0), "%+v", used)
		if err := <-taken; err != nil { // the poll may be answered before the acquire is
			t.Error(err)
		}
	})
}

func TestALeaseThatWasNeverHeldHasNoFencingToken(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		holder := g.mustHold(deploy())
		ticket := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		g.mustRelease(ticket)
		g.mustRelease(holder)
		v := g.look(ticket)
		assert.That(t, v.FencingToken == 0 && v.Reason == locks.ReasonCancelled, "%+v", v)
		assert.Equal(t, g.look(holder).FencingToken, holder.FencingToken)
	})
}

func TestACursorBelongsToItsList(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for _, name := range []string{"a", "b", "c"} {
			g.mustHold(locks.AcquireRequest{Lock: name, TTL: time.Hour})
			g.mustAcquire(locks.AcquireRequest{Lock: "a", TTL: time.Hour, Async: true})
		}
		leases, err := g.m.Leases(t.Context(), locks.LeaseFilter{Limit: 1})
		assert.Must(t, err == nil && leases.NextCursor != "", "%+v %v", leases, err)
		page, err := g.m.Locks(t.Context(), locks.LockFilter{Limit: 1})
		assert.Must(t, err == nil && page.NextCursor != "", "%+v %v", page, err)
		queue, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "a", Limit: 1})
		assert.Must(t, err == nil && queue.NextCursor != "", "%+v %v", queue, err)
		seen := 1
		for cursor := queue.NextCursor; cursor != ""; seen++ {
			page, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "a", Limit: 1, Cursor: cursor})
			assert.Must(t, err == nil && len(page.Waiters) == 1 && page.Waiters[0].Position == seen+1, "%+v %v", page, err)
			cursor = page.NextCursor
		}
		assert.That(t, seen == 3, "%d waiters on all pages, want 3", seen)
		for _, cursor := range []string{"x", "zzzz", "!", leases.NextCursor, page.NextCursor, queue.NextCursor} {
			if cursor != leases.NextCursor {
				_, err := g.m.Leases(t.Context(), locks.LeaseFilter{Cursor: cursor})
				wantField(t, err, "cursor")
			}
			if cursor != page.NextCursor {
				_, err := g.m.Locks(t.Context(), locks.LockFilter{Cursor: cursor})
				wantField(t, err, "cursor")
			}
			if cursor != queue.NextCursor {
				_, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "a", Cursor: cursor})
				wantField(t, err, "cursor")
			}
		}
	})
}

func wantField(t *testing.T, err error, field string) {
	t.Helper()
	e := wantCode(t, err, locks.CodeInvalid)
	assert.That(t, e.Field == field, "the field is %s, want %s", e.Field, field)
}
