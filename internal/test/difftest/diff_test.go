package difftest

import (
	"os"
	"strconv"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

const (
	seeds     = 150
	fullSeeds = 5_000
	enough    = 5 // failures; then the rest is not worth the time
)

// TestRandomScenarios is the heart of it: the same random clients on both servers. LOCKKEEPER_SEED=n plays one seed,
// LOCKKEEPER_FULL=1 thousands.
func TestRandomScenarios(t *testing.T) {
	pair := serversT(t)
	from, to := uint64(1), uint64(seeds)
	if os.Getenv("LOCKKEEPER_FULL") != "" {
		to = fullSeeds
	}
	if seed := os.Getenv("LOCKKEEPER_SEED"); seed != "" {
		n := assert.Value(strconv.ParseUint(seed, 10, 64))(t)
		from, to = n, n
	}
	steps, differ, began := 0, 0, time.Now()
	for seed := from; seed <= to && differ < enough; seed++ {
		s := Generate(seed)
		steps += len(s.Steps)
		if !pair.CheckT(t, s) {
			differ++
		}
	}
	t.Logf("seeds %d to %d, %d steps, %v", from, to, steps, time.Since(began).Round(time.Millisecond))
}

// CheckT fails the test with a difference, made as short as possible.
func (p *Pair) CheckT(t *testing.T, s Scenario) bool {
	t.Helper()
	d, err := p.Compare(s)
	switch {
	case err != nil:
		t.Errorf("%s: %v", s.Name, err)
	case d != nil:
		t.Errorf("%s\n%v", s.Name, p.Shrink(d, 200))
	}
	return err == nil && d == nil
}
