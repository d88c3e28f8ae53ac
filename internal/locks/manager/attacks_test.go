package manager

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// The tests of this file each play an interleaving that breaks a lock service
// which lacks one rule of this package; the rule is named in the comment.

const foreignName = "/lockkeeper/locks/deploy/_c_0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0-lock-"

func (s *fakeStore) foreignContender() string {
	_, paths := s.foreign(zk.Op{Kind: zk.OpCreate, Path: foreignName, Sequential: true, Data: []byte("10.0.0.7")})
	return paths[0]
}

// A foreign contender gets a lower number than ours, and the reply to our create overtakes the news of it. Rule:
// granted only after our own created event, before which everything earlier has been seen.
func TestAnUnseenPredecessorIsNotOvertaken(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy())) // the directory exists
		g.w.hold()
		other := s.foreignContender()
		req := deploy()
		req.Wait = time.Minute
		p := g.begin(req)
		time.Sleep(100 * time.Millisecond)
		assert.Must(t, !p.finished(), "answered %+v (%v) while the observer was behind", p.lease, p.err)
		g.w.release()
		time.Sleep(100 * time.Millisecond)
		assert.Must(t, !p.finished(), "granted over a contender that stands before it: %+v", p.lease)
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: other, Version: -1})
		<-p.done
		assert.Must(t, p.err == nil && p.lease.State == locks.Held, "%+v %v", p.lease, p.err)
	})
}

// The observer reconnects to a server that lags: its tree lacks our new contender. Rule: absence counts only when the
// listing's zxid is not below the contender's czxid.
func TestATreeReadFromThePastRemovesNothing(t *testing.T) {
	for _, state := range []locks.State{locks.Held, locks.Waiting} {
		t.Run(string(state), in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			g.mustRelease(g.mustHold(deploy()))
			var holder locks.Lease
			if state == locks.Waiting {
				holder = g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
			}
			s.mu.Lock()
			past, pastZxid := make(map[string]*fakeNode), s.zxid
			for p, n := range s.nodes {
				past[p] = n
			}
			s.mu.Unlock()
			l := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
			assert.Must(t, l.State == state, "state %s", l.State)
			g.w.disconnect()
			s.set(func() { g.w.connect(past, pastZxid) })
			synctest.Wait()
			g.wantState(l, state, "")
			// The server catches up: the created event comes after all.
			s.set(func() { s.announce(zk.NodeAdded, l.Znode) })
			synctest.Wait()
			if state == locks.Waiting {
				g.mustRelease(holder)
				g.wantState(l, locks.Held, "")
			}
			// And a listing that is new enough does count.
			s.mu.Lock()
			g.w.connected = false
			s.tx([]zk.Op{{Kind: zk.OpDelete, Path: l.Znode, Version: -1}})
			s.mu.Unlock()
			g.w.reconnect()
			g.wantState(l, locks.Ended, locks.ReasonRemoved)
		}))
	}
}

// A contender that we may not read sends us no event. Rule: a gap in the numbers means list before granting; what the
// listing shows is waited for by listing again.
func TestAHiddenContenderIsWaitedForAndItsEndIsNoticed(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.hidden = func(p string) bool { return strings.HasPrefix(p, foreignName) }
		g := s.gateway(t)
		g.mustRelease(g.mustHold(deploy()))
		secret := s.foreignContender()
		req := locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: locks.WaitForever}
		p := g.begin(req)
		time.Sleep(5 * time.Second)
		assert.Must(t, !p.finished(), "granted over a contender that may not be read: %+v %v", p.lease, p.err)
		lock, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"})
		assert.That(t, err == nil && len(lock.Hazards) == 1 && lock.Hazards[0].Code == locks.HazardUnreadable,
			"hazards %+v %v", lock.Hazards, err)
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: secret, Version: -1})
		time.Sleep(3 * time.Second)
		assert.Must(t, p.finished() && p.err == nil && p.lease.State == locks.Held,
			"stuck behind a contender that is gone: %+v %v", p.lease, p.err)
		lock, _ = g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"})
		assert.That(t, len(lock.Hazards) == 0, "hazards %+v", lock.Hazards)
	})
}

// A number that a child without a number used up leaves a gap that is settled by one listing.
func TestAListingSettlesAMissingNumber(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.hidden = func(p string) bool { return strings.HasSuffix(p, "/stray") }
		g := s.gateway(t)
		g.mustRelease(g.mustHold(deploy()))
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy/stray"})
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/locks/deploy/stray", Version: -1})
		g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: time.Minute})
	})
}

// The client repeats its acquire at another gateway while the first one's
// create is on its way. Rule: the key's node is in the same transaction.
func TestTheSameKeyAtTwoGatewaysQueuesOnce(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		one.mustRelease(one.mustHold(deploy()))
		req := locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: time.Minute, IdempotencyKey: "abcdefghijklmnop"}
		p, q := one.begin(req), two.begin(req)
		time.Sleep(100 * time.Millisecond)
		checkAll(t, s, one, two)
		assert.MustEqual(t, len(s.names("/lockkeeper/locks/deploy")), 1, "contenders for one key")
		assert.Must(t, p.finished() && q.finished(), "no answer")
		assert.Must(t, (p.err == nil) != (q.err == nil), "one of them holds, the other is told where: %v, %v", p.err, q.err)
		loser := p.err
		if loser == nil {
			loser = q.err
		}
		wantCode(t, loser, locks.CodeNotOwner)
	})
}

