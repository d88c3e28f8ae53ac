package childproc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

const patience = 20 * time.Second

func TestMain(m *testing.M) {
	switch {
	case os.Getenv("CHILDPROC_PARENT") != "":
		startAndHang()
	case os.Getenv("CHILDPROC_BUSY") != "":
		spin()
	}
	os.Exit(m.Run())
}

// startAndHang is this binary as a parent that is about to be killed.
func startAndHang() {
	p, err := Start(exec.Command("sleep", "600"))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	select {}
}

// spin is this binary as a child with more threads to run than there are processors.
func spin() {
	const threads = 16
	runtime.GOMAXPROCS(threads)
	var running sync.WaitGroup
	running.Add(threads)
	for range threads {
		go func() {
			runtime.LockOSThread()
			running.Done()
			//lint:ignore SA5002 it is what this child is for
			for {
			}
		}()
	}
	running.Wait()
	fmt.Println("ready")
	select {}
}

// shell starts a script and returns once it has printed its first line.
func shell(t *testing.T, script string) *Process {
	t.Helper()
	return ready(t, exec.Command("sh", "-c", script))
}

// ready starts a command and returns once it has printed its first line.
func ready(t *testing.T, cmd *exec.Cmd) *Process {
	t.Helper()
	r, w, err := os.Pipe()
	assert.NoError(t, err)
	defer r.Close()
	cmd.Stdout = w
	p, err := Start(cmd)
	w.Close()
	assert.NoError(t, err)
	t.Cleanup(p.Kill)
	assert.Value(bufio.NewReader(r).ReadString('\n'))(t, "%s", cmd)
	return p
}

func TestAChildDiesWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "CHILDPROC_PARENT=1")
	out := assert.Value(parent.StdoutPipe())(t)
	assert.NoError(t, parent.Start())
	line := assert.Value(bufio.NewReader(out).ReadString('\n'))(t)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	assert.Must(t, err == nil, "the parent said %q", line)
	assert.Must(t, alive(pid), "the child does not run")
	assert.NoError(t, parent.Process.Kill())
	_, _ = io.Copy(io.Discard, out)
	_ = parent.Wait() // reports the kill
	defer func() {    // the child is not ours to wait for, but must not stay when the test fails
		if alive(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}()
	testkit.Eventually(t, patience, func() bool { return !alive(pid) }, "child %d is gone", pid)
}

// alive is false for a process that has ended, also while it waits for its parent to notice.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

func TestStopAsksFirst(t *testing.T) {
	testkit.NoLeaks(t)
	p := shell(t, `trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done`)
	assert.That(t, !p.Stop(patience), "killed")
	var exit *exec.ExitError
	err := p.Wait()
	assert.That(t, errors.As(err, &exit) && exit.ExitCode() == 7, "ended with %v, want exit code 7", err)
	p.Signal(syscall.SIGTERM) // nothing there any more: nothing happens
}

func TestStopReachesAProcessThatIsFrozen(t *testing.T) {
	// One that handles SIGTERM, as a JVM does; without a handler the kernel does not wait for SIGCONT.
	p := shell(t, `trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	p.Freeze()
	assert.That(t, !p.Stop(patience), "killed")
}

func TestAFrozenChildStandsStillInAllItsThreads(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CHILDPROC_BUSY=1")
	p := ready(t, cmd)
	for range 5 {
		p.Freeze()
		states, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
		assert.Must(t, err == nil && len(states) >= 16, "%d threads, %v", len(states), err)
		for _, path := range states {
			stat, err := os.ReadFile(path)
			_, after, _ := strings.Cut(string(stat), ") ")
			assert.That(t, err == nil && strings.HasPrefix(after, "T"), "%s: %q, %v", path, stat, err)
		}
		p.Thaw()
	}
	p.Kill()
	p.Freeze() // nothing there any more: it returns
}

func TestStopKillsWhatDoesNotListen(t *testing.T) {
	p := shell(t, `trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	assert.That(t, p.Stop(50*time.Millisecond), "ended by itself")
	assert.That(t, p.Ended() && !alive(p.PID()), "still there")
}

func TestStartReportsWhatCannotBeStarted(t *testing.T) {
	testkit.NoLeaks(t)
	_, err := Start(exec.Command("/does/not/exist"))
	assert.That(t, errors.Is(err, os.ErrNotExist), "got %v", err)
}
