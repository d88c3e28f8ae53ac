package apitest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// recorder is a test that may fail without failing this one.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recorder) Cleanup(f func()) { r.TB.Cleanup(f) }

// reply is what a gateway says in a test.
type reply struct {
	status int
	header map[string]string
	body   string
}

const (
	anID  = "0123456789abcdef"
	lease = `{"lease_id":"a1","lock":"deploy","ns":"default","mode":"exclusive","state":"held","ttl_ms":1,"failover_safe":true,"rev":"1"}`
)

var grant = `{"token":"lk1.a.b.c","fencing_token":1,"expires_in_ms":1,` + lease[1:]

func problemBody(status int, code, rest string) string {
	return fmt.Sprintf(`{"type":"/problems/%s","title":"t","status":%d,"code":"%s","request_id":"%s"%s}`, code, status, code, anID, rest)
}

// good is a request's right answer; each row of the test below spoils one.
func good(status int, contentType, body string, more ...string) reply {
	r := reply{status, map[string]string{"Lockkeeper-Request-Id": anID, "Cache-Control": "no-store", "Content-Type": contentType,
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Cross-Origin-Resource-Policy": "same-origin", "X-Content-Type-Options": "nosniff"}, body}
	for i := 0; i < len(more); i += 2 {
		r.header[more[i]] = more[i+1]
	}
	return r
}

// judge lets a client receive the reply and returns what it complained about.
func judge(t *testing.T, method, path string, r reply) []string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		for name, value := range r.header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(r.status)
		_, _ = io.WriteString(w, r.body)
	}))
	defer server.Close()
	rec := &recorder{TB: t}
	assert.Value(New(rec, server.URL).Send(t.Context(), method, path))(t)
	return rec.errors
}

func shellBody(code string, status int) string {
	return fmt.Sprintf("LEASE_ID=\nLEASE_TOKEN=\nFENCING_TOKEN=\nLEASE_STATE=\nLEASE_TTL_MS=\nLEASE_WAITED_MS=\nNOTIFY_SECRET=\nLEASE_ERROR=%s\nLEASE_STATUS=%d\nfalse\n", code, status)
}

func TestAnswersOfTheSpecificationPass(t *testing.T) {
	const created = "/v1/locks/deploy/leases"
	for _, c := range []struct {
		method, path string
		reply        reply
	}{
		{"POST", created, good(201, "application/json", grant, "Location", "/v1/leases/a1")},
		{"POST", created + "?format=env", good(201, "text/plain; charset=utf-8", "LEASE_ID=a\nLEASE_TOKEN=b.-_\nFENCING_TOKEN=\nLEASE_STATE=waiting\nLEASE_TTL_MS=1\nLEASE_WAITED_MS=\nNOTIFY_SECRET=\nLEASE_ERROR=\nLEASE_STATUS=201\n", "Location", "/v1/leases/a1")},
		{"POST", created + "?format=env", good(409, "text/plain; charset=utf-8", shellBody("held_by_other", 409), "Retry-After", "2")},
		{"GET", "/nothing?format=env", good(404, "text/plain; charset=utf-8", shellBody("route_not_found", 404))},
		{"POST", created, good(409, "application/problem+json", problemBody(409, "held_by_other", `,"holders":[],"retry_after_ms":1001`), "Retry-After", "2")},
		{"DELETE", "/v1/leases/a1", good(204, "", "")},
		{"GET", "/v1/leases/self", good(200, "application/json", lease, "ETag", `"1"`)},
		{"HEAD", "/v1/leases/self", good(200, "application/json", "", "ETag", `"1"`)},
		{"GET", "/nothing", good(404, "application/problem+json", problemBody(404, "route_not_found", ""))},
		{"PUT", "/v1/leases", good(405, "application/problem+json", problemBody(405, "method_not_allowed", ""), "Allow", "GET, HEAD")},
		{"GET", "/v1/locks/a%3Ab", good(200, "application/json", `{"lock":"a:b","ns":"default","state":"free","holders":[],"queue_length":0}`, "ETag", `"1"`)},
	} {
		complaints := judge(t, c.method, c.path, c.reply)
		assert.That(t, len(complaints) <= 0, "%s %s: %q", c.method, c.path, complaints)
	}
}

