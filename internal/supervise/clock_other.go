//go:build !linux

package supervise

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Now is macOS's monotonic clock, which goes on while the machine sleeps.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("the clock cannot be read: " + err.Error())
	}
	return time.Duration(t.Nano())
}

func sharedMemory() (*os.File, error) {
	f, err := os.CreateTemp("", "lockctl-")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name())
	return f, f.Truncate(8)
}
