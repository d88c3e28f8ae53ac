package main

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/childproc"
	"lockkeeper/internal/testkit"
	"lockkeeper/internal/zk/zkreal"
)

const patience = 60 * time.Second

// This test binary plays all three parts: under the name "gateway" a gateway, with DEVRUN set devrun, else the tests.
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == "gateway":
		playGateway()
	case os.Getenv("DEVRUN") != "":
		main()
	default:
		os.Exit(m.Run())
	}
}

// playGateway answers readyz and says what it was told; with --end it ends at once.
func playGateway() {
	fmt.Println("gateway", os.Getpid(), os.Args[1:])
	if slices.Contains(os.Args, "--end") {
		os.Exit(3)
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	go http.ListenAndServe(os.Args[slices.Index(os.Args, "--listen")+1], http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	<-told
	// ZooKeeper must still be there for what a gateway has to write when it leaves.
	_, err := zkreal.FourLetter(os.Args[slices.Index(os.Args, "--zk")+1], "ruok")
	fmt.Println("gateway told to stop, ZooKeeper error:", err)
}

// output collects what a process prints, for looking at it while it runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

type runner struct {
	*childproc.Process
	out    *output
	listen string
	zkPort string
}

// freePorts are two ports that were free a moment ago, below those that outgoing connections get.
func freePorts(t *testing.T) (a, b string) {
	t.Helper()
	var found []string
	for port := 12000 + rand.IntN(7000); len(found) < 2 && port < 20000; port++ {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			defer l.Close()
			found = append(found, strconv.Itoa(port))
		}
	}
	if len(found) < 2 {
		t.Fatal("no free ports")
	}
	return found[0], found[1]
}

func start(t *testing.T, dir string, env ...string) *runner {
	t.Helper()
	gatewayPort, zkPort := freePorts(t)
	r := &runner{out: &output{}, listen: "127.0.0.1:" + gatewayPort, zkPort: zkPort}
	cmd := exec.Command(os.Args[0])
	cmd.Dir = dir
	cmd.Env = slices.Concat(os.Environ(), []string{"DEVRUN=1", "GORACE=atexit_sleep_ms=10", "GATEWAY_FLAGS=", "LISTEN=" + r.listen, "ZK_PORT=" + r.zkPort}, env)
	cmd.Stdout, cmd.Stderr = r.out, r.out
	cmd.WaitDelay = patience
	p, err := childproc.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	r.Process = p
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("devrun printed:\n%s", r.out)
		}
	})
	return r
}

func top(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, gatewayBinary)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (r *runner) awaitPrinted(t *testing.T, text string) {
	t.Helper()
	testkit.Eventually(t, patience, func() bool { return strings.Contains(r.out.String(), text) || r.Ended() }, "devrun prints %q", text)
	if !strings.Contains(r.out.String(), text) {
		t.Fatalf("devrun ended without printing %q:\n%s", text, r.out)
	}
}

func (r *runner) awaitExit(t *testing.T, code int) {
	t.Helper()
	testkit.Closed(t, patience, r.Done(), "devrun ends")
	got := 0
	if err := r.Wait(); err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			t.Fatal(err)
		}
		got = exit.ExitCode()
	}
	if got != code {
		t.Fatalf("exit code %d, want %d; printed:\n%s", got, code, r.out)
	}
}

// expectNothingLeft checks that both ports are free again.
func (r *runner) expectNothingLeft(t *testing.T) {
	t.Helper()
	for _, addr := range []string{r.listen, "127.0.0.1:" + r.zkPort} {
		testkit.EventuallyNil(t, patience, func() error {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				return nil
			}
			conn.Close()
			return fmt.Errorf("%s still accepts connections", addr)
		}, "nothing is left running")
	}
}

