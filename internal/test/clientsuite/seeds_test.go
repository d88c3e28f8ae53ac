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
	return 3
}

// Two works of one lock never overlap, and a work whose lease is lost has stopped before the next starts.
func TestNoTwoWorkAtOnceWhateverFails(t *testing.T) {
	few := *seeds <= 10 // for each client; then all clients at the same time
	f := newFleet(t)
	ctx, stop := context.WithCancel(t.Context())
	var weather sync.WaitGroup
	weather.Go(func() {
		did, err := f.weather(ctx, rand.New(rand.NewPCG(*first, 22)))
		assert.Nil(t, err)
		t.Logf("the fleet: %s", counted(did))
	})
	t.Cleanup(func() {
		stop()
		weather.Wait()
	})
	t.Run("clients", func(t *testing.T) {
		for _, l := range append(languages[:len(languages):len(languages)], lockctl...) {
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

// seeded runs all seeds of one client.
func seeded(t *testing.T, l language, f *fleet) {
	sum := make(map[string]int)
	runs(t, l, f, *first, *seeds, *slots, func(seed uint64, o *outcome) {
		if len(o.wrong) > 0 {
			t.Errorf("%s, seed %d (make client-seeds CLIENT=%s FIRST=%d SEEDS=1):\n%s", l.name, seed, l.name, seed, o.tell(planOf(seed)))
		}
		for what, n := range o.counts {
			sum[what] += n
		}
	})
	t.Logf("%d runs: %s", *seeds, counted(sum))
	// On a machine that is busy virtual machines start for as long as a run takes.
	assert.That(t, sum["works"] > *seeds/2, "only %d works in %d runs", sum["works"], *seeds)
}

// runs plays n seeds, some at the same time. It hands each outcome to did, one after the other.
func runs(t *testing.T, l language, f *fleet, first uint64, n, atOnce int, did func(uint64, *outcome)) {
	dir := t.TempDir()
	argv := l.make(t, dir)
	todo := make(chan uint64, n)
	for i := range n {
		todo <- first + uint64(i)
	}
	close(todo)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range min(atOnce, n) {
		all.Go(func() {
			s, err := newSlot(argv, l.tree, f)
			assert.Nil(t, err)
			for seed := range todo {
				o := s.run(t.Context(), l.name, dir, planOf(seed))
				mu.Lock()
				did(seed, o)
				mu.Unlock()
			}
			assert.Nil(t, s.close(), "%s", l.name)
		})
	}
	all.Wait()
}

// tell writes what is known of a run that failed.
func (o *outcome) tell(p plan) string {
	text := strings.Join(o.wrong, "\n")
	for _, f := range p.faults {
		text += fmt.Sprintf("\n  %v", f)
	}
	for _, f := range o.freezes {
		text += fmt.Sprintf("\n  frozen: %+v", f)
	}
	keep, err := os.MkdirTemp("", "lockkeeper-seed-")
	if err == nil {
		err = os.WriteFile(filepath.Join(keep, "lines"), o.text, 0o600)
		text += "\nthe lines of its works are kept in " + keep
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
