package sim

import (
	"flag"
	"fmt"
	"testing"

	"lockkeeper/internal/test/testkit"
)

var (
	hunt      = flag.Uint64("sim.hunt", 0, "stop at the first of so many seeds that shows a violation, and say so in one line (package mutants)")
	huntFirst = flag.Uint64("sim.hunt-first", 1, "the first of them")
	huntHooks = flag.Bool("sim.hunt-hooks", false, "give each of them webhooks")
)

// planOf makes every odd seed a storm.
func planOf(seed uint64) Plan {
	plan := NewPlan(seed)
	if seed%2 == 1 {
		plan = NewStorm(seed)
	}
	plan.LocalSessions = plan.LocalSessions || *local
	return plan
}

// TestStorms has each front come in its turn.
func TestStorms(t *testing.T) {
	count := uint64(len(fronts))
	if full() {
		count = 20 * count
	}
	if testing.Short() || testkit.Race {
		count = 4
	}
	for i := range count {
		plan := NewStorm(2*i + 1)
		if out := Run(t, plan); len(out.Violations) > 0 {
			t.Errorf("storm %d: %v\n%v\n%s", plan.Seed, out.Violations, plan, out.Text())
		}
	}
}

// TestHunt is what package mutants runs with fail points on.
func TestHunt(t *testing.T) {
	if *hunt == 0 {
		t.Skip("without -sim.hunt")
	}
	for seed := *huntFirst; seed < *huntFirst+*hunt; seed++ {
		fmt.Printf("HUNT seed %d\n", seed)
		plan := planOf(seed)
		if *huntHooks {
			plan.Hooks = 1 + int(seed%3)
		}
		if out := Run(t, plan); len(out.Violations) > 0 {
			fmt.Printf("HUNT found %s\n", out.Violations[0])
			return
		}
	}
	fmt.Println("HUNT end")
}