func TestItStartsBothPrintsACurlLineAndStopsBothInOrder(t *testing.T) {
	dir := top(t)
	for round, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		r := start(t, dir, "GATEWAY_FLAGS=--log-level debug")
		r.awaitPrinted(t, "curl -sX POST 'http://"+r.listen+"/v1/locks/deploy/leases?ttl=30s&owner=me'")
		r.awaitPrinted(t, "[--zk 127.0.0.1:"+r.zkPort+" --listen "+r.listen+" --create-root --log-level debug]")
		err := zkreal.Mkdir("127.0.0.1:"+r.zkPort, "/made")
		if round == 0 && err != nil {
			t.Fatal(err)
		}
		if round == 1 && (err == nil || !strings.Contains(err.Error(), "-110")) {
			t.Errorf("the second run must find the first one's node (error -110), got %v", err)
		}
		r.Signal(sig)
		r.awaitExit(t, 0)
		r.awaitPrinted(t, "gateway told to stop, ZooKeeper error: <nil>")
		r.expectNothingLeft(t)
	}
}

func TestNothingIsLeftWhenItIsKilled(t *testing.T) {
	r := start(t, top(t))
	r.awaitPrinted(t, "curl")
	r.Signal(syscall.SIGKILL)
	r.expectNothingLeft(t)
}

func TestItEndsWithItsGateway(t *testing.T) {
	r := start(t, top(t), "GATEWAY_FLAGS=--end")
	r.awaitExit(t, 1)
	r.awaitPrinted(t, "the gateway ended: exit status 3")
	r.expectNothingLeft(t)
	if strings.Contains(r.out.String(), "curl") {
		t.Error("it printed a curl line that cannot work")
	}
}

func TestItEndsWhenZooKeeperDoes(t *testing.T) {
	r := start(t, top(t))
	r.awaitPrinted(t, "curl")
	pid := childJVM(t, r.PID())
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.awaitExit(t, 1)
	r.awaitPrinted(t, "ZooKeeper ended")
	r.expectNothingLeft(t)
}

// childJVM finds the java process whose parent is the given one.
func childJVM(t *testing.T, parent int) int {
	t.Helper()
	found := regexp.MustCompile(fmt.Sprintf(`^(\d+) \(java\) \S %d `, parent))
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range stats {
		f, err := os.Open(file)
		if err != nil {
			continue // it has ended
		}
		line, _ := bufio.NewReader(f).ReadString('\n')
		f.Close()
		if m := found.FindStringSubmatch(line); m != nil {
			pid, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("process %d has no JVM", parent)
	return 0
}

func TestAPortThatIsTakenIsNamedWithWhatChangesIt(t *testing.T) {
	dir := top(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for variable, value := range map[string]string{"LISTEN": "127.0.0.1:" + port, "ZK_PORT": port} {
		r := start(t, dir, variable+"="+value)
		r.awaitExit(t, 69)
		r.awaitPrinted(t, "hint: stop what listens there, or set "+variable+": make run "+variable+"=")
	}
}

func TestASecondOneOnTheSameDataIsRefused(t *testing.T) {
	dir := top(t)
	first := start(t, dir)
	first.awaitPrinted(t, "curl")
	second := start(t, dir)
	second.awaitExit(t, 69)
	second.awaitPrinted(t, ".run is in use by another make run")
}

func TestSettingsThatCannotBeMeantAreRefused(t *testing.T) {
	for _, env := range []map[string]string{
		{"LISTEN": "8080"}, {"LISTEN": "localhost:http"}, {"LISTEN": "localhost:0"}, {"ZK_PORT": "zero"}, {"ZK_PORT": "65536"},
	} {
		if _, err := settingsFrom(func(key string) string { return env[key] }); err == nil {
			t.Errorf("%v was accepted", env)
		}
	}
}

func TestTheURLIsOneThatAClientHereCanUse(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:8080": "http://127.0.0.1:8080",
		":8080":          "http://127.0.0.1:8080",
		"0.0.0.0:80":     "http://127.0.0.1:80",
		"[::]:80":        "http://127.0.0.1:80",
		"[::1]:80":       "http://[::1]:80",
		"localhost:8081": "http://localhost:8081",
	} {
		if got := (settings{listen: listen}).url(); got != want {
			t.Errorf("%s: got %s, want %s", listen, got, want)
		}
	}
}
