package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

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
