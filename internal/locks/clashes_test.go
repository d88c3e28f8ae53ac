package locks

import (
	"slices"
	"testing"
	"testing/synctest"

	"lockkeeper/internal/zk"
)

// The first column of the table in docs/interop.md against itself: a pair is safe
// only when each waits for the other.
func TestProgramsThatDoNotWaitForEachOtherAreAHazardWhileBothAreThere(t *testing.T) {
	names := []string{"_c_12345678-1234-1234-1234-123456789abc-lock-", "_c_12345678-1234-1234-1234-123456789abc-__WRIT__",
		"_c_0123456789abcdef0123456789abcdef-lock-", "0123456789abcdef0123456789abcdef__lock__", "write-", "x-72057594037927936-"}
	safe := [][2]int{{0, 2}, {4, 5}} // Curator's mutex with go-zookeeper's, HBase's writer with ZooKeeper's
	for i, a := range names {
		for j, b := range names[i:] {
			scene(t, func(t *testing.T, s *fakeStore) {
				g := s.gateway(t)
				g.mustRelease(g.mustHold(deploy()))
				_, one := s.foreign(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/deploy/" + a})
				_, two := s.foreign(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/deploy/" + b})
				hazards := func() []Hazard {
					synctest.Wait()
					v, err := g.m.Lock(t.Context(), LockRequest{Lock: "deploy"})
					if err != nil {
						t.Fatal(err)
					}
					return v.Hazards
				}
				want := 1
				if j == 0 || slices.Contains(safe, [2]int{i, i + j}) {
					want = 0
				}
				if h := hazards(); len(h) != want {
					t.Errorf("%s and %s: %+v", a, b, h)
				}
				s.foreign(zk.Op{Kind: zk.OpDelete, Path: one[0], Version: -1})
				if h := hazards(); len(h) != 0 {
					t.Errorf("%s alone: %+v", b, h)
				}
				s.foreign(zk.Op{Kind: zk.OpDelete, Path: two[0], Version: -1})
				synctest.Wait()
				g.m.mu.Lock()
				defer g.m.mu.Unlock()
				if q := g.m.spaces["default"].find("deploy"); q.remarks != nil {
					t.Errorf("remarks are left: %+v", q.remarks)
				}
			})
		}
	}
}
