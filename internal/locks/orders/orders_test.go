package orders

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"lockkeeper/internal/test/assert"
)

// Random histories against a list that is sorted anew for each question.
func TestOrdersAreThoseOfASortedList(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		numbers, words := NewNumbers(), NewWords()
		model, wordsOf := map[string]int64{}, map[string][]string{}
		for range 2000 {
			dir := fmt.Sprint("d", random.IntN(60))
			switch random.IntN(4) {
			case 0:
				numbers.Remove(dir)
				delete(model, dir)
			case 1, 2:
				model[dir] = random.Int64N(5)
				numbers.Put(dir, model[dir])
			case 3:
				of := make([]string, random.IntN(4))
				for i := range of {
					of[i] = fmt.Sprint("w", random.IntN(6))
				}
				words.Put(dir, of)
				wordsOf[dir] = of
			}
		}
		var want []Place
		for dir, number := range model {
			want = append(want, Place{number, dir})
		}
		slices.SortFunc(want, Compare)
		from := random.IntN(len(want))
		for _, place := range []*Place{nil, &want[from], {Number: 2, Dir: "d3x"}} {
			rest := slices.DeleteFunc(slices.Clone(want), func(p Place) bool { return place != nil && Compare(p, *place) <= 0 })
			var got []Place
			numbers.Behind(place, func(p Place) bool { got = append(got, p); return true })
			assert.That(t, slices.Equal(got, rest), "seed %d behind %v: %v instead of %v", seed, place, got, rest)
		}
		assert.Equal(t, numbers.Len(), len(want))
		for i := range 7 {
			of := fmt.Sprint("w", i)
			for _, behind := range []string{"", "d3", "d33"} {
				var rest, got []string
				for dir, list := range wordsOf {
					if slices.Contains(list, of) && dir > behind {
						rest = append(rest, dir)
					}
				}
				slices.Sort(rest)
				words.Behind(of, behind, func(dir string) bool { got = append(got, dir); return true })
				assert.That(t, slices.Equal(got, rest), "seed %d, %s behind %q: %v instead of %v", seed, of, behind, got, rest)
			}
		}
	}
}
