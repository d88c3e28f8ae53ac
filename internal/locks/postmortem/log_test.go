package postmortem

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
)

func TestHistoryForgetsTheOldestAtItsBoundAndTheOldInTime(t *testing.T) {
	var h Log
	id := func(i int) recipe.LeaseID { return recipe.LeaseID(fmt.Sprint(i)) }
	for i := range MaxEnds + 10 {
		h.Add(id(i), End{At: time.Duration(i), Held: 1, Lock: fmt.Sprint(i % 3)})
	}
	assert.That(t, !h.Has(id(9)) && h.Has(id(10)) && len(h.byID) == MaxEnds, "the bound: %d entries", len(h.byID))
	h.Drop(id(20))
	h.Sweep(30)
	assert.That(t, !h.Has(id(29)) && h.Has(id(30)) && len(h.byID) == MaxEnds-20, "the sweep: %d entries", len(h.byID))
	h.Sweep(time.Duration(MaxEnds + 10))
	assert.That(t, len(h.byID) == 0 && len(h.order)-h.head == 0, "%d entries, %d in order", len(h.byID), len(h.order)-h.head)
	assert.That(t, len(h.awaitingNext) == 0, "%d locks wait for the next holder after leases that are forgotten", len(h.awaitingNext))
}

// Else each of them is an allocation, and 65,536 objects more for the garbage collector to look at.
func TestAMapKeepsEndsInPlace(t *testing.T) {
	size := unsafe.Sizeof(End{})
	assert.That(t, size <= 128, "%d bytes", size)
}