// Another program deletes a waiter, and the holder before it ends: by its client, whose delete commits, or by the same
// program, so that its client's delete meets nothing. The observer has heard of neither. Rule: an end that the writer
// was told of grants nothing until the replica shows it too, for that shows what went before.
func TestAWaiterThatNeverStoodFirstIsNotGranted(t *testing.T) {
	for _, both := range []bool{false, true} {
		t.Run(map[bool]string{false: "the holder's delete commits", true: "it meets nothing"}[both], func(t *testing.T) {
			withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
				holder := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
				waiter := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
				g.w.hold()
				s.foreign(zk.Op{Kind: zk.OpDelete, Path: waiter.Znode, Version: -1})
				if both {
					s.foreign(zk.Op{Kind: zk.OpDelete, Path: holder.Znode, Version: -1})
				}
				g.mustRelease(holder)
				g.wantState(holder, locks.Ended, locks.ReasonReleased)
				synctest.Wait()
				g.wantState(waiter, locks.Waiting, "")
				beat, err := g.heartbeat(waiter)
				assert.Must(t, err == nil && beat.State == locks.Waiting, "a waiter that is gone is told %+v, %v", beat, err)
				g.w.release()
				g.wantState(waiter, locks.Ended, locks.ReasonRemoved)
			})
		})
	}
}

// The same of another program's contender, which comes and goes while the lease
// before it is held: no event says that it held.
func TestAContenderThatNeverStoodFirstIsNotToldOf(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		holder := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		g.w.hold()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: s.foreignContender(), Version: -1})
		g.mustRelease(holder)
		g.w.release()
		told := g.tells(events.LeaseGranted)
		assert.That(t, len(told) == 1, "of one lease that held and a contender that did not it was told %q", told)
	})
}

// What the rule above costs: the next one in line, and other programs, hold
// once the observer has seen the end, and the next contender is granted as ever.
func TestAnEndThatTheReplicaShowsLetsTheNextOneIn(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		holder := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		waiter := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		g.w.hold()
		g.mustRelease(holder)
		g.wantState(waiter, locks.Waiting, "")
		g.w.release()
		g.wantState(waiter, locks.Held, "")
		g.w.hold()
		g.mustRelease(waiter)
		req := deploy()
		req.Wait = time.Minute
		next := g.begin(req)
		assert.Must(t, !next.finished(), "granted before its own created event: %+v %v", next.lease, next.err)
		g.w.release()
		<-next.done
		assert.Must(t, next.err == nil && next.lease.State == locks.Held, "%+v %v", next.lease, next.err)
		other := s.foreignContender()
		synctest.Wait()
		g.w.hold()
		g.mustRelease(next.lease)
		granted := func() (n int) {
			for _, e := range g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LeaseGranted)}, ring) {
				if e.Path() == other {
					n++
				}
			}
			return n
		}
		n := granted()
		assert.That(t, n == 0, "it was told %d times that another program's contender holds, which its gateway cannot know", n)
		g.w.release()
		n = granted()
		assert.That(t, n == 1, "it was told %d times that another program's contender holds", n)
		// An end that only a tree read shows counts as well.
		last := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		second := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: other, Version: -1})
		g.wantState(last, locks.Held, "")
		g.w.disconnect()
		g.mustRelease(last)
		g.w.reconnect()
		g.wantState(second, locks.Held, "")
	})
}

// Attacks 27 and 35, by a release: it comes to a successor that has not read the record yet. The lease may be over, and
// its place stays for its lock delay in either case.
func TestAReleaseWaitsForTheRecordOfALeaseThatWasTakenOver(t *testing.T) {
	for _, closed := range []bool{true, false} {
		t.Run(map[bool]string{true: "closed", false: "held"}[closed], in(scene, func(t *testing.T, s *fakeStore) {
			h := s.hooked()
			g := s.gateway(t)
			l := g.mustHold(delaying(locks.DelayAlways))
			if closed {
				time.Sleep(11 * time.Second)
				g.wantState(l, locks.Ended, locks.ReasonExpired)
			}
			g.crash()
			h.failReads(l.Znode)
			g = h.gateway(t)
			time.Sleep(12 * time.Second)
			wantCode(t, g.release(l), locks.CodeUnavailable)
			h.hooks.Store(&hooks{})
			time.Sleep(2 * time.Second)
			if closed {
				assert.Equal(t, wantCode(t, g.release(l), locks.CodeEnded).Reason, locks.ReasonExpired)
			} else {
				g.mustRelease(l)
				g.wantState(l, locks.Ended, locks.ReasonReleased)
			}
			assert.Equal(t, g.lockState("deploy").State, locks.LockDelayed)
		}))
	}
}
