package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// console is a terminal with a person before it.
type console struct {
	t    *testing.T
	cmd  *exec.Cmd
	tty  *os.File
	done chan struct{} // closed when all that it shows has been read

	mu    sync.Mutex
	shown strings.Builder
	read  int // how much of it expect has gone past
}

// newConsole runs a command in a terminal of its own, beside a gateway.
func newConsole(t *testing.T, url string, argv ...string) *console {
	t.Helper()
	if argv[0] == "lockctl" {
		argv[0] = filepath.Join(programs, argv[0])
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+programs+string(filepath.ListSeparator)+os.Getenv("PATH"), "LOCKKEEPER_URL="+url,
		"PS1=prompt> ", "TERM=xterm", "HISTFILE=", "BASH_SILENCE_DEPRECATION_WARNING=1")
	cmd.Dir = t.TempDir()
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 100})
	assert.Must(t, err == nil, "a terminal: %v", err)
	c := &console{t: t, cmd: cmd, tty: tty, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		buffer := make([]byte, 4096)
		for {
			n, err := tty.Read(buffer)
			c.mu.Lock()
			c.shown.Write(buffer[:n])
			c.mu.Unlock()
			if err != nil { // EIO: the last process that had the terminal has ended
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		tty.Close()
	})
	return c
}

func (c *console) types(text string) {
	c.t.Helper()
	_, err := io.WriteString(c.tty, text)
	assert.Must(c.t, err == nil, "typing %q: %v", text, err)
}

// expect waits until the terminal shows what matches, after what was expected before.
func (c *console) expect(pattern string) {
	c.t.Helper()
	re := regexp.MustCompile(pattern)
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		c.mu.Lock()
		text := c.shown.String()
		at := re.FindStringIndex(text[c.read:])
		if at != nil {
			c.read += at[1]
		}
		c.mu.Unlock()
		if at != nil {
			return
		}
		assert.Must(c.t, time.Since(begun) < 20*time.Second, "the terminal does not show %q, but:\n%q", pattern, text)
	}
}

// exit waits for the end of the command, and gives its exit code: 128+n when the signal n ended it.
func (c *console) exit() int {
	c.t.Helper()
	ended := make(chan struct{})
	go func() {
		_ = c.cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		c.t.Fatalf("it does not end; the terminal shows:\n%q", c.text())
	}
	if status := c.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return c.cmd.ProcessState.ExitCode()
}

func (c *console) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shown.String()
}

// lockctl runs it without a terminal.
func lockctl(t *testing.T, url string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "lockctl"), args...)
	cmd.Env = append(os.Environ(), "LOCKKEEPER_URL="+url)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func isFree(t *testing.T, url, lock string) bool {
	t.Helper()
	_, err := lockctl(t, url, "run", "-n", lock, "--", "true")
	return err == nil
}

// holder runs a command under a lock until the test ends.
func holder(t *testing.T, url, lock string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "lockctl"), "run", "--owner", "holder", lock, "--", "sleep", "600")
	cmd.Env = append(os.Environ(), "LOCKKEEPER_URL="+url)
	assert.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	testkit.Eventually(t, 20*time.Second, func() bool { return !isFree(t, url, lock) }, "the lock is held")
}

