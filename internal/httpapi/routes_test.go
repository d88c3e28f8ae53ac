package httpapi

import (
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

func TestTheRoutesAndTheSpecificationAgree(t *testing.T) {
	spec, err := apitest.Load()
	assert.NoError(t, err)
	specified := map[string]string{}
	for path, item := range spec.Doc.Paths.Map() {
		for method, operation := range item.Operations() {
			specified[method+" "+path] = operation.OperationID
			if method == http.MethodGet {
				specified[http.MethodHead+" "+path] = operation.OperationID
			}
		}
	}
	for _, r := range documents() {
		specified["GET "+r.pattern], specified["HEAD "+r.pattern] = r.operation, r.operation
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		specified[method+" /v1/check-fence"] = "CheckFence" // as its description says
	}
	operations := maps.Clone(specified)
	err = chi.Walk(New(Options{Locks: newFake()}).router, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		pattern = strings.Replace(pattern, "/leases/self", "/leases/{id}", 1) // a path of its own for the same
		_, ok := specified[method+" "+pattern]
		assert.That(t, ok || operations[method+" "+pattern] != "", "%s %s is served and not specified", method, pattern)
		delete(specified, method+" "+pattern)
		return nil
	})
	assert.NoError(t, err)
	for route, operation := range specified {
		t.Errorf("%s (%s) is specified and not served", route, operation)
	}
	for _, r := range routeTable() {
		assert.That(t, r.operation != "", "%s %s has no name", r.method, r.pattern)
	}
}

func TestHeadWorksWhereverGetDoes(t *testing.T) {
	_, with := withWebhooks(t, newShelf())
	g := serve(t, with)
	hook := read[api.Webhook](t, g.send(t, "POST", "/v1/webhooks?url=http://127.0.0.1:9/")).ID
	for _, r := range append(routeTable(), documents()...) {
		if r.method != http.MethodGet || strings.HasPrefix(r.pattern, "/v1/events") { // streams: events_test.go
			continue
		}
		if r.operation == "GetHistory" || r.operation == "ListHistory" || r.operation == "GetStats" {
			continue // as the streams, and remembered_test.go
		}
		id := someID
		if strings.HasPrefix(r.pattern, "/v1/webhooks") {
			id = hook
		}
		path := strings.NewReplacer("{lock}", "deploy", "{id}", id, "{code}", "held_by_other").Replace(r.pattern)
		status := 200
		switch r.operation {
		case "GetLeader":
			status = 404 // the fake's lock is free
		case "GetFence":
			path += "?fencing_token=1"
		case "CheckFence":
			path, status = path+"?lock=deploy&fencing_token=8589934592", 204
		}
		get := g.send(t, http.MethodGet, path, apitest.Token(someToken))
		head := g.send(t, http.MethodHead, path, apitest.Token(someToken))
		assert.That(t, get.Status == status && head.Status == status && (len(get.Body) != 0 || status != 200),
			"%s: GET %d, HEAD %d", path, get.Status, head.Status)
		if got, want := head.Header.Get("Content-Type"), get.Header.Get("Content-Type"); got != want {
			t.Errorf("%s: HEAD has Content-Type %q, GET %q", path, got, want)
		}
	}
}

func TestWhatIsNotThereIsAProblemToo(t *testing.T) {
	g := serve(t)
	for _, c := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{"GET", "/", 404, "route_not_found", ""},
		{"GET", "/v1", 404, "route_not_found", ""},
		{"GET", "/v1/locks/", 404, "route_not_found", ""},
		{"POST", "/v1/locks/a/b/leases", 404, "route_not_found", ""},
		{"GET", "/v2/locks", 404, "route_not_found", ""},
		{"PATCH", "/v1/locks/deploy", 405, "method_not_allowed", "GET, HEAD, PUT, DELETE, OPTIONS"},
		{"GET", "/v1/locks/deploy/destroy", 405, "method_not_allowed", "POST, OPTIONS"},
		{"DELETE", "/v1/locks/deploy/leases", 405, "method_not_allowed", "POST, OPTIONS"},
		{"GET", "/v1/locks/a%3Ab/leases", 405, "method_not_allowed", "POST, OPTIONS"},
		{"PUT", "/v1/leases/" + someID, 405, "method_not_allowed", "GET, HEAD, PATCH, DELETE, OPTIONS"},
		{"GET", "/v1/leases/self/heartbeat", 405, "method_not_allowed", "POST, OPTIONS"},
		{"BREW", "/v1/locks", 405, "method_not_allowed", "GET, HEAD, OPTIONS"},
	} {
		a := g.send(t, c.method, c.path)
		assert.That(t, a.Status == c.status && a.Code() == c.code && a.Header.Get("Allow") == c.allow,
			"%s %s: %d %s Allow %q", c.method, c.path, a.Status, a.Code(), a.Header.Get("Allow"))
	}
	if a := g.send(t, "POST", "/v1/locks/a/b/leases"); !strings.Contains(a.Problem.Detail, "team:job") {
		t.Errorf("a slash is not explained: %q", a.Problem.Detail)
	}
	if a := g.send(t, "POST", "/v1/locks/a/break"); !strings.Contains(a.Problem.Detail, "nothing at this path") {
		t.Errorf("a path that there is not is explained by its slashes alone: %q", a.Problem.Detail)
	}
	if a := g.send(t, "POST", "/v1/locks/a/leases/"); !strings.Contains(a.Problem.Detail, "ends with a slash") {
		t.Errorf("a slash at the end is not explained: %q", a.Problem.Detail)
	}
	calls := g.asked()
	assert.That(t, len(calls) <= 0, "the manager was asked: %q", calls)
}

// net/http would answer this one by itself, for any client.
func TestAQuestionAboutEverythingIsGuardedToo(t *testing.T) {
	g := serve(t)
	for origin, want := range map[string]int{"": 404, "http://evil.example": 403} {
		req := rawRequest(t, g, "OPTIONS", "")
		req.URL.Opaque = "*"
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		a := rawSend(t, req)
		if a.status != want || a.header.Get("Lockkeeper-Request-Id") == "" || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("OPTIONS * from %q: %d %v %s", origin, a.status, a.header, a.body)
		}
	}
}

func TestAPanicIsAProblemAndTheGatewayGoesOn(t *testing.T) {
	g := serve(t)
	g.release = func(string, string) error { panic("whoops") }
	a := g.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken))
	assert.That(t, a.Status == 500 && a.Code() == "internal" && !strings.Contains(string(a.Body), "whoops"), "%d %s", a.Status, a.Body)
	g.expect(t, 200, "", "GET", "/healthz")
}

// Half an answer is out: the client must not take it for a whole one.
func TestAPanicInTheMiddleOfAnAnswerCutsTheConnection(t *testing.T) {
	g, log := logged(t, slog.LevelInfo)
	g.server.exposition = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
		panic("whoops")
	})
	a, err := g.client.Send(g.ctx, "GET", "/metrics")
	assert.That(t, err != nil, "answered %+v", a)
	line := log.next(t)
	assert.That(t, line["operation"] == "Metrics" && line["level"] == "ERROR" && line["code"] == "internal", "%v", line)
}