func TestAnAnswerThatTheSpecificationDoesNotHaveFailsTheTest(t *testing.T) {
	const acquire = "/v1/locks/deploy/leases"
	at := []string{"Location", "/v1/leases/a1"}
	for what, c := range map[string]struct {
		method, path string
		reply        reply
	}{
		"a status that is not listed":          {"POST", acquire, good(418, "application/problem+json", problemBody(418, "internal", ""))},
		"a status of another operation":        {"GET", "/v1/leases/self", good(201, "application/json", grant, "ETag", `"1"`)},
		"a member that no schema names":        {"POST", acquire, good(201, "application/json", strings.Replace(grant, "{", `{"surprise":1,`, 1), at...)},
		"a member that is missing":             {"POST", acquire, good(201, "application/json", strings.Replace(grant, `"ttl_ms":1,`, "", 1), at...)},
		"a member of another type":             {"POST", acquire, good(201, "application/json", strings.Replace(grant, `"ttl_ms":1`, `"ttl_ms":"1"`, 1), at...)},
		"a grant without its token":            {"POST", acquire, good(201, "application/json", lease, at...)},
		"a ticket that holds":                  {"POST", acquire, good(202, "application/json", grant, at...)},
		"text that was not asked for":          {"GET", "/v1/locks/a", good(200, "text/plain", "a", "ETag", `"1"`)},
		"a code with another code's status":    {"POST", acquire, good(410, "application/problem+json", problemBody(410, "held_by_other", ""))},
		"a conflict of a look":                 {"GET", "/v1/locks/a", good(409, "application/problem+json", problemBody(409, "held_by_other", ""))},
		"a state that is not listed":           {"POST", acquire, good(201, "application/json", strings.Replace(grant, `"held"`, `"gone"`, 1), at...)},
		"a nested member that no schema has":   {"GET", "/v1/locks/a", good(200, "application/json", `{"lock":"a","ns":"default","state":"held","holders":[{"znode":"/z","mode":"exclusive","token":"x"}],"queue_length":0}`, "ETag", `"1"`)},
		"a content type that is not listed":    {"POST", acquire, good(201, "text/html", lease, at...)},
		"a problem where a shell asked":        {"POST", acquire + "?format=env", good(409, "application/problem+json", problemBody(409, "held_by_other", `,"holders":[],"retry_after_ms":1001`), "Retry-After", "2")},
		"a problem where a shell mistyped":     {"GET", "/nothing?format=env", good(404, "application/problem+json", problemBody(404, "route_not_found", ""))},
		"shell lines that nothing asked for":   {"POST", acquire, good(409, "text/plain", shellBody("held_by_other", 409))},
		"shell lines of another status":        {"POST", acquire + "?format=env", good(409, "text/plain", shellBody("held_by_other", 503))},
		"shell lines with a code of nothing":   {"POST", acquire + "?format=env", good(409, "text/plain", shellBody("no_such_code", 409))},
		"a failure that does not end in false": {"POST", acquire + "?format=env", good(409, "text/plain", strings.TrimSuffix(shellBody("held_by_other", 409), "false\n"))},
		"shell lines that need quoting":        {"POST", acquire, good(201, "text/plain", "LEASE_ID=a b\nLEASE_TOKEN=c\nFENCING_TOKEN=1\n", at...)},
		"no Location":                          {"POST", acquire, good(201, "application/json", lease)},
		"no ETag":                              {"GET", "/v1/leases/self", good(200, "application/json", lease)},
		"no request id":                        {"DELETE", "/v1/leases/a1", good(204, "", "", "Lockkeeper-Request-Id", "")},
		"an answer that may be stored":         {"DELETE", "/v1/leases/a1", good(204, "", "", "Cache-Control", "private")},
		"no JSON":                              {"POST", acquire, good(201, "application/json", "{", at...)},
		"a body where there is none":           {"GET", "/healthz", good(200, "application/json", `{"status":"ok","more":1}`)},
		"a problem as plain JSON":              {"POST", acquire, good(409, "application/json", problemBody(409, "held_by_other", ""))},
		"a problem with another status":        {"POST", acquire, good(409, "application/problem+json", problemBody(410, "held_by_other", ""))},
		"a problem with an unknown code":       {"POST", acquire, good(409, "application/problem+json", problemBody(409, "surprise", ""))},
		"a problem of another type":            {"POST", acquire, good(409, "application/problem+json", strings.Replace(problemBody(409, "held_by_other", ""), "problems/held", "problems/hold", 1))},
		"a problem of another request":         {"POST", acquire, good(409, "application/problem+json", problemBody(409, "held_by_other", ""), "Lockkeeper-Request-Id", "fedcba9876543210")},
		"Retry-After without retry_after_ms":   {"POST", acquire, good(409, "application/problem+json", problemBody(409, "held_by_other", ""), "Retry-After", "1")},
		"Retry-After that comes too early":     {"POST", acquire, good(409, "application/problem+json", problemBody(409, "held_by_other", `,"retry_after_ms":1001`), "Retry-After", "1")},
		"a success with Retry-After":           {"DELETE", "/v1/leases/a1", good(204, "", "", "Retry-After", "1")},
		"something where nothing is":           {"GET", "/nothing", good(200, "application/json", "{}")},
		"a plain 404":                          {"GET", "/nothing", good(404, "text/plain", "404 page not found")},
		"a 405 without Allow":                  {"PUT", "/v1/leases", good(405, "application/problem+json", problemBody(405, "method_not_allowed", ""))},
		"HEAD with a status that GET has not":  {"HEAD", "/v1/info", good(204, "application/json", "")},
		"HEAD of what cannot be got":           {"HEAD", "/v1/heartbeats", good(200, "application/json", "")},
		"an answer that may be framed":         {"GET", "/v1/leases/self", good(200, "application/json", lease, "ETag", `"1"`, "Content-Security-Policy", "default-src 'none'")},
		"an answer that may be embedded":       {"GET", "/nothing", good(404, "application/problem+json", problemBody(404, "route_not_found", ""), "Cross-Origin-Resource-Policy", "cross-origin")},
	} {
		assert.That(t, len(judge(t, c.method, c.path, c.reply)) != 0, "%s passes", what)
	}
}

func TestASpecificationThatIsBrokenIsNotUsed(t *testing.T) {
	for _, text := range []string{"", "openapi: 3.0.3", "openapi: 3.0.3\ninfo: {title: t, version: v}\npaths: {/x: {get: {responses: {'200': {$ref: '#/components/responses/None'}}}}}"} {
		_, err := NewSpec([]byte(text))
		assert.That(t, err != nil, "accepted %q", text)
	}
}
