package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/auth/token"
	pages "lockkeeper/internal/dashboard"
	"lockkeeper/internal/events"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/layout"
)

const sessionRules = `
roles:
  shop: [{ns: default, locks: "deploy", verbs: [acquire]}]
  sre: [{ns: "*", locks: "*", verbs: [operate]}]
who:
  - {token: shop, roles: [shop]}
  - {token: sre, roles: [sre]}
`

// knownTokens are API tokens, each with its name as its id.
type knownTokens struct {
	mu      sync.Mutex
	records map[string]*token.Record
}

func (k *knownTokens) Authenticate(text string) (*token.Record, error) {
	return k.Lookup(strings.TrimPrefix(text, "lkt_"))
}

func (k *knownTokens) Lookup(id string) (*token.Record, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.records[id]; r != nil {
		return r, nil
	}
	return nil, token.ErrRefused
}

func (k *knownTokens) revoke(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.records, id)
}

type unmeasured struct{}

func (unmeasured) AuthFile(bool)       {}
func (unmeasured) Issuer(string, bool) {}
func (unmeasured) IssuerGone(string)   {}

// site is a gateway with its dashboard, where users log in.
type site struct {
	*gateway
	tokens *knownTokens
}

func newSite(t *testing.T, change ...func(*Options)) *site {
	t.Helper()
	s := &site{tokens: &knownTokens{records: map[string]*token.Record{}}}
	for _, id := range []string{"shop", "sre", "none"} {
		s.tokens.records[id] = &token.Record{ID: id, Name: id}
	}
	file := filepath.Join(t.TempDir(), "auth.yaml")
	assert.NoError(t, os.WriteFile(file, []byte(sessionRules), 0o600))
	key := []layout.TokenKey{{ID: "aaaa", Key: []byte("a key of the fleet")}}
	users := assert.Value(auth.New(auth.Options{Path: file, Tokens: s.tokens, Metrics: unmeasured{}, Logger: slog.New(slog.DiscardHandler),
		Secret: func() []layout.TokenKey { return key }}))(t)
	hub := events.New(events.Options{})
	runUntilTheEnd(t, hub.Run)
	s.gateway = serve(t, append([]func(*Options){func(o *Options) {
		dash := pages.New(pages.Options{Locks: o.Locks.(pages.Locks), Events: hub, Logins: users, Logger: slog.New(slog.DiscardHandler), Version: "1", Started: time.Now()})
		runUntilTheEnd(t, dash.Run)
		o.Auth, o.Pages, o.Events = users, dash, hub
	}}, change...)...)
	s.server.rechecks.every = 10 * time.Millisecond
	return s
}

// runUntilTheEnd runs a part for as long as the test.
func runUntilTheEnd(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// logIn logs in with a token and gives the session's cookie.
func (s *site) logIn(t *testing.T, id string, headers ...string) (cookie string, a rawAnswer) {
	t.Helper()
	req := rawRequest(t, s.gateway, "POST", "/login")
	form := url.Values{"token": {"lkt_" + id}, "next": {"/locks/deploy"}}.Encode()
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader(form)), int64(len(form))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	a = rawSend(t, req)
	for _, c := range (&http.Response{Header: a.header}).Cookies() {
		if c.Name == "lockkeeper" {
			cookie = c.Name + "=" + c.Value
		}
	}
	return cookie, a
}

