package clientsuite

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// The times of a fleet: short, so that an outage is over soon.
const (
	sessionTimeout = 2 * time.Second
	promiseWindow  = 1500 * time.Millisecond
)

// binary is the gateway that fleets run. TestMain alone writes it, before the first test.
var binary string

// fleet is two gateways on one ZooKeeper server, whose processes come and go.
type fleet struct {
	zk       *zkreal.Server
	gateways []*gateway
}

// gateway is a gateway at one address.
type gateway struct {
	listen string
	flags  []string
	log    *tail

	mu   sync.Mutex
	proc *childproc.Process
	gone bool // its end was asked for
}

// newFleet starts a fleet and returns when it serves.
func newFleet(t testing.TB) *fleet {
	t.Helper()
	testkit.BuiltFrom(t, "lockkeeper/cmd/gateway")
	f := &fleet{zk: zkreal.StartT(t, zkreal.Real(), zkreal.WithoutFsync())}
	for range 2 {
		g := &gateway{listen: testkit.FreeAddr(t), log: &tail{}}
		g.flags = []string{"--zk=" + f.zk.Addr() + "/fleet", "--create-root", "--listen=" + g.listen, "--session-timeout=" + sessionTimeout.String(),
			"--promise-window=" + promiseWindow.String(), "--zk-connect-timeout=0s", "--log-level=warn"}
		f.gateways = append(f.gateways, g)
		assert.NoError(t, g.start())
		t.Cleanup(func() { g.close(t) })
	}
	for _, g := range f.gateways {
		testkit.EventuallyNil(t, time.Minute, g.serves, "the gateway at %s serves", g.listen)
	}
	return f
}

// urls are the gateways, in the order in which a client asks them.
func (f *fleet) urls() string {
	return "http://" + f.gateways[0].listen + ",http://" + f.gateways[1].listen
}

func (g *gateway) start() error {
	cmd := exec.Command(binary, g.flags...)
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1")
	cmd.Stdout, cmd.Stderr = g.log, g.log
	proc, err := childproc.Start(cmd)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.proc, g.gone = proc, false
	return nil
}

func (g *gateway) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone = true
	g.proc.Kill()
}

func (g *gateway) current() *childproc.Process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.proc
}

// serves is nil when the gateway speaks for its leases.
func (g *gateway) serves() error {
	if proc := g.current(); proc.Ended() {
		return fmt.Errorf("it ended: %w", proc.Wait())
	}
	info, err := request(http.MethodGet, "http://"+g.listen+"/v1/info")
	if err == nil && (!strings.Contains(info, `"fence_open":true`) || !strings.Contains(info, `"replica_current":true`)) {
		err = fmt.Errorf("it says %s", info)
	}
	return err
}

// request asks a gateway as an administrator does. An answer other than 2xx is an error.
func request(method, url string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", err
	}
	r.Close = true
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %d %s", url, response.StatusCode, body)
	}
	return string(body), err
}

// close ends the process with the test and looks what it left in its log.
func (g *gateway) close(t testing.TB) {
	proc := g.current()
	switch {
	case g.gone:
	case proc.Ended():
		t.Errorf("the gateway at %s ended by itself: %v", g.listen, proc.Wait())
	default:
		assert.That(t, !proc.Stop(30*time.Second), "the gateway at %s did not end within 30 s of SIGTERM", g.listen)
	}
	for _, sign := range []string{"WARNING: DATA RACE", "\npanic: ", "fatal error: "} {
		assert.That(t, !strings.Contains("\n"+g.log.String(), sign), "%q is in the gateway's log:\n%s", sign, g.log)
	}
}
