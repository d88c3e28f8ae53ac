package main

import (
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestTheHeapsHeadroomIsAPartOfItOrAFixedSize(t *testing.T) {
	for live, want := range map[uint64]int{0: 100, 1 << 20: 100, 32 << 20: 100, 64 << 20: 50, 120 << 20: 26, 128 << 20: 25, 4 << 30: 25} {
		got := gcPercent(live)
		assert.That(t, got == want, "with %d MiB alive it may grow by %d %%, want %d", live>>20, got, want)
	}
}

func TestAHeapThatGrowsIsCollectedAsSeldomAsASmallOne(t *testing.T) {
	g := gcPace{percent: startGC}
	const mib = 1 << 20
	for range startLooks {
		assert.That(t, !g.look(16*mib, 80*mib, 1) && g.percent == startGC, "%d %% at the start", g.percent)
	}
	for i, step := range []struct {
		live, taken, cycles uint64 // in MiB
		want                int
		leftovers           bool
	}{
		{20, 30, 1, 100, false},  // it has started
		{60, 100, 3, 100, false}, // on many leases
		{60, 110, 3, 100, false}, // not collected since: nothing is new
		{120, 200, 4, 100, false},
		{122, 150, 5, 26, false}, // all are there
		{125, 150, 6, 26, false}, // some more, in a second
		{126, 150, 6, 26, false},
		{126, 150, 6, 26, false},
		{126, 150, 6, 26, false},
		{126, 150, 6, 26, true}, // at rest
		{126, 150, 6, 26, false},
		{125, 130, 7, 26, false},
		{250, 280, 8, 100, false}, // a takeover
		{40, 80, 9, 80, false},
	} {
		leftovers := g.look(step.live*mib, step.taken*mib, step.cycles)
		assert.That(t, g.percent == step.want && leftovers == step.leftovers, "look %d: %d %%, leftovers %v", i, g.percent, leftovers)
	}
}
