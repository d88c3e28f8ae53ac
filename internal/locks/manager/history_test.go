package manager

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"lockkeeper/internal/locks/recipe"
)

func TestHistoryForgetsTheOldestAtItsBoundAndTheOldInTime(t *testing.T) {
	var h history
	id := func(i int) recipe.LeaseID { return recipe.LeaseID(fmt.Sprint(i)) }
	for i := range maxHistory + 10 {
		h.add(id(i), past{at: time.Duration(i), held: 1, lock: fmt.Sprint(i % 3)})
	}
	if h.has(id(9)) || !h.has(id(10)) || len(h.byID) != maxHistory {
		t.Errorf("the bound: %d entries", len(h.byID))
	}
	h.drop(id(20))
	h.sweep(30)
	if h.has(id(29)) || !h.has(id(30)) || len(h.byID) != maxHistory-20 {
		t.Errorf("the sweep: %d entries", len(h.byID))
	}
	h.sweep(time.Duration(maxHistory + 10))
	if len(h.byID) != 0 || len(h.order)-h.head != 0 {
		t.Errorf("%d entries, %d in order", len(h.byID), len(h.order)-h.head)
	}
	if len(h.heirless) != 0 {
		t.Errorf("%d locks wait for the next holder after leases that are forgotten", len(h.heirless))
	}
}

// Else each of them is an allocation, and 65,536 objects more for the garbage collector to look at.
func TestAMapKeepsEndsInPlace(t *testing.T) {
	if size := unsafe.Sizeof(past{}); size > 128 {
		t.Errorf("%d bytes", size)
	}
}
