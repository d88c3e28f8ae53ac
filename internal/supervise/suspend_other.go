//go:build !linux

package supervise

import (
	"os/signal"
	"syscall"
)

// stopHere stops this process, and returns when it goes on.
func stopHere() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) }

// wasIgnored says whether a signal that this process has not asked for yet is ignored.
func wasIgnored(s syscall.Signal) bool { return signal.Ignored(s) }
