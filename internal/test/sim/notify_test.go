package sim

import (
	"testing"

	"lockkeeper/internal/test/assert"
)

// The end of a lease that has a notify_url is told to it, waiting or held, in random weather.
func TestEveryEndIsDeliveredToItsNotifyURL(t *testing.T) {
	const seeds = 5
	tellings := 0
	for seed := range uint64(seeds) {
		plan := NewPlan(7_500 + seed)
		plan.Hooks, plan.Notify = 1, true
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
	assert.That(t, tellings >= 10*seeds, "%d ends were to be told: nothing is shown", tellings)
	t.Logf("%d ends were told", tellings)
}
