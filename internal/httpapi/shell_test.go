package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

var (
	shellGrammar = regexp.MustCompile(`^([A-Z_]+=[A-Za-z0-9._+/=-]*\n)+(false\n)?$`)
	shellFailed  = regexp.MustCompile(`^LEASE_ID=\nLEASE_TOKEN=\nFENCING_TOKEN=\nLEASE_STATE=\nLEASE_TTL_MS=\nLEASE_WAITED_MS=\nNOTIFY_SECRET=\nLEASE_ERROR=([a-z_]+)\nLEASE_STATUS=([0-9]+)\nfalse\n$`)
)

// expectFailure holds an answer against what a shell must get.
func expectFailure(t *testing.T, what string, a rawAnswer, status int, code string) {
	t.Helper()
	m := shellFailed.FindStringSubmatch(string(a.body))
	if m == nil || !shellGrammar.Match(a.body) {
		t.Errorf("%s: answered %d %q", what, a.status, a.body)
		return
	}
	if a.status != status || m[2] != strconv.Itoa(status) || m[1] != code {
		t.Errorf("%s: answered %d with the lines of %s %s, want %d %s", what, a.status, m[2], m[1], status, code)
	}
	assert.Equal(t, a.header.Get("Content-Type"), "text/plain; charset=utf-8", "%s: the type", what)
	if got := a.header.Get("Content-Length"); got != strconv.Itoa(len(a.body)) {
		t.Errorf("%s: the length is said to be %s of %d", what, got, len(a.body))
	}
	if a.header.Get("Location") != "" || a.header.Get("Lockkeeper-Request-Id") == "" || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s: the header is %v", what, a.header)
	}
}

// A layer is where a request can fail.
type layer struct {
	what, method, path string // without the query
	query              string
	status             int
	code               string
	arrange            func(t *testing.T, g *gateway)
	options            []apitest.Option
}

const aLock, severalLocks = "/v1/locks/deploy/leases", "/v1/leases"

