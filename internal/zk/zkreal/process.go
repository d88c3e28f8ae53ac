package zkreal

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
)

// process is one child. done is closed once it has ended and has been waited for; err is set before that.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// startProcess starts cmd so that it cannot outlive us: the kernel sends it SIGKILL when the thread that forked it ends.
// A Go thread may end long before the process does, so the goroutine that forks keeps its thread until the child is
// gone. The child gets a process group of its own: Ctrl-C in a terminal goes to the foreground group, and the order in
// which things stop is ours to decide.
func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p := &process{cmd: cmd, done: make(chan struct{})}
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

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// signal sends sig; a child that has ended already is not an error, the caller finds that out by done.
func (p *process) signal(sig syscall.Signal) {
	if !p.ended() {
		_ = p.cmd.Process.Signal(sig)
	}
}
