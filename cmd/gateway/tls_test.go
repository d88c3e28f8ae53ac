package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/certtest"
	"lockkeeper/internal/test/testkit"
)

func TestFlagsOfTLSThatDoNotFitAreRefused(t *testing.T) {
	ca := certtest.New(t, "ca")
	cert, key := ca.Issue([]string{"localhost"}).Files()
	assert.NoError(t, os.Chmod(key, 0o644))
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"--tls-cert-file " + cert:                            {64, "must be given together"},
		"--tls-key-file " + key:                              {64, "must be given together"},
		"--tls-client-ca-file " + ca.File():                  {64, "needs TLS"},
		"--tls-cert-file " + cert + " --tls-key-file " + key: {78, "chmod 600 " + key},
	} {
		code, _, stderr := command(t, append([]string{"--listen", "127.0.0.1:0", "--data-dir", t.TempDir()}, strings.Fields(args)...)...)
		assert.That(t, code == want.code && strings.Contains(stderr, want.says) && strings.Contains(stderr, "hint: "), "%s: exit %d\n%s", args, code, stderr)
	}
}

func TestWithACertificateTheAddressForOthersIsHTTPS(t *testing.T) {
	at := &net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 8080}
	for _, c := range []struct{ advertise, cert, want string }{
		{"", "", "10.0.0.1:8080"}, {"", "c", "https://10.0.0.1:8080"}, {"a:1", "", "a:1"}, {"a:1", "c", "https://a:1"},
		{"http://a:1", "c", "http://a:1"}, {"https://a:1", "", "https://a:1"},
	} {
		is := config{Advertise: c.advertise, TLS: tlsFlags{CertFile: c.cert}}
		assert.Equal(t, is.advertised(at), c.want, "--advertise %q --tls-cert-file %q", c.advertise, c.cert)
	}
	assert.Equal(t, (&config{TLS: tlsFlags{CertFile: "c"}}).advertised(&net.TCPAddr{IP: net.IPv4zero, Port: 1}), "")
}

// written is a log that is read while it is written.
type written struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(b)
}
func (w *written) String() string { w.mu.Lock(); defer w.mu.Unlock(); return w.out.String() }

// serveTLS runs a gateway with a store of its own, and returns where it listens.
func serveTLS(t *testing.T, flags tlsFlags) (address string, c *config) {
	t.Helper()
	address = testkit.FreeAddr(t)
	c = &config{DataDir: t.TempDir(), Root: "/lockkeeper", CreateRoot: true, SessionTimeout: 10 * time.Second, Listen: address, TLS: flags, LogLevel: "info", AccessLog: "all"}
	ctx, stop := context.WithCancel(t.Context())
	ended, log := make(chan error, 1), &written{}
	go func() { ended <- serve(ctx, c, log) }()
	t.Cleanup(func() {
		stop()
		assert.Nil(t, <-ended, "serving ended with")
		if t.Failed() {
			t.Log(log)
		}
	})
	testkit.Eventually(t, 30*time.Second, func() bool { return healthcheck(t.Context(), c, 5*time.Second) == nil }, "the gateway is healthy")
	return address, c
}

