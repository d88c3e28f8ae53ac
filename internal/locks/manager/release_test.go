package manager

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func (g *gate) releaseFor(l locks.Lease) error {
	err := g.m.ReleaseFor(g.t.Context(), locks.Anonymous, l.Token)
	synctest.Wait()
	return err
}

// mustReleaseFor releases a lease in the place of its owner, twice: a repeat changes nothing.
func (g *gate) mustReleaseFor(l locks.Lease) {
	g.t.Helper()
	for range 2 {
		assert.NoError(g.t, g.releaseFor(l), "released for its owner")
	}
}

var releasedRequests = map[string]locks.AcquireRequest{
	"one lock":                         {Lock: "deploy", TTL: time.Hour},
	"several locks":                    {TTL: time.Hour, Group: []locks.Want{{Lock: "deploy"}, {Lock: "a"}, {Lock: "b"}}},
	"a delay that expiry alone begins": {Lock: "deploy", TTL: time.Hour, LockDelay: time.Hour},
}

func TestALeaseIsReleasedInThePlaceOfAnOwnerThatIsDead(t *testing.T) {
	for name, req := range releasedRequests {
		t.Run(name, in(withGateways, func(t *testing.T, s *fakeStore, one, two *gate) {
			l := one.mustHold(req)
			next := two.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
			one.crash()
			begun := time.Now()
			two.mustReleaseFor(l)
			took := time.Since(begun)
			assert.That(t, took <= 2*freePlaceAfter, "it took %v", took)
			two.wantState(next, locks.Held, "")
			_, err := two.heartbeat(l)
			assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonReleased, "its client is told")
			wantWords(t, two.tells(endTypes...)[:1], "lease.released released")
			p := two.mustPostmortem(l)
			assert.That(t, p.Reason == locks.ReasonReleased && (p.FencingToken == l.FencingToken || len(req.Group) != 0), "%+v", p)
			time.Sleep(time.Minute) // it is succeeded
			n := len(two.tells(events.LeaseReleased))
			assert.That(t, n == max(1, len(req.Group)), "told %d times", n)
		}))
	}
}

// The owner reaches ZooKeeper, and no gateway reaches the owner.
func TestAnOwnerThatIsOnlyCutOffLearnsThatItsLeaseWasReleased(t *testing.T) {
	for name, req := range releasedRequests {
		t.Run(name, in(withGateways, func(t *testing.T, s *fakeStore, one, two *gate) {
			l := one.mustHold(req)
			waits := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
			next := two.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
			two.mustReleaseFor(waits)
			two.mustReleaseFor(l)
			for _, g := range []*gate{one, two} {
				g.wantState(l, locks.Ended, locks.ReasonReleased)
				assert.Nil(t, g.release(l), "a repeated release")
				assert.Nil(t, g.release(waits), "a repeated release")
			}
			wantWords(t, one.reasons("deploy"), "cancelled", "released")
			two.wantState(next, locks.Held, "")
		}))
	}
}

func TestAReleaseWhoseClosingWriteIsLostIsDoneOnce(t *testing.T) {
	faultTwice(t, func(t *testing.T, persisted bool) {
		withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
			l := one.mustHold(deploy())
			one.crash()
			closes := func(w *zk.Write) bool { return begins(zk.OpSetData)(w) && w.Ops[0].Path == l.Znode }
			s.set(func() { s.vague, s.drop = once(t, closes), !persisted })
			two.mustReleaseFor(l)
			assert.Equal(t, s.waiting("deploy"), 0, "contenders that are left")
		})
	})
}

// What the owner wrote since the record was read is read first: here that it expired.
func TestAReleaseDoesNotOverwriteWhatTheOwnerWrote(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 5 * time.Second, LockDelay: time.Hour})
		tries := 0
		s.beforeWrites(func(w *zk.Write) {
			if len(w.Ops) == 1 && w.Ops[0].Path == l.Znode && tries == 0 {
				tries++
				s.tx([]zk.Op{{Kind: zk.OpSetData, Path: l.Znode, Version: -1, Data: []byte(`{"v":1,"ttl_ms":5000,"lock_delay_ms":3600000,"closed":{"reason":"expired","at_ms":1}}`)}})
			}
		})
		e := wantCode(t, two.releaseFor(l), locks.CodeEnded)
		assert.That(t, e.Reason == locks.ReasonExpired && tries == 1 && s.waiting("deploy") == 1,
			"%+v after %d tries, %d contenders", e, tries, s.waiting("deploy"))
		one.wantState(l, locks.Ended, locks.ReasonExpired)
	})
}

