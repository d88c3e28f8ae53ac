package clientsuite

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/test/assert"
)

var (
	only  = flag.String("suite.client", "", "the seeded runs of this client alone")
	seeds = flag.Int("suite.seeds", seedsUnlessGiven(), "how many seeded runs for each client")
	first = flag.Uint64("suite.first", 1, "the first seed")
	slots = flag.Int("suite.slots", 32, "how many runs at the same time")
)

func seedsUnlessGiven() int {
	if os.Getenv("LOCKKEEPER_FULL") != "" {
		return 500
	}
	return 4
}

// Two works of one lock never overlap, and a work whose lease is lost has stopped before the next starts.
func TestNoTwoWorkAtOnceWhateverFails(t *testing.T) {
	few := *seeds <= 10
	if few {
		t.Parallel()
	}
	f := newFleet(t)
	ctx, stop := context.WithCancel(t.Context())
	var weather sync.WaitGroup
	weather.Go(func() {
		did := f.weather(ctx, rand.New(rand.NewPCG(*first, 22)))
		t.Logf("the fleet: %s", counted(did))
	})
	t.Cleanup(func() {
		stop()
		weather.Wait()
	})
	t.Run("clients", func(t *testing.T) {
		for _, l := range languages {
			if *only != "" && *only != l.name {
				continue
			}
			t.Run(l.name, func(t *testing.T) {
				if few {
					t.Parallel()
				}
				seeded(t, l, f)
			})
		}
	})
}

// seeded runs all seeds of one client, some at the same time.
func seeded(t *testing.T, l language, f *fleet) {
	dir := t.TempDir()
	argv := l.make(t, dir)
	todo := make(chan uint64, *seeds)
	for i := range *seeds {
		todo <- *first + uint64(i)
	}
	close(todo)
	var mu sync.Mutex
	sum := make(map[string]int)
	var all sync.WaitGroup
	for range min(*slots, *seeds) {
		all.Go(func() {
			s, err := newSlot(argv, f)
			assert.Nil(t, err)
			for seed := range todo {
				o := s.run(t.Context(), l.name, dir, planOf(seed))
				if len(o.wrong) > 0 {
					t.Errorf("%s, seed %d (make client-seeds CLIENT=%s FIRST=%d SEEDS=1):\n%s", l.name, seed, l.name, seed, s.tell(dir, l.name, seed, o))
				}
				mu.Lock()
				add(sum, o.counts)
				mu.Unlock()
			}
			assert.Nil(t, s.close(), "%s", l.name)
		})
	}
	all.Wait()
	t.Logf("%d runs: %s", *seeds, counted(sum))
	assert.That(t, sum["works"] >= *seeds, "only %d works in %d runs", sum["works"], *seeds)
}

// tell writes what is known of a run that failed.
func (s *slot) tell(dir, name string, seed uint64, o *outcome) string {
	text := strings.Join(o.wrong, "\n")
	for _, f := range planOf(seed).faults {
		text += fmt.Sprintf("\n  %v", f)
	}
	for _, f := range o.freezes {
		text += fmt.Sprintf("\n  frozen: %+v", f)
	}
	keep, err := os.MkdirTemp("", "lockkeeper-seed-")
	file := fmt.Sprintf("%s-%d.log", name, seed)
	if lines, readErr := os.ReadFile(filepath.Join(dir, file)); err == nil && readErr == nil {
		err = os.WriteFile(filepath.Join(keep, file), lines, 0o600)
		text += "\nits lines are kept in " + keep
	}
	if err != nil {
		text += "\n" + err.Error()
	}
	return text
}

func counted(counts map[string]int) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%d %s", counts[k], k))
	}
	return strings.Join(all, ", ")
}
