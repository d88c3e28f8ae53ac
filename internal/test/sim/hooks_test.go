package sim

import (
	"flag"
	"testing"

	"lockkeeper/internal/test/assert"
)

var (
	hookSeeds = flag.Int("sim.hooks", 12, "how many plans with webhooks are carried out")
	hookFirst = flag.Uint64("sim.hooks.first", 7_000, "the first of their seeds")
)

// Promise 7, in random weather: every subscription is told of the end of a held lease.
func TestEveryEndIsDeliveredToItsSubscribers(t *testing.T) {
	tellings := 0
	for seed := range *hookSeeds {
		plan := NewPlan(*hookFirst + uint64(seed))
		plan.Hooks = 1 + seed%3
		out := Run(t, plan)
		tellings += out.Tellings
		for _, v := range out.Violations {
			t.Errorf("seed %d: %s", plan.Seed, v)
		}
		if t.Failed() {
			t.Logf("%s\n%s", plan, out.Text())
			return
		}
	}
	assert.That(t, tellings >= 20**hookSeeds, "%d ends were to be told: nothing is shown", tellings)
	t.Logf("%d ends were told", tellings)
}
