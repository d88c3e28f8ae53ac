package locks

import (
	"errors"
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

// A heartbeat with a TTL of 60 s is answered, then one with 5 s, and the owner
// dies. Rule: a deadline never moves back, and the shorter TTL is written only
// when the old deadline has passed.
func TestAShorterTTLNeverTakesBackWhatWasPromised(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		l := g.mustHold(AcquireRequest{Lock: "deploy", TTL: 20 * time.Second})
		beat, err := g.m.Heartbeat(t.Context(), Anonymous, l.ID, l.Token, time.Minute)
		if err != nil || beat.TTL != time.Minute || beat.ExpiresIn != time.Minute {
			t.Fatalf("%+v %v", beat, err)
		}
		if r, _ := parseRecord(s.node(l.Znode).data); r.ttl() != time.Minute {
			t.Fatalf("the longer TTL was answered before it was written: %v", r.ttl())
		}
		promised := time.Now().Add(time.Minute)
		beat, err = g.m.Heartbeat(t.Context(), Anonymous, l.ID, l.Token, 5*time.Second)
		if err != nil || beat.TTL != 5*time.Second || beat.ExpiresIn < 59*time.Second {
			t.Fatalf("%+v %v", beat, err)
		}
		for time.Until(promised) > 4*time.Second {
			if r, _ := parseRecord(s.node(l.Znode).data); r.ttl() != time.Minute {
				t.Fatalf("%v before the promised end the record says %v", time.Until(promised), r.ttl())
			}
			time.Sleep(4 * time.Second)
			if _, err := g.heartbeat(l); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			time.Sleep(4 * time.Second)
			if _, err := g.heartbeat(l); err != nil {
				t.Fatal(err)
			}
		}
		if r, _ := parseRecord(s.node(l.Znode).data); r.ttl() != 5*time.Second {
			t.Errorf("the record still says %v", r.ttl())
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		g.wantState(l, Ended, ReasonExpired)
	})
}

// ZooKeeper is away for longer than the TTL. Rule: nothing expires while the
// fence is closed, and when it opens every deadline has moved by the blind time
// and a little more, so that heartbeats that wait are heard first.
func TestNothingExpiresWhileTheGatewayIsBlind(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		l := g.mustHold(deploy())
		s.mu.Lock()
		s.away = true
		s.mu.Unlock()
		time.Sleep(9 * time.Second)
		if _, err := g.heartbeat(l); err != nil {
			t.Fatalf("the fence is open: %v", err)
		}
		time.Sleep(5 * time.Minute)
		_, err := g.heartbeat(l)
		if e := wantCode(t, err, CodeUnavailable); e.RetryAfter == 0 {
			t.Error("no Retry-After")
		}
		s.mu.Lock()
		s.away = false
		s.mu.Unlock()
		time.Sleep(5 * time.Second) // the next guard write opens the fence
		g.wantState(l, Held, "")
		if _, err := g.heartbeat(l); err != nil {
			t.Fatal(err)
		}
		// A client that is dead still expires: its last promise moved by the
		// blind time and 15 s at most.
		time.Sleep(46 * time.Second)
		synctest.Wait()
		g.wantState(l, Ended, ReasonExpired)
	})
}

// The same, right after the start: ZooKeeper goes away before the clock loop has
// looked for the first time.
func TestNothingExpiresWhenTheGatewayGoesBlindInItsFirstMoment(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		l := g.mustHold(deploy())
		g.w.disconnect()
		time.Sleep(5 * time.Minute)
		g.w.reconnect()
		time.Sleep(5 * time.Second) // the next guard write proves the replica
		g.wantState(l, Held, "")
		if _, err := g.heartbeat(l); err != nil {
			t.Fatal(err)
		}
	})
}

// An acquire or a release meets a ZooKeeper that is away: answered within a
// second, nothing hangs.
func TestZooKeeperAwayIsAnsweredWithinASecond(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		l := g.mustHold(AcquireRequest{Lock: "other", TTL: time.Hour})
		s.mu.Lock()
		s.away = true
		s.mu.Unlock()
		began := time.Now()
		_, err := g.acquire(deploy())
		wantCode(t, err, CodeOutcomeUnknown)
		wantCode(t, g.release(l), CodeOutcomeUnknown)
		_, err = g.m.Lease(t.Context(), LeaseRequest{ID: l.ID, Verify: true})
		wantCode(t, err, CodeUnavailable)
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("three answers took %v", took)
		}
		_, err = g.heartbeat(l)
		wantCode(t, err, CodeUnavailable) // ending: nobody knows yet
		time.Sleep(20 * time.Second)
		_, err = g.acquire(deploy())
		wantCode(t, err, CodeUnavailable)
		s.mu.Lock()
		s.away = false
		s.mu.Unlock()
		time.Sleep(5 * time.Second)
		g.wantState(l, Ended, ReasonReleased)
		if n := len(s.names("/lockkeeper/locks/deploy")); n != 0 {
			t.Errorf("%d contenders of an acquire that nobody was told of", n)
		}
		g.mustHold(deploy())
	})
}

