package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
)

// behindNginx is the gateways as compose.yaml's clients see them: through nginx, with the configuration in deploy/.
func behindNginx(t testing.TB, gateways ...*gateway) *gateway {
	t.Helper()
	text := assert.Value(os.ReadFile("../../../deploy/nginx/lockkeeper.conf"))(t)
	listen := freeAddr(t)
	server := strings.Replace(string(text), "listen 8080;", "listen "+listen+";", 1)
	for i, g := range gateways {
		name := fmt.Sprintf("gateway-%d:8080", i+1)
		assert.Must(t, strings.Count(server, name) == 1, "the configuration does not name %s once", name)
		server = strings.Replace(server, name, g.listen, 1)
	}
	runNginx(t, listen, server)
	g := &gateway{t: t, listen: listen, log: &journal{}}
	g.Client = apitest.New(t, g.url())
	return g
}

func TestThroughNginxWaitsAndSocketsPassAndAGatewayMayGo(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	fleet := []*gateway{startGateway(t, addr+chroot), startGateway(t, addr+chroot)}
	front := behindNginx(t, fleet...)
	first := front.hold("deploy", "ttl=1m&owner=me")
	waiting := front.acquiring(t.Context(), "deploy", "ttl=1m&wait=1m&owner=you")
	mine := fleet[0].hold("mine", "ttl=1m")
	front.awaitLock(patience, "deploy", 1, 1)
	socket, answer, err := websocket.DefaultDialer.DialContext(t.Context(), "ws://"+front.listen+"/v1/events/ws", nil)
	assert.Must(t, err == nil, "a socket: %v %+v", err, answer)
	defer socket.Close()
	front.letGo(first.Token)
	held := waiting.granted(patience)
	_ = socket.SetReadDeadline(time.Now().Add(patience))
	for heard := false; !heard; {
		_, message, err := socket.ReadMessage()
		assert.NoError(t, err, "the socket")
		heard = strings.Contains(string(message), "lease.granted")
	}
	hidden := assert.Value(http.Get(front.url() + "/metrics"))(t)
	_ = hidden.Body.Close()
	assert.Equal(t, hidden.StatusCode, http.StatusNotFound, "metrics are answered with")

	// One is killed without a word. Heartbeats come to the other one, which can say 503 for a moment, and nginx never says
	// that no gateway has answered.
	fleet[0].kill()
	statuses := map[int]int{}
	for stop := time.Now().Add(2 * sessionTimeout); time.Now().Before(stop); elapse(t, 50*time.Millisecond) {
		_, a, err := front.Heartbeat(t.Context(), mine.Token)
		assert.NoError(t, err)
		if statuses[a.Status]++; a.Status != http.StatusOK && (a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "") {
			t.Errorf("a heartbeat was answered %d %s", a.Status, a.Body)
		}
	}
	t.Logf("heartbeats were answered %v", statuses)
	front.beatUntil(mine.Token, api.StateHeld)
	front.letGo(held.Token)
}

// In an outage both gateways say 503. nginx asks the second one for requests that are safe to repeat, and never for an acquire;
// what its client gets is a gateway's answer and not one of nginx's own.
func TestNginxRepeatsWhatIsSafeToRepeatAndNothingElse(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	network := netfault.NewT(t, addr)
	fleet := []*gateway{startGateway(t, network.Addr()+chroot), startGateway(t, network.Addr()+chroot)}
	front := behindNginx(t, fleet...)
	lease := front.hold("deploy", "ttl=1m")
	network.Cut()
	for _, g := range fleet {
		eventually(t, patience, func() error {
			info, _, err := g.Info(t.Context())
			if err == nil && info.Zookeeper.FenceOpen {
				err = errors.New("the trust window is open")
			}
			return err
		}, "the gateway is not trusted")
	}
	asked := func(operation string) (n int) {
		for _, g := range fleet {
			count, _ := strconv.Atoi(g.metric(`lockkeeper_http_requests_total{operation="` + operation + `",status="503"}`))
			n += count
		}
		return n
	}
	for _, call := range []struct {
		method, path, operation string
		times                   int
	}{
		{http.MethodPost, "/v1/locks/other/leases?ttl=1m", "Acquire", 1},
		{http.MethodPost, "/v1/leases/self/heartbeat", "Heartbeat", 2},
		{http.MethodDelete, "/v1/leases/" + lease.LeaseID, "Release", 2},
	} {
		before := asked(call.operation)
		var with []apitest.Option
		if call.operation != "Acquire" {
			with = append(with, apitest.Token(lease.Token))
		}
		a, err := front.Send(t.Context(), call.method, call.path, with...)
		assert.Must(t, err == nil && a.Status == http.StatusServiceUnavailable && a.Code() != "", "%s: %v %+v", call.operation, err, a)
		assert.That(t, a.Header.Get("Retry-After") != "", "%s: no Retry-After", call.operation)
		assert.Equal(t, asked(call.operation)-before, call.times, "%s came to", call.operation)
	}
	network.Heal()
}

// What nginx says by itself, when no gateway answers, is a problem like any of the gateways'.
func TestNginxAloneSaysThatNothingIsKnown(t *testing.T) {
	t.Parallel()
	absent := &gateway{t: t, listen: freeAddr(t)}
	front := behindNginx(t, absent, &gateway{t: t, listen: freeAddr(t)})
	for _, path := range []string{"/v1/locks/deploy/leases?ttl=1m", "/v1/leases/self/heartbeat"} {
		a, err := front.Send(t.Context(), http.MethodPost, path)
		expect(t, a, err, http.StatusServiceUnavailable, "outcome_unknown")
		assert.That(t, a.Header.Get("Retry-After") != "", "%s: no Retry-After", path)
	}
}

