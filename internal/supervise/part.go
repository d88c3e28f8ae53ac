package supervise

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// envPart says which part a process has that this package started; without it, it is a program that a user started.
const envPart = "LOCKCTL_PART"

const (
	partKeeper = "keeper"
	partStart  = "start" // becomes the command
)

// The file descriptors that this process was given, as the part in its environment says: keeper,3,4. They are not at fixed numbers,
// because the user's own descriptors (a job server of make, a socket of systemd) are the command's.
var fdLink, fdMemory int

// part is that of this process. Main has removed it from the environment, so that no other process inherits it.
var part string

// Main must be called first in main, before anything that starts a goroutine or handles a signal. In the process that is to
// become the command it does not return.
func Main() {
	given := strings.Split(os.Getenv(envPart), ",")
	if part = given[0]; part == "" {
		return
	}
	os.Unsetenv(envPart)
	for i, fd := range []*int{&fdLink, &fdMemory} {
		if i+1 < len(given) {
			*fd, _ = strconv.Atoi(given[i+1])
			syscall.CloseOnExec(*fd)
		}
	}
	switch part {
	case partKeeper:
		// A terminal that stops processes in the background would stop the keeper when it writes a line (stty tostop).
		ignore(stopsOfTerminals)
	case partStart:
		becomeCommand()
	}
}

// IsKeeper says whether this process was started by Watch.
func IsKeeper() bool { return part == partKeeper }

// stopsOfTerminals stop a process that uses a terminal in whose background it is.
var stopsOfTerminals = []syscall.Signal{syscall.SIGTTOU, syscall.SIGTTIN}

// ignoredHere are signals that this process ignores, and that it did not ignore from the start.
var ignoredHere []syscall.Signal

func ignore(signals []syscall.Signal) {
	for _, s := range signals {
		if !wasIgnored(s) {
			ignoredHere = append(ignoredHere, s)
			signal.Ignore(s)
		}
	}
}

// again starts this program with another part. It has the standard descriptors of this process, those that the user has given it,
// and ours at numbers that are free beside them.
func again(part string, env []string, arguments []string, attr *syscall.SysProcAttr, ours ...*os.File) (pid int, err error) {
	program, err := self()
	if err != nil {
		return 0, err
	}
	files := []uintptr{0, 1, 2}
	var at []int // of ours
	for fd := len(files); len(at) < len(ours); fd++ {
		if inherited(fd) {
			files = append(files, uintptr(fd))
			continue
		}
		files = append(files, ^uintptr(0))
		at = append(at, fd)
	}
	for i, f := range ours {
		// Above all the numbers, so that none is overwritten before it has been passed on.
		above, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, len(files))
		if err != nil {
			return 0, os.NewSyscallError("fcntl", err)
		}
		defer syscall.Close(above)
		files[at[i]] = uintptr(above)
		part += "," + strconv.Itoa(at[i])
	}
	pid, _, err = syscall.StartProcess(program, arguments, &syscall.ProcAttr{
		Env: append(env[:len(env):len(env)], envPart+"="+part), Files: files, Sys: attr,
	})
	if err != nil {
		return 0, fmt.Errorf("starting this program again: %w", err)
	}
	return pid, nil
}

// inherited says whether a descriptor is one that the command inherits: those that this program opens are closed by exec.
func inherited(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}
