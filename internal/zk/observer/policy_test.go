package observer

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
	"lockkeeper/internal/zk/wire"
)

// Every row of the policy about watches is met for real, as package conn's own test does for the others.
func TestEveryRowOfThePolicyAboutWatches(t *testing.T) {
	for _, row := range conn.Policy() {
		for _, how := range fixture.Tries {
			if row.Request != conn.ReqAddWatch {
				continue
			}
			t.Run(fmt.Sprintf("%v %s", row.Err, how), func(t *testing.T) { meetAddWatch(t, row, how) })
		}
	}
}

func meetAddWatch(t *testing.T, row conn.Rule, how fixture.Try) {
	if row.Err == zk.ErrUnavailable {
		direct, through, proxy := fixture.Faulty(t)
		fixture.NewProbe(t, direct).Create("/a", "")
		how.Lose(proxy, netfault.IsOp(netfault.OpAddWatch))
		m := newMirror()
		startObserver(t, through, m, func() int64 { return 0 }, zk.WatchRoot{Path: "/a", Depth: 1})
		m.awaitSynced(t, 1)
		return
	}
	lost := how == fixture.First
	play(t, func(s *stage) {
		s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
			if r.op != wire.OpAddWatch {
				return false
			}
			if !lost {
				lost = true
				_ = c.nc.Close()
				return true
			}
			c.write(reply(r.xid, 100, wire.ErrUnimplemented))
			return true
		}
	}, func(s *stage) {
		s.over = true
		fixture.MustBeFatal(t, "watching", <-s.ended, zk.KindServerTooOld)
	})
}

func TestARootThatMayNotBeReadIsNoEmptyRoot(t *testing.T) {
	for _, root := range []zk.WatchRoot{locksRoot, {Path: "/locks", Depth: 1}} {
		play(t, func(s *stage) {
			s.roots = []zk.WatchRoot{root}
			s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
				if r.String() != "12 /locks" {
					return false
				}
				c.write(reply(r.xid, 100, wire.ErrNoAuth))
				return true
			}
		}, func(s *stage) {
			s.pass(10 * time.Second)
			assert.That(t, !s.o.State().Synced && s.m.count("Synced") <= 0, "synced without having read the root")
		})
	}
}

func TestADirectoryThatMayNotBeReadIsToldAsSuch(t *testing.T) {
	play(t, func(s *stage) {
		s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
			if r.String() != "12 /locks/a" {
				return false
			}
			c.write(reply(r.xid, 100, wire.ErrNoAuth))
			return true
		}
	}, func(s *stage) { s.expectTail("DirAdded* /locks/a", "DirListed* /locks/a not authorized", "Synced") })
}

func TestADirectoryDeletedWhileItsListingIsUnderWay(t *testing.T) {
	play(t, func(s *stage) {
		s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
			if r.String() != "12 /locks/a" {
				return false
			}
			c.write(slices.Concat(event(wire.EventDeleted, "/locks/a/x"), event(wire.EventDeleted, "/locks/a"), reply(r.xid, 101, wire.ErrNoNode)))
			return true
		}
	}, func(s *stage) {
		s.expectTail("DirAdded* /locks/a", "NodeRemoved /locks/a x", "DirRemoved /locks/a", "Synced")
	})
}

func TestARootThatDoesNotExistIsEmptyAndWatched(t *testing.T) {
	play(t, func(s *stage) { clear(s.zk.tree) }, func(s *stage) {
		s.expectTail("Synced")
		s.zk.conn(0).write(slices.Concat(event(wire.EventCreated, "/locks"), event(wire.EventCreated, "/locks/a"), event(wire.EventCreated, "/locks/a/x")))
		synctest.Wait()
		s.expectTail("DirAdded /locks/a", "NodeAdded /locks/a x")
	})
}

// writes makes the fake's zxid and the writer's commits go on, one every 100 ms, until stop is called.
func (s *stage) writes() (stop func()) {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
			sent := s.cfg.Clock.Now()
			s.zk.mu.Lock()
			s.zk.zxid++
			zxid := s.zk.zxid
			s.zk.mu.Unlock()
			s.o.Freshness().Committed(sent, zxid)
		}
	}()
	return func() { close(done); synctest.Wait() }
}

func (s *stage) current() bool { return s.o.Freshness().Current(s.cfg.Clock.Now()) }