func TestALockDelayFollowsAReleaseInThePlaceOfTheOwner(t *testing.T) {
	for _, dead := range []bool{true, false} {
		t.Run(fmt.Sprintf("dead %v", dead), in(withGateways, func(t *testing.T, s *fakeStore, one, two *gate) {
			l := one.mustHold(delaying(locks.DelayAlways))
			if dead {
				one.crash()
			}
			released := time.Now()
			two.mustReleaseFor(l)
			if n := len(two.tells(events.LeaseReleased)); n != 1 || s.waiting("deploy") != 1 {
				t.Errorf("told %d times, %d contenders are there", n, s.waiting("deploy"))
			}
			wait := <-two.patient()
			after := wait.Sub(released)
			assert.That(t, after >= testDelay && after <= testDelay+time.Minute, "granted %v later", after)
			n := len(two.tells(events.LeaseReleased))
			assert.That(t, n == 1, "told %d times", n)
		}))
	}
}

func TestWhatCannotBeReleasedInThePlaceOfTheOwner(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(deploy())
		forged := l
		forged.Token = l.Token[:len(l.Token)-2] + "xx"
		wantCode(t, two.releaseFor(forged), locks.CodeTokenWrong)
		wantCode(t, two.m.ReleaseFor(t.Context(), locks.Anonymous, ""), locks.CodeTokenMissing)
		one.w.hold() // it does not write the record back
		s.foreign(zk.Op{Kind: zk.OpSetData, Path: l.Znode, Version: -1, Data: []byte("__REVOKE__")})
		wantCode(t, two.releaseFor(l), locks.CodeUnavailable)
		one.w.release()
		pass(time.Second) // it writes the record back
		one.wantState(l, locks.Held, "")
		two.mustReleaseFor(l)
		own := two.mustHold(deploy())
		two.mustReleaseFor(own) // as by Release
		two.wantState(own, locks.Ended, locks.ReasonReleased)
	})
}

// No gateway has taken over yet, and none knows how the lease stands but by its record.
func TestAReleaseIsServedBeforeTheTakeover(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(deploy())
		s.set(func() { s.refuse = refusing(writeTo("/lockkeeper/succession/"), 0, zk.ErrBadVersion) })
		one.crash()
		pass(20 * time.Second)
		for range 2 {
			assert.NoError(t, two.release(l))
		}
		assert.That(t, s.waiting("deploy") == 0, "its place stays")
	})
}

// The owner is slow to read what was written: it is left time for that before its contender goes, which would tell it
// nothing.
func TestAnOwnerIsLeftTimeToReadThatItsLeaseWasReleased(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		h := s.hooked()
		one, two := h.gateway(t), s.gateway(t)
		l := one.mustHold(deploy())
		h.hooks.Store(&hooks{get: func(string) error { return zk.ErrUnavailable }})
		time.AfterFunc(freePlaceAfter/2, func() {
			h.hooks.Store(&hooks{})
			one.m.do(one.m.port.PumpReads)
		})
		two.mustReleaseFor(l)
		one.wantState(l, locks.Ended, locks.ReasonReleased)
		assert.Slices(t, one.reasons("deploy"), []string{"released"}, "told")
	})
}

// The entry that tells of the release may have been delivered before the place is freed, which tells nothing more.
func TestThePlaceOfAReleasedLeaseIsFreedWithoutASecondEntry(t *testing.T) {
	withOutboxes(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(deploy())
		one.crash()
		entry, noted := "/lockkeeper/outbox/"+l.ID, 0
		s.beforeWrites(func(*zk.Write) {
			if s.nodes[entry] != nil {
				noted++
				s.tx([]zk.Op{{Kind: zk.OpDelete, Path: entry, Version: -1}})
			}
		})
		two.mustReleaseFor(l)
		pass(time.Minute)
		assert.That(t, noted == 1 && len(s.outbox()) == 0, "its end was noted %d times; in the outbox: %v", noted, s.outbox())
		assert.Equal(t, s.waiting("deploy"), 0, "contenders that are left")
	})
}

