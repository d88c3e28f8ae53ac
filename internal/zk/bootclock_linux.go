package zk

import "golang.org/x/sys/unix"

// countsSleep is the clock that goes on while the machine sleeps.
const countsSleep = unix.CLOCK_BOOTTIME
