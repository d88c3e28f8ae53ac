package sim

import (
	"net/http"
	"strings"
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
