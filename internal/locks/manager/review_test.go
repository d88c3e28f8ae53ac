package manager

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// session is the gateway's present session.
func (g *gate) session() *fakeSession {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	return g.m.port.Session().(*fakeSession)
}

// set changes the store's faults.
func (s *fakeStore) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// recordedTTL is the TTL in the lease's contender.
func (s *fakeStore) recordedTTL(l locks.Lease) time.Duration {
	r, _ := record.Parse(s.node(l.Znode).data)
	return r.LeaseTTL()
}

// answered waits a while for something that must not hang.
func answered[T any](t *testing.T, what string, within time.Duration, f func() T) T {
	t.Helper()
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case v := <-done:
		return v
	case <-time.After(within):
		t.Fatalf("%s: no answer within %v", what, within)
		panic("unreachable")
	}
}

// The session expires, and another gateway is quicker to take over. Rule: the
// former owner says whose it is, and its open requests do not hang.
func TestALeaseThatAnotherGatewayTookOverIsGivenUp(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		two := s.gateway(t)
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		req := locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: locks.WaitForever, IdempotencyKey: "abcdefghijklmnop"}
		p := one.begin(req)
		p.finished()
		poll := make(chan error, 1)
		go func() {
			v, err := one.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Token: l.Token})
			if err == nil {
				_, err = one.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Token: l.Token, Since: v.Rev, Wait: time.Minute})
			}
			poll <- err
		}()
		time.Sleep(time.Second)
		one.session().expire()
		time.Sleep(2 * time.Second)
		_, err := two.heartbeat(l)
		assert.NoError(t, err, "the successor")
		_, err = one.heartbeat(l)
		wantCode(t, err, locks.CodeNotOwner)
		wantCode(t, one.release(l), locks.CodeNotOwner)
		assert.Must(t, p.finished(), "an acquire waits for a lease that another gateway runs")
		assert.That(t, p.err != nil || p.lease.State == locks.Waiting, "%+v", p.lease)
		assert.That(t, len(poll) == 1, "a poll waits for a lease that another gateway runs")
		again := two.begin(req)
		again.finished()
		two.mustRelease(l)
		time.Sleep(time.Second)
		assert.Must(t, again.finished() && again.err == nil && again.lease.State == locks.Held, "%+v %v", again.lease, again.err)
		one.m.mu.Lock()
		assert.Equal(t, one.m.leases.byID.Len(), 0, "leases of another gateway")
		one.m.mu.Unlock()
	})
}

// A successor reads a contender long after the takeover. Rule: who held at that
// moment may have been told to its client and counts as claimed.
func TestAHolderWhoseContenderIsReadLateIsNotUnclaimed(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		began := time.Now()
		var reads atomic.Int32
		h := s.hooked()
		two := h.gateway(t)
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		h.hooks.Store(&hooks{get: func(path string) error {
			if path != l.Znode || time.Since(began) > time.Minute {
				return nil
			}
			reads.Add(1)
			return zk.ErrUnavailable
		}})
		one.crash()
		time.Sleep(time.Minute + 5*time.Second)
		assert.Must(t, reads.Load() != 0, "not taken over")
		two.wantState(l, locks.Held, "")
		time.Sleep(20 * time.Minute)
		assert.Value(two.heartbeat(l))(t, "a lease of an hour ended after 20 minutes")
	})
}

// Rule: an entry that was not read is read as soon as that is possible.
func TestASuccessionWhoseReadWasLostIsReadAgain(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		h := s.hooked()
		two := h.gateway(t)
		h.failReads("/succession/")
		one.crash()
		time.Sleep(12 * time.Second)
		assert.Must(t, len(s.names("/lockkeeper/succession")) == 1, "no takeover")
		two.w.disconnect()
		h.hooks.Store(&hooks{})
		two.w.reconnect()
		time.Sleep(5 * time.Second)
		assert.Value(two.heartbeat(l))(t, "never adopted")
	})
}

