package supervise

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command is what to run. It has this process's standard input, output and error, and its working directory.
type Command struct {
	Path  string   // of the program; no shell and no search
	Args  []string // with the name of the program first
	Env   []string
	Until time.Duration // by Now: it must not begin later
}

// Status is how a command has ended.
type Status struct {
	Code   int            // its exit code, when it ended by itself
	Signal syscall.Signal // what killed it, else 0
}

// ExitCode is the status as shells give it: 128+n for a signal.
func (s Status) ExitCode() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Code
}

func (s Status) String() string {
	if s.Signal != 0 {
		return "was ended by " + unix.SignalName(s.Signal)
	}
	return fmt.Sprintf("ended with code %d", s.Code)
}

// Process is a command that was started, with its descendants. Its methods may be called from any goroutine, at any time.
type Process struct {
	keeper *Keeper
	pid    int // and its process group
	tree   *tree
	cgroup *cgroup // nil when there is none
	ended  chan struct{}
	gone   chan struct{}
	ending atomic.Bool // it is being stopped: it does not suspend the program any more

	// Of the goroutine in run until ended is closed.
	status   Status
	terminal bool          // it has been in the terminal's foreground
	modes    *unix.Termios // of the terminal when the command began
	dieOf    syscall.Signal
}

// Start starts the command in a process group of its own. A command that begins in the terminal gets it: when standard input and
// output are the terminal, and this program is in its foreground.
//
// The error is ErrLate, or a *os.PathError of exec.
func (k *Keeper) Start(c Command) (*Process, error) {
	p := &Process{keeper: k, tree: k.tree, ended: make(chan struct{}), gone: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(c, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Ended is closed when the command itself has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Gone is closed when the command and all its descendants have ended.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Status is how the command has ended. It waits until it has.
func (p *Process) Status() Status {
	<-p.ended
	return p.status
}

// Signal sends it to the command's process group, as a terminal would.
func (p *Process) Signal(sig syscall.Signal) {
	if !isClosed(p.gone) { // while there are descendants in it, no other group can have its number
		_ = syscall.Kill(-p.pid, sig)
	}
}

// Terminate asks the command and all its descendants to end. One that is stopped goes on, because it would sit on its SIGTERM.
func (p *Process) Terminate() {
	p.ending.Store(true)
	p.tree.each(syscall.SIGTERM, syscall.SIGCONT)
}

// killWithin bounds how long Kill tries.
const killWithin = 5 * time.Second

// Kill ends the command and all its descendants, and returns when none is left. The error names those that could not be killed.
func (p *Process) Kill() error {
	p.ending.Store(true)
	for begun := time.Now(); ; {
		p.cgroup.kill()
		failed := p.tree.kill()
		select {
		case <-p.gone:
			return nil
		case <-time.After(5 * time.Millisecond):
		}
		if time.Since(begun) > killWithin {
			return survivors(p.tree.descendants(), failed)
		}
	}
}

// survivors says which descendants are left, and why if that is known.
func survivors(left []int, failed map[int]error) error {
	var names []string
	for _, pid := range left {
		name := fmt.Sprintf("%d (%s)", pid, nameOf(pid))
		if err := failed[pid]; err != nil {
			name += ": " + err.Error()
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil
	}
	return errors.New("could not be killed: " + strings.Join(names, ", "))
}

// run starts the command and reaps until no descendant is left. The kernel kills the command when this thread ends, so the
// goroutine stays on it, and ends with the descendants.
func (p *Process) run(c Command, started chan<- error) {
	runtime.LockOSThread()
	k := p.keeper
	p.terminal = k.terminal.foreground() == k.watchers && isTerminal(os.Stdin) && isTerminal(os.Stdout)
	p.modes = k.terminal.modes()
	if err := p.begin(c); err != nil {
		p.takeTerminal()
		started <- err
		return
	}
	k.mu.Lock()
	k.process = p
	k.mu.Unlock()
	k.link.send(message{Group: p.pid})
	started <- nil
	p.reap()
	p.tree.awaitRest()
	p.cgroup.remove()
	close(p.gone)
}

func (p *Process) begin(c Command) error {
	ours, theirs, err := socketpair()
	if err != nil {
		return err
	}
	defer ours.Close()
	attr := &syscall.SysProcAttr{Setpgid: true}
	parentDeathSignal(attr)
	p.cgroup = newCgroup()
	p.cgroup.use(attr)
	pid, err := again(partStart, c.Env, os.Args[:1], attr, theirs)
	if err != nil && p.cgroup != nil { // no rights, or a kernel without clone3
		p.cgroup.remove()
		p.cgroup = nil
		(*cgroup)(nil).use(attr)
		pid, err = again(partStart, c.Env, os.Args[:1], attr, theirs)
	}
	theirs.Close()
	if err != nil {
		return err
	}
	p.pid, p.tree.group = pid, pid
	err = awaitStart(ours, startOrder{
		Path: c.Path, Args: c.Args, Foreground: p.terminal, Restore: slices.Clone(ignoredHere), Until: c.Until,
	})
	if err != nil {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
		for _, e := syscall.Wait4(p.pid, nil, 0, nil); e == syscall.EINTR; _, e = syscall.Wait4(p.pid, nil, 0, nil) {
		}
		p.cgroup.remove()
	}
	return err
}

// reap waits for the command, and for every descendant that became this process's child, until there is no child.
func (p *Process) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // ECHILD
			return
		case pid == p.pid && status.Stopped():
			p.hasStopped(status.StopSignal())
		case pid == p.pid:
			p.hasEnded(status)
		}
	}
}

func (p *Process) hasEnded(status syscall.WaitStatus) {
	if status.Signaled() {
		p.status = Status{Signal: status.Signal()}
	} else {
		p.status = Status{Code: status.ExitStatus()}
	}
	if p.takeTerminal() && status.Signaled() {
		p.keeper.terminal.restore(p.modes)
		if status.Signal() == syscall.SIGINT && !p.ending.Load() {
			p.dieOf = syscall.SIGINT
		}
	}
	close(p.ended)
}

// takeTerminal gives the terminal back to the watcher's process group, if the command has it.
func (p *Process) takeTerminal() bool {
	t := p.keeper.terminal
	if !p.terminal || p.pid == 0 || t.foreground() != p.pid {
		return false
	}
	t.give(p.keeper.watchers)
	return true
}

// hasStopped follows the command when the terminal has stopped it.
func (p *Process) hasStopped(sig syscall.Signal) {
	t := p.keeper.terminal
	if p.ending.Load() || t == nil {
		return
	}
	if sig == syscall.SIGTTIN || sig == syscall.SIGTTOU {
		// It wants the terminal, and may have it when the user has given it to this program.
		if now := t.foreground(); now == p.keeper.watchers || now == p.pid {
			p.terminal = true
			t.give(p.pid)
			p.Signal(syscall.SIGCONT)
			return
		}
	}
	if sig == syscall.SIGSTOP && !p.terminal {
		return // another process has frozen it, and no shell waits for that
	}
	p.takeTerminal()
	p.keeper.suspend()
}

// goOn continues the command after the watcher was continued: in the foreground if the shell put the watcher there.
func (p *Process) goOn() {
	if t := p.keeper.terminal; p.terminal && t.foreground() == p.keeper.watchers {
		t.give(p.pid)
	}
	p.Signal(syscall.SIGCONT)
}
