package sim

import (
	"testing"
	"time"
)

func TestADeletionOfUnreadDataIsNoticedUnlessTheLeaseHasEnded(t *testing.T) {
	for _, closed := range []bool{false, true} {
		a := newAudit(func(string, ...any) {})
		a.sessions[1] = "gw"
		a.stall("gw", func() bool { return true })
		c := &contender{path: "/lockkeeper/locks/a/x", by: 1, group: 1, member: 1, written: time.Now()}
		if closed {
			c.closed = time.Now()
		}
		if a.judge(c, 1); (len(a.unseen) == 0) != closed {
			t.Errorf("closed %v: %q", closed, a.unseen)
		}
	}
}
