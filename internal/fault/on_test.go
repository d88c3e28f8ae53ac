//go:build faults

package fault

import (
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestNamesChoosePoints(t *testing.T) {
	chosen, err := choose("trust-window,freshness")
	assert.That(t, err == nil && len(chosen) == 2 && chosen["trust-window"] && chosen["freshness"], "chosen are %v, %v", chosen, err)
	if chosen, err := choose(""); err != nil || len(chosen) != 0 {
		t.Errorf("without names chosen are %v, %v", chosen, err)
	}
	for _, list := range []string{"trust-windows", "trust-window,", "trust-window, freshness"} {
		if chosen, err := choose(list); err == nil || !strings.Contains(err.Error(), "held-order") {
			t.Errorf("%q: chosen are %v, %v", list, chosen, err)
		}
	}
}