// Everything that a person at a terminal may do with a run.
func TestRunOnATerminal(t *testing.T) {
	testkit.NotShort(t, "starts the gateway and lockctl")
	testkit.BuiltFrom(t, "lockkeeper/cmd/lockctl")
	testkit.BuiltFrom(t, "lockkeeper/cmd/gateway")
	url := gatewayForConsoles(t)

	t.Run("the command is in the foreground, and the terminal is given back", func(t *testing.T) {
		t.Parallel()
		// Fields 5 and 8 of stat: its process group, and the one in the terminal's foreground.
		c := newConsole(t, url, "bash", "--norc", "-c",
			`lockctl run a -- sh -c 'set -- $(cat /proc/$$/stat); echo "own $5 foreground $8"'; set -- $(cat /proc/$$/stat); echo "own $5 foreground $8"`)
		c.expect(`own (\d+) foreground (\d+)\r\n`)
		c.expect(`own (\d+) foreground (\d+)\r\n`)
		assert.Equal(t, c.exit(), 0)
		for _, m := range regexp.MustCompile(`own (\d+) foreground (\d+)`).FindAllStringSubmatch(c.text(), -1) {
			assert.Equal(t, m[1], m[2])
		}
	})

	t.Run("a key goes to the command, and Ctrl-C too", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, url, "lockctl", "run", "b", "--", "sh", "-c", `trap 'echo got INT; exit 9' INT; read x; echo read $x; sleep 600 & wait`)
		time.Sleep(50 * time.Millisecond)
		c.types("word\n")
		c.expect(`read word`)
		c.types("\x03")
		c.expect(`got INT`)
		assert.Equal(t, c.exit(), 9)
		assert.That(t, isFree(t, url, "b"), "the lock is not free")
	})

	t.Run("Ctrl-C ends the script that lockctl is a step of", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, url, "bash", "--norc", "-c", `lockctl run c -- sh -c 'echo begun; exec sleep 600'; echo next step`)
		c.expect(`begun`)
		c.types("\x03")
		assert.Equal(t, c.exit(), 128+int(syscall.SIGINT))
		<-c.done
		assert.That(t, !strings.Contains(c.text(), "next step"), "the script went on:\n%s", c.text())
	})

	t.Run("while it waits, one line is drawn again, and Ctrl-C leaves the queue", func(t *testing.T) {
		t.Parallel()
		holder(t, url, "d")
		c := newConsole(t, url, "lockctl", "run", "d", "--", "echo", "started")
		c.expect(`\r\x1b\[Kwaiting for d: 1st in the queue, held by holder for \d+s`)
		c.expect(`\r\x1b\[Kwaiting for d: 1st in the queue, held by holder for \d+s`)
		c.types("\x03")
		assert.Equal(t, c.exit(), 128+int(syscall.SIGINT))
		<-c.done
		text := c.text()
		assert.That(t, strings.HasSuffix(text, "\r\x1b[K"), "the line is still there: %q", text)
		assert.That(t, !strings.Contains(text, "started"), "the command was started:\n%s", text)
		out, err := lockctl(t, url, "ls", "d", "-o", "json")
		assert.That(t, err == nil && strings.Contains(out, `"queue_length": 0`) || strings.Contains(out, `"queue_length":0`), "the queue: %v\n%s", err, out)
	})

	t.Run("Ctrl-Z suspends the command and keeps the lock, and fg goes on", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, url, "bash", "--norc", "-i")
		c.expect(`prompt> `)
		c.types("lockctl run --ttl 3s e -- sh -c 'echo begun; read x; echo read $x; read y; echo read $y'\n")
		c.expect(`\rbegun\r\n`)
		c.types("\x1a")
		c.expect(`Stopped`)
		c.expect(`prompt> `)
		time.Sleep(3500 * time.Millisecond) // longer than the TTL
		assert.That(t, !isFree(t, url, "e"), "the lock is free while the command is suspended")
		c.types("fg\n")
		c.expect(`lockctl run`)
		c.types("one\n")
		c.expect(`read one`)
		c.types("\x1a")
		c.expect(`Stopped`)
		c.types("set -b; bg\n")
		c.expect(`Stopped`) // it reads from the terminal, and is in the background
		c.types("fg\n")
		c.types("two\n")
		c.expect(`read two`)
		c.expect(`prompt> `)
		assert.That(t, isFree(t, url, "e"), "the lock is not free")
		c.types("exit\n")
		assert.Equal(t, c.exit(), 0)
	})

	t.Run("a lease that is broken before a suspended run goes on starts no command", func(t *testing.T) {
		t.Parallel()
		held := newConsole(t, url, "lockctl", "run", "i", "--", "sh", "-c", "echo begun; read x")
		held.expect(`begun`)
		c := newConsole(t, url, "bash", "--norc", "-i")
		c.expect(`prompt> `)
		c.types("lockctl run --owner suspended i -- echo start''ed\n")
		c.expect(`1st in the queue`)
		c.types("\x1a")
		c.expect(`Stopped`)
		held.types("\n")
		assert.Equal(t, held.exit(), 0)
		testkit.Eventually(t, 20*time.Second, func() bool {
			out, _ := lockctl(t, url, "break", "i", "--owner", "suspended", "--yes")
			return strings.Contains(out, "suspended")
		}, "the lease is broken")
		testkit.Eventually(t, 20*time.Second, func() bool { return isFree(t, url, "i") }, "the lock is free")
		c.types("fg; echo code $?; exit\n")
		c.expect(`\ncode 76`)
		c.exit()
		assert.That(t, !strings.Contains(c.text(), "started"), "the command was started: %q", c.text())
	})

	t.Run("in the background it leaves the terminal alone", func(t *testing.T) {
		t.Parallel()
		holder(t, url, "f")
		c := newConsole(t, url, "bash", "--norc", "-i")
		c.expect(`prompt> `)
		c.types("lockctl run f -- true & sleep 1.5; echo slept\n")
		c.expect(`\nlockctl: waiting for f: 1st in the queue, held by holder since `)
		c.expect(`\nslept`)
		assert.That(t, !strings.Contains(c.text(), "\x1b[Kwaiting"), "a line was drawn: %q", c.text())
		c.types("kill %1; wait %1; echo code $?; exit\n")
		c.expect(`\ncode 143`)
		c.exit()
	})

	t.Run("a member of a pipeline gets the terminal when it reads from it", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, url, "bash", "--norc", "-i")
		c.expect(`prompt> `)
		c.types("lockctl run g -- sh -c 'read x </dev/tty; echo read $x' | cat\n")
		time.Sleep(200 * time.Millisecond)
		c.types("word\n")
		c.expect(`\nread word`)
		c.expect(`prompt> `)
		c.types("exit\n")
		assert.Equal(t, c.exit(), 0)
	})

	t.Run("a command that is killed leaves a terminal that can be used", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, url, "bash", "--norc", "-c", `lockctl run h -- sh -c 'stty -echo raw; kill -9 $$'; stty -a`)
		c.expect(`icanon`)
		assert.Equal(t, c.exit(), 0)
		<-c.done
		assert.That(t, regexp.MustCompile(`[^-]icanon`).MatchString(c.text()) && regexp.MustCompile(`\secho\s`).MatchString(c.text()), "the terminal is left as:\n%s", c.text())
	})
}

// gatewayForConsoles starts a gateway for as long as the test runs.
func gatewayForConsoles(t *testing.T) string {
	t.Helper()
	listen := testkit.FreeAddr(t)
	cmd := exec.Command(filepath.Join(programs, "gateway"), "--data-dir="+t.TempDir(), "--log-level=warn", "--listen="+listen)
	assert.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	testkit.Eventually(t, 20*time.Second, func() bool {
		answer, err := http.Get("http://" + listen + "/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}, "the gateway is ready")
	return "http://" + listen
}
