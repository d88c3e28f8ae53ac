package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The garbage collector lets the heap grow by a part of what is alive before it collects again: all of it by default, so that
// a gateway with very many leases takes twice what they need. Small heaps keep that, because collecting them costs nothing
// worth saving; of large ones a headroom stays that takes the longest bursts.
const (
	gcHeadroom = 24 << 20 // bytes
	leastGC    = 25       // percent: beyond, collecting would cost more than the memory is worth
	mostGC     = 100
	// gcGrowth is how much more, in percent, must be alive than at the collection before for the heap to count as growing: a
	// gateway that starts on many leases, or takes many over, gets them all at once. It collects as seldom as a small one until then.
	gcGrowth    = 12
	gcLookEvery = 500 * time.Millisecond
	// A gateway that starts reads all locks, and nearly all that it allocates then stays. Collecting that again and again took a
	// quarter of the processor time of a start with 100,000 leases.
	startGC    = 400
	startLooks = 2
	// What a burst has left behind goes back to the system when nothing was collected, and next to nothing allocated, for so many
	// looks. Go's own scavenger would keep much of it for good, and the garbage of a gateway at rest would lie for minutes. It is
	// done once after each burst, and again for restGarbage or an eighth of what is alive: a gateway that is nearly at rest would
	// else collect for the little that it allocates.
	gcLeftovers = 2 << 20   // bytes
	restGarbage = 8 << 20   // bytes
	calmGrowth  = 256 << 10 // bytes from one look to the next
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
	g := gcPace{percent: startGC}
	debug.SetGCPercent(g.percent)
	ticks := time.NewTicker(gcLookEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		metrics.Read(samples)
		live, objects, free, cycles := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64()
		before := g.percent
		leftovers := g.look(live, objects+free, cycles)
		if g.percent != before {
			debug.SetGCPercent(g.percent)
		}
		if leftovers {
			runtime.GC() // pools let go of what they keep at the second collection
			debug.FreeOSMemory()
			metrics.Read(samples)
			g.cycles = samples[3].Value.Uint64() // these were no burst
		}
	}
}

// gcPace is what tuneGC knows from one look to the next.
type gcPace struct {
	looks   int    // so far, up to startLooks
	percent int    // in force
	live    uint64 // at the last collection
	taken   uint64 // at the last look
	cycles  uint64 // collections
	burst   bool   // there was a collection since leftovers were given back
	calm    int    // looks without one, with leftovers
}

// look follows the heap: its living bytes, all that it takes, and how often it was collected. It says whether what lies around is to go
// back to the system.
func (g *gcPace) look(live, taken, cycles uint64) (leftovers bool) {
	if g.looks < startLooks {
		g.looks++
		return false
	}
	g.calm++
	if cycles != g.cycles {
		percent := gcPercent(live)
		if live > g.live+g.live*gcGrowth/100 {
			percent = mostGC
		}
		// Setting it stops the world for a moment: not for a change without effect.
		if percent < g.percent-5 || percent > g.percent+5 {
			g.percent = percent
		}
		g.live, g.cycles, g.burst, g.calm = live, cycles, true, 0
	}
	if taken <= live+gcLeftovers || taken > g.taken+calmGrowth {
		g.calm = 0
	}
	g.taken = taken
	much := taken > live+max(restGarbage, live/8)
	leftovers = (g.burst || much) && g.calm >= calmLooks
	if leftovers {
		g.burst, g.calm = false, 0
	}
	return leftovers
}
