package supervise

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminal is the one that controls the session of this process. Its methods are harmless on nil.
type terminal struct{ fd int }

func openTerminal() (*terminal, error) {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/dev/tty", Err: err}
	}
	return &terminal{fd}, nil
}

func (t *terminal) close() {
	if t != nil {
		unix.Close(t.fd)
	}
}

// foreground is the process group that the terminal's keys go to, and 0 when there is none.
func (t *terminal) foreground() int {
	if t == nil {
		return 0
	}
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// give puts a process group into the foreground. The caller ignores SIGTTOU, else it would be stopped.
func (t *terminal) give(group int) {
	if t != nil {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
	}
}

// modes are how the terminal treats keys and lines: a command that is killed cannot put them back.
func (t *terminal) modes() *unix.Termios {
	if t == nil {
		return nil
	}
	modes, err := unix.IoctlGetTermios(t.fd, getModes)
	if err != nil {
		return nil
	}
	return modes
}

func (t *terminal) restore(modes *unix.Termios) {
	if t != nil && modes != nil {
		_ = unix.IoctlSetTermios(t.fd, setModes, modes)
	}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), getModes)
	return err == nil
}