// TTLs of 60, 5, 60 and 5 s. Rule: the record shrinks after the last promise under the longer TTL; a promise that was
// made in between moves that point in time too.
func TestAShorterTTLWaitsForTheLastPromiseUnderTheLongerOne(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		beat := func(ttl time.Duration) {
			t.Helper()
			assert.Value(g.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, ttl))(t)
		}
		time.Sleep(time.Second)
		beat(5 * time.Second)
		time.Sleep(50 * time.Second)
		beat(time.Minute)
		promised := time.Now().Add(time.Minute)
		beat(5 * time.Second)
		for time.Until(promised) > 0 {
			ttl := s.recordedTTL(l)
			assert.MustEqual(t, ttl, time.Minute, "%v before the promised end the record says", time.Until(promised))
			time.Sleep(time.Second)
			beat(0)
		}
		for range 3 {
			time.Sleep(2 * time.Second)
			beat(0)
		}
		assert.Equal(t, s.recordedTTL(l), 5*time.Second, "the record still says")
	})
}

// A heartbeat with a longer TTL comes while the record is being set to a shorter
// one. Rule: a longer TTL is durable before it is answered.
func TestALongerTTLIsNotAnsweredWhileAShorterOneIsBeingWritten(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		_, err := g.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, 40*time.Second)
		assert.NoError(t, err)
		time.Sleep(30 * time.Second)
		assert.Value(g.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, 0))(t)
		// At 60 s the record comes down to 40 s: that write takes its time.
		time.Sleep(30*time.Second - time.Millisecond)
		s.set(func() { s.away = true })
		time.Sleep(10 * time.Millisecond)
		done := make(chan error, 1)
		go func() {
			_, err := g.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, time.Minute)
			done <- err
		}()
		time.Sleep(100 * time.Millisecond)
		s.set(func() { s.away = false })
		err = <-done
		time.Sleep(100 * time.Millisecond)
		ttl := s.recordedTTL(l)
		assert.Must(t, err != nil || ttl >= time.Minute, "a minute was promised, the record says %v", ttl)
	})
}

// The write of a longer TTL is lost. Rule: what is not known to be written is not
// answered, and what was not seen to be written is not durable.
func TestALongerTTLOfUnknownFateIsNotAnswered(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprintf("persisted=%v,sessionEnds=%v", persisted, ends), in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
				l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
				switch {
				case !ends:
					s.set(func() { s.vague, s.drop = writeTo(l.Znode), !persisted })
				case persisted:
					s.set(func() { s.loseReply = writeTo(l.Znode) })
				default:
					s.set(func() { s.away = true })
				}
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				_, err := g.m.Heartbeat(ctx, locks.Anonymous, l.ID, l.Token, time.Minute)
				cancel()
				ttl := s.recordedTTL(l)
				assert.Must(t, err != nil || ttl >= time.Minute, "a minute was promised, the record says %v", ttl)
				if ends {
					g.session().expire()
				}
				s.set(func() { s.vague, s.loseReply, s.away = nil, nil, false })
				time.Sleep(2 * time.Second)
				beat, err := g.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, time.Minute)
				assert.Must(t, err == nil && beat.ExpiresIn >= time.Minute, "%+v %v", beat, err)
				assert.MustEqual(t, s.recordedTTL(l), time.Minute, "a minute was promised, the record says")
			}))
		}
	}
}

// ZooKeeper refuses the write of a longer TTL. Rule: the heartbeat that asked
// is answered, and not with a write after the other.
func TestARefusedTTLIsAnsweredAndNotTriedForEver(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		var tries atomic.Int32
		s.set(func() {
			s.refuse = func(w *zk.Write) (int, error) {
				if writeTo(l.Znode)(w) {
					tries.Add(1)
					return 0, zk.ErrNoAuth
				}
				return -1, nil
			}
		})
		err := answered(t, "a heartbeat with a TTL that cannot be written", 5*time.Second, func() error {
			_, err := g.m.Heartbeat(t.Context(), locks.Anonymous, l.ID, l.Token, time.Minute)
			return err
		})
		wantCode(t, err, locks.CodeUnavailable)
		assert.That(t, tries.Load() <= 20, "%d writes for one heartbeat", tries.Load())
	})
}

