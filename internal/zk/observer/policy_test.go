package observer

import (
	"fmt"
	"testing"

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
