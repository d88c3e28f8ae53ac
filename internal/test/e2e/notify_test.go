package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
)

// As a unit with Type=notify and WatchdogSec runs it. The test is the service manager.
func TestAServiceManagerIsToldWhenTheGatewayServesThatItTurnsAndWhenItLeaves(t *testing.T) {
	t.Parallel()
	socket := assert.Value(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}))(t)
	defer socket.Close()
	addr, chroot := zkreal.SharedT(t)
	network := netfault.NewT(t, addr)
	network.Cut()
	g := newGateway(t, network.Addr()+chroot)
	g.env = []string{"NOTIFY_SOCKET=" + socket.LocalAddr().String(), "WATCHDOG_USEC=600000"}
	told := func() string {
		t.Helper()
		_ = socket.SetReadDeadline(time.Now().Add(patience))
		buf := make([]byte, 4096)
		n := assert.Value(socket.Read(buf))(t, "nothing is told")
		return string(buf[:n])
	}
	until := func(what string) (before []string) {
		t.Helper()
		for {
			if s := told(); strings.Contains(s, what) {
				return before
			} else if before = append(before, s); len(before) > 1000 {
				t.Fatalf("%q is never told, but %q", what, before[:10])
			}
		}
	}
	g.start()
	for range 5 { // it lives, and is not up: there is no ZooKeeper
		before := until("WATCHDOG=1")
		assert.Must(t, !strings.Contains(strings.Join(before, " "), "READY=1"), "told before there is a ZooKeeper: %q", before)
	}
	network.Heal()
	until("READY=1")
	assert.Nil(t, g.status("GET", "/readyz", 200), "it is up, and")
	until("WATCHDOG=1")
	g.terminate()
	after := until("STOPPING=1")
	assert.That(t, !strings.Contains(strings.Join(after, " "), "READY=1"), "told after it was up: %q", after)
}

// inbox keeps what comes.
type inbox struct {
	*httptest.Server
	mu      sync.Mutex
	came    []message
	refuses func() bool // nil: never
	refused int
	seen    func(message) // also of what is refused; nil: nothing
}

// tries is how many messages it has refused.
func (b *inbox) tries() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

func newInbox(t *testing.T) *inbox {
	b := &inbox{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // cut off: its gateway was killed
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		m := message{r.URL.Path, r.Header.Clone(), body}
		if b.seen != nil {
			b.seen(m)
		}
		if b.refuses != nil && b.refuses() {
			b.refused++
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		b.came = append(b.came, m)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(b.Close)
	return b
}

// await returns when a lease's message of a type has come, which its secret has to have signed.
func (b *inbox) await(t *testing.T, lease api.Lease, kind string) string {
	t.Helper()
	hook := assert.Value(standardwebhooks.NewWebhook(lease.NotifySecret))(t)
	var body string
	eventually(t, patience, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, m := range b.came {
			if strings.HasPrefix(string(m.body), `{"type":"`+kind+`"`) && strings.Contains(string(m.body), `"lease_id":"`+lease.LeaseID+`"`) {
				body = string(m.body)
				return hook.Verify(m.body, m.header)
			}
		}
		return fmt.Errorf("%d messages, and not that one", len(b.came))
	}, "%s of %s is told", kind, lease.Lock)
	return body
}

// shownAt is what every client sees there.
func shownAt(t *testing.T, at string) string {
	t.Helper()
	req := assert.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil))(t)
	resp := assert.Value(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	assert.Must(t, err == nil && resp.StatusCode == http.StatusOK, "%s: %d %v", at, resp.StatusCode, err)
	return string(body)
}

func TestANotifyURLIsToldOfItsLeaseAlsoByASuccessor(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	to := newInbox(t)
	var gates []*gateway
	for range 2 {
		gates = append(gates, startGateway(t, addr+chroot, "--webhook-allow=127.0.0.1", "--session-timeout=1s", "--promise-window=2s", "--log-level=debug"))
	}
	query := "ttl=10m&owner=me&notify_url=" + url.QueryEscape(to.URL+"/hook?key=hunter2")
	holder := gates[0].hold("notified", "ttl=10m")
	ticket := gates[0].queue("notified", query)
	behind := gates[0].queue("notified", query)
	gates[0].letGo(holder.Token)
	if body := to.await(t, ticket, "lease.granted"); !strings.Contains(body, `"lock":"notified"`) || !strings.Contains(body, `"owner":"me"`) || !strings.Contains(body, `"fencing_token":`) {
		t.Errorf("%s", body)
	}
	gates[0].beat(ticket.Token, api.StateHeld)
	for _, path := range []string{"/v1/locks/notified", "/v1/leases", "/v1/leases/" + ticket.LeaseID, "/locks/notified?tab=zookeeper"} {
		if shown := shownAt(t, gates[0].url()+path); !strings.Contains(shown, "notified") || strings.Contains(shown, "hunter2") || strings.Contains(shown, "whsec_") {
			t.Errorf("%s shows every client the receiver: %s", path, shown)
		}
	}
	gates[0].kill()
	for _, l := range []api.Lease{behind, ticket} {
		eventually(t, patience, func() error {
			a, err := gates[1].Release(t.Context(), l.Token)
			return answeredWith(a, err, http.StatusNoContent)
		}, "the successor runs the lease")
	}
	body := to.await(t, ticket, "lease.released")
	assert.That(t, !strings.Contains(body, `"waiting"`), "%s", body)
	body = to.await(t, behind, "lease.cancelled")
	assert.That(t, strings.Contains(body, `"waiting":true`) && !strings.Contains(body, "fencing_token"), "%s", body)
	for _, g := range gates {
		assert.That(t, !strings.Contains(g.log.String(), "hunter2") && !strings.Contains(g.log.String(), "whsec_"),
			"the log says who is told, or with what secret")
	}
}