// ZooKeeper refuses a release's delete. Rule: what the client asked for is tried again, at a pace.
func TestARefusedReleaseIsNotTriedInATightLoop(t *testing.T) {
	for _, why := range []error{zk.ErrNotEmpty, zk.ErrNoAuth, zk.ErrQueueFull} {
		t.Run(why.Error(), in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
			var tries atomic.Int32
			s.set(func() {
				s.refuse = func(w *zk.Write) (int, error) {
					if writeTo(l.Znode)(w) {
						tries.Add(1)
						return 0, why
					}
					return -1, nil
				}
			})
			err := answered(t, "a release that is refused", 10*time.Second, func() error { return g.release(l) })
			assert.That(t, err != nil, "answered as done")
			time.Sleep(10 * time.Second)
			assert.That(t, tries.Load() <= 100, "%d deletions in some seconds", tries.Load())
			s.set(func() { s.refuse = nil })
			time.Sleep(10 * time.Second)
			g.mustRelease(l)
		}))
	}
}

// A contender is created and deleted while the observer is away. Rule: a tree that
// has come past the czxid without it tells that it is gone.
func TestAContenderThatCameAndWentUnseenEndsItsLease(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		g.w.hold()
		p := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: 3 * time.Second})
		time.Sleep(10 * time.Millisecond)
		names := s.names("/lockkeeper/locks/deploy")
		assert.Must(t, len(names) == 1, "contenders %v", names)
		s.set(func() { g.w.steps = nil }) // what was on its way is lost with the connection
		g.w.disconnect()
		g.w.release()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/locks/deploy/" + names[0], Version: -1})
		g.w.reconnect()
		time.Sleep(8 * time.Second)
		assert.Must(t, p.finished(), "an acquire waits for a contender that is gone")
		assert.Must(t, p.err != nil, "%+v", p.lease)
		g.m.mu.Lock()
		assert.Equal(t, g.m.leases.byID.Len(), 0, "leases without a contender")
		g.m.mu.Unlock()
	})
}

// The writer is fine, the observer cannot come back. Rule: an acquire is answered when its wait is over, and a moment.
func TestATryIsAnsweredThoughOnlyTheObserverIsAway(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		defer func() { cancel(); <-done }()
		go func() { // another client's writes are answered all the time
			defer close(done)
			for ctx.Err() == nil {
				_, _ = g.session().Barrier(ctx)
				time.Sleep(100 * time.Millisecond)
			}
		}()
		g.w.hold()
		p := g.begin(deploy())
		time.Sleep(10 * time.Millisecond)
		g.w.disconnect()
		g.w.release()
		time.Sleep(15 * time.Second)
		assert.Must(t, p.finished(), "a try that is not answered within 15 s")
		g.w.reconnect()
		time.Sleep(5 * time.Second)
		assert.That(t, p.err == nil || len(s.names("/lockkeeper/locks/deploy")) == 0, "a contender that no client can use")
	})
}

// Verify while a release is under way. Rule: held means held after the question; what is being ended is not known.
func TestVerifyDoesNotSayHeldOfALeaseThatIsBeingReleased(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		s.set(func() { s.loseReply = writeTo(l.Znode) })
		g.w.hold() // the news of the deletion comes late as well
		err := answered(t, "release", 15*time.Second, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			return g.m.Release(ctx, locks.Anonymous, l.ID, l.Token)
		})
		wantCode(t, err, locks.CodeCancelled)
		assert.Must(t, len(s.names("/lockkeeper/locks/deploy")) == 0, "not deleted")
		v, err := g.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Verify: true})
		assert.Must(t, err != nil || v.State != locks.Held, "held, though its contender is gone: %+v", v)
	})
}

// A blocking acquire without a key meets a handover. Rule: no client will
// ever use its lease, so it leaves the queue with the request.
func TestAHandoverLeavesNoUnusablePlaceInLine(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		p := one.begin(locks.AcquireRequest{Lock: "deploy", TTL: 24 * time.Hour, Wait: locks.WaitForever})
		p.finished()
		time.Sleep(time.Second)
		assert.NoError(t, one.m.Drain(t.Context()))
		<-p.done
		wantCode(t, p.err, locks.CodeUnavailable)
		time.Sleep(2 * time.Second)
		assert.MustEqual(t, len(s.names("/lockkeeper/locks/deploy")), 1, "contenders, want the holder alone")
		two.mustRelease(l)
	})
}