func TestALeaseThatAnAdministratorHasEndedIsNotReleasedInThePlaceOfItsOwner(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(deploy())
		one.crash()
		assert.NoError(t, two.m.Break(t.Context(), locks.BreakRequest{ID: l.ID, Reason: "stuck"}))
		e := wantCode(t, two.releaseFor(l), locks.CodeEnded)
		assert.That(t, e.Reason == locks.ReasonRevoked, "its client is told %+v", e)
	})
}

// A lease that a later release has made, and whose gateway is gone, is not ended by an earlier one, nor said to have ended.
func TestALeaseOfALaterReleaseIsNotReleasedInThePlaceOfItsOwner(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, upgraded, old *gate) {
		first := upgraded.mustHold(deploy())
		later := recipe.LeaseID(string(first.ID)[:len(first.ID)-3] + "777")
		s.fromLater("deploy", string(later))
		for _, gone := range []bool{false, true} {
			if gone {
				upgraded.crash()
				pass(time.Minute)
			}
			err := old.releaseFor(locks.Lease{ID: string(later), Token: old.m.fleet.ring.Tokens().Make(later)})
			assert.That(t, err != nil && s.waiting("deploy") >= 1, "gone %v: %v, %d contenders", gone, err, s.waiting("deploy"))
		}
	})
}

// A number before the lease was handed out and never seen: whether the lease holds, and is released or cancelled, only a listing
// tells.
func TestALeaseBehindANumberThatWasNeverSeenIsNotReleasedInThePlaceOfItsOwnerBeforeAListing(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		first := one.mustHold(deploy())
		s.set(func() { s.nodes["/lockkeeper/locks/deploy"].creates++ })
		l := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		one.mustRelease(first)
		two.m.mu.Lock()
		q := two.m.replica.Namespaces[locks.DefaultNamespace].Find("deploy")
		q.BeginListing() // one is under way, and does not come back
		two.m.unlock()
		wantCode(t, two.releaseFor(l), locks.CodeUnavailable)
		one.wantState(l, locks.Held, "")
		two.m.mu.Lock()
		two.m.replica.ApplyDir(q, &zk.Change{Kind: zk.DirListed, Err: zk.ErrUnavailable}, 0)
		two.m.unlock()
		_ = two.releaseFor(l) // it asks for the listing
		two.mustReleaseFor(l)
		one.wantState(l, locks.Ended, locks.ReasonReleased)
	})
}

// Its contender goes after this gateway has found the lease and before it reads the record: the lease is looked for again.
func TestALeaseThatEndsWhileItIsReleasedInThePlaceOfItsOwnerIsReleased(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		h := s.hooked()
		one, two := s.gateway(t), h.gateway(t)
		l := one.mustHold(deploy())
		reads := 0
		h.hooks.Store(&hooks{read: func(path string) {
			if path == l.Znode {
				reads++
				s.foreign(zk.Op{Kind: zk.OpDelete, Path: path, Version: -1})
			}
		}})
		two.mustReleaseFor(l)
		assert.Equal(t, reads, 1, "reads of its record")
	})
}

// The transaction of a release goes at once when clients wait for it, and shares one with others when they do not.
func TestAReleaseIsAwaitedByThoseWhoWaitForTheLock(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		var awaited []bool
		h.hooks.Store(&hooks{late: func(w *zk.Write) <-chan struct{} {
			if w.Ops[len(w.Ops)-1].Kind == zk.OpDelete {
				awaited = append(awaited, w.Awaited)
			}
			return nil
		}})
		g.mustRelease(g.mustHold(locks.AcquireRequest{Lock: "a", TTL: time.Minute}))
		assert.Slices(t, awaited, []bool{false}, "nothing waits for the lock")

		holder := g.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "b"}, {Lock: "c"}}, TTL: time.Minute})
		next := g.begin(locks.AcquireRequest{Lock: "c", TTL: time.Minute, Wait: locks.WaitForever})
		last := g.begin(locks.AcquireRequest{Lock: "c", TTL: time.Minute, Wait: locks.WaitForever})
		time.Sleep(time.Second)
		last.stop()
		<-last.done
		g.mustRelease(holder)
		<-next.done
		assert.Slices(t, awaited, []bool{false, false, true}, "a lock for which nothing waits, a waiter, a holder")
	})
}
