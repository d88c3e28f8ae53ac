package httpapi

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

func TestWhoseNameTheHostIs(t *testing.T) {
	g := newGuard([]string{"Gateway.Example", "trailing.example."})
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LOCALHOST": true, "localhost.:80": true,
		"127.0.0.1": true, "127.0.0.1:8080": true, "10.1.2.3:1": true, "[::1]": true, "[::1]:8080": true, "::1": true,
		"gateway.example": true, "GATEWAY.example:443": true, "trailing.example": true,
		"": false, ":8080": false, "evil.example": false, "evil.localhost": false, "localhost.evil.example": false,
		"127.0.0.1.evil.example": false, "[::1].evil.example": false, "gateway.example.evil.example": false, "127.1": false, "0x7f000001": false,
		"rebind.example": false, "127.0.0.1.nip.io": false, "foo.localhost": false, "2130706433": false, "017700000001": false, "127.0.0.1.": false,
		"0.0.0.0": false, "0.0.0.0:8080": false, "[::]": false, "[::]:8080": false, "::": false, "[0:0:0:0:0:0:0:0]:1": false, "[::0.0.0.0]": false,
		"[::ffff:0.0.0.0]": false, "[::ffff:0:0]:8080": false, "[::%lo]": false, "0": false, "0.0": false, "00.0.0.0": false, "0x0": false,
		"[::ffff:127.0.0.1]": false, "[::ffff:7f00:1]:8080": false, "[::ffff:10.0.0.1]": false, "0.0.0.1": true, "[::1%lo]:8080": true,
	} {
		assert.Equal(t, g.hostAllowed(host), want, "Host %q: allowed", host)
	}
}

func TestOnlyPagesOfTheSameOriginMayAsk(t *testing.T) {
	g := newGuard(nil)
	for _, c := range []struct {
		method, site, mode, origin string
		want                       bool
	}{
		{"GET", "", "", "", true},
		{"POST", "", "", "", true},
		{"POST", "same-origin", "cors", "http://localhost:8080", true},
		{"GET", "same-origin", "cors", "", true},
		{"GET", "none", "navigate", "", true},
		{"GET", "cross-site", "navigate", "", true}, // a link was followed
		{"POST", "cross-site", "navigate", "", false},
		{"GET", "cross-site", "no-cors", "", false},
		{"GET", "cross-site", "cors", "http://evil.example", false},
		{"GET", "same-site", "cors", "http://localhost:3000", false},
		{"DELETE", "", "", "http://evil.example", false},
		{"POST", "", "", "http://localhost:8080", true},
		{"GET", "", "", "http://localhost:8080", true},
		{"GET", "", "", "http://localhost", false},
		{"GET", "", "", "null", false},
		{"HEAD", "cross-site", "no-cors", "", false},
		{"OPTIONS", "cross-site", "cors", "http://evil.example", false},
	} {
		r := httptest.NewRequest(c.method, "http://localhost:8080/v1/locks", nil)
		for name, value := range map[string]string{"Sec-Fetch-Site": c.site, "Sec-Fetch-Mode": c.mode, "Origin": c.origin} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		assert.Equal(t, g.check(r) == nil, c.want, "%+v: let through", c)
	}
}

// A proxy or a program may send such a header twice; a browser never does.
func TestOverTLSAPageWithoutItIsOfAnotherOrigin(t *testing.T) {
	g := newGuard([]string{"gw.example"})
	for url, origins := range map[string]map[string]bool{
		"https://gw.example/v1/locks": {"https://gw.example": true, "http://gw.example": false},
		"http://gw.example/v1/locks":  {"https://gw.example": true, "http://gw.example": true}, // a proxy may have ended it
	} {
		for origin, want := range origins {
			r := httptest.NewRequest("POST", url, nil)
			r.Header.Set("Origin", origin)
			assert.Equal(t, g.check(r) == nil, want, "%s from %s", url, origin)
		}
	}
}

func TestNoHeaderOfOursHidesAnothersOrigin(t *testing.T) {
	g := newGuard(nil)
	for name, values := range map[string][]string{
		"Origin":         {"http://localhost:8080", "http://evil.example"},
		"Sec-Fetch-Site": {"same-origin", "cross-site"},
		"Sec-Fetch-Mode": {"navigate", "cors"},
	} {
		r := httptest.NewRequest("GET", "http://localhost:8080/v1/locks", nil)
		r.Header["Sec-Fetch-Site"] = []string{"cross-site"}
		r.Header["Sec-Fetch-Mode"] = []string{"navigate"}
		r.Header[name] = values
		assert.That(t, g.check(r) != nil, "%s: %q was let through", name, values)
	}
}

func TestAllowedHostsAreServed(t *testing.T) {
	g := serve(t, func(o *Options) { o.AllowedHosts = []string{"gateway.example"} })
	g.expect(t, 200, "", "GET", "/v1/locks", host("gateway.example:8080"))
	g.expect(t, 200, "", "GET", "/v1/locks", host("gateway.example"), apitest.Header("Origin", "http://gateway.example"))
}

// What a browser, a proxy or a program by hand may write where the name of the gateway belongs.
func TestARequestForAnotherNameReachesNoHandler(t *testing.T) {
	g := serve(t)
	own := strings.TrimPrefix(g.url, "http://")
	for request, want := range map[string]int{
		"GET /v1/locks HTTP/1.1\r\nHost: " + own:                            http.StatusOK, // so the others fail for their name
		"GET http://" + own + "/v1/locks HTTP/1.1\r\nHost: " + own:          http.StatusOK,
		"GET /v1/locks HTTP/1.1\r\nHost: rebind.example":                    http.StatusMisdirectedRequest,
		"POST /v1/locks/a/leases HTTP/1.1\r\nHost: rebind.example":          http.StatusMisdirectedRequest,
		"GET /v1/locks HTTP/1.1\r\nHost: 0.0.0.0:8080":                      http.StatusMisdirectedRequest,
		"GET /v1/locks HTTP/1.1\r\nHost: [::]:8080":                         http.StatusMisdirectedRequest,
		"GET /metrics HTTP/1.1\r\nHost: 0.0.0.0":                            http.StatusMisdirectedRequest,
		"GET /v1/locks HTTP/1.1\r\nHost:":                                   http.StatusMisdirectedRequest,
		"GET /v1/locks HTTP/1.0":                                            http.StatusMisdirectedRequest,
		"GET http://evil.example/v1/locks HTTP/1.1\r\nHost: " + own:         http.StatusMisdirectedRequest,
		"GET /v1/locks HTTP/1.1":                                            http.StatusBadRequest,
		"GET /v1/locks HTTP/1.1\r\nHost: " + own + "\r\nHost: evil.example": http.StatusBadRequest,
		"GET /v1/locks HTTP/1.1\r\nHost: evil.example@" + own:               http.StatusBadRequest,
	} {
		g.asked()
		conn, err := net.Dial("tcp", own)
		assert.NoError(t, err)
		_ = conn.SetDeadline(time.Now().Add(within))
		_, _ = io.WriteString(conn, request+"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		a, err := http.ReadResponse(bufio.NewReader(conn), nil)
		_ = conn.Close()
		assert.That(t, err == nil && a.StatusCode == want, "%q: %v %+v, want %d", request, err, a, want)
		calls := g.asked()
		assert.That(t, len(calls) > 0 == (want == http.StatusOK), "%q: the manager was asked %q", request, calls)
	}
}
