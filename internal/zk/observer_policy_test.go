package zk

import (
	"fmt"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/zk/wire"
	"testing"
)

// Every row of the policy about watches is met for real, as package conn's own test does for the others.
func TestEveryRowOfThePolicyAboutWatches(t *testing.T) {
	for _, row := range policy() {
		for _, how := range Tries {
			if row.request != reqAddWatch {
				continue
			}
			t.Run(fmt.Sprintf("%v %s", row.err, how), func(t *testing.T) { meetAddWatch(t, row, how) })
		}
	}
}

func meetAddWatch(t *testing.T, row rule, how Try) {
	if row.err == ErrUnavailable {
		direct, through, proxy := faulty(t)
		newProbe(t, direct).create("/a", "")
		how.Lose(proxy, netfault.IsOp(netfault.OpAddWatch))
		m := newMirror()
		startObserver(t, through, m, func() int64 { return 0 }, WatchRoot{"/a", 1})
		m.awaitSynced(t, 1)
		return
	}
	lost := how == First
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
		mustBeFatal(t, "watching", <-s.ended, KindServerTooOld)
	})
}
