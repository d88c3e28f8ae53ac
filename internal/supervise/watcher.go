package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// passed are the signals that the watcher passes on. One that it was started with as ignored (nohup) stays so for all.
var passed = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTSTP,
}

// ErrKeeperFailed says that the keeper ended without having done its work. All descendants are gone then.
var ErrKeeperFailed = errors.New("the process that keeps the lease was ended")

// ErrKeeperStood says that the keeper stood still until its time was over. All descendants are gone then.
var ErrKeeperStood = errors.New("the process that keeps the lease stood still until its time was over")

// watcher is the process that the user started.
type watcher struct {
	tree     *tree
	link     *link
	killBy   sharedTime
	signals  chan os.Signal
	messages chan message
	keeper   int
	ended    chan syscall.WaitStatus // of the keeper

	group int // of the command, once it has one
	done  *message
	stood bool
}

// Watch starts this program again, as the keeper, and returns when that has ended: with its exit code. Afterwards the process is
// of no more use: its signals are handled.
func Watch() (code int, err error) {
	w, err := newWatcher()
	if err != nil {
		return 0, err
	}
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case s := <-w.signals:
			w.link.send(message{Signal: s.(syscall.Signal)})
		case m, ok := <-w.messages:
			if !ok {
				w.messages = nil // the keeper is about to end
				continue
			}
			w.obey(m)
		case <-look.C:
			look.Reset(w.watch())
		case status := <-w.ended:
			return w.finish(status)
		}
	}
}

func newWatcher() (*watcher, error) {
	if err := canSeeDescendants(); err != nil {
		return nil, err
	}
	if err := becomeSubreaper(); err != nil {
		return nil, err
	}
	memory, err := sharedMemory()
	if err != nil {
		return nil, fmt.Errorf("memory for two processes: %w", err)
	}
	defer memory.Close()
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	w := &watcher{tree: newTree(), signals: make(chan os.Signal, 64), messages: make(chan message), ended: make(chan syscall.WaitStatus, 1)}
	if w.killBy, err = newSharedTime(memory); err != nil {
		return nil, err
	}
	w.killBy.set(never)
	if w.link, err = newLink(ours); err != nil {
		return nil, err
	}
	for _, s := range passed {
		if !wasIgnored(s) {
			signal.Notify(w.signals, s)
		}
	}
	// A process group of its own: what the terminal or the shell sends to the watcher's reaches the keeper in one way only.
	keeper, err := again(partKeeper, os.Environ(), os.Args, &syscall.SysProcAttr{Setpgid: true}, theirs, memory)
	if err != nil {
		return nil, err
	}
	w.keeper = keeper
	go reap(keeper, w.ended)
	go w.link.receive(w.messages)
	return w, nil
}

// reap waits for the keeper, and for what became this process's child, for as long as this process lives.
func reap(keeper int, ended chan<- syscall.WaitStatus) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // ECHILD
			return
		case pid == keeper:
			ended <- status
		}
	}
}

func (w *watcher) obey(m message) {
	switch {
	case m.Group != 0:
		w.group, w.tree.group = m.Group, m.Group
	case m.Done:
		w.done = &m
	case m.Suspend:
		begun := Now()
		stopHere()
		if Now()-begun > 20*time.Millisecond {
			w.link.send(message{Continue: true}) // the shell has continued it
			return
		}
		// It did not stop, because no shell is there that could continue it. A command that reads from a terminal in whose
		// background it is would be stopped again at once.
		time.AfterFunc(time.Second, func() { w.link.send(message{Continue: true}) })
	}
}

// watch kills everything when the time is over: the keeper should have. It says when to look again: at the time itself, because
// a look of every 100 ms would be later than a short lease's margin.
func (w *watcher) watch() (again time.Duration) {
	left := w.killBy.get() - Now()
	if left <= 0 {
		w.stood = true
		w.killAll()
		return looksAt
	}
	return min(left, looksAt)
}

// killAll ends all descendants.
func (w *watcher) killAll() error {
	for begun := time.Now(); len(w.tree.descendants()) > 0; time.Sleep(5 * time.Millisecond) {
		failed := w.tree.kill()
		if time.Since(begun) > killWithin {
			return survivors(w.tree.descendants(), failed)
		}
	}
	return nil
}

// finish makes the end of the keeper that of this process.
func (w *watcher) finish(status syscall.WaitStatus) (int, error) {
	for w.messages != nil && w.done == nil { // what it said last
		m, ok := <-w.messages
		if !ok {
			break
		}
		w.obey(m)
	}
	if w.done == nil || !status.Exited() {
		err := ErrKeeperFailed
		if w.stood {
			err = ErrKeeperStood
		}
		left := w.killAll()
		removeCgroupOf(w.keeper)
		w.takeTerminal()
		return 0, errors.Join(err, left)
	}
	if w.done.DieOf != 0 {
		// The terminal's Ctrl-C went to the command's process group alone. Without lockctl it would have gone to this one, in
		// which a script may wait for this process: it goes on after an exit code, and stops after a death by signal.
		signal.Reset(w.done.DieOf)
		_ = syscall.Kill(0, w.done.DieOf)
		time.Sleep(time.Second)
	}
	return status.ExitStatus(), nil
}

// takeTerminal takes the terminal from a command that is gone.
func (w *watcher) takeTerminal() {
	t, err := openTerminal()
	if err != nil || w.group == 0 || t.foreground() != w.group {
		return
	}
	signal.Ignore(syscall.SIGTTOU)
	t.give(syscall.Getpgrp())
}

// ignoreSignals makes the keeper deaf to signals that are sent to it: its watcher tells it. A handler and not SIG_IGN, which the
// command would inherit.
func ignoreSignals() {
	nowhere := make(chan os.Signal, 1)
	for _, s := range passed {
		if !wasIgnored(s) {
			signal.Notify(nowhere, s)
		}
	}
}
