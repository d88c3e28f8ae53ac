package sim

import (
	"slices"
	"testing"
)

// kept are plans that have failed once, shortened, with what was wrong. They must not fail again. The simulation changes, and
// a plan may then make another history than the one for which it was kept; what it showed has a test of its own by then.
var kept = []struct {
	was  string
	plan Plan
}{}

func TestPlansThatFailedOnceDoNotFailAgain(t *testing.T) {
	for _, k := range kept {
		if out := Run(t, k.plan); len(out.Violations) > 0 {
			t.Errorf("%s, again: %v\n%v\n%s", k.was, out.Violations, k.plan, out.Text())
		}
	}
}

// TestTheSameSeedGivesTheSameHistory runs plans twice, byte for byte. It means nothing under the race detector, which shuffles
// goroutines on purpose.
func TestTheSameSeedGivesTheSameHistory(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector shuffles goroutines on purpose")
	}
	plans := 24
	if full() {
		plans = 500
	}
	for i := range uint64(plans) {
		plan := NewPlan(*first + i)
		one, two := Run(t, plan).History, Run(t, plan).History
		if slices.Equal(one, two) {
			continue
		}
		at := 0
		for at < min(len(one), len(two)) && one[at] == two[at] {
			at++
		}
		t.Errorf("seed %d has two histories, which part at line %d:\n%q\n%q", plan.Seed, at, one[at:min(at+3, len(one))], two[at:min(at+3, len(two))])
	}
}
