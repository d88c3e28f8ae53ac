package supervise

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// envPart says which part a process has that this package started; without it, it is a program that a user started.
const envPart = "LOCKCTL_PART"

const (
	partKeeper = "keeper"
	partStart  = "start" // becomes the command
)

// The file descriptors that these processes are given.
const (
	fdLink   = 3
	fdMemory = 4 // of the keeper
)

// part is that of this process. Main has removed it from the environment, so that no other process inherits it.
var part string

// Main must be called first in main, before anything that starts a goroutine or handles a signal. In the process that is to
// become the command it does not return.
func Main() {
	part = os.Getenv(envPart)
	if part == "" {
		return
	}
	os.Unsetenv(envPart)
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

// again is this program, to be started with another part.
func again(part string, env []string, arguments []string, attr *os.ProcAttr) (*os.Process, error) {
	program, err := self()
	if err != nil {
		return nil, err
	}
	attr.Env = append(env[:len(env):len(env)], envPart+"="+part)
	p, err := os.StartProcess(program, arguments, attr)
	if err != nil {
		return nil, fmt.Errorf("starting this program again: %w", err)
	}
	return p, nil
}
