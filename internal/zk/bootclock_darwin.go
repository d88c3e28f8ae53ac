package zk

import "golang.org/x/sys/unix"

// countsSleep is the clock that goes on while the machine sleeps: macOS' CLOCK_MONOTONIC does (clock_gettime(3)). Go's own
// monotonic readings do not: they are CLOCK_UPTIME_RAW there.
const countsSleep = unix.CLOCK_MONOTONIC
