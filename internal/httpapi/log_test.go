package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/httpapi/accesslog"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// next waits for the line of the request and forgets it.
func (l *lines) next(t *testing.T) (line map[string]any) {
	t.Helper()
	waitFor(t, func() bool { return strings.HasSuffix(l.text(), "\n") })
	l.mu.Lock()
	defer l.mu.Unlock()
	text, err := l.buf.ReadBytes('\n')
	assert.NoError(t, err)
	assert.NoError(t, json.Unmarshal(text, &line))
	return line
}

func logged(t *testing.T, level slog.Level) (*gateway, *lines) {
	l := new(lines)
	return serve(t, logTo(t, l, level)), l
}

// logTo has a server log as JSON, requests included.
func logTo(t *testing.T, w io.Writer, level slog.Level) func(*Options) {
	access := accessLogTo(t, w)
	access.JSON, access.Level = true, level
	return func(o *Options) {
		o.Logger = slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
		o.Access = access
	}
}

// accessLogTo is a log of requests that is written until the test ends.
func accessLogTo(t testing.TB, w io.Writer) *accesslog.Log {
	writer := accesslog.NewWriter(w, nil)
	ctx, end := context.WithCancel(context.Background())
	written := make(chan struct{})
	go func() { defer close(written); writer.Run(ctx) }()
	t.Cleanup(func() { end(); <-written })
	return &accesslog.Log{To: writer, Which: accesslog.All, Part: "http"}
}

// A request may be refused before its owner and its namespace are looked at.
func TestTheLogHasNoTextThatCannotBeAnOwnerOrANamespace(t *testing.T) {
	g, log := logged(t, slog.LevelInfo)
	g.server.waiting.limit = 0
	for query, want := range map[string]bool{"ns=prod&owner=me": true, "ns=" + strings.Repeat("n", 65) + "&owner=" + strings.Repeat("o", 129): false, "ns=%1B[31m&owner=%C2%9B31m": false} {
		g.expect(t, 429, "too_many_waiting", "POST", "/v1/locks/deploy/leases?wait=1s&"+query)
		line := log.next(t)
		_, ns := line["ns"]
		_, owner := line["owner"]
		assert.That(t, ns == want && owner == want && line["lock"] == "deploy", "%s: %v", query, line)
	}
}

func TestOneLineTellsAboutOneRequest(t *testing.T) {
	g, log := logged(t, slog.LevelInfo)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	a := g.send(t, "POST", "/v1/locks/deploy/leases?owner=me", apitest.Header("traceparent", trace))
	line := log.next(t)
	for key, want := range map[string]any{
		"level": "INFO", "msg": "request", "operation": "Acquire", "method": "POST", "status": 201.0, "lock": "deploy", "ns": "default", "owner": "me",
		"lease_id": someID, "principal": "anonymous", "client_ip": "127.0.0.1", "traceparent": trace, "trace_id": "0af7651916cd43dd8448eb211c80319c", "request_id": a.Header.Get("Lockkeeper-Request-Id"),
	} {
		assert.That(t, line[key] == want, "%s is %v, want %v", key, line[key], want)
	}
	_, ok := line["duration_ms"].(float64)
	assert.That(t, ok, "no duration: %v", line)
	assert.Equal(t, log.text(), "", "there is more")
}

func TestWhatEndsALeaseSaysOfWhichTraceItIsAPart(t *testing.T) {
	g := serve(t)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, end := range []struct{ method, path string }{
		{"DELETE", "/v1/leases/self"},
		{"DELETE", "/v1/leases/self?hold=x"},
		{"POST", "/v1/leases/" + someID + "/break"},
		{"POST", "/v1/locks/deploy/contenders/x/break"},
		{"POST", "/v1/locks/deploy/reap?older_than=0s"},
		{"POST", "/v1/locks/deploy/destroy"},
	} {
		for given, want := range map[string]bool{trace: true, trace[1:]: false, "": false} {
			options := opt(apitest.Token(someToken))
			if given != "" {
				options = append(options, apitest.Header("Traceparent", given))
			}
			g.send(t, end.method, end.path, options...)
			calls := g.asked()
			if len(calls) != 1 || strings.HasSuffix(calls[0], " traced "+trace) != want || strings.Contains(calls[0], "traced") != want {
				t.Errorf("%s %s with %q asks %q", end.method, end.path, given, calls)
			}
		}
	}
}