// A machine so loaded that it wakes late once a minute. Rule: a late wake moves
// deadlines by the blind time and at most 15 s, so dead clients still expire.
func TestDeadClientsExpireOnAMachineThatIsOftenLate(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		l := g.mustHold(AcquireRequest{Lock: "deploy", TTL: 3 * time.Minute})
		began := time.Now()
		for range 12 {
			time.Sleep(time.Minute)
			// The loop finds that it should have woken two seconds ago.
			g.m.mu.Lock()
			now := g.m.clock.Now().Boot()
			g.m.clockState.expected = now - 2*time.Second
			g.m.tick(now)
			g.m.unlock()
			synctest.Wait()
			if g.look(l).State == Ended {
				break
			}
		}
		g.wantState(l, Ended, ReasonExpired)
		if took := time.Since(began); took < 3*time.Minute || took > 6*time.Minute {
			t.Errorf("expired after %v", took)
		}
	})
}

// The owner was stopped for longer than the TTL: its timers are due before the
// heartbeats in its sockets are read. Rule: as above.
func TestAStoppedOwnerHearsHeartbeatsBeforeItExpiresAnything(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		l := g.mustHold(AcquireRequest{Lock: "deploy", TTL: 10 * time.Second})
		time.Sleep(8 * time.Second)
		s.clock.(*jumpClock).jump(9 * time.Second) // the process stood still
		time.Sleep(6 * time.Second)
		g.wantState(l, Held, "")
		if _, err := g.heartbeat(l); err != nil {
			t.Fatal(err)
		}
	})
}

// An expiry meets a newer version of the contender: somebody wrote a heartbeat
// into it. Rule: the delete names the version that was seen, and "not done"
// makes the lease held again.
func TestAnExpiryThatMeetsANewerVersionMakesTheLeaseHeldAgain(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		l := g.mustHold(deploy())
		time.Sleep(29999 * time.Millisecond)
		g.w.hold() // the news of the write comes late
		s.mu.Lock()
		n := s.nodes[l.Znode]
		s.tx([]zk.Op{{Kind: zk.OpSetData, Path: l.Znode, Data: n.data, Version: -1}})
		s.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		g.w.release()
		synctest.Wait()
		g.wantState(l, Held, "")
		if beat, err := g.heartbeat(l); err != nil || beat.ExpiresIn != 30*time.Second {
			t.Fatalf("%+v %v", beat, err)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		g.wantState(l, Ended, ReasonExpired)
	})
}

// The gateway is killed and restarted: its successor, here itself, goes on
// with id, token, fencing token, owner, metadata and place, and the first
// deadline is takeover + W + TTL.
func TestARestartedGatewayGoesOnWithItsLeases(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		one := s.gateway(t)
		l := one.mustHold(AcquireRequest{Lock: "deploy", TTL: 40 * time.Second, Owner: "me", Metadata: "m"})
		ticket := one.mustAcquire(AcquireRequest{Lock: "deploy", TTL: 40 * time.Second, Async: true})
		key := AcquireRequest{Lock: "keyed", TTL: 40 * time.Second, IdempotencyKey: "abcdefghijklmnop"}
		keyed := one.mustHold(key)
		one.crash()
		two := s.gateway(t)
		began := time.Now()
		for {
			_, err := two.heartbeat(l)
			if err == nil {
				break
			}
			var e *Error
			if !errors.As(err, &e) || e.Code != CodeUnavailable && e.Code != CodeNotOwner {
				t.Fatal(err) // the registration of the dead one lives as long as its session
			}
			if time.Since(began) > 15*time.Second {
				t.Fatal("not taken over")
			}
			time.Sleep(100 * time.Millisecond)
		}
		v := two.look(l)
		if v.FencingToken != l.FencingToken || v.Owner != "me" || v.Metadata != "m" || v.TTL != 40*time.Second || v.Znode != l.Znode {
			t.Errorf("%+v", v)
		}
		if w := two.look(ticket); w.State != Waiting || w.Position != 1 {
			t.Errorf("ticket %+v", w)
		}
		if again := two.mustHold(key); again.ID != keyed.ID || again.Token != keyed.Token {
			t.Errorf("the key found %+v", again)
		}
		if _, err := two.heartbeat(ticket); err != nil {
			t.Fatal(err)
		}
		two.mustRelease(l)
		synctest.Wait()
		two.wantState(ticket, Held, "")
		two.mustRelease(two.look(ticket).withToken(ticket.Token))
		// A dead client's lease ends at takeover + W + TTL, no earlier.
		time.Sleep(fakeWindow + 40*time.Second - 2*time.Second)
		two.wantState(keyed, Held, "")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		two.wantState(keyed, Ended, ReasonExpired)
		// What the dead one left behind is swept.
		time.Sleep(keyLife + 3*scanEvery)
		synctest.Wait()
		for _, dir := range []string{"succession", "keys", "locks"} {
			if names := s.names("/lockkeeper/" + dir); len(names) != 0 {
				t.Errorf("left behind in %s: %v", dir, names)
			}
		}
		checkAll(t, s, two)
	})
}

