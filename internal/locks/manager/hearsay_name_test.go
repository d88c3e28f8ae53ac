package manager

import (
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// Whoever comes next may be called whatever ZooKeeper takes. Why the lease before it ended is heard all the same.
func TestALongNameOfWhoComesNextHidesNoEnd(t *testing.T) {
	fleetScene(t, func(t *testing.T, s *fakeStore) {
		one := s.gateway(t)
		l := one.mustHold(deploy())
		s.foreignSeen(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy/" + strings.Repeat("x", 2*reports.MaxName) + "-lock-", Sequential: true})
		one.mustRelease(l)
		time.Sleep(time.Second)
		p := one.mustPostmortem(l)
		assert.Must(t, p.Next != nil, "at its own gateway nobody comes next: %+v", p)
		late := s.gateway(t)
		late.hears(one, time.Millisecond)
		time.Sleep(time.Second)
		p = late.mustPostmortem(l)
		assert.That(t, p.Reason == locks.ReasonReleased && p.TTL != 0, "another gateway says %+v", p)
	})
}
