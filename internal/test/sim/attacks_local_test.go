package sim

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zktest"
	"lockkeeper/internal/zk/embedded/state"
	"lockkeeper/internal/zk/wire"
)

// Attack 3 on followers with local sessions: what an observer reads there may be older than its connection. (Elsewhere the
// beginning of its session is a transaction, and a listing shows everything before it.)

// besideAFollower starts a gateway whose connections are with the leader, and which can reach a follower that is up to date
// from now on.
func (s *scene) besideAFollower() *gateway {
	s.Helper()
	g := s.startBehind(0, zktest.LeaderName)
	s.zk.Network.Join(g.name, zktest.FollowerName(1))
	return g
}

// moveObserver makes a gateway's observer connect with the follower.
func (s *scene) moveObserver(g *gateway) {
	s.zk.Network.Part(g.name, zktest.LeaderName)
	s.observer(g).Cut()
}

// atTheFollower says whether an observer has a session there.
func (s *scene) atTheFollower(g *gateway) bool {
	for _, l := range s.zk.Network.Links(g.name, zktest.FollowerName(1)) {
		if l.Sent(wire.OpAddWatch) > 0 {
			return true
		}
	}
	return false
}

func TestAttack03WhatAListingOlderThanItsConnectionLacksIsNotRemoved(t *testing.T) {
	playIn(t, Plan{Seed: windowOutlivesSession, Gateways: 1, Servers: 2, LocalSessions: true}, func(s *scene) {
		g := s.besideAFollower()
		c := s.client(g)
		c.release(s.take(c, "a", "held", "ttl", "30s")) // the directory is there
		created := s.counting(state.TxnCreate, lockRoot+"/a/")
		time.Sleep(100 * time.Millisecond)
		s.zk.Follower(1).Lag(zktest.Delay{Min: 3 * time.Second, Max: 3 * time.Second})
		// The observer is told of the contender by an event, which has no zxid; the writer does not learn of it.
		writer := s.writer(g)
		writer.StallReplies()
		asked := make(chan *lease, 1)
		go func() {
			for tries := 0; ; tries++ {
				a, l, err := s.ask(c, "a", "ttl", "30s", "wait", "20s", "key", "unseen")
				if err == nil && a.status == http.StatusServiceUnavailable && tries < 20 {
					time.Sleep(300 * time.Millisecond) // it has not seen it again
					continue
				}
				assert.That(s, err == nil && a.State == "held", "answered %d %s, %v", a.status, a.raw, err)
				asked <- l
				return
			}
		}()
		s.within(time.Second, "the contender is there", func() bool { return created() == 1 })
		time.Sleep(2 * time.Millisecond)
		s.moveObserver(g)
		ours := s.audit.contenders()[0]
		s.within(2*time.Second, "the observer is at a server that does not know the contender", func() bool {
			return s.atTheFollower(g) && s.zk.Follower(1).Zxid() < s.audit.find(ours).czxid
		})
		time.Sleep(100 * time.Millisecond) // it has read the tree
		assert.Must(s, s.zk.Follower(1).Zxid() < s.audit.find(ours).czxid, "the follower has heard of it meanwhile")
		writer.Resume()
		s.zk.Network.Join(g.name, zktest.LeaderName)
		l := <-asked
		if l == nil {
			s.FailNow()
		}
		s.beatUntil(c, l, 10*time.Second)
		assert.That(s, s.there(l), "the contender is gone")
		c.release(l)
	})
}

