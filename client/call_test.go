package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// answers is a fleet whose gateways answer as the test says.
type answers func(r *http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

func callTo(t *testing.T, a answers) *Client {
	t.Helper()
	c, err := New(Config{URLs: []string{"http://one", "http://two"}, Token: "secret", HTTP: &http.Client{Transport: a}})
	assert.NoError(t, err)
	return c
}

func TestACallGoesOnAtTheNextGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := callTo(t, func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "one" {
				return nil, io.ErrUnexpectedEOF
			}
			assert.That(t, r.Header.Get("Authorization") == "Bearer secret" && r.Header.Get("If-Match") == `"x"`, "sent %v", r.Header)
			return answer(200, map[string]string{"host": r.URL.Host})
		})
		var got struct{ Host string }
		assert.NoError(t, c.Call(t.Context(), Request{Path: "/v1/info", Header: http.Header{"If-Match": {`"x"`}}}, &got))
		assert.That(t, got.Host == "two", "answered by %q", got.Host)
	})
}

func TestAChangeIsRepeatedOnlyWhereNothingWasDone(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	problem := func(status int, code string) func() (*http.Response, error) {
		return func() (*http.Response, error) { return answer(status, map[string]string{"code": code}) }
	}
	failed := func(err error) func() (*http.Response, error) {
		return func() (*http.Response, error) { return nil, err }
	}
	for name, c := range map[string]struct {
		first  func() (*http.Response, error)
		method string
		again  bool
	}{
		"no connection":                {failed(refused), "POST", true},
		"nothing was done":             {problem(503, "zookeeper_unavailable"), "POST", true},
		"too many requests":            {problem(429, "rate_limited"), "POST", true},
		"the answer is lost":           {failed(io.ErrUnexpectedEOF), "POST", false},
		"the gateway does not know":    {problem(503, "outcome_unknown"), "POST", false},
		"a proxy answers":              {problem(502, ""), "POST", false},
		"a patch's answer is lost":     {failed(io.ErrUnexpectedEOF), "PATCH", false},
		"a look's answer is lost":      {failed(io.ErrUnexpectedEOF), "GET", true},
		"a put's answer is lost":       {failed(io.ErrUnexpectedEOF), "PUT", true},
		"a deletion's answer is lost":  {failed(io.ErrUnexpectedEOF), "DELETE", true},
		"the answer to one with a key": {failed(io.ErrUnexpectedEOF), "POST", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				client := callTo(t, func(*http.Request) (*http.Response, error) {
					if n++; n == 1 {
						return c.first()
					}
					return answer(200, struct{}{})
				})
				r := Request{Method: c.method, Path: "/v1/webhooks"}
				if strings.HasSuffix(name, "with a key") {
					r.Header = http.Header{"Idempotency-Key": {"k"}}
				}
				err := client.Call(t.Context(), r, nil)
				assert.That(t, (err == nil) == c.again && (n == 2) == c.again, "sent %d times: %v", n, err)
			})
		})
	}
}

// A gateway that stands still leaves the others their share of the time, where a repeat does no harm.
func TestAGatewayThatStandsStillDoesNotUseUpTheTime(t *testing.T) {
	for name, r := range map[string]Request{
		"a look":        {Path: "/v1/locks"},
		"a release":     {Method: "DELETE", Path: "/v1/leases/self", LeaseToken: "T"},
		"a heartbeat":   {Method: "POST", Path: "/v1/leases/self/heartbeat", LeaseToken: "T"},
		"an acquire":    {Method: "POST", Path: "/v1/locks/x/leases", Header: http.Header{"Idempotency-Key": {"k"}}},
		"TryAcquire":    {},
		"not a message": {Method: "POST", Path: "/v1/webhooks"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := callTo(t, func(r *http.Request) (*http.Response, error) {
					if r.URL.Host == "one" {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					return answer(200, map[string]any{"lease_id": "L", "token": "T", "state": "held", "waited_ms": 0, "ttl_ms": 30000})
				})
				c.try = 10 * time.Second
				var err error
				if name == "TryAcquire" {
					var lease *Lease
					if lease, err = c.TryAcquire(t.Context(), "x"); err == nil {
						defer func() { _ = lease.Release(t.Context()) }()
					}
				} else {
					err = c.Call(t.Context(), r, nil)
				}
				assert.That(t, (err == nil) == (name != "not a message"), "%v", err)
			})
		})
	}
}

