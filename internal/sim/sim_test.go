package sim

import (
	"flag"
	"testing"
	"time"
)

var (
	first = flag.Uint64("sim.first", 1, "the first seed")
	seeds = flag.Int("sim.seeds", 20, "how many seeds")
)

func TestSeeds(t *testing.T) {
	grants := 0
	for seed := *first; seed < *first+uint64(*seeds); seed++ {
		began := time.Now()
		plan := NewPlan(seed)
		out := Run(t, plan)
		grants += out.Grants
		t.Logf("seed %d: %v virtual, %v real, %d grants, answers %v", seed, out.Virtual, time.Since(began), out.Grants, out.Answers)
		if len(out.Violations) > 0 {
			t.Errorf("seed %d: %v\n%v\n%s", seed, out.Violations, plan, out.Text())
		}
	}
}

func TestTheSameSeedGivesTheSameHistory(t *testing.T) {
	plan := NewPlan(*first)
	one := Run(t, plan).Text()
	for range 10 {
		if two := Run(t, plan).Text(); two != one {
			for i := range min(len(one), len(two)) {
				if one[i] != two[i] {
					t.Fatalf("they part at\n%s\nand\n%s", one[max(0, i-1500):min(len(one), i+300)], two[max(0, i-300):min(len(two), i+300)])
				}
			}
			t.Fatal("one is longer")
		}
	}
}