func TestAttack03AnObserverNeverGoesBackInTime(t *testing.T) {
	playIn(t, Plan{Seed: windowOutlivesSession, Gateways: 1, Servers: 2, LocalSessions: true}, func(s *scene) {
		g := s.besideAFollower()
		c := s.client(g)
		l := s.take(c, "a", "held", "ttl", "30s")
		time.Sleep(100 * time.Millisecond)
		s.zk.Follower(1).Lag(zktest.Delay{Min: 8 * time.Second, Max: 8 * time.Second})
		var released int64
		s.zk.OnCommit(func(txn *state.Txn) {
			if released == 0 && len(txn.Ops) > 0 && txn.Ops[len(txn.Ops)-1].Path == l.path {
				released = txn.Zxid
			}
		})
		c.release(l)
		time.Sleep(time.Second) // the observer has said more than once how far it is
		assert.Must(s, !s.there(l) && released != 0, "it is not released")
		s.moveObserver(g)
		// The follower shows it for another seven seconds. This gateway has told its client that it is gone, and shows that.
		for range 30 {
			if a := s.beat(c, l); a.status != http.StatusGone && a.status != http.StatusServiceUnavailable {
				s.Fatalf("a heartbeat for a released lease is answered %d %s", a.status, a.raw)
			}
			a, err := c.do(5*time.Second, http.MethodGet, "/v1/locks/a", nil, nil)
			if err != nil || a.status != http.StatusServiceUnavailable && (a.status != http.StatusOK || strings.Contains(string(a.raw), l.id)) {
				s.Fatalf("a lock that was released is shown so: %d %s, %v", a.status, a.raw, err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		assert.Must(s, s.zk.Follower(1).Zxid() < released, "the follower has heard of the release")
		s.zk.Network.Join(g.name, zktest.LeaderName)
		time.Sleep(3 * time.Second) // it has found the leader
		c.release(s.take(c, "a", "held", "ttl", "30s"))
	})
}

// The old owner answers heartbeats until its promise window closes, and its session ends before.
func TestAttack54ASuccessorKeepsWhatTheOldOwnerPromised(t *testing.T) {
	play(t, windowOutlivesSession, 2, 2, func(s *scene) {
		old := s.startBehind(0, zktest.FollowerName(1))
		next := s.startBehind(1, zktest.LeaderName)
		c := s.client(old)
		l := s.take(c, "a", "held", "ttl", "5s")
		s.zk.Follower(1).CutOff()
		cut := time.Now()
		var last time.Time // of the newest heartbeat that was answered with success
		var taken time.Time
		for time.Since(cut) < s.window {
			sent := time.Now()
			if a := s.beat(c, l); a.status == http.StatusOK {
				last = sent
			}
			if taken.IsZero() && s.takenOver() {
				taken = time.Now()
			}
			time.Sleep(50 * time.Millisecond)
		}
		assert.Must(s, !taken.IsZero(), "it was not taken over within the promise window")
		if !last.After(taken) {
			s.Fatalf("the old owner answered nothing after the takeover: its last success was %v before", taken.Sub(last))
		}
		c.at = next
		s.zk.Follower(1).Heal()
		time.Sleep(time.Until(last.Add(5*time.Second - 100*time.Millisecond)))
		assert.That(s, s.there(l), "the successor has ended the lease %v after the last heartbeat; its TTL is 5 s", time.Since(last))
		s.beatUntil(c, l, time.Second)
		c.release(l)
	})
}

// A holder and the waiter behind it are released in one transaction: watchers are told of its deletes one after the other.
func TestAttack55AWaiterThatGoesWithItsHolderIsNotSeenToHold(t *testing.T) {
	play(t, sessionOutlivesWindow, 1, 1, func(s *scene) {
		g := s.start(0)
		var clients []*client
		var leases []*lease
		for _, want := range []struct{ lock, state string }{
			{"b", "held"}, {"b", "waiting"}, {"b", "waiting"}, // their ends keep the writer busy
			{"a", "held"}, {"a", "waiting"},
		} {
			c := s.client(g)
			clients, leases = append(clients, c), append(leases, s.take(c, want.lock, want.state, "ttl", "30s", "async", "true"))
		}
		together := 0
		s.zk.OnCommit(func(txn *state.Txn) {
			var numbers []string
			for _, op := range txn.Ops {
				if op.Kind == state.TxnDelete && strings.HasPrefix(op.Path, lockRoot+"/a/") {
					numbers = append(numbers, op.Path[len(op.Path)-10:])
				}
			}
			if len(numbers) != 2 {
				return
			}
			together++
			assert.That(s, numbers[0] >= numbers[1],
				"one transaction deletes the holder before the waiter behind it: it seems to hold in between")
		})
		link := s.writer(g)
		link.StallReplies()
		done := make(chan struct{})
		for i, c := range clients {
			go func() {
				c.release(leases[i])
				done <- struct{}{}
			}()
			time.Sleep(10 * time.Millisecond)
		}
		link.Resume()
		for range clients {
			<-done
		}
		assert.That(s, together != 0, "the two were not released in one transaction")
	})
}

// A holder is downgraded, and the reader behind it gives up, in one transaction.
func TestAttack63AReaderThatGoesWhileItsHolderIsDowngradedIsNotSeenToHold(t *testing.T) {
	play(t, sessionOutlivesWindow, 1, 1, func(s *scene) {
		g := s.start(0)
		holder, reader := s.client(g), s.client(g)
		held := s.take(holder, "a", "held", "ttl", "30s")
		waits := s.take(reader, "a", "waiting", "ttl", "30s", "async", "true", "mode", "shared")
		var acts []func()
		for _, state := range []string{"held", "waiting", "waiting"} { // their ends keep the writer busy
			busy := s.client(g)
			l := s.take(busy, "b", state, "ttl", "30s", "async", "true")
			acts = append(acts, func() { busy.release(l) })
		}
		acts = append(acts, func() { s.downgrade(holder, held) }, func() { reader.release(waits) })
		together, tailFirst := 0, []string{waits.path, held.path}
		s.zk.OnCommit(func(txn *state.Txn) {
			var deleted []string
			for _, op := range txn.Ops {
				if op.Kind == state.TxnDelete && strings.HasPrefix(op.Path, lockRoot+"/a/") {
					deleted = append(deleted, op.Path)
				}
			}
			if len(deleted) == 2 {
				together++
				assert.Slices(s, deleted, tailFirst, "deleted, so that the reader seems to hold in between")
			}
		})
		link := s.writer(g)
		link.StallReplies()
		var done sync.WaitGroup
		for _, act := range acts {
			done.Go(act)
			time.Sleep(10 * time.Millisecond)
		}
		link.Resume()
		done.Wait()
		assert.That(s, together != 0, "the two were not done in one transaction")
		holder.release(held)
	})
}

// A gateway adds a namespace, takes a lease there and is gone while the other one still reads what is in it: there are many locks,
// and the way to ZooKeeper is long.
func TestAttack25AGatewayIsNotSucceededBeforeItsNamespaceIsRead(t *testing.T) {
	for _, dialect := range []string{"kazoo", "curator-rw", "all"} {
		plan := Plan{Seed: sessionOutlivesWindow, Gateways: 2, Servers: 1, Space: Space{Dialect: dialect, By: 1}}
		playIn(t, plan, func(s *scene) {
			successor := s.start(0)
			s.administer(func(admin *session) {
				_, err := admin.create(spaceRoot, "", 0)
				for i := 0; i < 3000 && err == nil; i++ {
					_, err = admin.create(fmt.Sprintf("%s/a%04d", spaceRoot, i), "", 0)
				}
				assert.NoError(s, err)
			})
			s.zk.Network.Slow(successor.name, zktest.LeaderName, zktest.Delay{Min: 190 * time.Millisecond, Max: 210 * time.Millisecond})
			adds := s.start(1)
			c := s.client(adds)
			l := s.take(c, spaceLock, "held", "ttl", "30s")
			if n := len(s.audit.places(l.id)); n != map[string]int{"kazoo": 1, "curator-rw": 1, "all": 3}[dialect] {
				s.Errorf("%s: a lease with %d contenders", dialect, n)
			}
			s.die(adds)
			s.administer(func(admin *session) {
				if err := admin.delete(s.audit.registration(adds.name)); err != nil { // as when its session is over
					s.Fatal(err)
				}
			})
			c.at = successor
			s.beatUntil(c, l, 60*time.Second)
			assert.That(s, s.takenOver(), "%s: it was never taken over", dialect)
			assert.That(s, s.there(l), "%s: the lease has lost a contender", dialect)
			c.release(l)
			s.within(10*time.Second, "all of the lease goes", func() bool { return !s.anyOf(l) })
		})
	}
}

// anyOf says whether a contender of a lease is left.
func (s *scene) anyOf(l *lease) bool {
	for _, c := range s.audit.places(l.id) {
		if c.gone.IsZero() {
			return true
		}
	}
	return false
}
