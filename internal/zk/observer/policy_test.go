package observer

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
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
	}, func(s *stage) {
		s.expectTail("DirAdded* /locks/a", "DirListed* /locks/a not authorized", "Synced")
	})
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
	play(t, func(s *stage) {
		clear(s.zk.tree)
	}, func(s *stage) {
		s.expectTail("Synced")
		s.zk.conn(0).write(slices.Concat(event(wire.EventCreated, "/locks"), event(wire.EventCreated, "/locks/a"), event(wire.EventCreated, "/locks/a/x")))
		synctest.Wait()
		s.expectTail("DirAdded /locks/a", "NodeAdded /locks/a x")
	})
}
