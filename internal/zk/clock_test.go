package zk

import (
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

func TestTheSameInstantHasTheSameTimeOfDayAtEachReading(t *testing.T) {
	const wall = 1_800_000_000 * time.Second
	deadline := 90 * time.Minute // of the boot clock
	at := func(boot, jitter time.Duration) time.Time {
		now := At(boot, wall+boot+jitter)
		return now.Calendar().Add(deadline - boot)
	}
	want := time.Unix(0, int64(wall+deadline)).UTC()
	for _, jitter := range []time.Duration{0, time.Microsecond, -time.Millisecond, 40 * time.Millisecond} {
		got := at(time.Hour+3*jitter, jitter)
		assert.That(t, got.Equal(want), "%v apart: %v, want %v", jitter, got, want)
	}
	got := at(time.Hour, time.Hour)
	assert.That(t, got.Equal(want.Add(time.Hour)), "the wall clock was set, and the time is %v", got)
}