func layers() []layer {
	refused := func(e *locks.Error) func(*testing.T, *gateway) {
		return func(_ *testing.T, g *gateway) { g.acquire = refuse(e) }
	}
	list := []layer{
		{what: "malformed", method: "POST", path: aLock, query: "ttl=%zz", status: 400, code: "malformed_request"},
		{what: "a body that is no JSON", method: "POST", path: aLock, status: 400, code: "malformed_request", options: opt(apitest.JSON(`{`))},
		{what: "a wrong field", method: "POST", path: aLock, query: "ttl=5", status: 422, code: "duration_needs_unit"},
		{what: "an unknown field", method: "POST", path: aLock, query: "tll=5s", status: 422, code: "unknown_field"},
		{what: "a field twice", method: "POST", path: aLock, query: "ttl=5s&ttl=5s", status: 422, code: "repeated_field"},
		{what: "a semicolon", method: "POST", path: aLock, query: "ttl=5s;owner=me", status: 422, code: "invalid_field"},
		{what: "a lock's name", method: "POST", path: "/v1/locks/%24(id)/leases", status: 422, code: "invalid_field"},
		{what: "no locks", method: "POST", path: severalLocks, status: 422, code: "invalid_field"},
		{what: "a large body", method: "POST", path: aLock, status: 413, code: "body_too_large", options: opt(apitest.JSON(strings.Repeat(" ", maxBody+1)))},
		{what: "a form", method: "POST", path: aLock, status: 415, code: "unsupported_media_type", options: opt(apitest.Body("ttl=5s"))},
		{what: "another host", method: "POST", path: aLock, status: 421, code: "host_not_allowed", options: opt(host("evil.example"))},
		{what: "another origin", method: "POST", path: aLock, status: 403, code: "cross_origin", options: opt(apitest.Header("Origin", "http://evil.example"))},
		{what: "a seal", method: "POST", path: aLock, status: 403, code: "fleet_seal_refused", options: opt(apitest.Header(fleet.Header, "v1 x"))},
		{what: "no route", method: "POST", path: "/v1/lock/deploy/leases", status: 404, code: "route_not_found"},
		{what: "a slash at the end", method: "POST", path: aLock + "/", status: 404, code: "route_not_found"},
		{what: "another method", method: "PUT", path: aLock, status: 405, code: "method_not_allowed"},
		{what: "a look", method: "GET", path: aLock, status: 405, code: "method_not_allowed"},
		{what: "no method of HTTP", method: "FETCH", path: aLock, status: 405, code: "method_not_allowed"},
		{what: "POST of a page", method: "POST", path: "/v1/info", status: 405, code: "method_not_allowed"},
		{what: "a panic", method: "POST", path: aLock, status: 500, code: "internal", arrange: func(_ *testing.T, g *gateway) {
			g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) { panic("$(canary)") }
		}},
		{what: "an error without a code", method: "POST", path: aLock, status: 500, code: "internal", arrange: func(_ *testing.T, g *gateway) {
			g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
				return locks.AcquireResult{}, errors.New("$(canary)")
			}
		}},
		{what: "a token of no characters for a shell", method: "POST", path: aLock, status: 500, code: "internal", arrange: func(_ *testing.T, g *gateway) {
			g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
				l := held()
				l.Token = "lk1.$(canary)"
				return locks.AcquireResult{Lease: l, Replayed: true}, nil
			}
		}},
		{what: "a lease that has ended", method: "POST", path: aLock, status: 410, code: "lease_ended", arrange: func(_ *testing.T, g *gateway) {
			g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
				l := held()
				l.State, l.Reason = locks.Ended, locks.ReasonExpired
				return locks.AcquireResult{Lease: l, Replayed: true}, nil
			}
		}},
		{what: "a closed trust window", method: "POST", path: aLock, status: 503, code: "outcome_unknown", arrange: func(_ *testing.T, g *gateway) { g.untrusted.Store(true) }},
		{what: "a drain", method: "POST", path: aLock, query: "wait=1m", status: 503, code: "draining", arrange: func(_ *testing.T, g *gateway) { g.server.Drain() }},
		{what: "a ticket at a drain", method: "POST", path: aLock, query: "wait=1m", status: 503, code: "draining", arrange: func(_ *testing.T, g *gateway) {
			g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
				g.server.Drain()
				return locks.AcquireResult{Lease: waiting()}, nil
			}
		}},
		{what: "too many that wait", method: "POST", path: aLock, query: "wait=1m", status: 429, code: "too_many_waiting", arrange: func(_ *testing.T, g *gateway) { g.server.waiting.limit = 0 }},
		{what: "an owner that is out of reach", method: "POST", path: aLock, status: 503, code: "owner_unreachable", options: opt(apitest.Key(someKey)), arrange: func(t *testing.T, g *gateway) {
			g.sendsTo("owner", testkit.FreeAddr(t))
		}},
	}
	for _, k := range catalogue() {
		if e := (&locks.Error{Code: locks.Code(k.code)}); k.code != codeInternal && !slices.ContainsFunc(list, func(l layer) bool { return l.code == k.code }) {
			e.Detail, e.Field, e.Holders = "$(canary)", "`canary`", queue().Holders
			list = append(list, layer{what: "the manager says " + k.code, method: "POST", path: aLock, status: k.status, code: k.code, arrange: refused(e)})
		}
	}
	return list
}

func TestEveryFailureIsLinesForAShellThatAsks(t *testing.T) {
	asks := map[string]func(l layer) (query string, header apitest.Option){
		"format=env at the end":   func(l layer) (string, apitest.Option) { return l.query + "&format=env", apitest.Query("") },
		"format=env at the start": func(l layer) (string, apitest.Option) { return "format=env&" + l.query, apitest.Query("") },
		"Accept: text/plain":      func(l layer) (string, apitest.Option) { return l.query, apitest.Header("Accept", "text/plain") },
	}
	for name, ask := range asks {
		for _, l := range layers() {
			g, _ := member(t, "asked", "secret")
			if l.arrange != nil {
				l.arrange(t, g)
			}
			query, header := ask(l)
			req := rawRequest(t, g, l.method, l.path+"?"+query)
			req.Header.Del("Lease-Token")
			for _, o := range append(l.options, header) {
				o(req)
			}
			expectFailure(t, name+", "+l.what, rawSend(t, req), l.status, l.code)
		}
	}
}

