package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is by how much the kernel may wake a thread of the gateway late, to save wakes; Linux has 50 µs. Go's monitor thread
// (sysmon) sleeps for 20 µs at a time while a program works, and took 15 % of the processor time of a cycle with 64 clients, a
// fifth with 16, and more than a quarter with one. Go's timers are late by up to a millisecond anyway: they wait in epoll.
const timerSlack = time.Millisecond

// relaxTimers gives all threads of the process timerSlack. A thread has the slack of the one that made it, and Go starts its monitor
// thread before any code of ours runs, so the program begins once more, in the same process. Call it before anything is opened,
// and before signals are caught. Where it cannot be done the gateway works as well and costs more, so an error changes nothing.
//
// It is not for a gateway with a store of its own: the monitor thread is what gives a processor to other goroutines while a
// sync of the journal keeps a thread, and that has to be at once.
func relaxTimers() {
	runtime.LockOSThread() // the slack is the thread's, and the program begins again on it
	defer runtime.UnlockOSThread()
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || slack >= int(timerSlack) {
		return // the second time, or the operator's choice
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0); err != nil {
		return
	}
	if is, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || is != int(timerSlack) {
		return // or it would begin again and again
	}
	self, err := os.Executable()
	if err != nil {
		return
	}
	_ = syscall.Exec(self, os.Args, os.Environ())
}
