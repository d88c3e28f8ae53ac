package fleet

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockkeeper/internal/test/assert"
)

func TestAWindowTakesEachNumberOnce(t *testing.T) {
	const size = 256 // four words: at least 193 numbers
	const last = math.MaxUint64
	for name, c := range map[string]struct {
		numbers []uint64
		want    string
	}{
		"in order":                  {[]uint64{1, 2, 3, 4}, "yes yes yes yes"},
		"none begins with zero":     {[]uint64{0, 1, 0}, "no yes no"},
		"repeated":                  {[]uint64{1, 1, 2, 1, 2}, "yes no yes no no"},
		"out of order":              {[]uint64{3, 1, 2, 1, 2, 3}, "yes yes yes no no no"},
		"the oldest that fits":      {[]uint64{1000, 768, 768, 767}, "yes yes no no"},
		"the oldest after a word":   {[]uint64{1000, 1024, 831, 832, 832}, "yes yes no yes no"},
		"one behind":                {[]uint64{64, 63, 63}, "yes yes no"},
		"over the edge of a word":   {[]uint64{63, 64, 65, 64, 63}, "yes yes yes no no"},
		"far ahead":                 {[]uint64{5, 100000, 5, 99999, 99999}, "yes yes no yes no"},
		"as far as the ring":        {[]uint64{5, 261, 260, 5}, "yes yes yes no"},
		"what was there is gone":    {[]uint64{5, 453, 261, 261}, "yes yes yes no"},
		"the same bit a ring later": {[]uint64{5, 261, 261}, "yes yes no"},
		"the last ones":             {[]uint64{1, last, last, last - 1, 1}, "yes yes no yes no"},
	} {
		w := newWindow(size)
		for i, n := range c.numbers {
			want := strings.Fields(c.want)[i] == "yes"
			assert.That(t, w.take(n) == want, "%s: %d at place %d is taken: %v", name, n, i, !want)
		}
	}
}

// The model is a set of all that was taken. A window takes nothing twice, and everything new that is not too old.
func TestAWindowIsASetOfTheLatestNumbers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		words := rapid.IntRange(2, 6).Draw(rt, "words")
		w, taken, highest := newWindow(64*words), map[uint64]bool{}, uint64(0)
		size := uint64(64*(words-1)) + 1
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			n := rapid.OneOf(
				rapid.Uint64Range(0, 5),
				rapid.Custom(func(rt *rapid.T) uint64 { // around the highest, and around the window's end
					back := rapid.SampledFrom([]uint64{0, size, 64 * uint64(words), 2 * size}).Draw(rt, "back") + rapid.Uint64Range(0, 70).Draw(rt, "more")
					return highest - min(highest, back) + rapid.Uint64Range(0, 70).Draw(rt, "ahead")
				}),
				rapid.Uint64Range(highest, highest+min(1000, math.MaxUint64-highest)),
			).Draw(rt, "number")
			is := w.take(n)
			switch {
			case is && n < highest && highest-n >= 64*uint64(words):
				rt.Fatalf("%d is taken, and its place in the ring is that of a later one: the highest is %d", n, highest)
			case is && (taken[n] || n == 0):
				rt.Fatalf("%d is taken twice", n)
			case !is && n > 0 && !taken[n] && (n > highest || highest-n < size):
				rt.Fatalf("%d is refused, the highest is %d and the window %d wide", n, highest, size)
			}
			if is {
				taken[n], highest = true, max(highest, n)
			}
		}
	})
}