// Every spelling that may mean format=env is answered for a shell: JSON would reach its eval.
func TestAShellIsRecognisedByWhatItMeantToAsk(t *testing.T) {
	g := serve(t)
	g.acquire = refuse(&locks.Error{Code: locks.CodeHeldByOther, Holders: queue().Holders})
	text, form := apitest.Header("Accept", "text/plain"), apitest.Header("Content-Type", "application/x-www-form-urlencoded")
	for _, c := range []struct {
		method, path string
		options      []apitest.Option
		shell        bool
	}{
		{"POST", aLock + "?format=env", nil, true},
		{"POST", aLock + "?format=env&format=json", nil, true},
		{"POST", aLock + "?format=json&format=env", nil, true},
		{"POST", aLock + "?format=ENV", nil, true},
		{"POST", aLock + "?Format=env", nil, true},
		{"POST", aLock + "?format=+env", nil, true},
		{"POST", aLock + "?format=%22env%22", nil, true},
		{"POST", aLock + "?format=", nil, true},
		{"POST", aLock + "?format", nil, true},
		{"POST", aLock + "?format=sh", nil, true},
		{"POST", aLock + "?format=%zz", nil, true},
		{"POST", aLock + "?form%61t=%65nv", nil, true},
		{"POST", aLock + "?format%3Denv", nil, true},
		{"POST", aLock + "?owner=%zz&format=env", nil, true},
		{"POST", aLock + "?ttl=5s;format=env", nil, true},
		{"POST", aLock + "?&&format=env&&", nil, true},
		{"POST", aLock + "?%ff=%ff&format=env%zz", nil, true},
		{"POST", aLock, opt(apitest.JSON(`{"format":"env"}`)), true},
		{"POST", aLock, opt(apitest.JSON(`{"ttl":"5s","Format":"ENV"}`)), true},
		{"POST", aLock, opt(apitest.Body("ttl=5s&format=env"), form), true},
		{"POST", aLock, opt(text), true},
		{"POST", aLock, opt(apitest.Header("Accept", "TEXT/PLAIN, */*;q=0.1")), true},
		{"POST", "/v1/leases/?locks=a", opt(text), true},
		{"GET", "/?format=env", nil, true},
		{"GET", "/v1/locks/deploy?format=env", nil, true},
		{"GET", "/nothing?format=env", nil, true},
		{"DELETE", "/v1/leases/self?format=env", opt(apitest.Token(someToken)), true},

		{"POST", aLock, nil, false},
		{"POST", aLock + "?format=json", opt(text), false},
		{"POST", aLock, opt(apitest.Header("Accept", "text/plain, application/json")), false},
		{"POST", aLock + "?owner=format%3Denv", nil, false},
		{"POST", aLock + "?notify_url=http://localhost/?format=env", nil, false},
		{"POST", aLock, opt(apitest.JSON(`{"metadata":"format=env"}`)), false},
		{"POST", aLock, opt(apitest.JSON(`{"format":"json"}`)), false},
		{"POST", aLock, opt(apitest.Body("ttl=5s&owner=environment"), form), false},
		{"POST", "/v1/leases/self/heartbeat?ttl=5", opt(text), false},
		{"GET", "/v1/locks/deploy?format=yaml", nil, false},
		{"GET", "/v1/locks/deploy?limit=no", opt(text), false},
		{"GET", "/v1/events?format=xml", nil, false},
	} {
		req := rawRequest(t, g, c.method, c.path)
		req.Header.Del("Lease-Token")
		for _, o := range c.options {
			o(req)
		}
		a := rawSend(t, req)
		if shell := shellFailed.Match(a.body); a.status < 400 || shell != c.shell {
			t.Errorf("%s %s %v: answered %d %q", c.method, c.path, req.Header, a.status, a.body)
		}
	}
}

