package zk

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// SystemClock reads the time since boot and the wall clock, almost always without a system call. doc.go says why its readings
// can be trusted.
type SystemClock struct{}

// Now implements Clock.
func (SystemClock) Now() Instant { return system.now() }

// system is one for the process: its state is what the process knows about the kernel's clocks.
var system = newBootClock(kernelClocks{origin: time.Now()})

const (
	// bootCheckEvery is for how long, by the monotonic clock, the boot clock is derived without being read.
	bootCheckEvery = time.Millisecond
	// mostDrift is by how much the wall clock and the monotonic one may disagree before the boot clock is read.
	mostDrift = time.Millisecond
	// mostSpread is how long a check may take to be kept: its outcome is as exact as that.
	mostSpread = 100 * time.Microsecond
)

// kernel is what a bootClock reads.
type kernel interface {
	// cheap is the monotonic clock, which stands still while the machine sleeps, and the wall clock. It is no system call.
	cheap() (mono, wall time.Duration)
	// boot is the boot clock. It is a system call.
	boot() time.Duration
}

// bootClock derives the boot clock from the monotonic one. It is safe for concurrent use.
type bootClock struct {
	kernel kernel
	last   atomic.Pointer[bootCheck]
}

// bootCheck is what was found when the boot clock was read.
type bootCheck struct {
	mono time.Duration // when
	real time.Duration // the wall clock less the monotonic one
	lead time.Duration // the boot clock less the monotonic one
}

func newBootClock(k kernel) *bootClock { return &bootClock{kernel: k} }

func (c *bootClock) now() Instant {
	mono, wall := c.kernel.cheap()
	last := c.last.Load()
	if last != nil {
		age, drift := mono-last.mono, wall-mono-last.real
		if 0 <= age && age < bootCheckEvery && -mostDrift < drift && drift < mostDrift {
			return Instant{boot: mono + last.lead, wall: wall}
		}
	}
	return c.check(last, mono, wall)
}

// check reads the boot clock, between two readings of the monotonic one. The lead moves only when the machine has slept:
// readings of one lead differ by exactly what the monotonic clock says.
func (c *bootClock) check(last *bootCheck, mono, wall time.Duration) Instant {
	boot := c.kernel.boot()
	after, _ := c.kernel.cheap()
	least, most := boot-after, boot-mono
	if most-least > mostSpread || most < least {
		return Instant{boot: boot, wall: wall} // something came between: the next reading checks again
	}
	lead := most
	if last != nil && least <= last.lead && last.lead <= most+mostSpread {
		lead = last.lead
	}
	// The wall clock was read before the boot clock: if the machine has slept between, the next reading drifts.
	c.last.CompareAndSwap(last, &bootCheck{mono: mono, real: wall - mono, lead: lead})
	return Instant{boot: mono + lead, wall: wall}
}

// kernelClocks are Linux' CLOCK_MONOTONIC, CLOCK_REALTIME and CLOCK_BOOTTIME, or macOS' clocks of the same meaning.
type kernelClocks struct{ origin time.Time }

func (k kernelClocks) cheap() (mono, wall time.Duration) {
	now := time.Now()
	return now.Sub(k.origin), time.Duration(now.UnixNano())
}

func (kernelClocks) boot() time.Duration {
	var boot unix.Timespec
	if err := unix.ClockGettime(countsSleep, &boot); err != nil {
		// Linux has had CLOCK_BOOTTIME since 2.6.39; a kernel that refuses
		// its clock cannot keep the trust window's promise, so this is no operating error.
		panic("reading the clock that counts sleep: " + err.Error())
	}
	return time.Duration(boot.Nano())
}