func (l Lease) withToken(token string) Lease { l.Token = token; return l }

// The session expires under a living process: it goes on under a new gateway
// id, open requests included.
func TestAnExpiredSessionCostsNoLease(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		l := g.mustHold(deploy())
		p := g.begin(AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: time.Minute})
		p.finished()
		time.Sleep(time.Second)
		g.m.mu.Lock()
		session := g.m.session.(*fakeSession)
		g.m.mu.Unlock()
		session.expire()
		if _, err := g.heartbeat(l); err != nil { // the promise window is still good
			wantCode(t, err, CodeUnavailable)
		}
		time.Sleep(time.Second)
		if beat, err := g.heartbeat(l); err != nil || beat.FencingToken != l.FencingToken {
			t.Fatalf("%+v %v", beat, err)
		}
		g.mustRelease(l)
		<-p.done
		if p.err != nil || p.lease.State != Held {
			t.Fatalf("%+v %v", p.lease, p.err)
		}
		checkAll(t, s, g)
	})
}

// The reply to a create is lost with the session: once not applied, once
// applied. The repeat with the same key finds out, and nothing queues twice.
func TestALostAcquireIsFoundByItsKey(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		t.Run(map[bool]string{false: "failed", true: "failed but persisted"}[persisted], func(t *testing.T) {
			scene(t, func(t *testing.T, s *fakeStore) {
				g := s.gateway(t)
				g.mustRelease(g.mustHold(deploy()))
				req := deploy()
				req.IdempotencyKey = "abcdefghijklmnop"
				s.mu.Lock()
				if persisted {
					s.loseReply = writeTo("/deploy/write-")
				} else {
					s.away = true
				}
				s.mu.Unlock()
				_, err := g.acquire(req)
				wantCode(t, err, CodeOutcomeUnknown)
				g.m.mu.Lock()
				session := g.m.session.(*fakeSession)
				g.m.mu.Unlock()
				session.expire()
				s.mu.Lock()
				s.away, s.loseReply = false, nil
				s.mu.Unlock()
				time.Sleep(5 * time.Second)
				l := g.mustHold(req)
				if n := len(s.names("/lockkeeper/locks/deploy")); n != 1 {
					t.Fatalf("%d contenders", n)
				}
				g.mustRelease(l)
				checkAll(t, s, g)
			})
		})
	}
}

// The same without a key: nobody can ever use the lease, so it must not stay.
func TestALostAcquireWithoutAKeyLeavesNothing(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		g.mustRelease(g.mustHold(deploy()))
		s.mu.Lock()
		s.loseReply = writeTo("/deploy/write-")
		s.mu.Unlock()
		_, err := g.acquire(deploy())
		wantCode(t, err, CodeOutcomeUnknown)
		g.m.mu.Lock()
		session := g.m.session.(*fakeSession)
		g.m.mu.Unlock()
		session.expire()
		s.mu.Lock()
		s.loseReply = nil
		s.mu.Unlock()
		time.Sleep(5 * time.Second)
		if n := len(s.names("/lockkeeper/locks/deploy")); n != 0 {
			t.Errorf("%d contenders that nobody can use", n)
		}
		g.mustHold(deploy())
	})
}

// The reply to a release is lost with the session. What the client asked for
// goes on, and the repeat is answered as done.
func TestALostReleaseIsCarriedOut(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		t.Run(map[bool]string{false: "failed", true: "failed but persisted"}[persisted], func(t *testing.T) {
			scene(t, func(t *testing.T, s *fakeStore) {
				g := s.gateway(t)
				l := g.mustHold(deploy())
				s.mu.Lock()
				if persisted {
					s.loseReply = writeTo(l.Znode)
				} else {
					s.away = true
				}
				s.mu.Unlock()
				// Where it persisted, the deleted event tells before the reply would.
				if err := g.release(l); !persisted || err != nil {
					wantCode(t, err, CodeOutcomeUnknown)
				}
				g.m.mu.Lock()
				session := g.m.session.(*fakeSession)
				g.m.mu.Unlock()
				session.expire()
				s.mu.Lock()
				s.away, s.loseReply = false, nil
				s.mu.Unlock()
				time.Sleep(5 * time.Second)
				g.wantState(l, Ended, ReasonReleased)
				g.mustRelease(l)
				g.mustHold(deploy())
			})
		})
	}
}

