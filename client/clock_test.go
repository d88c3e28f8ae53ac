package client

import (
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// A lease of 30 s is over after 30 s, whatever is done to the time of day, and also while the machine sleeps.
func TestTheClockGoesAsFarAsTheClockThatWentFurthest(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		monotonic, wall time.Duration // how far each went
		want            time.Duration
	}{
		"the machine is awake":              {30 * s, 30 * s, 30 * s},
		"the machine slept":                 {2 * s, 30 * s, 30 * s},
		"the time of day was set back":      {30 * s, -3600 * s, 30 * s},
		"the time of day was set a bit":     {30 * s, 29 * s, 30 * s},
		"the time of day was set forward":   {2 * s, 3600 * s, 3600 * s},
		"slept, and the time was set back":  {0, -5 * s, 0},
		"slept, and the time of day stands": {0, 0, 0},
	} {
		monotonic, wall := 5*s, 1000*s
		clock := newProgress(func() (time.Duration, time.Duration) { return monotonic, wall })
		began := clock.now()
		monotonic, wall = monotonic+test.monotonic, wall+test.wall
		assert.Equal(t, clock.now()-began, test.want, name)
		// What happened before takes nothing from what comes then.
		monotonic, wall = monotonic+10*s, wall+10*s
		assert.Equal(t, clock.now()-began, test.want+10*s, name)
		assert.Equal(t, clock.now()-began, test.want+10*s, name)
	}
}

func TestTheClockOfThisPlatformGoesOn(t *testing.T) {
	for _, clock := range []func() time.Duration{bootClock, withoutBootClock.now} {
		began, real := clock(), time.Now()
		for time.Since(real) < 5*time.Millisecond {
			assert.That(t, clock() >= began, "the clock went back")
		}
		went := clock() - began
		assert.That(t, went >= 5*time.Millisecond && went < 10*time.Second, "the clock went %v in %v", went, time.Since(real))
	}
}
