package queues

import (
	"testing"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
)

// A program may have made up names with a lease's id: where the real one is is found anew when
// the one that is known goes.
func TestALeaseIsFoundAnewWhenOneOfItsNamesGoes(t *testing.T) {
	w := index{at: map[recipe.LeaseID]Location{}}
	q := &Queue{}
	contender := func(number int32) *recipe.Contender {
		return &recipe.Contender{LeaseID: "l", Ours: true, Number: number}
	}
	a, b, c := contender(1), contender(2), contender(3)
	for _, one := range []*recipe.Contender{a, b, c} {
		w.add(q, one)
	}
	w.remove(a)
	assert.That(t, w.at["l"].Contender == c && w.more["l"] == 1, "%+v", w)
	w.remove(c)
	assert.That(t, w.at == nil && w.more == nil, "%+v: it knows nothing of the second one", w)
	w.remove(b)
	w = index{at: map[recipe.LeaseID]Location{}}
	w.add(q, a)
	w.add(q, b)
	w.remove(a)
	w.remove(b)
	assert.That(t, len(w.at)+len(w.more) == 0 && w.at != nil, "%+v", w)
}
