package zk

import (
	"testing"
	"time"
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
		if got := at(time.Hour+3*jitter, jitter); !got.Equal(want) {
			t.Errorf("%v apart: %v, want %v", jitter, got, want)
		}
	}
	if got := at(time.Hour, time.Hour); !got.Equal(want.Add(time.Hour)) {
		t.Errorf("the wall clock was set, and the time is %v", got)
	}
}
