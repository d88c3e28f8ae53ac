package main

import (
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestTheHeapsHeadroomIsAPartOfItOrAFixedSize(t *testing.T) {
	for live, want := range map[uint64]int{0: 100, 1 << 20: 100, 24 << 20: 100, 48 << 20: 50, 80 << 20: 30, 96 << 20: 25, 4 << 30: 25} {
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
		{122, 140, 5, 25, false}, // all are there
		{125, 150, 6, 25, false}, // some more, in a second
		{125, 151, 6, 25, false}, // it allocates: that is no rest
		{125, 152, 6, 25, false},
		{125, 152, 6, 25, false},
		{125, 152, 6, 25, false},
		{125, 152, 6, 25, false},
		{125, 152, 6, 25, true},  // at rest
		{125, 128, 6, 25, false}, // and nearly so: what comes together now waits for the next collection
		{125, 128, 6, 25, false},
		{125, 128, 6, 25, false},
		{125, 128, 6, 25, false},
		{125, 128, 6, 25, false},
		{125, 126, 7, 25, false}, // next to nothing to give back
		{125, 126, 7, 25, false},
		{125, 126, 7, 25, false},
		{125, 126, 7, 25, false},
		{125, 126, 7, 25, false},
		{125, 129, 7, 25, false},
		{125, 129, 7, 25, false},
		{125, 129, 7, 25, false},
		{125, 129, 7, 25, false},
		{125, 129, 7, 25, true},
		{125, 140, 7, 25, false}, // some look at many leases, without a collection
		{125, 140, 7, 25, false},
		{125, 140, 7, 25, false},
		{125, 140, 7, 25, false},
		{125, 140, 7, 25, false}, // less than an eighth
		{125, 141, 7, 25, false},
		{125, 141, 7, 25, false},
		{125, 141, 7, 25, false},
		{125, 141, 7, 25, false},
		{125, 141, 7, 25, true},
		{250, 280, 8, 100, false}, // a takeover
		{40, 80, 9, 60, false},
	} {
		leftovers := g.look(step.live*mib, step.taken*mib, step.cycles)
		assert.That(t, g.percent == step.want && leftovers == step.leftovers, "look %d: %d %%, leftovers %v", i, g.percent, leftovers)
	}
}