// SIGTERM: the registration goes in the last transaction, requests are
// answered 503, and the successor begins at once.
func TestAHandoverLosesNothingAndIsQuick(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		one, two := s.gateway(t), s.gateway(t)
		l := one.mustHold(deploy())
		_, err := two.heartbeat(l)
		wantCode(t, err, CodeNotOwner)
		p := one.begin(AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: time.Minute, IdempotencyKey: "abcdefghijklmnop"})
		p.finished()
		time.Sleep(time.Second)
		if err := one.m.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-p.done
		if p.err != nil || p.lease.State != Waiting {
			t.Errorf("a keyed waiter is told that it still waits: %+v %v", p.lease, p.err)
		}
		_, err = one.heartbeat(l)
		wantCode(t, err, CodeUnavailable)
		time.Sleep(time.Second)
		if beat, err := two.heartbeat(l); err != nil || beat.FencingToken != l.FencingToken {
			t.Fatalf("%+v %v", beat, err)
		}
		again := two.begin(AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: time.Minute, IdempotencyKey: "abcdefghijklmnop"})
		again.finished()
		two.mustRelease(l)
		<-again.done
		if again.err != nil || again.lease.ID != p.lease.ID || again.lease.State != Held {
			t.Errorf("%+v %v", again.lease, again.err)
		}
		checkAll(t, s, two)
	})
}

// What became of a write stays unknown while the session lives on: another
// program touched what it left. Nothing of it can commit any more, so the
// replica tells.
func TestAnOutcomeThatStaysUnknownIsReadFromTheReplica(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		t.Run(map[bool]string{false: "failed", true: "failed but persisted"}[persisted], func(t *testing.T) {
			scene(t, func(t *testing.T, s *fakeStore) {
				g := s.gateway(t)
				g.mustRelease(g.mustHold(deploy()))
				unknown := func(path string) {
					s.mu.Lock()
					s.vague, s.drop = writeTo(path), !persisted
					s.mu.Unlock()
				}
				known := func() {
					s.mu.Lock()
					s.vague = nil
					s.mu.Unlock()
				}
				unknown("/deploy/write-")
				p := g.begin(AcquireRequest{Lock: "deploy", TTL: time.Minute, Wait: time.Minute})
				time.Sleep(time.Second)
				known()
				if !p.finished() {
					t.Fatal("no answer")
				}
				if !persisted {
					wantCode(t, p.err, CodeUnavailable)
					p.lease = g.mustHold(AcquireRequest{Lock: "deploy", TTL: time.Minute})
				} else if p.err != nil || p.lease.FencingToken != s.node(p.lease.Znode).stat.Czxid {
					t.Fatalf("%+v %v", p.lease, p.err)
				}
				unknown("/deploy/write-")
				released := make(chan error, 1)
				go func() { released <- g.release(p.lease) }()
				time.Sleep(100 * time.Millisecond)
				known()
				if err := <-released; err != nil && persisted {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				g.wantState(p.lease, Ended, ReasonReleased)
				l := g.mustHold(AcquireRequest{Lock: "deploy", TTL: time.Minute})
				unknown("/deploy/write-")
				time.Sleep(61 * time.Second)
				known()
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if v := g.look(l); v.State != Ended {
					t.Fatalf("an expiry whose outcome is unknown: %+v", v)
				}
				checkAll(t, s, g)
			})
		})
	}
}

// A success that was decided under one session is about to be written when the
// next session is there already, with its fence open. Rule: an answer stands on
// the session under which it was decided.
func TestAnAnswerDoesNotPassUnderTheNextSessionsFence(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		l := g.mustHold(deploy())
		beat, err := g.heartbeat(l)
		if err != nil || !g.m.Vouches(beat.Basis) || !g.m.Vouches(l.Basis) {
			t.Fatalf("%+v %v", beat, err)
		}
		g.m.mu.Lock()
		session := g.m.session.(*fakeSession)
		g.m.mu.Unlock()
		session.expire()
		time.Sleep(time.Second)
		if !g.m.Trusted() {
			t.Fatal("the next session is not usable yet")
		}
		if g.m.Vouches(beat.Basis) {
			t.Error("an answer of the former session passes")
		}
		if again, err := g.heartbeat(l); err != nil || !g.m.Vouches(again.Basis) {
			t.Errorf("%+v %v", again, err)
		}
		if g.m.Vouches(Basis{}) {
			t.Error("no basis at all passes")
		}
	})
}
