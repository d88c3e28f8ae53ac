package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// startOrder is what the process that becomes the command is told.
type startOrder struct {
	Path       string           `json:"path"`
	Args       []string         `json:"args"`
	Foreground bool             `json:"foreground"` // it shall have the terminal
	Restore    []syscall.Signal `json:"restore"`    // the keeper ignores them, and the command shall not
	Until      time.Duration    `json:"until"`      // by Now: it must not begin later
}

// notStarted says why a command did not begin.
type notStarted struct {
	Errno syscall.Errno `json:"errno,omitempty"`
	Late  bool          `json:"late,omitempty"`
}

// ErrLate says that the command was not started because the time until which it may run is over.
var ErrLate = errors.New("the command was not started: its time was over")

// becomeCommand reads what to become from fdLink. What it cannot do it writes there; when the command has begun, the descriptor
// is closed. A process of its own does this because a command must be in its terminal's foreground before its first step, and no
// process can be put there without ignoring a signal that the command must not ignore.
func becomeCommand() {
	runtime.LockOSThread()
	report := os.NewFile(uintptr(fdLink), "keeper")
	var s startOrder
	if err := json.NewDecoder(report).Decode(&s); err != nil {
		os.Exit(1) // the keeper is gone
	}
	if s.Foreground {
		if terminal, err := openTerminal(); err == nil {
			terminal.give(syscall.Getpgrp())
			terminal.close()
		}
	}
	// A signal that is handled is at its default after exec.
	for _, sig := range s.Restore {
		signal.Notify(make(chan os.Signal, 1), sig)
	}
	failed := notStarted{Late: Now() >= s.Until}
	if !failed.Late {
		err := syscall.Exec(s.Path, s.Args, os.Environ())
		if !errors.As(err, &failed.Errno) {
			failed.Errno = syscall.EINVAL
		}
	}
	_ = json.NewEncoder(report).Encode(failed)
	os.Exit(1)
}

// awaitStart tells the process what to become, and returns when it has.
func awaitStart(link *os.File, s startOrder) error {
	if err := json.NewEncoder(link).Encode(s); err != nil {
		return fmt.Errorf("starting %s: %w", s.Path, err)
	}
	var failed notStarted
	switch err := json.NewDecoder(link).Decode(&failed); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("starting %s: %w", s.Path, err)
	case failed.Late:
		return ErrLate
	}
	return &os.PathError{Op: "exec", Path: s.Path, Err: failed.Errno}
}
