package locks

import (
	"testing"
	"time"
)

func TestLeasesAreCountedByStateAndMode(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		counts := func(step string, want map[LeaseKind]int) {
			t.Helper()
			for kind, n := range g.m.Info(t.Context()).Kinds {
				if n != want[kind] {
					t.Errorf("%s: %d are %v, want %d", step, n, kind, want[kind])
				}
				delete(want, kind)
			}
			if len(want) > 0 {
				t.Errorf("%s: %v is not counted", step, want)
			}
			checkAll(t, s, g)
		}
		counts("at first", map[LeaseKind]int{})
		writer := g.mustHold(AcquireRequest{Lock: "a", TTL: time.Hour})
		reader := g.begin(AcquireRequest{Lock: "a", Mode: Shared, TTL: time.Hour, Wait: WaitForever})
		group := g.mustHold(AcquireRequest{Group: []Want{{Lock: "b", Mode: Shared}, {Lock: "c"}}, TTL: time.Hour})
		alone := g.mustHold(AcquireRequest{Group: []Want{{Lock: "d", Mode: Shared}}, TTL: time.Hour})
		counts("taken", map[LeaseKind]int{{Held, Exclusive}: 1, {Waiting, Shared}: 1, {Held, Several}: 1, {Held, Shared}: 1})
		if _, err := g.downgrade(writer); err != nil {
			t.Fatal(err)
		}
		<-reader.done
		counts("downgraded", map[LeaseKind]int{{Held, Shared}: 3, {Held, Several}: 1})
		g.mustRelease(group)
		g.mustRelease(alone)
		g.mustRelease(writer)
		counts("released", map[LeaseKind]int{{Held, Shared}: 1})
	})
}
