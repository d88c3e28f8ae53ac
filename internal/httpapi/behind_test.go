package httpapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/events"
	"lockkeeper/internal/httpapi/connlimit"
	"lockkeeper/internal/httpapi/proxies"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// believing trusts proxies on loopback, which the tests' clients are.
func believing(t *testing.T, header string) func(*Options) {
	trust := assert.Value(proxies.New([]string{"127.0.0.0/8"}, header))(t)
	return func(o *Options) { o.Proxies = trust }
}

func TestBehindAProxyTheClientsAddressIsAuditedLoggedAndTheDefaultOwner(t *testing.T) {
	for _, test := range []struct {
		name    string
		options []func(*Options)
		sent    string
		want    string
	}{
		{"believed", []func(*Options){believing(t, proxies.XForwardedFor)}, "6.6.6.6, 203.0.113.5", "203.0.113.5"},
		{"another header is believed", []func(*Options){believing(t, proxies.Forwarded)}, "6.6.6.6", "127.0.0.1"},
		{"garbage", []func(*Options){believing(t, proxies.XForwardedFor)}, "unknown", "127.0.0.1"},
		{"no proxy", nil, "6.6.6.6", "127.0.0.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			option, end := auditing(t)
			log := new(lines)
			g := serve(t, append(test.options, option, logTo(t, log, slog.LevelInfo))...)
			g.expect(t, 201, "", "POST", "/v1/locks/a/leases?ttl=30s", apitest.Header("X-Forwarded-For", test.sent))
			line := log.next(t)
			if line["msg"] != "request" {
				assert.That(t, test.name == "garbage" && strings.Contains(fmt.Sprint(line["msg"]), "--forwarded-header"), "%v", line)
				line = log.next(t)
			}
			assert.Equal(t, line["client_ip"], any(test.want), "the log")
			assert.Equal(t, end()[0].Address, test.want, "the audit log")
			assert.Equal(t, *g.fake.client.Load(), test.want, "the owner")
		})
	}
}

// connectionAuth knows callers by their connections alone, as auth.Authenticator does.
type connectionAuth struct{ *auth.Authenticator }

func (connectionAuth) Authenticate(r *http.Request) (auth.Caller, error) {
	c := auth.Caller{Kind: auth.Anonymous, Principal: locks.Principal{Name: "anonymous"}}
	grant := func(name string) (auth.Caller, error) {
		return auth.Caller{Kind: auth.User, Principal: locks.Principal{Name: name, Rules: access.Everything()}}, nil
	}
	switch {
	case r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		return grant("cert")
	case r.RemoteAddr == "uid:33" || r.RemoteAddr == "uid:1000":
		return grant(r.RemoteAddr)
	}
	return c, nil
}

// What the proxy's connection proves is not its clients': not with the header, and not without it, for a client may get a proxy
// to leave the header out (Connection: X-Forwarded-For).
func TestAProxyLendsItsClientsNoCredential(t *testing.T) {
	verified := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{DNSNames: []string{"proxy.example.com"}}}}}
	trust := assert.Value(proxies.New([]string{"10.0.0.0/8", "uid:33"}, proxies.XForwardedFor))(t)
	s := New(Options{Locks: newFake(), Auth: connectionAuth{}, Proxies: trust})
	for _, test := range []struct {
		remote string
		tls    *tls.ConnectionState
		header string
		want   string
	}{
		{"10.1.1.1:80", verified, "203.0.113.5", "anonymous"},
		{"10.1.1.1:80", verified, "", "anonymous"},
		{"uid:33", nil, "203.0.113.5", "anonymous"},
		{"uid:33", nil, "uid:1000", "anonymous"},
		{"uid:33", nil, "", "anonymous"},
		{"10.1.1.1:80", nil, "uid:1000", "anonymous"},
		{"203.0.113.9:80", verified, "6.6.6.6", "cert"},
		{"uid:1000", nil, "6.6.6.6", "uid:1000"},
	} {
		r := httptest.NewRequest("GET", "http://localhost/v1/whoami", nil)
		r.RemoteAddr, r.TLS = test.remote, test.tls
		for _, name := range []string{"X-Client-Cert", "X-Ssl-Client-Verify", "X-Forwarded-Client-Cert", "Client-Cert", "X-Remote-User", "X-Forwarded-User"} {
			r.Header.Set(name, "SUCCESS, CN=admin")
		}
		if test.header != "" {
			r.Header.Set("X-Forwarded-For", test.header)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		assert.That(t, bytes.Contains(w.Body.Bytes(), []byte(`"name":"`+test.want+`"`)), "%+v: %d %s", test, w.Code, w.Body)
	}
}

