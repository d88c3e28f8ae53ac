package zk

import "time"

// Instant is one reading of two clocks: the time since boot, which goes on while the machine sleeps but is not
// corrected, and the wall clock, which an administrator or a hypervisor moves. Only differences of Instants mean
// anything. The zero Instant is "never": it lies before every reading.
type Instant struct {
	boot time.Duration // since an arbitrary origin, CLOCK_BOOTTIME
	wall time.Duration // since the Unix epoch, CLOCK_REALTIME
}

// At builds an Instant from its two readings; tests use it to make clocks that sleep, jump and run backwards.
func At(boot, wall time.Duration) Instant { return Instant{boot: boot, wall: wall} }

// Since tells how much time may have passed from u to t: the larger of the advances of the two clocks. A question
// whether a promise still holds must use it: a suspended machine's monotonic clock stands still, and a restored one's
// boot clock does too.
func (t Instant) Since(u Instant) time.Duration { return max(t.boot-u.boot, t.wall-u.wall) }

// Add moves both readings.
func (t Instant) Add(d time.Duration) Instant { return Instant{t.boot + d, t.wall + d} }

// IsZero reports whether t is "never".
func (t Instant) IsZero() bool { return t == Instant{} }

// Boot is the boot clock's reading: the clock of lease deadlines, where
// running late is safe and a stepped wall clock must not end anything.
func (t Instant) Boot() time.Duration { return t.boot }

// Wall is the wall clock's reading since the Unix epoch.
func (t Instant) Wall() time.Duration { return t.wall }

// Calendar is the instant as a time of day, within 50 ms. Readings differ by what their boot clocks differ by, unless the
// wall clock was set between: so a reading plus a span of the boot clock is the same time at each reading.
func (t Instant) Calendar() time.Time {
	return time.Unix(0, int64(t.boot+(t.wall-t.boot).Round(100*time.Millisecond))).UTC()
}

// Clock reads the time. Implementations must be safe for concurrent use.
type Clock interface {
	Now() Instant
}

// GoClock derives both readings from the time package. Under testing/synctest it runs on virtual time.
type GoClock struct{ origin time.Time }

// NewGoClock starts a GoClock.
func NewGoClock() GoClock { return GoClock{origin: time.Now().Add(-time.Hour)} }

// Now implements Clock.
func (c GoClock) Now() Instant {
	now := time.Now()
	return Instant{boot: now.Sub(c.origin), wall: time.Duration(now.UnixNano())}
}
