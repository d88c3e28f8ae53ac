package main

import (
	"fmt"
	"strings"
)

// tenMillion leases are what docs/operate/capacity.md plans for.
const tenMillion = 10_000_000

// capacity is the measured half of docs/operate/capacity.md: what the run has measured, and what follows from it for larger fleets.
func (b *bench) capacity() string {
	store := over(b.ownTable.rounds(b.ownTable.find(64, false), gatewaySide, storeMicros)).median
	o := b.observed
	var text strings.Builder
	row := func(what, format string, values ...any) {
		fmt.Fprintf(&text, "| %s | %s |\n", what, fmt.Sprintf(format, values...))
	}
	text.WriteString("| what was measured, 64 clients | |\n|---|---|\n")
	row("`C`: a cycle, at its gateway", "%.0f µs", o.cycle)
	row("`O`: a cycle of another gateway", "%.1f µs", o.elsewhere)
	row("an observed event", "%.1f µs", o.elsewhere/2)
	row("`Z`: a cycle, at ZooKeeper", "%.0f µs", store)
	row("a heartbeat", "%.0f µs", o.heartbeat)
	row("a gateway without load", "%.2f %% of a core", 100*o.idle)
	for _, h := range b.held {
		row(thousands(float64(h.leases))+" held leases, embedded", "%.0f MB, %.2f s to restart", h.resident/1e6, h.answered.Seconds())
	}
	row(thousands(float64(b.heldElsewhere.leases))+" held leases, on ZooKeeper", "%.0f MB of a gateway", b.heldElsewhere.resident/1e6)
	text.WriteString("\nWhat follows, for gateways with one core each:\n\n| gateways on one ensemble | cycles per second, all together |\n|---|---|\n")
	for _, n := range []int{1, 2, 4, 8, 16} {
		row(thousands(float64(n)), "%s", thousands(fleetCycles(n, o.cycle, o.elsewhere)))
	}
	row("any number", "less than %s", thousands(perCore(o.elsewhere)))
	row("what ZooKeeper's leader can do with one core", "%s", thousands(perCore(store)))
	text.WriteString("\n| ten million leases | |\n|---|---|\n")
	for _, ttl := range []int{30, 300, 3600} {
		rate := 3 * tenMillion / float64(ttl)
		row(fmt.Sprintf("heartbeats, TTL %d s", ttl), "%s per second, %.1f cores of gateways", thousands(rate), rate*o.heartbeat/1e6)
	}
	most := b.held[len(b.held)-1]
	each := float64(tenMillion) / float64(most.leases)
	row("memory, all in one process with its store", "%.0f GB", each*most.resident/1e9)
	row("a restart with them, embedded", "%.0f s", each*most.answered.Seconds())
	return text.String()
}

// fleetCycles is how many cycles per second n gateways with one core each do together, when one costs its gateway own µs and each
// of the others elsewhere µs.
func fleetCycles(n int, own, elsewhere float64) float64 {
	return float64(n) * perCore(own+float64(n-1)*elsewhere)
}

// perCore is how often something that takes so many µs can be done in a second.
func perCore(micros float64) float64 {
	if micros <= 0 {
		return 0
	}
	return 1e6 / micros
}
