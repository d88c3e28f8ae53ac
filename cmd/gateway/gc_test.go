package main

import (
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestTheHeapsHeadroomIsAPartOfItOrAFixedSize(t *testing.T) {
	for live, want := range map[uint64]int{0: 100, 1 << 20: 100, 32 << 20: 100, 64 << 20: 50, 120 << 20: 26, 128 << 20: 25, 4 << 30: 25} {
		got := gcPercent(live)
		assert.That(t, got == want, "with %d MiB alive it may grow by %d %%, want %d", live>>20, got, want)
	}
}
