package locks

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/zk"
)

// The tests of this file each play an interleaving that breaks a lock service
// which lacks one rule of this package; the rule is named in the comment.

const foreignName = "/lockkeeper/locks/deploy/_c_0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0-lock-"

func (s *fakeStore) foreignContender() string {
	_, paths := s.foreign(zk.Op{Kind: zk.OpCreate, Path: foreignName, Sequential: true, Data: []byte("10.0.0.7")})
	return paths[0]
}

// A foreign contender gets a lower number than ours, and the reply to our
// create overtakes the news of it. Rule: granted only after our own created
// event, before which everything earlier has been seen.
func TestAnUnseenPredecessorIsNotOvertaken(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		g.mustRelease(g.mustHold(deploy())) // the directory exists
		g.w.hold()
		other := s.foreignContender()
		req := deploy()
		req.Wait = time.Minute
		p := g.begin(req)
		time.Sleep(100 * time.Millisecond)
		if p.finished() {
			t.Fatalf("answered %+v (%v) while the observer was behind", p.lease, p.err)
		}
		g.w.release()
		time.Sleep(100 * time.Millisecond)
		if p.finished() {
			t.Fatalf("granted over a contender that stands before it: %+v", p.lease)
		}
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: other, Version: -1})
		<-p.done
		if p.err != nil || p.lease.State != Held {
			t.Fatalf("%+v %v", p.lease, p.err)
		}
	})
}

// The observer reconnects to a server that lags: its tree lacks our new
// contender. Rule: absence counts only when the listing's zxid is not below
// the contender's czxid.
func TestATreeReadFromThePastRemovesNothing(t *testing.T) {
	for _, state := range []State{Held, Waiting} {
		t.Run(string(state), func(t *testing.T) {
			scene(t, func(t *testing.T, s *fakeStore) {
				g := s.gateway(t)
				g.mustRelease(g.mustHold(deploy()))
				var holder Lease
				if state == Waiting {
					holder = g.mustHold(AcquireRequest{Lock: "deploy", TTL: time.Hour})
				}
				s.mu.Lock()
				past, pastZxid := make(map[string]*fakeNode), s.zxid
				for p, n := range s.nodes {
					past[p] = n
				}
				s.mu.Unlock()
				l := g.mustAcquire(AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
				if l.State != state {
					t.Fatalf("state %s", l.State)
				}
				g.w.disconnect()
				synctest.Wait()
				s.mu.Lock()
				g.w.connect(past, pastZxid)
				s.mu.Unlock()
				synctest.Wait()
				g.wantState(l, state, "")
				// The server catches up: the created event comes after all.
				s.mu.Lock()
				s.announce(zk.NodeAdded, l.Znode)
				s.mu.Unlock()
				synctest.Wait()
				if state == Waiting {
					g.mustRelease(holder)
					synctest.Wait()
					g.wantState(l, Held, "")
				}
				// And a listing that is new enough does count.
				s.mu.Lock()
				g.w.connected = false
				s.tx([]zk.Op{{Kind: zk.OpDelete, Path: l.Znode, Version: -1}})
				s.mu.Unlock()
				g.w.reconnect()
				synctest.Wait()
				g.wantState(l, Ended, ReasonRemoved)
			})
		})
	}
}

// A contender that we may not read sends us no event. Rule: a gap in the
// numbers means list before granting; what the listing shows is waited for by
// listing again.
func TestAHiddenContenderIsWaitedForAndItsEndIsNoticed(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.hidden = func(p string) bool { return strings.HasPrefix(p, foreignName) }
		g := s.gateway(t)
		g.mustRelease(g.mustHold(deploy()))
		secret := s.foreignContender()
		req := AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: WaitForever}
		p := g.begin(req)
		time.Sleep(5 * time.Second)
		if p.finished() {
			t.Fatalf("granted over a contender that may not be read: %+v %v", p.lease, p.err)
		}
		lock, err := g.m.Lock(t.Context(), LockRequest{Lock: "deploy"})
		if err != nil || len(lock.Hazards) != 1 || lock.Hazards[0].Code != "unreadable_contender" {
			t.Errorf("hazards %+v %v", lock.Hazards, err)
		}
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: secret, Version: -1})
		time.Sleep(3 * time.Second)
		if !p.finished() || p.err != nil || p.lease.State != Held {
			t.Fatalf("stuck behind a contender that is gone: %+v %v", p.lease, p.err)
		}
		if lock, _ := g.m.Lock(t.Context(), LockRequest{Lock: "deploy"}); len(lock.Hazards) != 0 {
			t.Errorf("hazards %+v", lock.Hazards)
		}
	})
}

// A number that a child without a number used up leaves a gap that is settled
// by one listing.
func TestANumberThatNobodyHasIsSettledByAListing(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.hidden = func(p string) bool { return strings.HasSuffix(p, "/stray") }
		g := s.gateway(t)
		g.mustRelease(g.mustHold(deploy()))
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy/stray"})
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/locks/deploy/stray", Version: -1})
		g.mustHold(AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: time.Minute})
	})
}

// The client repeats its acquire at another gateway while the first one's
// create is on its way. Rule: the key's node is in the same transaction.
func TestTheSameKeyAtTwoGatewaysQueuesOnce(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		one, two := s.gateway(t), s.gateway(t)
		one.mustRelease(one.mustHold(deploy()))
		synctest.Wait()
		req := AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: time.Minute, IdempotencyKey: "abcdefghijklmnop"}
		p, q := one.begin(req), two.begin(req)
		time.Sleep(100 * time.Millisecond)
		checkAll(t, s, one, two)
		if n := len(s.names("/lockkeeper/locks/deploy")); n != 1 {
			t.Fatalf("%d contenders for one key", n)
		}
		if !p.finished() || !q.finished() {
			t.Fatal("no answer")
		}
		if (p.err == nil) == (q.err == nil) {
			t.Fatalf("one of them holds, the other is told where: %v, %v", p.err, q.err)
		}
		loser := p.err
		if loser == nil {
			loser = q.err
		}
		wantCode(t, loser, CodeNotOwner)
	})
}
