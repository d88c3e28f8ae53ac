package sim

import (
	"maps"
	"slices"
	"testing"

	"lockkeeper/internal/test/assert"
)

// Plans with a second namespace have to show something: in each dialect leases and another program hold its lock in turns, also
// where it is added in mid-run.
func TestLeasesAndAnotherProgramHoldInTheSecondNamespace(t *testing.T) {
	want := map[Space]bool{}
	for _, dialect := range []string{"curator-rw", "kazoo", "all"} {
		for _, late := range []bool{false, true} {
			want[Space{Dialect: dialect, By: map[bool]int{true: 1}[late]}] = true
		}
	}
	for seed := uint64(1); len(want) > 0 && seed < 300; seed++ {
		plan := NewPlan(seed)
		kind := Space{Dialect: plan.Space.Dialect}
		if plan.Space.After > 0 {
			kind.By = 1
		}
		if !want[kind] || plan.Gateways < 2 {
			continue
		}
		out := Run(t, plan)
		if len(out.Violations) > 0 {
			report(t, plan, out)
		}
		t.Logf("seed %d, %+v: %d grants, %+v in it", seed, plan.Space, out.Grants, out.Elsewhere)
		if out.Elsewhere.Ours > 0 && out.Elsewhere.Theirs > 0 {
			delete(want, kind)
		}
	}
	assert.That(t, len(want) <= 0, "no seed shows anything of %+v", slices.Collect(maps.Keys(want)))
}