func TestAUserLogsInActsAndLogsOut(t *testing.T) {
	option, end := auditing(t)
	s := newSite(t, option)
	a := get(t, s.gateway, "GET", "/locks/deploy?tab=queue")
	assert.That(t, a.status == 303 && a.header.Get("Location") == "/login?next=%2Flocks%2Fdeploy%3Ftab%3Dqueue", "%d %v", a.status, a.header)
	a = get(t, s.gateway, "GET", "/login?next=%2Flocks%2Fdeploy")
	assert.That(t, a.status == 200 && strings.Contains(string(a.body), `name="next" value="/locks/deploy"`), "%d %s", a.status, a.body)
	for _, secret := range []string{"deploy</", "/lockkeeper", "connected"} {
		assert.That(t, !strings.Contains(string(a.body), secret), "the login page has %q", secret)
	}
	cookie, a := s.logIn(t, "shop", "Origin", s.url)
	assert.That(t, a.status == 303 && a.header.Get("Location") == "/locks/deploy" && cookie != "", "%d %v %s", a.status, a.header, a.body)
	a = get(t, s.gateway, "GET", "/locks/deploy", "Cookie", cookie)
	assert.That(t, a.status == 200 && strings.Contains(string(a.body), "token:shop") && strings.Contains(string(a.body), "Log out"), "%d %s", a.status, a.body)
	a = get(t, s.gateway, "GET", "/v1/whoami", "Cookie", cookie)
	assert.That(t, strings.Contains(string(a.body), `"session":true`) && strings.Contains(string(a.body), `"name":"token:shop"`), "%s", a.body)
	a = get(t, s.gateway, "POST", "/v1/locks/deploy/revoke?reason=please", "Cookie", cookie, "Origin", s.url)
	assert.That(t, a.status < 300, "%d %s", a.status, a.body)
	a = get(t, s.gateway, "POST", "/logout", "Cookie", cookie, "Origin", s.url)
	assert.That(t, a.status == 303 && a.header.Get("Location") == "/login?out=1" && strings.Contains(a.header.Get("Set-Cookie"), "Max-Age=0"), "%d %v", a.status, a.header)
	cookie, a = s.logIn(t, "unknown")
	assert.That(t, a.status == 401 && cookie == "" && strings.Contains(string(a.body), "must be one that this fleet has"), "%d %s", a.status, a.body)
	assert.That(t, !strings.Contains(string(a.body), "lkt_unknown"), "the page repeats the token")
	_, a = s.logIn(t, "none")
	none := strings.SplitN(a.header.Get("Set-Cookie"), ";", 2)[0]
	a = get(t, s.gateway, "GET", "/", "Cookie", none)
	assert.That(t, a.status == 403 && strings.Contains(string(a.body), "You are token:none"), "%d %s", a.status, a.body)

	var said []string
	for _, line := range end() {
		said = append(said, line.Operation+" "+line.Result+" "+line.Principal+" "+line.Code)
	}
	want := "LogIn ok token:shop \nRevoke ok token:shop \nLogOut ok token:shop \nLogIn refused anonymous unauthenticated\nLogIn ok token:none \nPage refused token:none forbidden"
	assert.Equal(t, strings.Join(said, "\n"), want)
}

// As with other wrong credentials: an address that shows them all the time is told of once in a while.
func TestLoginsAndDeadSessionsFillNoAuditLog(t *testing.T) {
	for name, show := range map[string]func(*site){
		"logins": func(s *site) {
			_, a := s.logIn(t, "unknown")
			assert.Equal(t, a.status, 401, "a login")
		},
		"an issuer that is none": func(s *site) {
			assert.Equal(t, get(t, s.gateway, "GET", "/login/with/none").status, 401, "a login")
		},
		"a dead session": func(s *site) {
			assert.Equal(t, get(t, s.gateway, "GET", "/ui/fragments?page=overview", "Cookie", "lockkeeper=aaaa.bbbb").status, 401, "a fragment")
		},
	} {
		t.Run(name, func(t *testing.T) {
			option, end := auditing(t)
			s := newSite(t, option)
			for range 100 {
				show(s)
			}
			cookie, a := s.logIn(t, "shop", "Cookie", "lockkeeper=aaaa.bbbb")
			assert.That(t, a.status == 303 && cookie != "", "a good login beside a dead session: %d", a.status)
			lines := end()
			assert.That(t, len(lines) > 10 && len(lines) < 30, "%d lines", len(lines))
			last := lines[len(lines)-1]
			assert.That(t, last.Operation == "LogIn" && last.Result == "ok", "%+v", last)
		})
	}
}

// A browser sends its cookie along with whatever another site makes it send. The host alone is not enough: a page that came
// over plain HTTP has the host of one over TLS.
func TestARequestWithASessionThatChangesSomethingComesFromAPageOfTheGateway(t *testing.T) {
	s := newSite(t)
	cookie, _ := s.logIn(t, "sre")
	changed := 0
	for _, c := range []struct {
		name    string
		headers []string
		done    bool
	}{
		{"its own page", []string{"Origin", s.url, "Sec-Fetch-Site", "same-origin"}, true},
		{"its own page, an older browser", []string{"Origin", s.url}, true},
		{"its own page, without an origin", []string{"Sec-Fetch-Site", "same-origin"}, true},
		{"its own page behind a proxy with TLS", []string{"Origin", "https://" + strings.TrimPrefix(s.url, "http://")}, true},
		{"nothing that says where from", nil, false},
		{"the user's own address bar", []string{"Sec-Fetch-Site", "none"}, false},
		{"another site", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, false},
		{"another port of this host", []string{"Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site"}, false},
		{"a sandboxed frame", []string{"Origin", "null"}, false},
		{"a form of another site in an older browser", []string{"Origin", "http://evil.example"}, false},
		{"a navigation by POST", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, false},
	} {
		for _, what := range []struct{ method, path string }{
			{"POST", "/v1/locks/deploy/destroy?reason=x"}, {"DELETE", "/v1/locks/deploy/revoke"}, {"POST", "/logout"}, {"PUT", "/v1/locks/deploy?limit=3"},
		} {
			a := get(t, s.gateway, what.method, what.path, append([]string{"Cookie", cookie}, c.headers...)...)
			refused := a.status == 403 && strings.Contains(string(a.body), codeCrossOrigin)
			assert.Equal(t, refused, !c.done, "%s: %s %s: %d %s", c.name, what.method, what.path, a.status, a.body)
			if c.done {
				changed++
				assert.That(t, a.status < 400, "%s: %s %s: %d %s", c.name, what.method, what.path, a.status, a.body)
			}
		}
		// A program shows its credential by itself.
		if c.headers == nil {
			a := get(t, s.gateway, "DELETE", "/v1/locks/deploy/revoke", "Authorization", "Bearer lkt_sre")
			assert.That(t, a.status < 300, "%d %s", a.status, a.body)
		}
	}
	assert.Equal(t, changed, 16)
	_, a := s.logIn(t, "sre", "Origin", "https://evil.example")
	assert.Equal(t, a.status, 403, "another site logs its own user in")
	for _, path := range []string{"/v1/locks", "/ui/fragments?page=overview", "/ui/live?page=overview", "/v1/events"} {
		a := get(t, s.gateway, "GET", path, "Cookie", cookie, "Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example")
		assert.Equal(t, a.status, 403, "%s is read by another site", path)
	}
}

