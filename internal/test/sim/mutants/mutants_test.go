package mutants

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

var (
	run   = flag.Bool("mutants", false, "look for the seed that shows each mutant")
	only  = flag.String("mutants.only", "", "names of mutants, separated by commas; all when empty")
	seeds = flag.Int("mutants.seeds", 300, "how many seeds are to show each of them")
	first = flag.Int("mutants.first", 1, "the first seed, at least; a mutant's hunt begins at the seed that the table names")
)

// everything is what backs the control.
const everything = "everything"

// found is what a hunt came to.
type found struct {
	mutant    Mutant
	seed      string // the first that shows it, or a scenario that does; "" for none
	violation string
	took      time.Duration
	err       error
}

func (f found) String() string {
	if f.seed == "" {
		return fmt.Sprintf("| %s | %s | none of %d | |", f.mutant.Name, f.mutant.Without, *seeds)
	}
	return fmt.Sprintf("| %s | %s | %s | %s |", f.mutant.Name, f.mutant.Without, f.seed, f.violation)
}

// TestTheSimulationNoticesWhatIsMissing logs the first seed of each mutant, or its scenario, for the table.
func TestTheSimulationNoticesWhatIsMissing(t *testing.T) {
	if !*run && os.Getenv("LOCKKEEPER_FULL") == "" {
		t.Skip("takes minutes: make sim-mutants, or LOCKKEEPER_FULL=1")
	}
	var wanted []Mutant
	if *only == "" {
		wanted = append(wanted, Mutant{Name: "none", Without: "nothing is missing (the control)", Backed: everything},
			Mutant{Name: "none-hooks", Without: "nothing is missing, with webhooks (the control)", Backed: everything, Hooks: true},
			Mutant{Name: "none-rotate", Without: "nothing is missing, with rotations of the secret (the control)", Backed: everything, Rotate: true})
	}
	for _, m := range Table {
		if *only == "" || strings.Contains(","+*only+",", ","+m.Name+",") {
			wanted = append(wanted, m)
		}
	}
	program := compile(t)
	results := make([]found, len(wanted))
	var hunts sync.WaitGroup
	places := make(chan struct{}, 2) // processes at a time
	for i, m := range wanted {
		hunts.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			began := time.Now()
			results[i] = hunt(t, program, m)
			results[i].took = time.Since(began)
			fmt.Fprintf(os.Stderr, "%v in %v\n", results[i], results[i].took.Round(time.Second))
		})
	}
	hunts.Wait()
	for _, f := range results {
		t.Log(f)
		switch {
		case f.err != nil:
			t.Error(f.err)
		case f.seed == "" && f.mutant.Open != "":
			t.Logf("%s is open: %s", f.mutant.Name, f.mutant.Open)
		case f.seed == "" && f.mutant.Backed == "":
			t.Errorf("%s: neither its scenario nor a seed shows it", f.mutant.Name)
		case f.seed != "" && f.mutant.Backed == everything:
			t.Errorf("seed %s fails though nothing is missing: %s", f.seed, f.violation)
		case f.seed != "" && f.mutant.Backed != "":
			t.Logf("%s is not backed by %s any more, or never was: the table may say so", f.mutant.Name, f.mutant.Backed)
		}
	}
}

// compile makes the simulation's test program, with fail points.
func compile(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "sim.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-tags", "faults", "-c", "-o", program, "./internal/test/sim")
	build.Dir = root(t)
	out, err := build.CombinedOutput()
	assert.Must(t, err == nil, "the simulation does not compile: %v\n%s", err, out)
	return program
}

// command runs the program with the mutant's points on.
func command(ctx context.Context, t *testing.T, program string, m Mutant, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, args...)
	c.Dir = filepath.Join(root(t), "internal/test/sim")
	c.WaitDelay = 10 * time.Second
	c.Env = append(os.Environ(), "LOCKKEEPER_FAULTS="+strings.Join(m.Points(), ","))
	if m.Backed == everything {
		c.Env = append(os.Environ(), "LOCKKEEPER_FAULTS=")
	}
	return c
}

// hunt runs the scenario that the table has for the mutant, or seeds until one shows it.
func hunt(t *testing.T, program string, m Mutant) (f found) {
	f.mutant = m
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	if m.Scenario != "" {
		return scenarios(ctx, t, f, program, m.Scenario)
	}
	runs := command(ctx, t, program, m, "-test.run", "^TestHunt$", "-test.timeout", "19m",
		"-sim.hunt", fmt.Sprint(*seeds), "-sim.hunt-first", fmt.Sprint(max(*first, m.Seed)), fmt.Sprintf("-sim.hunt-hooks=%t", m.Hooks),
		fmt.Sprintf("-sim.hunt-rotate=%t", m.Rotate))
	out, err := runs.CombinedOutput()
	last := ""
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		line := lines.Text()
		if seed, ok := strings.CutPrefix(line, "HUNT seed "); ok {
			last = seed
		}
		if what, ok := strings.CutPrefix(line, "HUNT found "); ok {
			f.seed, f.violation = last, what
			return f
		}
		if line == "HUNT end" {
			return scenarios(ctx, t, f, program, "(Attack|Hooks)")
		}
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			f.seed, f.violation = last, line
			return f
		}
	}
	f.err = fmt.Errorf("mutant %s: the hunt ended without a word at seed %s: %v\n%s", m.Name, last, err, out)
	return f
}

// scenarios runs named scenarios on a mutant: what is too rare for chance may be there by hand.
func scenarios(ctx context.Context, t *testing.T, f found, program, named string) found {
	runs := command(ctx, t, program, f.mutant, "-test.run", "^Test"+named, "-test.timeout", "10m")
	out, _ := runs.CombinedOutput() // a failure is what it is about
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		line := lines.Text()
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			f.seed, _, _ = strings.Cut(name, " ")
		} else if f.seed != "" && strings.Contains(line, ".go:") {
			f.violation = strings.TrimSpace(line)
			return f
		}
	}
	return f
}

func root(t *testing.T) string {
	t.Helper()
	path := assert.Value(filepath.Abs("../../../.."))(t)
	return path
}