func TestARefusalIsLoggedWithItsCode(t *testing.T) {
	g, log := logged(t, slog.LevelInfo)
	g.send(t, "GET", "/nothing")
	if line := log.next(t); line["code"] != "route_not_found" || line["operation"] != nil || line["level"] != "INFO" {
		t.Errorf("%v", line)
	}
	g.release = func(string, string) error { return &locks.Error{Code: locks.CodeUnavailable, Err: bytes.ErrTooLarge} }
	g.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken))
	if line := log.next(t); line["code"] != "zookeeper_unavailable" || line["lease_id"] != someID || line["level"] != "WARN" || line["error"] != bytes.ErrTooLarge.Error() {
		t.Errorf("%v", line)
	}
	g.release = func(string, string) error { return &locks.Error{Code: locks.CodeTokenWrong} }
	g.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken))
	if line := log.next(t); line["code"] != "lease_token_wrong" || line["lease_id"] != nil {
		t.Errorf("the id of a token that is not genuine: %v", line)
	}
	g.release = func(string, string) error { panic("whoops") }
	g.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken))
	if line := log.next(t); line["level"] != "ERROR" || !strings.Contains(line["error"].(string), "panic: whoops") || !strings.Contains(line["error"].(string), "log_test.go") {
		t.Errorf("%v", line)
	}
}

func TestTheAccessLogMayHaveFailuresAlone(t *testing.T) {
	for which, want := range map[accesslog.Which][]string{
		accesslog.All: {"201", "404", "500"}, accesslog.Errors: {"404", "500"}, accesslog.Off: {"500"},
	} {
		log := new(lines)
		g := serve(t, logTo(t, log, slog.LevelInfo), func(o *Options) { o.Access.Which = which })
		g.send(t, "POST", "/v1/locks/deploy/leases")
		g.send(t, "GET", "/nothing")
		g.release = func(string, string) error { panic("whoops") }
		g.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken))
		for _, status := range want {
			line := log.next(t)
			assert.That(t, fmt.Sprint(line["status"]) == status, "%s: a line about %v, want %s", which, line["status"], status)
		}
	}
}

func TestHeartbeatsAreLoggedAtDebugUnlessTheyFail(t *testing.T) {
	g, log := logged(t, slog.LevelInfo)
	g.send(t, "POST", "/v1/leases/self/heartbeat", apitest.Token(someToken))
	g.send(t, "GET", "/healthz")
	g.send(t, "POST", "/v1/leases/self/heartbeat")
	if line := log.next(t); line["code"] != "lease_token_missing" {
		t.Errorf("the first line is %v", line)
	}
	g, log = logged(t, slog.LevelDebug)
	g.send(t, "POST", "/v1/leases/self/heartbeat", apitest.Token(someToken))
	if line := log.next(t); line["level"] != "DEBUG" || line["lease_id"] != someID {
		t.Errorf("%v", line)
	}
}

// misplaced are requests with secrets: in their places, and where they do not belong.
type misplaced struct {
	method, path string
	options      []apitest.Option
}

const aSecretKey = "a-secret-idempotency-key"

// secretMAC is the secret part of someToken.
var secretMAC = someToken[strings.LastIndexByte(someToken, '.')+1:]

func misplacedSecrets() []misplaced {
	return []misplaced{
		{"POST", "/v1/locks/deploy/leases", opt(apitest.Key(aSecretKey))},
		{"POST", "/v1/locks/deploy/leases?token=" + someToken, nil},
		{"POST", "/v1/locks/deploy/leases?" + someToken, nil},
		{"POST", "/v1/locks/deploy/leases", opt(apitest.JSON(`{"` + someToken + `":1}`))},
		{"POST", "/v1/locks/" + someToken + "/leases", nil},
		{"GET", "/v1/locks/" + someToken, nil},
		{"GET", "/v1/leases/" + someToken, nil},
		{"DELETE", "/v1/leases/" + someToken, opt(apitest.Token(someToken))},
		{"POST", "/v1/leases/" + someToken + "/heartbeat", opt(apitest.Token(someToken))},
		{"POST", "/v1/leases/self/heartbeat", opt(apitest.Token(someToken))},
		{"POST", "/v1/heartbeats", opt(apitest.JSON(`{"tokens":["` + someToken + `"]}`))},
		{"GET", "/" + someToken, nil},
		{"POST", "/v1/locks/deploy/leases?notify_url=https://example.com/%3F" + secretMAC, nil},
		{"POST", "/v1/locks/deploy/leases", opt(apitest.JSON(`{"notify_url":"https://example.com/?` + secretMAC + `"}`))},
		{"DELETE", "/v1/leases/self", opt(apitest.Token(someToken), apitest.Header("traceparent", someToken))},
		{someKey, "/v1/leases/self", opt(apitest.Token(someToken))},
	}
}

func TestNoSecretIsLoggedWhereverItWasPut(t *testing.T) {
	g, log := logged(t, slog.LevelDebug)
	g.acquire = refuse(&locks.Error{Code: locks.CodeKeyReused, Detail: "the key " + aSecretKey})
	for _, send := range misplacedSecrets() {
		g.send(t, send.method, send.path, send.options...)
		waitFor(t, func() bool { return strings.HasSuffix(log.text(), "\n") })
		text := log.text()
		for _, secret := range []string{secretMAC, aSecretKey, someKey} {
			assert.That(t, !strings.Contains(text, secret), "%s %s: the log has %q: %s", send.method, send.path, secret, text)
		}
		log.next(t)
	}
}
