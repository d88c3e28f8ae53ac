package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/testkit"
)

// The times of the fleet: short, so that three session timeouts fit between two faults.
const (
	sessionTimeout = 4 * time.Second
	promiseWindow  = 3 * time.Second
)

// gateway is one gateway at one address, with proxies before and behind it. Its process comes and goes.
type gateway struct {
	name   string
	listen string
	front  *netfault.Proxy   // to its clients
	peer   *netfault.Proxy   // to other gateways, which are told this address
	zk     []*netfault.Proxy // to each server
	flags  []string
	log    string // file

	mu   sync.Mutex
	proc *childproc.Process
	gone bool // its end was asked for
}

// newGateway prepares a gateway to servers below a chroot, and starts nothing.
func newGateway(t testing.TB, name, dir string, servers []string, chroot string, flags ...string) *gateway {
	t.Helper()
	g := &gateway{name: name, listen: freeAddr(t), log: filepath.Join(dir, name+".log")}
	g.front, g.peer = netfault.NewT(t, g.listen), netfault.NewT(t, g.listen)
	var zk []string
	for _, s := range servers {
		p := netfault.NewT(t, s, netfault.Framed())
		g.zk = append(g.zk, p)
		zk = append(zk, p.Addr())
	}
	g.flags = append([]string{"--zk=" + strings.Join(zk, ",") + chroot, "--listen=" + g.listen, "--advertise=" + g.peer.Addr(), "--create-root",
		"--session-timeout=" + sessionTimeout.String(), "--promise-window=" + promiseWindow.String(), "--zk-connect-timeout=0s",
		"--log-format=json", "--log-level=info"}, flags...)
	t.Cleanup(func() { g.close(t) })
	return g
}

func (g *gateway) url() string { return "http://" + g.listen }

// start starts the process and returns at once.
func (g *gateway) start() error {
	log, err := os.OpenFile(g.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(binary, g.flags...)
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1")
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := childproc.Start(cmd)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.proc, g.gone = proc, false
	return nil
}

// leaving is the process whose end is asked for now.
func (g *gateway) leaving() *childproc.Process {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone = true
	return g.proc
}

func (g *gateway) kill() { g.leaving().Kill() }

// terminate sends SIGTERM and waits for an orderly end.
func (g *gateway) terminate() error {
	proc := g.leaving()
	if proc.Stop(30 * time.Second) {
		return fmt.Errorf("%s did not end within 30s of SIGTERM", g.name)
	}
	return proc.Wait()
}

func (g *gateway) freeze() { g.current().Freeze() }
func (g *gateway) thaw()   { g.current().Thaw() }

func (g *gateway) current() *childproc.Process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.proc
}

// endedByItself says how, when the process has ended without being asked to.
func (g *gateway) endedByItself() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.proc != nil && !g.gone && g.proc.Ended() {
		return fmt.Errorf("%s ended by itself: %w", g.name, g.proc.Wait())
	}
	return nil
}

// awaitReady waits until the gateway is ready, or ctx ends, or the gateway does.
func (g *gateway) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := g.serves(ctx)
		if err == nil {
			return nil
		}
		if ended := g.endedByItself(); ended != nil {
			return ended
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", g.name, err)
		}
	}
}

// serves is nil when a gateway is ready and can speak for its leases.
func (g *gateway) serves(ctx context.Context) error {
	if _, err := get(ctx, g.url()+"/readyz"); err != nil {
		return err
	}
	info, err := get(ctx, g.url()+"/v1/info")
	if err == nil && (!strings.Contains(info, `"fence_open":true`) || !strings.Contains(info, `"replica_current":true`)) {
		err = fmt.Errorf("it says %s", info)
	}
	return err
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", url, response.StatusCode, body)
	}
	return string(body), err
}

// close ends the process with the test and looks what it left in its log.
func (g *gateway) close(t testing.TB) {
	assert.Nil(t, g.endedByItself())
	if proc := g.current(); proc != nil && !proc.Ended() {
		assert.Nil(t, g.terminate(), "%s", g.name)
	}
	said, _ := os.ReadFile(g.log)
	for _, sign := range []string{"WARNING: DATA RACE", "\npanic: ", `"panic: `, "fatal error: "} {
		if strings.Contains("\n"+string(said), sign) {
			t.Errorf("%q is in the log of %s", strings.TrimSpace(sign), g.name)
		}
	}
	if t.Failed() {
		t.Logf("the end of the log of %s:\n%s", g.name, said[max(0, len(said)-4096):])
	}
}

// freeAddr is an address for a gateway, which may go and come again.
func freeAddr(t testing.TB) string { return testkit.FreeAddr(t) }
