package sim

import (
	"flag"
	"os"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

var (
	first    = flag.Uint64("sim.first", 1, "the first seed")
	seeds    = flag.Int("sim.seeds", 12, "how many seeds")
	local    = flag.Bool("sim.local", false, "every plan with followers has local sessions, not some")
	minimize = flag.Bool("sim.minimize", true, "look for the shortest plan when a seed fails")
)

// full says whether there is time for long runs.
func full() bool { return os.Getenv("LOCKKEEPER_FULL") != "" }

func TestSeeds(t *testing.T) {
	began := time.Now()
	var virtual time.Duration
	grants, undecided, failed := 0, 0, 0
	for i := range uint64(*seeds) {
		seed := *first + i
		plan := NewPlan(seed)
		plan.LocalSessions = plan.LocalSessions || *local
		out := Run(t, plan)
		virtual += out.Virtual
		grants += out.Grants
		if out.Undecided {
			undecided++
		}
		if len(out.Violations) > 0 {
			failed++
			report(t, plan, out)
			assert.Must(t, failed != 3, "three seeds of %d have failed: no more are tried", i+1)
		}
		if n := i + 1; n%50 == 0 || n == uint64(*seeds) {
			t.Logf("%d seeds up to %d: %.0f a minute, %.1f virtual hours, %d grants, %d that the model could not decide",
				n, seed, float64(n)/time.Since(began).Minutes(), virtual.Hours(), grants, undecided)
		}
	}
	assert.That(t, grants != 0 || *seeds <= 0, "no client ever held a lock")
	assert.That(t, undecided <= 1+*seeds/100, "the model could not decide %d runs of %d", undecided, *seeds)
}

// report tells of a plan that fails, and how to see it again.
func report(t *testing.T, plan Plan, out Outcome) {
	t.Helper()
	t.Errorf("seed %d breaks promises:", plan.Seed)
	for _, v := range out.Violations {
		t.Logf("  %s", v)
	}
	if *minimize {
		plan = Minimize(t, plan, Shows(out))
		out = Run(t, plan)
	}
	t.Logf("again: go test ./internal/test/sim -run 'TestSeeds$' -sim.first=%d -sim.seeds=1\nto keep it, add this to kept in replay_test.go:\n%v", plan.Seed, plan)
	t.Logf("its history:\n%s", out.Text())
}
