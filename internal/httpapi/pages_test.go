package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	pages "lockkeeper/internal/dashboard"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// fakePages are a handler with the paths of the dashboard.
type fakePages struct{ http.Handler }

func (fakePages) Paths() []string { return new(pages.Dashboard).Paths() }

// dashboard stands for the pages.
func dashboard() Pages {
	mux := http.NewServeMux()
	page := func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'self'")
		if strings.HasPrefix(r.URL.Path, "/static/") {
			h.Set("Cache-Control", "public, max-age=3600")
		}
		_, _ = io.WriteString(w, "<p>"+r.URL.Path)
	}
	mux.HandleFunc("/{$}", page)
	mux.HandleFunc("/locks/{lock}", page)
	mux.HandleFunc("/static/app.js", page)
	mux.HandleFunc("/ui/live", func(w http.ResponseWriter, r *http.Request) {
		conn, err := new(websocket.Upgrader).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		if r.URL.Query().Get("panic") != "" {
			panic("whoops")
		}
		defer conn.Close()
		_ = conn.WriteMessage(websocket.TextMessage, []byte("hello"))
		<-r.Context().Done()
		_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseGoingAway, context.Cause(r.Context()).Error()), time.Now().Add(within))
	})
	return fakePages{mux}
}

func withPages(t *testing.T, change ...func(*Options)) *gateway {
	t.Helper()
	testkit.NoLeaks(t)
	return serve(t, append([]func(*Options){func(o *Options) { o.Pages = dashboard() }}, change...)...)
}

// get asks for what openapi.yaml does not have.
func get(t *testing.T, g *gateway, method, path string, headers ...string) rawAnswer {
	t.Helper()
	req := rawRequest(t, g, method, path)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return rawSend(t, req)
}

func TestPagesAreServedBehindTheGuard(t *testing.T) {
	g := withPages(t)
	for _, path := range []string{"/", "/locks/team:a", "/static/app.js"} {
		a := get(t, g, "GET", path)
		if a.status != 200 || string(a.body) != "<p>"+path || a.header.Get("Content-Security-Policy") == "" || a.header.Get("Lockkeeper-Request-Id") == "" ||
			a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: %d %v %s", path, a.status, a.header, a.body)
		}
		want := "no-store"
		if strings.HasPrefix(path, "/static/") {
			want = "public, max-age=3600"
		}
		got := a.header["Cache-Control"]
		assert.That(t, len(got) == 1 && got[0] == want, "%s: Cache-Control %q", path, got)
		h := get(t, g, "HEAD", path)
		assert.That(t, h.status == 200 && len(h.body) <= 0, "HEAD %s: %d %q", path, h.status, h.body)
		p := get(t, g, "POST", path)
		assert.That(t, p.status == 405 && p.header.Get("Allow") == "GET, HEAD, OPTIONS", "POST %s: %d %v", path, p.status, p.header)
	}
	for _, path := range []string{"/", "/locks/a", "/ui/live", "/ui/nothing", "/static/app.js"} {
		if a := get(t, g, "GET", path, "Origin", "http://evil.example"); a.status != 403 {
			t.Errorf("%s from another origin: %d", path, a.status)
		}
		req := rawRequest(t, g, "GET", path)
		req.Host = "evil.example"
		if a := rawSend(t, req); a.status != 421 {
			t.Errorf("%s of another host: %d", path, a.status)
		}
	}
	if a := get(t, g, "GET", "/ui/nothing"); a.status != 404 || a.header.Get("Content-Type") == "application/problem+json" {
		t.Errorf("what is below the prefixes is not the pages' to answer: %d %v", a.status, a.header)
	}
	if a := get(t, g, "GET", "/v2"); a.status != 404 || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("what is not below them: %d %v", a.status, a.header)
	}
}

func TestWithoutPagesTheirPathsAreNotThere(t *testing.T) {
	g := serve(t)
	for _, path := range []string{"/", "/locks/a", "/ui/live", "/static/app.js"} {
		g.expect(t, 404, "route_not_found", "GET", path)
	}
}

