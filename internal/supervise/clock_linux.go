package supervise

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since the machine started, by a clock that goes on while the machine sleeps.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("the clock cannot be read: " + err.Error())
	}
	return time.Duration(t.Nano())
}

func sharedMemory() (*os.File, error) {
	fd, err := unix.MemfdCreate("lockctl", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	return f, f.Truncate(8)
}
