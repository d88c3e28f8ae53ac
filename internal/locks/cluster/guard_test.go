package cluster

import (
	"fmt"
	"testing"
	"time"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func TestAVigilCountsFromTheFirstLookThatFoundTheGuardSo(t *testing.T) {
	const w = 10 * time.Second
	a := zk.Guard{There: true, Version: 7, Czxid: 1}
	for _, moved := range []zk.Guard{{There: true, Version: 8, Czxid: 1}, {There: true, Version: 7, Czxid: 2}, {}} {
		var v GuardWatch
		assert.That(t, !v.stalled(time.Hour, 0, w), "deaf, and never looked at")
		v.saw(a, 100*time.Second)
		v.saw(a, 110*time.Second)
		for _, test := range []struct {
			now, open time.Duration
			want      bool
		}{
			{129 * time.Second, 0, false},
			{130 * time.Second, 0, true},
			{130 * time.Second, 101 * time.Second, false}, // the trust window opened later
			{131 * time.Second, 101 * time.Second, true},
		} {
			assert.Equal(t, v.stalled(test.now, test.open, w), test.want, "at %v, open since %v: stalled", test.now, test.open)
		}
		v.saw(moved, 129*time.Second)
		assert.That(t, !v.stalled(158*time.Second, 0, w) && v.stalled(159*time.Second, 0, w),
			"after it moved to %+v the wait does not begin anew", moved)
	}
}

// Of very many gateways some are looked at in one round, and the others in the next.
func TestEveryGuardHasItsTurn(t *testing.T) {
	m := New(func(ch chan struct{}) { close(ch) })
	m.Begin("self")
	m.Register("self")
	m.Register("succeeded")
	m.AddEntry("succeeded")
	m.CountContender("gone", 1)
	const many = 2*maxWatched + 10
	for i := range many {
		m.Register(recipe.GatewayID(fmt.Sprintf("gateway%06d", i)))
	}
	seen := map[string]int{}
	last := recipe.GatewayID("")
	for range 3 {
		ids := m.Watched(last)
		assert.Must(t, len(ids) <= maxWatched, "%d in one round", len(ids))
		for _, id := range ids {
			seen[id]++
		}
		last = recipe.GatewayID(ids[len(ids)-1])
	}
	assert.That(t, len(seen) == many && seen["self"]+seen["succeeded"]+seen["gone"] <= 0,
		"%d of %d, others: %v", len(seen), many, seen["self"]+seen["succeeded"]+seen["gone"])
}
