package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

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
