package client

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock is the time since the machine started. It goes on while the machine sleeps; Go's own clock does not.
func bootClock() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil { // since Linux 2.6.39: an error is for good
		return withoutBootClock.now()
	}
	return time.Duration(t.Nano())
}
