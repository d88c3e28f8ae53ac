package sim

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
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

var (
	hunt       = flag.Uint64("sim.hunt", 0, "stop at the first of so many seeds that shows a violation, and say so in one line (package mutants)")
	huntFirst  = flag.Uint64("sim.hunt-first", 1, "the first of them")
	huntRotate = flag.Bool("sim.hunt-rotate", false, "rotate the fleet's secret in each of them")
	huntHooks  = flag.Bool("sim.hunt-hooks", false, "give each of them webhooks")
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
		plan.Rotate = *huntRotate
		if out := Run(t, plan); len(out.Violations) > 0 {
			fmt.Printf("HUNT found %s\n", out.Violations[0])
			return
		}
	}
	fmt.Println("HUNT end")
}

// struck says whether a fault of this kind struck a run.
func struck(out Outcome, kind Kind) bool {
	return slices.ContainsFunc(out.History, func(line string) bool { return strings.Contains(line, kind.String()+" strikes") })
}

func TestAPlanThatFailsIsMadeAsShortAsItCanBe(t *testing.T) {
	if testkit.Race || testing.Short() {
		t.Skip("some hundred runs show nothing more with the race detector, and take half a minute")
	}
	// A check that fails when two kinds of faults both struck.
	plan := NewPlan(1)
	for seed := uint64(2); len(plan.Faults) < 8 || len(plan.Clients) < 5; seed++ {
		plan = NewPlan(seed)
	}
	x, y := plan.Faults[2].Kind, plan.Faults[6].Kind
	fails := func(out Outcome) bool { return struck(out, x) && struck(out, y) }
	short := Minimize(t, plan, fails)
	assert.Must(t, fails(Run(t, short)), "the short plan does not fail: %v", short)
	wanted := 2
	if x == y {
		wanted = 1
	}
	assert.That(t, len(short.Faults) == wanted && len(short.Clients) == 0 && short.Gateways == 1 && short.Servers == 1,
		"of %d faults and %d clients these are left: %v", len(plan.Faults), len(plan.Clients), short)
	for _, f := range short.Faults {
		assert.That(t, f.For <= 200*time.Millisecond, "%v lasts %v for nothing", f.Kind, f.For)
	}
}

func TestShorteningKeepsWhatIsNeededTogether(t *testing.T) {
	plan := Plan{Gateways: 3, Servers: 3, Length: time.Minute}
	for i := range 40 {
		plan.Clients = append(plan.Clients, i)
		plan.Faults = append(plan.Faults, Fault{At: time.Duration(i) * time.Second, Arg: uint64(i), For: time.Second})
	}
	runs := 0
	short := shorten(plan, 10_000, func(p Plan) bool {
		runs++
		has := func(arg uint64) bool {
			return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Arg == arg })
		}
		return has(3) && has(17) && has(38) && slices.Contains(p.Clients, 7) && p.Gateways >= 2 && p.Length > 30*time.Second
	})
	assert.That(t, len(short.Faults) == 3 && len(short.Clients) == 1 && short.Gateways == 2 && short.Servers == 1, "%v is left", short)
	t.Logf("%d runs", runs)
	bounded := 0
	shorten(plan, 5, func(Plan) bool { bounded++; return false })
	assert.That(t, bounded <= 5, "it has tried %d plans where 5 were allowed", bounded)
}

func TestOnlyTheSameKindOfViolationCounts(t *testing.T) {
	shows := Shows(Outcome{Violations: []string{"overlap: x and y"}})
	if shows(Outcome{Violations: []string{"litter: z"}}) || shows(Outcome{}) || !shows(Outcome{Violations: []string{"litter: z", "overlap: v and w"}}) {
		t.Error("another kind was taken for it, or the same one was not")
	}
}
