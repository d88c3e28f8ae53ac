package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/test/testkit"
)

// The times of the gateways here: short, so that outages longer than all of them fit into a test.
const (
	sessionTimeout = 4 * time.Second
	promiseWindow  = 3 * time.Second
)

// gateway is a gateway at one address. Its process may be stopped and started again; clients see the same address, as
// they do behind any supervisor.
type gateway struct {
	*apitest.Client
	t       testing.TB
	zk      string // what --zk gets
	dataDir string // without --zk
	flags   []string
	env     []string // besides the test's own
	program []string // what is run with the flags; the gateway unless set
	listen  string
	log     *journal
	proc    *childproc.Process
	done    bool // its end was asked for
}

// newGateway prepares a gateway and starts nothing. Later flags win over those that every gateway here has.
func newGateway(t testing.TB, zk string, flags ...string) *gateway {
	t.Helper()
	g := &gateway{t: t, zk: zk, listen: freeAddr(t), log: &journal{}}
	g.flags = append([]string{"--zk=" + zk, "--listen=" + g.listen, "--create-root",
		"--session-timeout=" + sessionTimeout.String(), "--promise-window=" + promiseWindow.String(),
		"--log-format=json", "--log-level=debug"}, flags...)
	g.Client = apitest.New(t, g.url())
	t.Cleanup(g.close)
	return g
}

// startGateway starts a gateway that serves, and stops it when the test ends.
func startGateway(t testing.TB, zk string, flags ...string) *gateway {
	t.Helper()
	g := newGateway(t, zk, flags...)
	g.start()
	g.awaitServing()
	return g
}

func (g *gateway) url() string { return "http://" + g.listen }

// freeAddr is an address for a gateway, which may go and come again.
func freeAddr(t testing.TB) string { return testkit.FreeAddr(t) }

func (g *gateway) command() *exec.Cmd {
	program := g.program
	if program == nil {
		program = []string{binary(g.t)}
	}
	cmd := exec.Command(program[0], append(slices.Clip(program[1:]), g.flags...)...)
	cmd.Env = append(append(os.Environ(), "GORACE=halt_on_error=1"), g.env...)
	cmd.Stdout, cmd.Stderr = g.log, g.log
	return cmd
}

// start starts the process and returns at once.
func (g *gateway) start() {
	g.t.Helper()
	proc := assert.Value(childproc.Start(g.command()))(g.t, "the gateway")
	g.proc, g.done = proc, false
}

// awaitServing waits until the gateway is ready and speaks for its leases.
func (g *gateway) awaitServing() {
	g.t.Helper()
	g.awaitReady()
	eventually(g.t, patience, func() error {
		info, _, err := g.Info(g.t.Context())
		if err == nil && (!info.Zookeeper.FenceOpen || !info.Zookeeper.ReplicaCurrent) {
			err = fmt.Errorf("fence open: %v, replica current: %v", info.Zookeeper.FenceOpen, info.Zookeeper.ReplicaCurrent)
		}
		return err
	}, "the gateway serves")
}

func (g *gateway) awaitReady() {
	g.t.Helper()
	eventually(g.t, patience, func() error {
		if g.proc.Ended() {
			g.t.Fatalf("the gateway ended: %v\n%s", g.proc.Wait(), g.log)
		}
		return g.status(http.MethodGet, "/readyz", http.StatusOK)
	}, "the gateway is ready")
}

// status is nil when the request is answered with that status.
func (g *gateway) status(method, path string, want int) error {
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	a, err := g.Send(ctx, method, path)
	if err == nil && a.Status != want {
		err = fmt.Errorf("status %d: %s", a.Status, a.Body)
	}
	return err
}

// terminate sends SIGTERM and waits for an orderly end.
func (g *gateway) terminate() {
	g.t.Helper()
	g.done = true
	if killed := g.proc.Stop(patience); killed {
		g.t.Errorf("the gateway did not end within %v of SIGTERM\n%s", patience, g.log.tail())
	} else if err := g.proc.Wait(); err != nil {
		g.t.Errorf("after SIGTERM the gateway ended with %v\n%s", err, g.log.tail())
	}
}

// kill sends SIGKILL and returns once the process is gone.
func (g *gateway) kill() {
	g.done = true
	g.proc.Kill()
}

func (g *gateway) freeze() { g.proc.Freeze() }
func (g *gateway) thaw()   { g.proc.Thaw() }

// restart starts the gateway again at the same address and waits until it is ready.
func (g *gateway) restart() {
	g.t.Helper()
	g.start()
	g.awaitReady()
}

// close ends the process with the test and looks what it left in its log.
func (g *gateway) close() {
	if g.t.Failed() && g.proc != nil && !g.done && !g.proc.Ended() {
		g.t.Logf("the gateway at %s says of itself: %s", g.listen, g.look("/v1/info"))
	}
	if g.proc != nil && !g.done {
		if g.proc.Ended() {
			g.t.Errorf("the gateway ended by itself: %v", g.proc.Wait())
		} else {
			g.terminate()
		}
	}
	for _, sign := range []string{"WARNING: DATA RACE", "\npanic: ", `"panic: `, "fatal error: "} {
		if strings.Contains("\n"+g.log.String(), sign) {
			g.t.Errorf("%q is in the gateway's log", strings.TrimSpace(sign))
		}
	}
	if g.t.Failed() {
		g.t.Logf("the end of the log of the gateway at %s:\n%s", g.listen, g.log.tail())
	}
}

// look fetches a path after the test, whose context has ended.
func (g *gateway) look(path string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.t.Context()), patience)
	defer cancel()
	a, err := g.Send(ctx, http.MethodGet, path)
	if err != nil {
		return err.Error()
	}
	return string(a.Body)
}

// journal collects what a process prints.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// tail is the last lines, without what comes again and again.
func (j *journal) tail() string {
	const most = 80
	var kept []string
	for line := range strings.Lines(j.String()) {
		if !frequent.MatchString(line) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept[max(len(kept)-most, 0):], "")
}

var frequent = regexp.MustCompile(`"operation":"(Heartbeat|HeartbeatMany|Healthz|Readyz|GetInfo)"`)

// eventually tries, every now and then, until try returns nil. Unlike testkit's it leaves the processors to those who
// are waited for: each try is a request.
func eventually(t testing.TB, within time.Duration, try func() error, format string, args ...any) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			if err = try(); err == nil { // on a machine that stood still this is the second look
				return
			}
			t.Fatalf("not within %v: %s: %v", within, fmt.Sprintf(format, args...), err)
		}
	}
}

// elapse lets real time pass, for what is itself a span of real time: an outage longer than a TTL.
func elapse(t testing.TB, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal("the test ended meanwhile")
	}
}

// exitCode runs the gateway to its end and returns its code and what it printed.
func exitCode(t testing.TB, flags ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t), flags...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), string(out)
	}
	assert.Must(t, err == nil, "running the gateway: %v\n%s", err, out)
	return 0, string(out)
}
