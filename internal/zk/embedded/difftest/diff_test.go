package difftest

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// TestRandomScenarios is the heart of it: the same random clients on both servers. LOCKKEEPER_SEED=n plays one seed,
// LOCKKEEPER_FULL=1 thousands.
func TestRandomScenarios(t *testing.T) {
	pair := serversT(t)
	from, to := uint64(1), uint64(300)
	if os.Getenv("LOCKKEEPER_FULL") != "" {
		to = 20_000
	}
	if seed := os.Getenv("LOCKKEEPER_SEED"); seed != "" {
		n, err := strconv.ParseUint(seed, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		from, to = n, n
	}
	steps, began := 0, time.Now()
	for seed := from; seed <= to; seed++ {
		s := Generate(seed)
		steps += len(s.Steps)
		pair.CheckT(t, s)
	}
	t.Logf("%d scenarios, %d steps, %v", to-from+1, steps, time.Since(began).Round(time.Millisecond))
}

// CheckT fails the test with a difference, made as short as possible.
func (p *Pair) CheckT(t *testing.T, s Scenario) {
	t.Helper()
	d, err := p.Compare(s)
	if err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	if d != nil {
		t.Errorf("%s\n%v", s.Name, p.Shrink(d, 200))
	}
}