// The client's address is what nginx says, and no client chooses it: not with the headers that it sends to nginx, and not at the
// gateway itself.
func TestBehindNginxTheAuditLogHasTheClientsAddress(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	g := startStandalone(t, "--audit-log="+path, "--trusted-proxies=127.0.0.1")
	front := behindNginx(t, g, g)
	for _, ask := range []struct{ from, to, lock string }{{"127.0.0.2", front.listen, "through"}, {"127.0.0.3", g.listen, "direct"}} {
		c := assert.Value(dialFrom(ask.from, ask.to))(t)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(c, "POST /v1/locks/%s/leases?ttl=1m HTTP/1.1\r\nHost: localhost\r\nConnection: close, X-Forwarded-For\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nContent-Length: 0\r\n\r\n", ask.lock)
		answer := string(assert.Value(io.ReadAll(c))(t))
		assert.That(t, strings.HasPrefix(answer, "HTTP/1.1 201") && strings.Contains(answer, `"owner":"`+ask.from+`"`), "%s", answer)
	}
	g.terminate()
	lines := audited(t, path)
	assert.That(t, has(lines, `"lock":"through"`, `"address":"127.0.0.2"`) && has(lines, `"lock":"direct"`, `"address":"127.0.0.3"`), "%+v", lines)
}

// bodiless are the headers of requests whose body never comes.
var bodiless = map[string]string{
	"an acquire":                   "POST /v1/locks/deploy/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 20000\r\n\r\n",
	"another host":                 "POST /v1/locks/deploy/leases HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 200000\r\n\r\n",
	"an unknown path":              "POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n",
	"another method":               "DELETE /v1/info HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n",
	"an operation without a body":  "GET /v1/info HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000\r\n\r\n",
	"a probe":                      "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n",
	"one that expects to be asked": "POST /v1/locks/deploy/leases HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: 20000\r\n\r\n",
	"chunks":                       "POST /v1/locks/deploy/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"ttl\r\n",
	"a seal":                       "POST /v1/locks/deploy/leases HTTP/1.1\r\nHost: localhost\r\n" + fleet.Header + ": 2\r\nContent-Length: 200000\r\n\r\n",
}

// flood opens so many connections from each of the addresses and sends on each the header of a request.
func flood(t *testing.T, to string, n int, header string, from ...string) {
	t.Helper()
	for _, address := range from {
		for range n {
			c := assert.Value(dialFrom(address, to))(t)
			t.Cleanup(func() { c.Close() })
			_, _ = io.WriteString(c, header) // the gateway may have closed it already
		}
	}
}

func dialFrom(address, to string) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 10 * time.Second}).Dial("tcp", to)
}

// answeredFrom asks for /healthz on a connection of its own.
func answeredFrom(address, to, want string) error {
	c, err := dialFrom(address, to)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return err
	}
	answer := make([]byte, 12)
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	if got := string(answer); got != want {
		return errors.New(got)
	}
	return nil
}

// bodyPatience is well below the 30 s for which net/http waits for a body.
const bodyPatience = 10 * time.Second

func TestRequestsWhoseBodyNeverComesKeepNoAddressOut(t *testing.T) {
	t.Parallel()
	for name, header := range bodiless {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startStandalone(t, "--max-connections=40")
			flood(t, g.listen, 40, header, "127.0.0.2", "127.0.0.3")
			eventually(t, bodyPatience, func() error { return answeredFrom("127.0.0.4", g.listen, "HTTP/1.1 200") }, "a third address is served")
		})
	}
}

func TestOneAddressWithoutASealKeepsNoGatewayOut(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	one, apart := newGateway(t, addr+chroot, "--max-connections=40"), freeAddr(t)
	one.flags = append(one.flags, "--fleet-listen="+apart)
	one.start()
	one.awaitServing()
	for _, name := range []string{"an acquire", "a seal"} {
		flood(t, apart, 40, bodiless[name], "127.0.0.2")
		// At once: one address cannot take all places.
		assert.Nil(t, answeredFrom("127.0.0.3", apart, "HTTP/1.1 403"), "%s: another address", name)
		// Soon: the connections of the same address count as quiet.
		eventually(t, bodyPatience, func() error { return answeredFrom("127.0.0.2", apart, "HTTP/1.1 403") }, "the same address is served")
	}
	two := startGateway(t, addr+chroot, "--max-connections=40", "--fleet-listen=127.0.0.1:0")
	acquainted(t, one, two)
	lease := one.hold("deploy", "ttl=1m")
	two.letGo(lease.Token)
}

// A refusal that comes before the body was read closes the connection, and a client that still sends reads the answer.
func TestARefusalBeforeTheBodyClosesTheConnection(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	for _, name := range []string{"another host", "an unknown path", "another method", "a seal"} {
		c := assert.Value(dialFrom("127.0.0.2", g.listen))(t)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(bodyPatience))
		fmt.Fprint(c, bodiless[name])
		answer, err := io.ReadAll(c) // to the connection's end
		assert.That(t, err == nil && strings.Contains(string(answer), "\r\nConnection: close\r\n"), "%s: %v %q", name, err, answer)
	}
	for range 20 {
		body := strings.Repeat("x", 250_000)
		response := assert.Value(http.DefaultClient.Do(jsonPost(t, g.url()+"/nothing", body, "")))(t)
		if response.Body.Close(); response.StatusCode != http.StatusNotFound {
			t.Error(response.Status)
		}
	}
}
