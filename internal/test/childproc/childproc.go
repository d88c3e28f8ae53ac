// Package childproc runs child processes that cannot outlive the process that started them, however that ends: a panic,
// os.Exit, SIGKILL. Tests start real servers and gateways with it, and the development runner does; nothing else may
// import it.
//
// It rests on Linux's parent death signal: the kernel sends the child SIGKILL when the *thread* that forked it ends. A Go
// thread may end long before its process does, so each child has one goroutine that is locked to its thread, forks there
// and stays there, waiting, until the child has ended.
package childproc

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is one child that was started. Its methods may be called from any goroutine, at any time.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

// Start starts cmd, whose SysProcAttr it sets. The child gets a process group of its own: Ctrl-C in a terminal goes to the
// whole foreground group, and in which order things stop is for us to decide.
func Start(cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// PID is the child's process id, also after it has ended.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed once the child has ended and has been waited for.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended says whether Done is closed.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Wait blocks until the child has ended and says how: nil for exit code 0, else an *exec.ExitError.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends sig. A child that has ended already gets nothing, and that is no error: Done tells.
func (p *Process) Signal(sig syscall.Signal) {
	if !p.Ended() {
		_ = p.cmd.Process.Signal(sig)
	}
}

// Freeze stops the child (SIGSTOP) and returns when each of its threads stands still, or when it has ended: a thread runs on until
// it has been told, on a busy machine for long enough to answer a request. Thaw lets it go on.
func (p *Process) Freeze() {
	p.Signal(syscall.SIGSTOP)
	// WNOWAIT: the news stay where they are, for Wait above all.
	for !p.Ended() && unix.Waitid(unix.P_PID, p.PID(), nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// Thaw lets a child go on that is frozen (SIGCONT).
func (p *Process) Thaw() { p.Signal(syscall.SIGCONT) }

// Stop asks the child to end (SIGTERM, also one that is stopped), kills it when it has not within the given time, and
// returns once it is gone. It says whether the child had to be killed.
func (p *Process) Stop(within time.Duration) (killed bool) {
	p.Signal(syscall.SIGTERM)
	p.Thaw() // a stopped process would sit on its SIGTERM
	patience := time.NewTimer(within)
	defer patience.Stop()
	select {
	case <-p.done:
		return false
	case <-patience.C:
		p.Kill()
		return true
	}
}

// Kill ends the child with SIGKILL and returns once it is gone.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}
