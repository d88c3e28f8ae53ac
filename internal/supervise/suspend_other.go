//go:build !linux

package supervise

import (
	"syscall"
	"time"
)

// stopHere stops this process and its process group, as Ctrl-Z would, and returns when it goes on.
func stopHere() {
	_ = syscall.Kill(0, syscall.SIGTSTP)
	time.Sleep(50 * time.Millisecond) // another thread may take the signal
}
