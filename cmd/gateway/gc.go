package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The garbage collector lets the heap grow by a part of what is alive before it collects again: all of it by default, so that
// a gateway with very many leases takes twice what they need. Small heaps keep that, because collecting them costs nothing
// worth saving; of large ones a headroom stays that takes the longest bursts.
const (
	gcHeadroom  = 32 << 20 // bytes
	leastGC     = 25       // percent: beyond, collecting would cost more than the memory is worth
	mostGC      = 100
	firstGC     = 50 // until it has looked: a gateway that starts on many leases gets them all at once
	gcLookEvery = 500 * time.Millisecond
	// What a burst has left behind goes back to the system when nothing was collected for so many looks. Go's own scavenger
	// would keep much of it for good, and the garbage of a gateway at rest would lie for minutes.
	gcLeftovers = 16 << 20 // bytes
	calmLooks   = 4
)

// gcPercent is how far, in percent, a heap with so many living bytes may grow before the next collection.
func gcPercent(live uint64) int {
	if live <= gcHeadroom {
		return mostGC
	}
	return max(leastGC, int(uint64(gcHeadroom)*mostGC/live))
}

// tuneGC follows the living heap until ctx ends, and keeps it within the limit of the process's control group. Where GOGC or
// GOMEMLIMIT is set, the operator has decided both.
func tuneGC(ctx context.Context) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	keepWithin()
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	present, cycles, calm := firstGC, uint64(0), 0
	debug.SetGCPercent(present)
	ticks := time.NewTicker(gcLookEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		metrics.Read(samples)
		live, objects, free, now := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64()
		// Setting it stops the world for a moment: not for a change without effect.
		if percent := gcPercent(live); percent < present-5 || percent > present+5 {
			present = percent
			debug.SetGCPercent(percent)
		}
		if calm++; now != cycles || objects+free <= live+gcLeftovers {
			cycles, calm = now, 0
		}
		if calm == calmLooks {
			debug.FreeOSMemory()
		}
	}
}