// With HTTP/2 all requests would be streams of one connection, and wait for it when it is dead and looks alive.
func TestRequestsAreSentByHTTP1(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, r.Proto, "HTTP/1.1", "the protocol")
		_, _ = io.WriteString(w, "{}")
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	c, err := New(Config{URLs: []string{server.URL}, TLS: &tls.Config{RootCAs: roots}})
	assert.NoError(t, err)
	assert.NoError(t, c.Call(t.Context(), Request{Path: "/v1/info"}, nil))
	c.http.CloseIdleConnections()
}

func TestACallTriesNoLongerThanItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := callTo(t, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		c.try = 3 * time.Second
		begun := time.Now()
		err := c.Call(t.Context(), Request{Path: "/v1/info"}, nil)
		assert.That(t, err != nil && time.Since(begun) == 3*time.Second, "%v after %v", err, time.Since(begun))
		_, err = c.Open(t.Context(), Request{Path: "/v1/events"})
		assert.That(t, err != nil && time.Since(begun) == 6*time.Second, "%v after %v", err, time.Since(begun))
	})
}

func TestARefusalIsNotRepeated(t *testing.T) {
	n := 0
	c := callTo(t, func(*http.Request) (*http.Response, error) {
		n++
		return answer(404, map[string]string{"code": "webhook_not_found"})
	})
	err := c.Call(t.Context(), Request{Path: "/v1/webhooks/x"}, nil)
	var p *Problem
	assert.That(t, errors.As(err, &p) && p.Code == "webhook_not_found" && n == 1, "sent %d times: %v", n, err)
}

func TestAnOpenAnswerIsReadAsItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := callTo(t, func(r *http.Request) (*http.Response, error) {
			if n++; n == 1 { // a gateway that stands still
				<-r.Context().Done()
				return nil, context.Cause(r.Context())
			}
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("data")), Request: r}, nil
		})
		stream, err := c.Open(t.Context(), Request{Path: "/v1/events"})
		assert.NoError(t, err)
		text, err := io.ReadAll(stream.Body)
		assert.That(t, err == nil && string(text) == "data" && n == 2, "read %q: %v", text, err)
		assert.NoError(t, stream.Body.Close())
	})
}

func TestALeaseIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{ttl: 30 * time.Second}
		first := g.client(t)
		lease, err := first.Acquire(t.Context(), "report")
		assert.NoError(t, err)
		token, err := lease.Detach()
		assert.NoError(t, err)
		assert.That(t, token != "" && lease.Context().Err() != nil, "the token is %q", token)
		assert.NoError(t, lease.Release(t.Context()))
		assert.That(t, g.released == 0, "a lease that was handed over was released")

		second, err := g.client(t).Attach(t.Context(), token)
		assert.NoError(t, err)
		time.Sleep(2 * time.Minute)
		assert.That(t, second.Held() && second.ID() == lease.ID(), "the lease is not kept: %v", second.Err())
		assert.NoError(t, second.Release(t.Context()))
		assert.That(t, g.released == 1, "released %d times", g.released)
	})
}

func TestALeaseThatHasEndedCannotBeAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := callTo(t, func(*http.Request) (*http.Response, error) {
			return answer(410, map[string]string{"code": "lease_ended", "reason": "revoked", "detail": "stuck"})
		})
		_, err := c.Attach(t.Context(), "lk1.x")
		var lost *LeaseLost
		assert.That(t, errors.As(err, &lost) && lost.Reason == "revoked" && lost.Detail == "stuck", "got %v", err)
	})
}

func TestAGatewayBehindASocketIsAskedAsLocalhost(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	assert.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"host": "`+r.Host+`"}`)
	})}
	go func() { _ = server.Serve(listener) }()
	c, err := New(Config{URLs: []string{"unix:" + socket}, TryFor: 100 * time.Millisecond})
	assert.NoError(t, err)
	var got struct{ Host string }
	assert.NoError(t, c.Call(t.Context(), Request{Path: "/v1/info"}, &got))
	assert.That(t, got.Host == "localhost", "asked as %q, which a gateway refuses", got.Host)
	assert.NoError(t, server.Close())
	refusedWith(t, c.Call(t.Context(), Request{Path: "/v1/info"}, nil), `"unix:`+socket+`/v1/info"`)
}
