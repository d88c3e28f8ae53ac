package supervise

import (
	"encoding/binary"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const sigIgn = 1

// stopHere stops this process and its process group, as Ctrl-Z would, and returns when it goes on. It returns at once where no
// shell could continue it: the kernel discards SIGTSTP for an orphaned process group. That is why it is no SIGSTOP.
//
// Go's runtime keeps its handler for a signal that a program does not want any more, so the default is put in place beside it.
// The signal is sent to this thread, and so has taken effect on return.
func stopHere() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var byDefault, ignored, before [64]byte // struct sigaction: the handler is first, and the rest does not matter
	binary.NativeEndian.PutUint64(ignored[:], sigIgn)
	if sigaction(syscall.SIGTSTP, &ignored, &before) != 0 {
		return
	}
	// The others of the group first: this process would else be stopped by one signal, and again by the other when it goes on.
	_ = unix.Kill(0, syscall.SIGTSTP)
	sigaction(syscall.SIGTSTP, &byDefault, nil)
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), syscall.SIGTSTP)
	sigaction(syscall.SIGTSTP, &before, nil)
}

// wasIgnored says whether a signal that this process has not asked for yet is ignored: Go knows it of some signals only.
func wasIgnored(s syscall.Signal) bool {
	var now [64]byte
	return sigaction(s, nil, &now) == 0 && binary.NativeEndian.Uint64(now[:]) == sigIgn
}

func sigaction(s syscall.Signal, action, before *[64]byte) syscall.Errno {
	const sizeOfMask = 8
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(action)), uintptr(unsafe.Pointer(before)), sizeOfMask, 0, 0)
	return errno
}