func TestWhetherTheClientsConnectionIsEncryptedIsTheProxysToSay(t *testing.T) {
	trust := assert.Value(proxies.New([]string{"10.0.0.0/8"}, proxies.XForwardedFor))(t)
	s := New(Options{Locks: newFake(), Proxies: trust})
	for _, test := range []struct {
		remote string
		tls    bool
		proto  string
		want   bool
	}{
		{"10.1.1.1:80", false, "https", true}, {"10.1.1.1:80", true, "http", false}, {"10.1.1.1:80", true, "", true},
		{"203.0.113.9:80", false, "https", false}, {"203.0.113.9:80", true, "http", true},
	} {
		r := httptest.NewRequest("GET", "http://localhost/", nil)
		if r.RemoteAddr = test.remote; test.proto != "" {
			r.Header.Set("X-Forwarded-Proto", test.proto)
		}
		if test.tls {
			r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}
		}
		x := newExchange(s)
		x.begin(httptest.NewRecorder(), r)
		x.unwrap()
		assert.That(t, (x.r.TLS != nil) == test.want && (x.r.TLS == nil || x.from == "" || len(x.r.TLS.VerifiedChains) == 0), "%+v: %+v", test, x.r.TLS)
	}
}

// A page without TLS is of another origin for a client whose proxy has TLS, as at a gateway that has it.
func TestTheOriginOfAPageIsJudgedByTheClientsConnection(t *testing.T) {
	g := serve(t, believing(t, proxies.XForwardedFor))
	host := strings.TrimPrefix(g.url, "http://")
	for origin, status := range map[string]int{"https://" + host: 201, "http://" + host: 403} {
		a := g.send(t, "POST", "/v1/locks/a/leases", apitest.Header("Origin", origin), apitest.Header("X-Forwarded-Proto", "https"), apitest.Header("X-Forwarded-For", "203.0.113.5"))
		assert.Equal(t, a.Status, status, origin)
	}
}

func TestOneClientBehindAProxyTakesNotAllPlacesOfThoseThatWait(t *testing.T) {
	g := serve(t, believing(t, proxies.XForwardedFor), func(o *Options) {
		o.Connections, o.Events = connlimit.Limits{Connections: 10, PerAddress: 2}, events.New(events.Options{})
	})
	begun, free := make(chan bool), make(chan bool)
	g.acquire = func(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
		if req.Wait > 0 {
			begun <- true
			<-free
		}
		return locks.AcquireResult{Lease: held()}, nil
	}
	answered := make(chan error, 4)
	wait := func(from string) {
		go func() {
			a, err := g.client.Send(t.Context(), "POST", "/v1/locks/a/leases?wait=1m", apitest.Header("X-Forwarded-For", from))
			if err == nil && a.Status != 201 {
				err = errors.New(string(a.Body))
			}
			answered <- err
		}()
		<-begun
	}
	const of = "X-Forwarded-For"
	wait("2001:db8::1")
	wait("2001:db8::2") // of the same /64
	g.expect(t, 429, "too_many_waiting", "POST", "/v1/locks/a/leases?wait=1m", apitest.Header(of, "2001:db8::3"))
	g.expect(t, 429, "too_many_waiting", "GET", "/v1/locks/a?wait=1m&since=x", apitest.Header(of, "2001:db8::3"))
	g.expect(t, 429, "too_many_streams", "GET", "/v1/events", apitest.Header(of, "2001:db8::3"))
	g.expect(t, 201, "", "POST", "/v1/locks/a/leases", apitest.Header(of, "2001:db8::1"))
	g.expect(t, 200, "", "POST", "/v1/leases/self/heartbeat", apitest.Header(of, "2001:db8::1"), apitest.Token(someToken))
	wait("203.0.113.5")
	wait("203.0.113.5")
	g.expect(t, 429, "too_many_waiting", "POST", "/v1/locks/a/leases?wait=1m", apitest.Header(of, "::ffff:203.0.113.5"))
	close(free)
	for range 4 {
		assert.NoError(t, <-answered)
	}
	assert.That(t, len(g.server.behind.held) == 0, "places that are not given back: %v", g.server.behind.held)
}
