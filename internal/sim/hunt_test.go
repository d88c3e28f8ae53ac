package sim

import (
	"flag"
	"fmt"
	"testing"
)

var (
	hunt      = flag.Uint64("sim.hunt", 0, "stop at the first of so many seeds that shows a violation, and say so in one line (package mutants)")
	huntFirst = flag.Uint64("sim.hunt-first", 1, "the first of them")
)

// TestHunt is what package mutants runs in its changed copies of the gateway.
func TestHunt(t *testing.T) {
	if *hunt == 0 {
		t.Skip("without -sim.hunt")
	}
	for seed := *huntFirst; seed < *huntFirst+*hunt; seed++ {
		fmt.Printf("HUNT seed %d\n", seed)
		if out := Run(t, NewPlan(seed)); len(out.Violations) > 0 {
			fmt.Printf("HUNT found %s\n", out.Violations[0])
			return
		}
	}
	fmt.Println("HUNT end")
}
