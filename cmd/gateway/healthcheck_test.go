package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// served starts a server in place of a gateway and returns its address.
func served(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestTheHealthCheckSaysWhatIsWrong(t *testing.T) {
	closed := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	closed.Close()
	healthy := served(t, func(http.ResponseWriter, *http.Request) {})
	for name, c := range map[string]struct {
		listen string
		code   int
		says   []string
	}{
		"alive": {healthy, 0, nil},
		"not alive": {served(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"code":"not_alive"}`))
		}), 1, []string{"503 Service Unavailable", "not_alive"}},
		"another program": {served(t, http.NotFound), 1, []string{"404 Not Found"}},
		"sent elsewhere": {served(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+healthy+"/healthz", http.StatusFound)
		}), 1, []string{"302 Found"}},
		"no listener": {closed.Addr().String(), 1, []string{"connection refused", "hint: is it running"}},
		"no address":  {"8080", 64, []string{"--listen", "127.0.0.1:8080"}},
		"no port yet": {"127.0.0.1:0", 64, []string{"choice of a port", "hint: "}},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := command(t, "healthcheck", "--listen", c.listen)
			assert.That(t, code == c.code && stdout == "" && (stderr == "") == (c.code == 0),
				"exit %d, want %d, stdout %q, stderr:\n%s", code, c.code, stdout, stderr)
			for _, part := range c.says {
				assert.That(t, strings.Contains(stderr, part) && strings.HasPrefix(stderr, "error: "), "does not say %q:\n%s", part, stderr)
			}
		})
	}
}

func TestTheHealthCheckDoesNotWaitForEver(t *testing.T) {
	silent := served(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	err := healthcheck(t.Context(), &config{Listen: silent}, 50*time.Millisecond)
	assert.That(t, err != nil && strings.Contains(err.Error(), "did not answer within 50ms"), "ended with %v", err)
}

func TestTheHealthCheckTakesTheSettingsOfTheServer(t *testing.T) {
	healthy := served(t, func(http.ResponseWriter, *http.Request) {})
	noListener := "127.0.0.1:1"
	config := file(t, "config.yaml", "listen: "+healthy+"\n", 0o600)
	code, _, stderr := command(t, "healthcheck", "--config", config)
	assert.That(t, code == 0, "with a file: exit %d: %s", code, stderr)
	t.Setenv("LOCKKEEPER_LISTEN", noListener)
	code, _, stderr = command(t, "healthcheck", "--config", config)
	assert.That(t, code == 1 && strings.Contains(stderr, noListener), "a variable beats the file: exit %d: %s", code, stderr)
	t.Setenv("LOCKKEEPER_LISTEN", healthy)
	code, _, stderr = command(t, "healthcheck")
	assert.That(t, code == 0, "with a variable: exit %d: %s", code, stderr)
	code, _, stderr = command(t, "healthcheck", "--listen", noListener)
	assert.That(t, code == 1, "a flag beats the variable: exit %d: %s", code, stderr)
}

func TestTheHealthCheckAsksWhatEveryGatewayAnswers(t *testing.T) {
	var asked string
	address := served(t, func(_ http.ResponseWriter, r *http.Request) { asked = r.Method + " " + r.Host + r.URL.Path })
	assert.NoError(t, healthcheck(t.Context(), &config{Listen: address}, 3*time.Second))
	assert.That(t, asked == "GET localhost/healthz", "asked for %s", asked)
}

func TestAGatewayThatListensEverywhereIsAskedOnLoopback(t *testing.T) {
	for listen, want := range map[string]string{
		":8080": "127.0.0.1:8080", "0.0.0.0:8080": "127.0.0.1:8080", "[::]:8080": "127.0.0.1:8080", "[::ffff:0.0.0.0]:8080": "127.0.0.1:8080",
		"[::ffff:127.0.0.2]:8080": "127.0.0.2:8080", "127.0.0.2:8080": "127.0.0.2:8080", "[::1]:8080": "[::1]:8080", "[fe80::1%eth0]:8080": "[fe80::1%eth0]:8080",
		"gateway-1:8080": "gateway-1:8080", "localhost:http": "localhost:http",
	} {
		network, got, err := (&config{Listen: listen}).reachable()
		assert.That(t, network == "tcp" && got == want && err == nil, "%s: asked at %s (%v), want %s", listen, got, err, want)
	}
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		listener := assert.Value(net.Listen("tcp", listen))(t)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		server.Listener.Close()
		server.Listener = listener
		server.Start()
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		host, _, _ := net.SplitHostPort(listen)
		assert.Nil(t, healthcheck(t.Context(), &config{Listen: net.JoinHostPort(host, port)}, 3*time.Second), "%s", listen)
		server.Close()
	}
}

func TestAHealthCheckNeedsNoOtherSetting(t *testing.T) {
	healthy := served(t, func(http.ResponseWriter, *http.Request) {})
	// No --zk, and none of the files that the server reads: the check runs next
	// to a gateway whose flags it does not see.
	t.Setenv("LOCKKEEPER_ZK_AUTH_FILE", "/does/not/exist")
	code, _, stderr := command(t, "healthcheck", "--listen", healthy)
	assert.That(t, code == 0, "exit %d: %s", code, stderr)
}