// A create is under way when the gateway drains. Rule: "draining" says that nothing was done, so it is no answer.
func TestADrainDuringACreateLeavesItsOutcomeOpen(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		s.set(func() { s.away = true })
		p := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		synctest.Wait()
		go func() { _ = g.m.Drain(t.Context()) }()
		<-p.done
		wantCode(t, p.err, locks.CodeOutcomeUnknown)
		s.set(func() { s.away = false })
	})
}

// A drain ends the contexts of the requests that wait before the manager drains, while a create is under way. Rule: an
// answer that nothing was done must not follow, because the contender may still come.
func TestACallerThatLeavesDuringACreateIsToldThatItsOutcomeIsOpen(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		s.set(func() { s.away = true })
		p := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: time.Minute})
		synctest.Wait()
		p.stop()
		<-p.done
		wantCode(t, p.err, locks.CodeOutcomeUnknown)
		s.set(func() { s.away = false })
		time.Sleep(answerWithin)
		assert.MustEqual(t, len(s.names("/lockkeeper/locks/deploy")), 0, "contenders: the lease that no client can get stays")
	})
}

// A key is used at a gateway that does not own its lease. Rule: what is
// remembered of it there does not outlive the key.
func TestAKeyOfAnotherGatewaysLeaseIsFreeAgainAfterItsLife(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		req := locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, IdempotencyKey: "abcdefghijklmnop"}
		l := one.mustHold(req)
		_, err := two.acquire(req)
		wantCode(t, err, locks.CodeNotOwner)
		one.mustRelease(l)
		time.Sleep(keyLife + 5*time.Second)
		keys := s.names("/lockkeeper/keys")
		assert.Must(t, len(keys) == 0, "keys %v", keys)
		two.mustHold(req)
		two.m.mu.Lock()
		defer two.m.mu.Unlock()
		assert.That(t, two.m.keys.Len() == 1, "%d keys", two.m.keys.Len())
	})
}

// A keyed repeat is answered held. Rule: an answer with the token claims the grant.
func TestARepeatThatIsToldHeldClaimsTheGrant(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		holder := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		req := locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: locks.WaitForever, IdempotencyKey: "abcdefghijklmnop"}
		p := g.begin(req)
		p.finished()
		time.Sleep(time.Second)
		p.stop()
		<-p.done
		g.mustRelease(holder)
		time.Sleep(10 * time.Second)
		l := g.mustHold(req)
		assert.That(t, l.ExpiresIn == time.Hour, "held for %v", l.ExpiresIn)
		time.Sleep(30 * time.Minute)
		g.wantState(l, locks.Held, "")
	})
}

// A lost create did commit, and its node was deleted before anybody
// could look: there is no name to tell. Rule: its lease has ended.
func TestACreateWhoseContenderIsGoneAgainEndsItsLease(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		g.w.hold()
		h.hooks.Store(&hooks{result: func(w *zk.Write, res *zk.Result) {
			if writeTo("/deploy/write-")(w) && res.Outcome == zk.Done {
				path := res.Paths[len(res.Paths)-1]
				res.Paths[len(res.Paths)-1] = ""
				s.foreign(zk.Op{Kind: zk.OpDelete, Path: path, Version: -1})
			}
		}})
		p := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: time.Minute})
		time.Sleep(100 * time.Millisecond)
		g.w.release()
		time.Sleep(5 * time.Second)
		assert.Must(t, p.finished() && p.err != nil, "%+v %v", p.lease, p.err)
		h.hooks.Store(&hooks{})
		g.mustHold(deploy())
	})
}

// ZooKeeper cannot be reached when the next session is opened. Rule: it is tried again; a gateway does not end over it.
func TestASessionThatCannotBeOpenedIsTriedAgain(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		failures := 3
		h.hooks.Store(&hooks{open: func() error {
			if failures == 0 {
				return nil
			}
			failures--
			return fmt.Errorf("registering: giving up after 8 attempts: %w", zk.ErrUnavailable)
		}})
		g.m.mu.Lock()
		session := g.m.port.Session().(*hookedSession)
		g.m.mu.Unlock()
		session.expire()
		time.Sleep(time.Minute)
		select {
		case err := <-g.stopped:
			g.stopped <- err
			t.Fatalf("the gateway ended: %v", err)
		default:
		}
		assert.Value(g.heartbeat(l))(t)
	})
}