// TestAServerThatAnswersPingsButStandsStillIsLeft: the server is cut off from its peers, the writer's is not.
func TestAServerThatAnswersPingsButStandsStillIsLeft(t *testing.T) {
	play(t, func(s *stage) { s.cfg.Servers = []string{"one:1", "two:1"} }, func(s *stage) {
		stop := s.writes()
		defer stop()
		s.pass(30 * time.Second)
		assert.Must(t, s.zk.sessions() == 1 && s.current(),
			"%d sessions, current %v: a healthy server was left", s.zk.sessions(), s.current())
		cut := s.zk.conn(0).server
		s.zk.set(func() {
			stuck := s.zk.zxid
			s.zk.admit = func(server string, hello wire.ConnectRequest) bool {
				return server != cut || hello.LastZxidSeen <= stuck
			}
			s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
				if c.server != cut {
					return false
				}
				c.write(reply(r.xid, stuck, wire.OK)) // pings, and nothing else is asked
				return true
			}
		})
		began := time.Now()
		for s.zk.sessions() == 1 && time.Since(began) < time.Minute {
			assert.Must(t, s.current(), "stopped being current before another server was tried")
			s.pass(100 * time.Millisecond)
		}
		if took := time.Since(began); took < s.cfg.PromiseWindow/3 || took > s.cfg.PromiseWindow*2/3 {
			t.Errorf("left after %v, with a window of %v", took, s.cfg.PromiseWindow)
		}
		s.pass(time.Second)
		got := s.o.State()
		assert.That(t, got.Server != cut && got.Synced && s.current(), "state %+v, current %v", got, s.current())
	})
}

func TestAReplicaWhoseServerStandsStillStopsBeingCurrent(t *testing.T) {
	play(t, nil, func(s *stage) { // one server: there is nowhere to go
		stop := s.writes()
		defer stop()
		s.pass(10 * time.Second)
		s.zk.set(func() {
			stuck := s.zk.zxid
			s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
				c.write(reply(r.xid, stuck, wire.OK))
				return true
			}
			s.zk.admit = func(string, wire.ConnectRequest) bool { return false }
		})
		s.pass(s.cfg.PromiseWindow)
		assert.That(t, !s.current(), "current although nothing of the last window has been seen")
	})
}

func TestAServerIsNotLeftWithoutWrites(t *testing.T) {
	play(t, func(s *stage) { s.cfg.Servers = []string{"one:1", "two:1"} }, func(s *stage) {
		s.o.Freshness().Committed(s.cfg.Clock.Now(), 100)
		s.pass(5 * time.Minute)
		assert.That(t, s.zk.sessions() == 1, "%d sessions: a server with nothing to tell was left", s.zk.sessions())
		assert.That(t, !s.current(), "current by a transaction that is minutes old")
	})
}

func TestTheSinkIsToldWhenTheReplicaBecomesCurrent(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.expectTail("DirListed* /locks/a", "Synced")
		s.zk.set(func() { s.zk.zxid = 200 })
		s.o.Freshness().Committed(s.cfg.Clock.Now(), 200)
		s.pass(2 * time.Second) // a ping brings 200
		s.expectTail("Synced", "Current")
		assert.That(t, s.current(), "not current")
	})
}

// TestNothingReliesOnWhatTheSinkHasNotBeenTold: freshness and Reached move only
// after the changes of the same burst have been applied.
func TestNothingReliesOnWhatTheSinkHasNotBeenTold(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.o.Freshness().Committed(s.cfg.Clock.Now(), 300)
		reached := make(chan error, 1)
		go func() { reached <- s.o.Reached(context.Background(), 300) }()
		synctest.Wait()
		told := false
		s.m.mu.Lock()
		s.m.onApply = func(changes []zk.Change) {
			if told || changes[0].Kind != zk.NodeRemoved {
				return
			}
			told = true
			assert.That(t, !s.current(), "current by a zxid whose changes are only being applied")
			testkit.Nothing(t, reached, "Reached returned while the changes are being applied")
		}
		s.m.mu.Unlock()
		s.zk.set(func() {
			s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
				if r.op != wire.OpPing && r.op != wire.OpSync {
					return false
				}
				c.write(slices.Concat(event(wire.EventDeleted, "/locks/a/x"), reply(r.xid, 300, wire.OK)))
				return true
			}
		})
		s.pass(2 * time.Second)
		err := <-reached
		assert.That(t, err == nil && told && s.current(), "%v, told %v, current %v", err, told, s.current())
	})
}

func TestTheReplicaIsCurrentWhenTheSinkHearsThatItIsSynced(t *testing.T) {
	heard := false
	play(t, func(s *stage) {
		s.m.onApply = func(changes []zk.Change) {
			if changes[0].Kind == zk.Synced {
				heard = true
				assert.That(t, s.current(), "what the tree read has proven does not count yet")
			}
		}
		s.zk.intercept = func(_ *fakeConn, r fakeRequest) bool {
			if r.path == "/locks/a" {
				s.o.Freshness().Committed(s.cfg.Clock.Now(), 100)
			}
			return false
		}
	}, func(s *stage) { assert.That(t, heard, "not synced") })
}

func TestTheReplicaIsNotCurrentWhenTheSinkHearsOfTheLoss(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.o.Freshness().Committed(s.cfg.Clock.Now(), 100)
		s.pass(2 * time.Second)
		assert.Must(t, s.current(), "not current to begin with")
		heard := false
		s.m.mu.Lock()
		s.m.onApply = func(changes []zk.Change) {
			if changes[0].Kind == zk.Lost {
				heard = true
				assert.That(t, !s.current(), "current without a connection")
			}
		}
		s.m.mu.Unlock()
		s.zk.conn(0).nc.Close()
		s.pass(time.Second)
		assert.That(t, heard && s.current(), "heard of the loss %v, current after the next tree read %v", heard, s.current())
	})
}
