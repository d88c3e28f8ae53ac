package supervise

import (
	"encoding/binary"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stopHere stops this process and its process group, as Ctrl-Z would, and returns when it goes on. It returns at once where no
// shell could continue it: the kernel discards SIGTSTP for an orphaned process group. That is why it is no SIGSTOP.
//
// Go's runtime keeps its handler for a signal that a program does not want any more, so the default is put in place beside it.
// The signal is sent to this thread, and so has taken effect on return.
func stopHere() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var byDefault, before [64]byte // struct sigaction, of which nothing but its being zero matters
	if sigaction(syscall.SIGTSTP, &byDefault, &before) != 0 {
		return
	}
	_ = unix.Kill(0, syscall.SIGTSTP)
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), syscall.SIGTSTP)
	sigaction(syscall.SIGTSTP, &before, nil)
}

// wasIgnored says whether a signal that this process has not asked for yet is ignored: Go knows it of some signals only.
func wasIgnored(s syscall.Signal) bool {
	var now [64]byte
	return sigaction(s, nil, &now) == 0 && binary.NativeEndian.Uint64(now[:]) == 1 // SIG_IGN
}

func sigaction(s syscall.Signal, action, before *[64]byte) syscall.Errno {
	const sizeOfMask = 8
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(action)), uintptr(unsafe.Pointer(before)), sizeOfMask, 0, 0)
	return errno
}
