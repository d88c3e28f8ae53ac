package supervise

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// stopHere stops this process and its process group, as Ctrl-Z would, and returns when it goes on. It returns at once where no
// shell could continue it: the kernel discards the signal then. It is sent to this thread, and so has taken effect on return.
func stopHere() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Kill(0, syscall.SIGTSTP)
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), syscall.SIGTSTP)
}
