package postmortem

import (
	"math/rand/v2"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// Ends come and go until there have been ten thousand at once, and then all go: each that is remembered is found, no other one
// is, and the memory comes back.
func TestEachEndIsFoundHoweverManyThereAre(t *testing.T) {
	const most = 10_000 // all adds together stay below MaxEnds
	rng := rand.New(rand.NewPCG(1, 2))
	var h Log
	kept := map[int]bool{}
	check := func() {
		t.Helper()
		for range 2000 {
			n := rng.IntN(2 * most)
			end, ok := h.Get(id(n))
			assert.Must(t, ok == kept[n] && (!ok || end.TTL == time.Duration(n)), "of %d ends, %d is found: %v, remembered: %v (%v)", len(kept), n, ok, kept[n], end.TTL)
		}
		assert.MustEqual(t, h.Size().Ends, len(kept), "so many ends are found")
	}
	step := func(keep int) { // of a hundred
		n := rng.IntN(2 * most)
		if rng.IntN(100) < keep {
			h.Add(id(n), End{TTL: time.Duration(n)})
			kept[n] = true
		} else {
			h.Drop(id(n))
			delete(kept, n)
		}
	}
	for i := range 6 * most {
		step(70)
		if i%most == 0 {
			check()
		}
	}
	check()
	assert.That(t, len(kept) > most, "only %d ends at once", len(kept))
	for i := 0; len(kept) > 100; i++ {
		step(0)
		if i%most == 0 {
			check()
		}
	}
	check()
	assert.That(t, len(h.index.places) <= 1024, "%d places for %d ends", len(h.index.places), len(kept))
}
