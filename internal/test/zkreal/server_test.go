package zkreal

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv("ZKREAL_CHILD") != "" {
		serveUntilKilled()
	}
	Main(m)
}

// serveUntilKilled is this binary in the role of a test process that is about to be killed.
func serveUntilKilled() {
	s, err := Start(WithoutFsync(), WithDir(os.Getenv("ZKREAL_CHILD")))
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println("pid", s.PID())
	select {}
}

func TestAServerServesAndStops(t *testing.T) {
	testkit.NoLeaks(t)
	s := StartT(t)
	assert.MustEqual(t, s.Mode(), "standalone", "mode")
	answer, err := s.FourLetter("ruok")
	assert.That(t, err == nil && answer == "imok", "ruok: %q, %v", answer, err)
	assert.That(t, strings.Contains(s.Log(), "tickTime 500 ms"), "the log does not say what it runs with:\n%s", s.Log())
	dir := s.Dir()
	s.Close()
	assert.That(t, s.PID() == 0, "still running after Close")
	_, err = os.Stat(dir)
	assert.That(t, errors.Is(err, os.ErrNotExist), "the temporary directory is still there: %v", err)
}

func TestDataSurvivesStopKillAndRestart(t *testing.T) {
	s := StartT(t)
	addr := s.Addr()
	for i, end := range []func(){s.Stop, s.Kill, func() { s.Freeze(); s.Kill() }} {
		path := fmt.Sprintf("/before-%d", i)
		assert.NoError(t, Mkdir(addr, path))
		end()
		assert.Must(t, s.PID() == 0 && s.Mode() == "", "way %d to end: still there", i)
		s.RestartT(t)
		assert.Must(t, s.Addr() == addr, "moved from %s to %s", addr, s.Addr())
		if err := Mkdir(addr, path); err == nil || !strings.Contains(err.Error(), "-110") {
			t.Errorf("way %d to end: want error -110 (node exists) for a node made before, got %v", i, err)
		}
	}
}

func TestAFrozenServerAcceptsAndSaysNothingUntilThawed(t *testing.T) {
	s := StartT(t, WithoutFsync())
	s.Freeze()
	conn, err := net.Dial("tcp", s.Addr())
	assert.NoError(t, err, "a frozen server's port still accepts")
	defer conn.Close()
	assert.Value(conn.Write([]byte("ruok")))(t)
	assert.NoError(t, conn.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
	answer := make([]byte, 4)
	if n, err := conn.Read(answer); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a frozen server answered %q, %v", answer[:n], err)
	}
	s.Thaw()
	assert.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err = conn.Read(answer)
	assert.Must(t, err == nil && string(answer) == "imok", "after Thaw: %q, %v", answer, err)
}

func TestAServerDiesWithTheProcessThatStartedIt(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ZKREAL_CHILD="+t.TempDir())
	out := assert.Value(cmd.StdoutPipe())(t)
	assert.NoError(t, cmd.Start())
	line := make([]byte, 4096)
	n := assert.Value(out.Read(line))(t)
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(string(line[:n]), "pid")))
	if err != nil {
		t.Fatalf("the child said %q", line[:n])
	}
	assert.NoError(t, syscall.Kill(pid, 0), "the JVM is not running")
	assert.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // reports the kill
	testkit.Eventually(t, 20*time.Second, func() bool { return !alive(pid) }, "JVM %d is gone", pid)
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

func TestStartSaysWhyItDoesNotServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NoError(t, err)
	defer l.Close()
	_, err = Start(WithPort(l.Addr().(*net.TCPAddr).Port))
	assert.That(t, errors.Is(err, errPortTaken), "taken port: %v", err)
	_, err = Start(WithConfig("tickTime", "soon"))
	assert.That(t, err != nil && strings.Contains(err.Error(), "soon"), "bad configuration: want the log's words, got %v", err)
}

func TestSharedGivesEachTestAnEmptyChrootOfItsOwn(t *testing.T) {
	addr1, chroot1 := SharedT(t)
	addr2, chroot2 := SharedT(t)
	assert.That(t, addr1 == addr2 && chroot1 != chroot2, "got %s%s and %s%s", addr1, chroot1, addr2, chroot2)
	assert.Nil(t, Mkdir(addr1, chroot1+"/child"), "the chroot is not there")
}

func TestCLIRunsCommandsInOrderAndReportsRefusals(t *testing.T) {
	addr, chroot := SharedT(t)
	out, err := CLI(addr, "create "+chroot+"/a hello", "get "+chroot+"/a", "delete "+chroot+"/nope", "ls "+chroot)
	assert.NoError(t, err)
	want := "Created " + chroot + "/a\nhello\nNode does not exist: " + chroot + "/nope\n[a]\n"
	assert.That(t, out == want, "got  %q\nwant %q", out, want)
	_, err = CLI("127.0.0.1:not-a-port", "ls /")
	assert.That(t, err != nil, "no error without a server")
}
