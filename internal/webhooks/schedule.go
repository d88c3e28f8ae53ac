package webhooks

import (
	"math/rand/v2"
	"time"
)

// schedule is when a message is tried again, counted from the try before: the one
// that Standard Webhooks recommends, three days in all.
var schedule = [...]time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour,
	14 * time.Hour, 20 * time.Hour, 24 * time.Hour}

// giveUpAfter is what the schedule takes at most when each try comes in time. When a receiver has accepted
// nothing for so long, what has waited for so long becomes dead letters.
var giveUpAfter = func() (all time.Duration) {
	for _, d := range schedule {
		all += d + d/5
	}
	return all.Round(time.Hour)
}()

// maxRetryAfter bounds what a receiver may ask for.
const maxRetryAfter = 24 * time.Hour

// bestEffortSchedule is that of a best-effort message, which waits in memory alone: four tries in some three minutes.
var bestEffortSchedule = [...]time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute}

// delay is how long to wait after so many tries; ok is false after the last one.
// A fifth at most is added at random, so that messages that failed together are not repeated together.
func delay(steps []time.Duration, tries int, random func(n int64) int64) (d time.Duration, ok bool) {
	if tries < 1 || tries > len(steps) {
		return 0, false
	}
	d = steps[tries-1]
	return d + time.Duration(random(int64(d/5))), true
}

// A receiver that has failed pauseAfter times in a row is paused, and then sent one message alone: the probe.
const (
	pauseAfter = 5
	firstPause = 5 * time.Second
	maxPause   = 5 * time.Minute
)

// pause is how long a receiver is paused after so many failures.
func pause(failures int, random func(n int64) int64) time.Duration {
	if failures < pauseAfter {
		return 0
	}
	d := maxPause
	if n := failures - pauseAfter; n < 6 {
		d = min(firstPause<<n, maxPause)
	}
	return d + time.Duration(random(int64(d/5)))
}

func randomBelow(n int64) int64 { return rand.Int64N(max(n, 1)) }
