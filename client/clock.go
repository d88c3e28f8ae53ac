package client

import (
	"sync"
	"time"
)

// progress is a clock for platforms that do not tell for how long the machine slept. Go's monotonic clock stands still in that
// time. The time of day goes on, and jumps when it is set. From one look to the next the progress is that of the clock that
// went further: so a lease ends too early when the time of day is set forward, and never too late when it is set back.
type progress struct {
	read func() (monotonic, wall time.Duration)

	mu              sync.Mutex
	sum             time.Duration
	monotonic, wall time.Duration // at the last look
}

func newProgress(read func() (monotonic, wall time.Duration)) *progress {
	p := &progress{read: read}
	p.monotonic, p.wall = read()
	return p
}

func (p *progress) now() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	monotonic, wall := p.read()
	p.sum += max(monotonic-p.monotonic, wall-p.wall)
	p.monotonic, p.wall = monotonic, wall
	return p.sum
}

var started = time.Now()

// bothClocks is Go's monotonic clock, and the time of day.
func bothClocks() (monotonic, wall time.Duration) {
	now := time.Now()
	return now.Sub(started), time.Duration(now.UnixNano())
}

var withoutBootClock = newProgress(bothClocks)
