package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"lockkeeper/internal/test/assert"
)

// relaxVariable makes the test's program a process that relaxes its timers and says so.
const relaxVariable = "LOCKKEEPER_TEST_RELAX"

func TestAllThreadsGetTheSlackAndTheProcessStaysTheSame(t *testing.T) {
	if os.Getenv(relaxVariable) != "" {
		fmt.Printf("begun, process %d\n", os.Getpid())
		relaxTimers()
		done := make(chan string)
		go func() { done <- fmt.Sprintln(unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)) }() // the threads are Go's to choose
		fmt.Print("slack ", <-done)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), relaxVariable+"=1")
	output, err := cmd.CombinedOutput()
	assert.NoError(t, err)
	begun := fmt.Sprintf("begun, process %d\n", cmd.Process.Pid)
	want := begun + begun + "slack 1000000 <nil>\n"
	assert.That(t, strings.HasPrefix(string(output), want), "the process says\n%swant\n%s", output, want)
}

func TestOnlyAGatewayOnAnEnsembleRelaxesItsTimers(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	assert.NoError(t, unix.Mkfifo(fifo, 0o600))
	go os.WriteFile(fifo, []byte("zk: 127.0.0.1:1\nroot: relative\n"), 0) // as bash does for <(...)
	for args, want := range map[string]bool{
		"--config " + fifo:                       false,
		"--zk 127.0.0.1:1 --root relative":       true,
		"serve --zk 127.0.0.1:1 --root relative": true,
		"--data-dir /dev/null/none":              false,
		"sweep --zk 127.0.0.1:1 --root relative": false,
		"--zk 127.0.0.1:1 --nonsense":            false,
	} {
		relaxed := false
		run(strings.Fields(args), new(strings.Builder), new(strings.Builder), func() { relaxed = true })
		assert.Equal(t, relaxed, want, "%s", args)
	}
}