// No other operation has the format, so none answers it with a success.
func TestNoOperationAnswersAShellWithAnythingElse(t *testing.T) {
	g := serve(t, func(o *Options) {
		o.Pages = fakePages{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<!doctype html>$(canary)") })}
	})
	paths := []string{"GET /", "GET /locks/deploy", "GET /webhooks", "GET /static/x.js", "GET /ui/live"}
	for _, r := range routeTable() {
		paths = append(paths, r.method+" "+strings.NewReplacer("{lock}", "deploy", "{id}", someID, "{contender}", "c", "{webhook}", "w").Replace(r.pattern))
	}
	for _, p := range paths {
		method, path, _ := strings.Cut(p, " ")
		req := rawRequest(t, g, method, path+"?format=env")
		a := rawSend(t, req)
		if acquire := method == "POST" && (path == aLock || path == severalLocks); acquire && a.status < 300 {
			continue
		}
		assert.That(t, shellFailed.Match(a.body), "%s: answered %d %.200q", p, a.status, a.body)
	}
}

// What net/http answers by itself, before any handler, is plain text of constants: eval fails, and nothing runs.
func TestWhatIsNoHTTPIsAnsweredWithNothingThatAShellRuns(t *testing.T) {
	g := serve(t)
	constant := regexp.MustCompile(`^[A-Za-z0-9 :]*$`)
	var bodies [][]byte
	for what, request := range map[string]string{
		"no HTTP":             "$(canary)\r\n\r\n",
		"another version":     "POST " + aLock + "?format=env HTTP/9.`canary`\r\n\r\n",
		"version 3":           "POST " + aLock + "?format=env HTTP/3.0\r\nHost: localhost\r\n\r\n",
		"no Host":             "POST " + aLock + "?format=env HTTP/1.1\r\n\r\n",
		"two Hosts":           "POST " + aLock + "?format=env HTTP/1.1\r\nHost: localhost\r\nHost: $(canary)\r\n\r\n",
		"an odd Host":         "POST " + aLock + "?format=env HTTP/1.1\r\nHost: \x01$(canary)\r\n\r\n",
		"an odd header":       "POST " + aLock + "?format=env HTTP/1.1\r\nHost: localhost\r\n$(canary) : x\r\n\r\n",
		"an odd value":        "POST " + aLock + "?format=env HTTP/1.1\r\nHost: localhost\r\nX: \x00`canary`\r\n\r\n",
		"a broken escape":     "POST " + aLock + "/%zz$(canary)?format=env HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"a blank in the path": "POST " + aLock + "?format=env&owner=$(canary) x HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"a large header":      "POST " + aLock + "?format=env HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("`canary`", 8<<10) + "\r\n\r\n",
		"an odd coding":       "POST " + aLock + "?format=env HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: $(canary)\r\n\r\n",
		"an odd length":       "POST " + aLock + "?format=env HTTP/1.1\r\nHost: localhost\r\nContent-Length: $(canary)\r\n\r\n",
		"an expectation":      "POST " + aLock + "?format=env HTTP/1.1\r\nHost: localhost\r\nExpect: $(canary)\r\nContent-Length: 2\r\n\r\n{}",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
		assert.NoError(t, err)
		_ = conn.SetDeadline(time.Now().Add(within))
		_, _ = io.WriteString(conn, request)
		_ = conn.(*net.TCPConn).CloseWrite()
		answer, _ := io.ReadAll(conn) // a reset may follow what could be read
		_ = conn.Close()
		head, body, found := strings.Cut(string(answer), "\r\n\r\n")
		assert.That(t, found && !strings.HasPrefix(head, "HTTP/1.1 2"), "%s: answered %q", what, answer)
		assert.That(t, constant.MatchString(body), "%s: answered %q", what, body)
		if body != "" {
			bodies = append(bodies, []byte(body))
		}
	}
	assert.That(t, len(bodies) >= 10, "%d answers have a body", len(bodies))
	for _, shell := range testkit.Shells {
		results, ran := testkit.Eval(t, shell, true, bodies)
		assert.That(t, !ran, "%s: something ran of %q", shell, bodies)
		for i, r := range results {
			if r.Exit == 0 {
				t.Errorf("%s: eval of %q succeeds", shell, bodies[i])
			}
		}
	}
}

// An owner of an older release answers problems as JSON and leases as three lines; of this release, as lines.
func TestWhatAnotherGatewayAnswersIsLinesForAShell(t *testing.T) {
	problem := `{"type":"/problems/held_by_other","title":"x","status":409,"code":"held_by_other","detail":"$(canary)","holders":[{"znode":"x","mode":"exclusive","owner":"` + "`canary`\u009b\u202e" + `"}]}` + "\n"
	token := "LEASE_ID=" + someID + "\nLEASE_TOKEN=" + someToken + "\n"
	rest := func(fencing, state, ttl, secret string) string {
		return token + "FENCING_TOKEN=" + fencing + "\nLEASE_STATE=" + state + "\nLEASE_TTL_MS=" + ttl + "\nLEASE_WAITED_MS=\nNOTIFY_SECRET=" + secret + "\nLEASE_ERROR=\nLEASE_STATUS=200\n"
	}
	failure := func(code string, status int) string {
		return fmt.Sprintf("LEASE_ID=\nLEASE_TOKEN=\nFENCING_TOKEN=\nLEASE_STATE=\nLEASE_TTL_MS=\nLEASE_WAITED_MS=\nNOTIFY_SECRET=\nLEASE_ERROR=%s\nLEASE_STATUS=%d\nfalse\n", code, status)
	}
	for what, c := range map[string]struct {
		status            int
		contentType, body string
		want              int
		lines             string
	}{
		"an older problem":          {409, "application/problem+json", problem, 409, failure("held_by_other", 409)},
		"a problem":                 {409, "text/plain; charset=utf-8", failure("held_by_other", 409), 409, failure("held_by_other", 409)},
		"an older lease":            {200, "text/plain; charset=utf-8", token + "FENCING_TOKEN=7\n", 200, rest("7", "held", "", "")},
		"an older ticket":           {200, "text/plain; charset=utf-8", token + "FENCING_TOKEN=\nLEASE_WAITED_MS=\nNOTIFY_SECRET=whsec_a+/=\n", 200, rest("", "waiting", "", "whsec_a+/=")},
		"a lease":                   {200, "text/plain; charset=utf-8", rest("7", "held", "30000", ""), 200, rest("7", "held", "30000", "")},
		"an older dry run":          {200, "application/json", `{"dry_run":true,"holders":[{"owner":"$(canary)"}]}`, 500, failure("internal", 500)},
		"a lease as JSON":           {201, "application/json", `{"lease_id":"a","token":"$(canary)"}`, 500, failure("internal", 500)},
		"half a problem":            {409, "application/problem+json", problem[:60], 409, failure("internal", 409)},
		"a problem with a bad code": {409, "application/problem+json", `{"code":"$(canary)"}`, 500, failure("internal", 500)},
		"lines that are not inert":  {200, "text/plain; charset=utf-8", token + "FENCING_TOKEN=$(canary)\n", 500, failure("internal", 500)},
		"a line more":               {200, "text/plain; charset=utf-8", token + "FENCING_TOKEN=7\ncanary\n", 200, rest("7", "held", "", "")},
		"nothing":                   {200, "", "", 500, failure("internal", 500)},
		"a page":                    {502, "text/html", "<html>$(canary)</html>", 502, failure("internal", 502)},
	} {
		asked, _ := member(t, "asked", "secret")
		keys, err := fleet.NewKeys(secretOf("secret")())
		assert.NoError(t, err)
		asked.sendsTo("owner", peer(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			seal, err := keys.Open(r, body)
			if err != nil {
				t.Error(err)
				return
			}
			w.Header()["Content-Type"] = []string{c.contentType}
			keys.CloseAnswer(seal, c.status, w.Header(), []byte(c.body))
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		for _, ask := range []apitest.Option{apitest.Query("format=env"), apitest.Header("Accept", "text/plain")} {
			req := rawRequest(t, asked, "POST", aLock+"?hold=a")
			ask(req)
			a := rawSend(t, req)
			if a.status != c.want || string(a.body) != c.lines || !shellGrammar.Match(a.body) || a.header.Get("Content-Type") != typeText[0] {
				t.Errorf("%s: answered %d %q", what, a.status, a.body)
			}
		}
		// The same for a client that reads JSON.
		a := rawSend(t, rawRequest(t, asked, "POST", aLock+"?hold=a"))
		r, found := forbidden(a.body)
		assert.That(t, !found || !strings.Contains(c.contentType, "json"), "%s: %U is in the JSON: %q", what, r, a.body)
		assert.That(t, a.status != c.status || c.body == "" || a.header.Get("Content-Length") == strconv.Itoa(len(a.body)),
			"%s: the length is said to be %s of %d", what, a.header.Get("Content-Length"), len(a.body))
	}
}

// A new owner says in lines that it is not the owner any more, and the next one is asked, as with a problem in JSON.
func TestAnOwnerThatHasMovedSaysSoInLines(t *testing.T) {
	asked, first := pair(t)
	second, _ := member(t, "second", "secret")
	first.acquire = refuse(&locks.Error{Code: locks.CodeNotOwner})
	asked.route = func(string) (locks.Route, bool) {
		return locks.Route{Gateway: "second", Address: second.address(), Zxid: routeZxid, Lease: someID}, true
	}
	a := asked.send(t, "POST", aLock+"?format=env&hold=a", apitest.Token(someToken))
	assert.That(t, a.Status == 201 && len(first.asked()) != 0 && len(second.asked()) != 0, "answered %d %s", a.Status, a.Body)
}
