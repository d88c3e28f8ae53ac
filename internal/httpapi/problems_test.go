package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

func TestTheCatalogueAndTheSpecificationAgree(t *testing.T) {
	spec, err := apitest.Load()
	assert.NoError(t, err)
	var specified, served []string
	for _, v := range spec.Doc.Components.Schemas["ProblemCode"].Value.Enum {
		specified = append(specified, v.(string))
	}
	for _, k := range catalogue() {
		served = append(served, k.code)
		assert.Equal(t, spec.Statuses[k.code], k.status, "the status of %s in the specification", k.code)
	}
	assert.That(t, slices.Equal(specified, served), "the specification has %q,\nthe catalogue %q", specified, served)
	assert.That(t, len(kinds) == len(served), "a code is there twice")
}

func TestEveryOperationHasTheOneProblem(t *testing.T) {
	spec, err := apitest.Load()
	assert.NoError(t, err)
	for path, item := range spec.Doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status, r := range operation.Responses.Map() {
				assert.That(t, (status == "default") == (r.Ref == "#/components/responses/Problem"), "%s %s: %s is %q", method, path, status, r.Ref)
				assert.That(t, status < "4" || status == "default", "%s %s describes %s by itself", method, path, status)
			}
			assert.That(t, operation.Responses.Default() != nil, "%s %s has no problem", method, path)
		}
	}
}

// domainCodes reads the codes out of locks/errors.go, so that a new one cannot be forgotten here.
func domainCodes(t *testing.T) []locks.Code {
	file, err := parser.ParseFile(token.NewFileSet(), "../locks/errors.go", nil, 0)
	assert.NoError(t, err)
	var codes []locks.Code
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Code") {
			value, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			assert.NoError(t, err)
			codes = append(codes, locks.Code(value))
		}
		return true
	})
	return codes
}

func TestEveryErrorOfTheDomainHasItsProblem(t *testing.T) {
	codes := domainCodes(t)
	assert.Must(t, len(codes) >= 10, "only %d codes found", len(codes))
	for _, c := range codes {
		if kinds[code(c)] == nil {
			t.Errorf("the catalogue lacks %s", c)
			continue
		}
		g := serve(t)
		g.release = func(string, string) error {
			return fmt.Errorf("releasing: %w", &locks.Error{Code: c, Field: "ttl", Detail: "what to do", RetryAfter: 2100 * time.Millisecond,
				Reason: locks.ReasonExpired, Err: errors.New("the cause")})
		}
		spec := kinds[code(c)]
		req := rawRequest(t, g, "DELETE", "/v1/leases/self")
		a := rawSend(t, req)
		if a.status != spec.status || !bytes.Contains(a.body, []byte(`"code":"`+spec.code+`"`)) || bytes.Contains(a.body, []byte("the cause")) {
			t.Errorf("%s: %d %s", c, a.status, a.body)
		}
		want := map[again]string{never: "", atOnce: "3", afterAWhile: "3"}[spec.again]
		assert.Equal(t, a.header.Get("Retry-After"), want, "%s: Retry-After", c)
	}
}

func TestRetryAfterIsAtLeastASecondExceptWhereAnotherGatewayCanHelpAtOnce(t *testing.T) {
	for _, c := range []struct {
		code  code
		after time.Duration
		want  string
	}{
		{"held_by_other", 0, "1"},
		{"held_by_other", 10 * time.Millisecond, "1"},
		{"wait_elapsed", time.Second, "1"},
		{"zookeeper_unavailable", 1001 * time.Millisecond, "2"},
		{"zookeeper_unavailable", 0, "1"},
		{"too_many_leases", 0, "1"},
		{"owned_by_other_gateway", 0, "0"},
		{"draining", 0, "0"},
		{"lease_ended", time.Second, "-"},
		{"internal", time.Second, "-"},
	} {
		got := "-"
		if wait, ok := (&problem{code: c.code, retryAfter: c.after}).retry(); ok {
			got = strconv.FormatInt(retrySeconds(wait), 10)
		}
		assert.That(t, got == c.want, "%s after %s: %s, want %s", c.code, c.after, got, c.want)
	}
}

func TestAHeldLockIsRefusedWithItsHolders(t *testing.T) {
	g := serve(t)
	q := queue()
	for _, c := range []locks.Code{locks.CodeHeldByOther, locks.CodeWaitElapsed} {
		g.acquire = refuse(&locks.Error{Code: c, Holders: q.Holders, QueueLength: 0, RetryAfter: 300 * time.Millisecond, Detail: "try later"})
		_, a, err := g.client.Acquire(g.ctx, "deploy")
		assert.NoError(t, err)
		p := a.Problem
		if a.Status != 409 || a.Code() != string(c) || len(p.Holders) != 1 || p.Holders[0].Owner != "me" || p.Holders[0].Metadata != `{"job":7}` ||
			*p.Holders[0].AgeMS != 65_300 || p.Holders[0].FencingToken != 8589934592 || *p.QueueLength != 0 || *p.RetryAfterMS != 300 || a.Header.Get("Retry-After") != "1" {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
}

func TestAnEndedLeaseTellsItsReason(t *testing.T) {
	g := serve(t)
	g.heartbeat = func(string, string, time.Duration) (locks.Heartbeat, error) {
		return locks.Heartbeat{}, &locks.Error{Code: locks.CodeEnded, Reason: locks.ReasonRemoved, Detail: "its contender was removed"}
	}
	_, a, err := g.client.Heartbeat(g.ctx, someToken)
	assert.That(t, err == nil && a.Status == 410 && a.Problem.Reason == "removed" && a.Header.Get("Retry-After") == "",
		"%v %d %s", err, a.Status, a.Body)
}

func TestAnErrorThatIsNotOfTheDomainTellsNothing(t *testing.T) {
	g := serve(t)
	g.release = func(string, string) error { return errors.New("secret detail") }
	a, err := g.client.Release(g.ctx, someToken)
	assert.That(t, err == nil && a.Status == 500 && !bytes.Contains(a.Body, []byte("secret")), "%v %d %s", err, a.Status, a.Body)
}

func TestTheTypeOfAProblemIsAPageOfTheGateway(t *testing.T) {
	g := serve(t)
	if a := g.expect(t, 422, "duration_needs_unit", "POST", "/v1/locks/x/leases?ttl=30"); a.Problem.Type != "/problems/duration_needs_unit" {
		t.Errorf("%s", a.Body)
	}
	for _, k := range catalogue() {
		a := g.expect(t, 200, "", "GET", "/problems/"+k.code)
		for _, part := range []string{k.title, k.code, k.cause, k.help, `"type": "/problems/` + k.code + `"`} {
			assert.That(t, part != "" && strings.Contains(string(a.Body), part), "%s lacks %q:\n%s", k.code, part, a.Body)
		}
	}
	html := apitest.Header("Accept", "text/html,*/*;q=0.8")
	a := g.send(t, "GET", "/problems/held_by_other", html)
	if !strings.HasPrefix(string(a.Body), "<!doctype html>") || a.Header.Get("Content-Type") != "text/html; charset=utf-8" || a.Header.Get("Vary") != "Accept" {
		t.Errorf("%v %s", a.Header, a.Body)
	}
	page := apitest.Header("If-None-Match", a.Header.Get("ETag"))
	g.expect(t, 304, "", "GET", "/problems/held_by_other", html, page)
	g.expect(t, 200, "", "GET", "/problems/held_by_other", page) // the text is another representation
	g.expect(t, 404, "route_not_found", "GET", "/problems/nothing")
}