func TestASocketOfAPageIsEndedByADrain(t *testing.T) {
	log := new(lines)
	g := withPages(t, logTo(t, log, slog.LevelDebug))
	if _, response, err := dialSocket(t, g, "/ui/live", http.Header{"Origin": {"http://evil.example"}}); err == nil || response == nil || response.StatusCode != 403 {
		t.Errorf("from another origin: %v %+v", err, response)
	}
	if line := log.next(t); line["cross_origin"] != 1.0 {
		t.Errorf("%v", line)
	}
	if line := log.next(t); line["code"] != "cross_origin" {
		t.Errorf("%v", line)
	}
	conn, _, err := dialSocket(t, g, "/ui/live", http.Header{"Origin": {g.url}})
	assert.NoError(t, err)
	if _, m, err := conn.ReadMessage(); err != nil || string(m) != "hello" {
		t.Fatalf("%v %s", err, m)
	}
	get(t, g, "GET", "/locks/a") // has an exchange of its own
	if line := log.next(t); line["operation"] != "Page" || line["status"] != 200.0 || line["level"] != "INFO" {
		t.Errorf("%v", line)
	}
	expired, cancel := context.WithCancel(context.Background())
	cancel()
	assert.ErrorIs(t, g.server.Wait(expired), context.Canceled, "Wait does not know of the socket")
	g.server.Drain()
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseGoingAway) || !strings.Contains(err.Error(), errDraining.Error()) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	assert.Nil(t, g.server.Wait(ctx))
	if line := log.next(t); line["operation"] != "Page" || line["status"] != 101.0 || line["level"] != "DEBUG" || line["error"] != nil {
		t.Errorf("%v", line)
	}
}

func TestAPageThatPanicsWithASocketClosesIt(t *testing.T) {
	g := withPages(t)
	conn, _, err := dialSocket(t, g, "/ui/live?panic=1", nil)
	assert.NoError(t, err)
	if _, _, err := conn.ReadMessage(); err == nil {
		t.Error("it is still open")
	}
	assert.Nil(t, g.server.Wait(t.Context()))
}

// A library may keep the ResponseWriter as long as its socket lives.
func TestTheExchangeOfASocketIsUsedForNoOtherRequest(t *testing.T) {
	var hijacked atomic.Pointer[exchange]
	reused := make(chan bool, 100)
	g := serve(t, func(o *Options) {
		o.Pages = fakePages{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/ui/live" {
				reused <- w.(*exchange) == hijacked.Load()
				return
			}
			hijacked.Store(w.(*exchange))
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
		})}
	})
	_, _ = (&http.Transport{DisableKeepAlives: true}).RoundTrip(rawRequest(t, g, "GET", "/ui/live"))
	waitFor(t, func() bool { return g.server.Wait(t.Context()) == nil })
	for range 50 {
		get(t, g, "GET", "/")
		assert.Must(t, !<-reused, "it was used again")
	}
}

// A user who mistypes an address gets a page; a program gets what it can read.
func TestAnAddressWithNothingIsAPageForBrowsersAlone(t *testing.T) {
	g := withPages(t, func(o *Options) {
		o.Pages = fakePages{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "page of "+r.URL.Path)
		})}
	})
	const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	for _, c := range []struct {
		method, path, accept string
		page                 bool
	}{
		{"GET", "/nope", browser, true}, {"HEAD", "/nope", browser, true}, {"GET", "/locks", browser, true}, {"GET", "/favicon.ico", "image/*", true},
		{"GET", "/nope", "application/json", false}, {"GET", "/nope", "", false}, {"GET", "/nope", "*/*", false}, {"POST", "/nope", browser, false}, {"GET", "/v1/nope", browser, false},
	} {
		r := rawRequest(t, g, c.method, c.path)
		r.Header.Set("Accept", c.accept)
		a := rawSend(t, r)
		got := a.header.Get("Content-Type") == "text/html"
		assert.That(t, got == c.page && a.status == http.StatusNotFound, "%s %s for %q: %d %s", c.method, c.path, c.accept, a.status, a.header.Get("Content-Type"))
	}
}
