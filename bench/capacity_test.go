package main

import (
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

func TestAFleetGrowsUntilTheOthersEventsFillItsGateways(t *testing.T) {
	const own, elsewhere = 100, 20
	assert.Equal(t, fleetCycles(1, own, elsewhere), 10_000.0, "one gateway")
	assert.Equal(t, fleetCycles(6, own, elsewhere), 30_000.0, "six of them")
	limit := perCore(elsewhere)
	got := fleetCycles(1_000_000, own, elsewhere)
	assert.That(t, got < limit && got > 0.99*limit, "very many do %.0f, the limit is %.0f", got, limit)
}

func TestTheMeasuredHalfOfTheCapacityPageHasItsFigures(t *testing.T) {
	b := &bench{ownTable: measured(false, 64), observed: &observed{cycle: 200, elsewhere: 25, heartbeat: 10, idle: 0.001},
		held: []held{{leases: 1_000_000, resident: 2e9, answered: 3 * time.Second}}}
	text := b.capacity()
	for _, want := range []string{"| an observed event | 12.5 µs |", "| 1 | 5,000 |", "| any number | less than 40,000 |", "| heartbeats, TTL 300 s | 100,000 per second, 1.0 cores",
		"20 GB", "| a restart with them, embedded | 30 s |"} {
		assert.That(t, strings.Contains(text, want), "not on the page: %s\n%s", want, text)
	}
}