func TestOverTLSAPageThatCameWithoutItIsAnotherSite(t *testing.T) {
	s := newSite(t, func(o *Options) { o.AllowedHosts = []string{"gw.example.com"} })
	req := rawRequest(t, s.gateway, "POST", "/login")
	form := url.Values{"token": {"lkt_sre"}}.Encode()
	req.Body, req.ContentLength, req.Host = io.NopCloser(strings.NewReader(form)), int64(len(form)), "gw.example.com"
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	set := rawSend(t, req).header.Get("Set-Cookie")
	assert.That(t, strings.HasPrefix(set, "__Host-lockkeeper=") && strings.Contains(set, "; Secure"), "%s", set)
	cookie := strings.SplitN(set, ";", 2)[0]
	for origin, want := range map[string]int{"https://gw.example.com": 303, "http://gw.example.com": 403} {
		req := rawRequest(t, s.gateway, "POST", "/logout")
		req.Host = "gw.example.com"
		req.Header.Set("Cookie", cookie)
		req.Header.Set("Origin", origin)
		assert.Equal(t, rawSend(t, req).status, want, "%s", origin)
	}
}

func TestARevokedTokenEndsTheSessionOfAPage(t *testing.T) {
	s := newSite(t)
	cookie, _ := s.logIn(t, "shop")
	conn, _, err := dialSocket(t, s.gateway, "/ui/live?lock=deploy&page=lock", http.Header{"Origin": {s.url}, "Cookie": {cookie}})
	assert.NoError(t, err)
	_, _, err = conn.ReadMessage() // the status
	assert.NoError(t, err)
	_, m, err := conn.ReadMessage()
	assert.That(t, err == nil && strings.Contains(string(m), `id="queue"`), "%v %s", err, m)
	s.tokens.revoke("shop")
	for err == nil {
		_, _, err = conn.ReadMessage()
	}
	assert.That(t, websocket.IsCloseError(err, closeUnauthenticated) && strings.Contains(err.Error(), "revoked"), "%v", err)

	a := get(t, s.gateway, "GET", "/locks/deploy", "Cookie", cookie)
	assert.That(t, a.status == 303 && a.header.Get("Location") == "/login?next=%2Flocks%2Fdeploy&ended=1", "%d %v", a.status, a.header)
	a = get(t, s.gateway, "GET", "/ui/fragments?page=overview", "Cookie", cookie)
	assert.Equal(t, a.status, 401)
	a = get(t, s.gateway, "GET", "/?q=a", "Cookie", cookie, "HX-Request", "true")
	assert.Equal(t, a.status, 401, "a filter follows the redirect and shows the login page")
	a = get(t, s.gateway, "GET", "/login", "Cookie", cookie)
	assert.That(t, a.status == 200 && strings.Contains(string(a.body), "The session has ended"), "%d %s", a.status, a.body)
	a = get(t, s.gateway, "GET", "/v1/locks", "Cookie", cookie)
	assert.That(t, a.status == 401 && strings.Contains(string(a.body), codeUnauthenticated), "%d %s", a.status, a.body)
	_, response, err := dialSocket(t, s.gateway, "/ui/live?lock=deploy&page=lock", http.Header{"Origin": {s.url}, "Cookie": {cookie}})
	assert.That(t, err != nil && response != nil && response.StatusCode == 401, "%v %+v", err, response)
}

func TestWithoutAuthenticationNobodyLogsIn(t *testing.T) {
	g := withPages(t)
	g.expect(t, 404, "route_not_found", "GET", "/login")
	g.expect(t, 404, "route_not_found", "POST", "/logout")
}
