package manager

import (
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

func TestLeasesAreCountedByStateAndMode(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		counts := func(step string, want map[locks.LeaseKind]int) {
			t.Helper()
			for kind, n := range g.m.Info(t.Context()).Kinds {
				assert.That(t, n == want[kind], "%s: %d are %v, want %d", step, n, kind, want[kind])
				delete(want, kind)
			}
			assert.That(t, len(want) <= 0, "%s: %v is not counted", step, want)
			checkAll(t, s, g)
		}
		counts("at first", map[locks.LeaseKind]int{})
		writer := g.mustHold(locks.AcquireRequest{Lock: "a", TTL: time.Hour})
		reader := g.begin(locks.AcquireRequest{Lock: "a", Mode: locks.Shared, TTL: time.Hour, Wait: locks.WaitForever})
		group := g.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "b", Mode: locks.Shared}, {Lock: "c"}}, TTL: time.Hour})
		alone := g.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "d", Mode: locks.Shared}}, TTL: time.Hour})
		counts("taken", map[locks.LeaseKind]int{{State: locks.Held, Mode: locks.Exclusive}: 1, {State: locks.Waiting, Mode: locks.Shared}: 1, {State: locks.Held, Mode: locks.Several}: 1, {State: locks.Held, Mode: locks.Shared}: 1})
		assert.Value(g.downgrade(writer))(t)
		<-reader.done
		counts("downgraded", map[locks.LeaseKind]int{{State: locks.Held, Mode: locks.Shared}: 3, {State: locks.Held, Mode: locks.Several}: 1})
		g.mustRelease(group)
		g.mustRelease(alone)
		g.mustRelease(writer)
		counts("released", map[locks.LeaseKind]int{{State: locks.Held, Mode: locks.Shared}: 1})
	})
}