// The hot paths, a stream and a refusal, over both versions of HTTP.
func TestAGatewaySpeaksTLS(t *testing.T) {
	ca, clients := certtest.New(t, "servers"), certtest.New(t, "clients")
	cert, key := ca.Issue([]string{"localhost", "127.0.0.1"}).Files()
	address, _ := serveTLS(t, tlsFlags{CertFile: cert, KeyFile: key, ClientCAFile: clients.File()})
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
		transport.Protocols.SetHTTP2(protocol == "HTTP/2.0")
		defer transport.CloseIdleConnections()
		ask := func(method, path, token string, status int) *http.Response {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), method, "https://"+address+path, nil)
			assert.NoError(t, err)
			if token != "" {
				r.Header.Set("Lease-Token", token)
			}
			a, err := transport.RoundTrip(r)
			assert.NoError(t, err)
			t.Cleanup(func() { a.Body.Close() })
			assert.Must(t, a.StatusCode == status && a.Proto == protocol, "%s %s: %s %s", method, path, a.Proto, a.Status)
			return a
		}
		testkit.Eventually(t, 30*time.Second, func() bool {
			r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+address+"/readyz", nil)
			assert.NoError(t, err)
			a, err := transport.RoundTrip(r)
			return err == nil && a.Body.Close() == nil && a.StatusCode == 200
		}, "the gateway is ready")
		stream := ask("GET", "/v1/events?format=jsonl", "", 200)
		all, err := io.ReadAll(ask("POST", "/v1/locks/a/leases?format=env", "", 201).Body)
		assert.NoError(t, err)
		_, token, _ := strings.Cut(string(all), "LEASE_TOKEN=")
		token, _, _ = strings.Cut(strings.Trim(token, "'\""), "\n")
		token = strings.Trim(token, "'\"")
		ask("POST", "/v1/leases/self/heartbeat", token, 200)
		ask("DELETE", "/v1/leases/self", token, 204)
		one := make([]byte, 1)
		_, err = io.ReadFull(stream.Body, one)
		assert.That(t, err == nil, "the stream: %v", err)
		refused := ask("GET", "/v1/events/ws", "", 426)
		assert.Equal(t, refused.Header.Get("Content-Type"), "application/problem+json")
	}
	// Without TLS nothing is served, nor to a client whose certificate another authority has signed.
	plain, err := http.Get("http://" + address + "/healthz")
	assert.That(t, err == nil && plain.StatusCode == 400, "%v %+v", err, plain)
	plain.Body.Close()
	stranger := ca.Issue([]string{"stranger"})
	pair := assert.Value(tls.X509KeyPair(stranger.Cert, stranger.Key))(t)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}}
	defer transport.CloseIdleConnections()
	a, err := (&http.Client{Transport: transport}).Get("https://" + address + "/healthz")
	if err == nil {
		a.Body.Close()
	}
	assert.That(t, err != nil, "a stranger's certificate was taken: %+v", a)
}

// A client of HTTP/2 gives a request up with RST_STREAM, and keeps its connection.
func TestAWaitThatAClientOfHTTP2GivesUpLeavesTheQueue(t *testing.T) {
	ca := certtest.New(t, "servers")
	cert, key := ca.Issue([]string{"127.0.0.1"}).Files()
	address, _ := serveTLS(t, tlsFlags{CertFile: cert, KeyFile: key})
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, Protocols: new(http.Protocols), MaxConnsPerHost: 1}
	transport.Protocols.SetHTTP2(true)
	defer transport.CloseIdleConnections()
	ask := func(ctx context.Context, method, path string) (string, error) {
		r, err := http.NewRequestWithContext(ctx, method, "https://"+address+path, nil)
		assert.NoError(t, err)
		a, err := transport.RoundTrip(r)
		if err != nil {
			return "", err
		}
		defer a.Body.Close()
		body, err := io.ReadAll(a.Body)
		return string(body), err
	}
	shows := func(what string) func() bool {
		return func() bool {
			body, err := ask(t.Context(), "GET", "/v1/locks/a")
			return err == nil && strings.Contains(body, what)
		}
	}
	testkit.Eventually(t, 30*time.Second, func() bool {
		body, err := ask(t.Context(), "POST", "/v1/locks/a/leases?ttl=5m")
		return err == nil && strings.Contains(body, `"state":"held"`)
	}, "the lock is held")
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := ask(ctx, "POST", "/v1/locks/a/leases?wait=1h")
		ended <- err
	}()
	testkit.Eventually(t, 30*time.Second, shows(`"queue_length":1`), "a client waits")
	giveUp()
	assert.That(t, <-ended != nil, "the request was answered")
	testkit.Eventually(t, 30*time.Second, shows(`"queue_length":0`), "none waits")
}

// A connection goes on with the certificate that it began with; a new one gets the new one.
func TestAGatewayTakesOverANewCertificate(t *testing.T) {
	testkit.NotShort(t, "a certificate is read again after 5 s")
	ca := certtest.New(t, "ca")
	cert, key := ca.Issue([]string{"127.0.0.1"}).Files()
	address, _ := serveTLS(t, tlsFlags{CertFile: cert, KeyFile: key})
	next := ca.Issue([]string{"127.0.0.1"})
	next.Write(cert, key)
	testkit.Eventually(t, 60*time.Second, func() bool {
		c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: ca.Pool()})
		if err != nil {
			return false
		}
		defer c.Close()
		return fmt.Sprint(c.ConnectionState().PeerCertificates[0].SerialNumber) == fmt.Sprint(next.X509.SerialNumber)
	}, "a new connection sees the new certificate")
}
