package httpapi

import (
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/metrics"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// A page in a loop must not fill the log: its refusals are counted, and one line tells of them.
func TestRefusalsByTheGuardAreCountedAndLoggedOnce(t *testing.T) {
	g, log := logged(t, slog.LevelInfo)
	for range 50 {
		g.send(t, "POST", "/v1/locks/deploy/leases", apitest.Header("Origin", "http://evil.example"))
		g.send(t, "GET", "/v1/locks", host("rebind.example"))
		g.send(t, "GET", "/v1/locks", apitest.Header(fleet.Header, "forged"))
	}
	calls := g.asked()
	assert.That(t, len(calls) <= 0, "the manager was asked: %q", calls)
	line := log.next(t)
	assert.That(t, strings.HasPrefix(line["msg"].(string), "requests refused") && line["cross_origin"] == 1.0 && line["level"] == "INFO",
		"the log says %v", line)
	assert.Equal(t, log.text(), "", "there is more")
	text := string(g.send(t, "GET", "/metrics").Body)
	for _, code := range guardCodes[:3] {
		want := `lockkeeper_http_refused_total{code="` + code + `"} 50`
		assert.That(t, strings.Contains(text, want), "the metrics lack %s", want)
		assert.That(t, byGuard(code, nil) && kinds[code] != nil, "%s is no refusal by the guard", code)
	}
}

// Everything else is one line each, as it was: it comes from clients, and tells what they do.
func TestAnyOtherRefusalIsLoggedByItself(t *testing.T) {
	g, log := logged(t, slog.LevelInfo)
	for _, path := range []string{"/v1/locks/deploy/leases?ttl=5", "/v1/locks/deploy/leases?surprise=1"} {
		g.send(t, "POST", path)
		line := log.next(t)
		assert.That(t, line["msg"] == "request" && line["status"] == 422.0, "%s: %v", path, line)
	}
	g, log = logged(t, slog.LevelDebug)
	g.send(t, "GET", "/v1/locks", host("rebind.example"))
	log.next(t) // the sum
	line := log.next(t)
	assert.That(t, line["msg"] == "request" && line["level"] == "DEBUG" && line["code"] == "host_not_allowed", "at debug: %v", line)
}

func TestALineAMinuteTellsOfAllRefusalsSinceTheLast(t *testing.T) {
	var r refusals
	began := time.Now()
	for _, c := range []struct {
		after time.Duration
		code  code
		tells map[code]int
	}{
		{0, codeCrossOrigin, map[code]int{codeCrossOrigin: 1}}, // at once: one refusal alone is told, too
		{0, codeCrossOrigin, nil},
		{59 * time.Second, codeHostNotAllowed, nil},
		{time.Minute, codeCrossOrigin, map[code]int{codeCrossOrigin: 2, codeHostNotAllowed: 1}},
		{time.Minute + 1, codeCrossOrigin, nil},
		{time.Hour, codeSealRefused, map[code]int{codeCrossOrigin: 1, codeSealRefused: 1}},
		{2 * time.Hour, codeSealRefused, map[code]int{codeSealRefused: 1}},
	} {
		if got := r.add(c.code, began.Add(c.after)); !maps.Equal(got, c.tells) || (got == nil) != (c.tells == nil) {
			t.Errorf("%s after %v: told %v, want %v", c.code, c.after, got, c.tells)
		}
	}
}

// The address of metrics has the guard, the problems and the headers of the main one, and nothing besides metrics.
func TestTheAddressOfMetricsIsGuardedToo(t *testing.T) {
	g := serve(t, func(o *Options) {
		*o = Options{OnlyMetrics: true, Metrics: metrics.New("test"), Logger: o.Logger, AllowedHosts: []string{"gateway.example"}}
	})
	for _, c := range []struct {
		method, path string
		option       apitest.Option
		status       int
	}{
		{"GET", "/metrics", host("gateway.example:9090"), http.StatusOK},
		{"HEAD", "/metrics", host("localhost"), http.StatusOK},
		{"GET", "/metrics", host("evil.example"), http.StatusMisdirectedRequest},
		{"GET", "/metrics", host("0.0.0.0:9090"), http.StatusMisdirectedRequest},
		{"GET", "/metrics", apitest.Header("Origin", "http://evil.example"), http.StatusForbidden},
		{"GET", "/metrics", apitest.Header("Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
		{"GET", "/metrics", apitest.Header(fleet.Header, "forged"), http.StatusForbidden},
		{"POST", "/metrics", host("localhost"), http.StatusMethodNotAllowed},
		{"OPTIONS", "/metrics", host("localhost"), http.StatusNoContent},
	} {
		g.expect(t, c.status, "", c.method, c.path, c.option)
	}
	for _, path := range []string{"/", "/v1/locks", "/healthz", "/metrics/", "/debug/pprof/", "/internal/v1/ends"} {
		if a := get(t, g, "GET", path); a.status != http.StatusNotFound || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("GET %s: %d %s", path, a.status, a.body)
		}
	}
}
