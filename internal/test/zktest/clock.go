package zktest

import (
	"sync"
	"time"

	"lockkeeper/internal/zk"
)

// Clock is a gateway's clock in a bubble: both of its readings follow the bubble's time until a test changes them. It
// implements zk.Clock.
type Clock struct {
	mu     sync.Mutex
	origin time.Time
	boot   time.Duration // what was added to the boot clock
	wall   time.Duration // and to the wall clock
	moved  time.Duration // the sum of all moves, either way
	frozen *zk.Instant
}

// NewClock starts a clock that has run for an hour.
func NewClock() *Clock { return &Clock{origin: time.Now().Add(-time.Hour)} }

// Now implements zk.Clock.
func (c *Clock) Now() zk.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() zk.Instant {
	if c.frozen != nil {
		return *c.frozen
	}
	now := time.Now()
	return zk.At(now.Sub(c.origin)+c.boot, time.Duration(now.UnixNano())+c.wall)
}

// Step moves the wall clock, as an administrator or NTP does.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += d
	c.moved += d.Abs()
}

// Sleep moves both clocks at once, as they have moved when a suspended machine wakes up: its timers have not run meanwhile.
func (c *Clock) Sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boot += d
	c.wall += d
	c.moved += d.Abs()
}

// Moved is by how much the clock was moved in all, either way: no reading is further from the true time.
func (c *Clock) Moved() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.moved
}

// Freeze stops both readings, and Thaw lets them go on from the true time.
func (c *Clock) Freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.frozen = &now
}

// Thaw ends Freeze.
func (c *Clock) Thaw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = nil
}
