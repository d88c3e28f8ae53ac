package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/browsertest"
)

// An attack is something that a hostile page does to the gateway at `base`, with the lock or webhook `name`. What it
// would do without the guard is one of the effects below.
type attack struct {
	name   string
	effect effect
	script string // an expression in a function (base, name); a promise is awaited
}

type effect string

const (
	takes      effect = "the lock is held"
	limits     effect = "the lock has a limit"
	unlimits   effect = "the lock's limit is gone"
	subscribes effect = "there is a webhook"
	reads      effect = "the page reads the answer"
	reaches    effect = "a handler answers"
	shows      effect = "the page shows it in a frame"
	keeps      effect = "the page keeps a hold of the window"
)

// attacks are what web pages can send.
var attacks = []attack{
	{"fetch POST", takes, `fetch(base + "/v1/locks/" + name + "/leases?ttl=1m", {method: "POST"})`},
	{"fetch POST, read", reads, `fetch(base + "/v1/locks/" + name + "/leases?ttl=1m", {method: "POST"}).then(read)`},
	{"fetch no-cors POST", takes, `fetch(base + "/v1/locks/" + name + "/leases?ttl=1m", {method: "POST", mode: "no-cors"})`},
	{"fetch no-cors POST with cookies", takes,
		`fetch(base + "/v1/locks/" + name + "/leases?ttl=1m", {method: "POST", mode: "no-cors", credentials: "include", referrerPolicy: "no-referrer"})`},
	{"fetch with a header", takes, `fetch(base + "/v1/locks/" + name + "/leases?ttl=1m", {method: "POST", headers: {"Idempotency-Key": "0123456789abcdef" + name}})`},
	{"fetch JSON", subscribes, `fetch(base + "/v1/webhooks", {method: "POST", headers: {"Content-Type": "application/json"},
		body: JSON.stringify({url: "https://example.com/", locks: "nothing-*", description: name})})`},
	{"fetch PUT", limits, `fetch(base + "/v1/locks/" + name + "?limit=3", {method: "PUT"})`},
	{"fetch DELETE", unlimits, `fetch(base + "/v1/locks/" + name, {method: "DELETE"})`},
	{"fetch OPTIONS", reads, `fetch(base + "/v1/locks", {method: "OPTIONS"}).then(read)`},
	{"fetch GET", reads, `fetch(base + "/v1/locks").then(read)`},
	{"fetch GET of metrics", reads, `fetch(base + "/metrics").then(read)`},
	{"fetch GET of a page", reads, `fetch(base + "/").then(read)`},
	{"fetch GET with a header", reads, `fetch(base + "/v1/locks", {headers: {"X-Any": "1"}}).then(read)`},
	{"fetch no-cors GET", reaches, `fetch(base + "/v1/locks", {mode: "no-cors"})`},
	{"XMLHttpRequest", takes, `new Promise((done) => { const x = new XMLHttpRequest(); x.onloadend = done;
		x.open("POST", base + "/v1/locks/" + name + "/leases?ttl=1m"); x.send() })`},
	{"sendBeacon", takes, `navigator.sendBeacon(base + "/v1/locks/" + name + "/leases?ttl=1m")`},
	{"form of text/plain", takes, `form("text/plain")`},
	{"form, urlencoded", takes, `form("application/x-www-form-urlencoded")`},
	{"form of a sandboxed frame", takes, `framed("<form method=post action='" + base + "/v1/locks/" + name + "/leases?ttl=1m'></form><script>document.forms[0].submit()</script>")`},
	{"fetch of a sandboxed frame", takes,
		`framed("<script>fetch('" + base + "/v1/locks/" + name + "/leases?ttl=1m', {method: 'POST', mode: 'no-cors'})</script>")`},
	{"img", reaches, `element("img", {src: base + "/v1/locks"})`},
	{"script", reaches, `element("script", {src: base + "/v1/locks"})`},
	{"stylesheet", reaches, `element("link", {rel: "stylesheet", href: base + "/v1/locks"})`},
	{"script of the gateway's own", reaches, `element("script", {src: base + "/v1/info"})`},
	{"EventSource", reads, `new Promise((done) => { const s = new EventSource(base + "/v1/events"); s.onopen = () => { done("read"); s.close() };
		s.onerror = () => { done(""); s.close() } })`},
	{"WebSocket of events", reads, `socket("/v1/events/ws")`},
	{"WebSocket of the pages", reads, `socket("/ui/live?page=overview")`},
	{"frame of a page", shows, `element("iframe", {src: base + "/"})`},
	{"frame of a list", shows, `element("iframe", {src: base + "/v1/locks"})`},
	{"frame of text", shows, `element("iframe", {src: base + "/v1/locks/" + name + "?format=text"})`},
	{"frame of metrics", shows, `element("iframe", {src: base + "/metrics"})`},
	{"frame of a problem", shows, `element("iframe", {src: base + "/v1/nothing"})`},
}

// opens leaves a window behind, so it comes last. It looks for `name` milliseconds: the window is lost once its page has come.
var opens = attack{"window.open", keeps, `(async () => {
	const w = open(base + "/");
	for (let left = name; left > 0 && w && !w.closed; left -= 100) await new Promise((done) => setTimeout(done, 100));
	return w && !w.closed ? "read" : "";
})()`}

// means are what the attacks share.
const means = `
	const read = async (r) => (await r.text()).length >= 0 && r.type !== "opaque" ? "read" : "";
	const settled = (e) => new Promise((done) => { e.onload = e.onerror = () => done("") });
	const element = (tag, attributes) => { const e = Object.assign(document.createElement(tag), attributes); document.body.append(e); return settled(e) };
	const form = (type) => {
		const frame = document.createElement("iframe");
		frame.name = "f" + Math.random();
		const f = Object.assign(document.createElement("form"), {method: "post", enctype: type, target: frame.name, action: base + "/v1/locks/" + name + "/leases?ttl=1m"});
		document.body.append(frame, f);
		f.submit();
		return settled(frame);
	};
	const framed = (text) => { const f = document.createElement("iframe"); f.sandbox = "allow-scripts allow-forms"; f.srcdoc = text; document.body.append(f); return settled(f) };
	const socket = (path) => new Promise((done) => { const s = new WebSocket(base.replace("http", "ws") + path);
		s.onopen = () => { done("read"); s.close() }; s.onerror = () => done("") });
`

// attacker is a browser with a hostile page, and the gateway that it is after.
type attacker struct {
	*tab
	g *gateway
}

// try does what the attack does, and returns what the page says of it: "read..." when it has read something.
func (x *attacker) try(a attack, base, name string) (read string) {
	x.t.Helper()
	return eval[string](x.tab, fmt.Sprintf(`(async (base, name) => {%s
		try { return String(await Promise.race([%s, new Promise((done) => setTimeout(() => done("late"), 40000))])) } catch (e) { return "refused: " + e }
	})(%q, %q)`, means, a.script, base, name))
}

// testsTrace tells the requests of the test itself from those of the browser, unguardedTrace those that came without a guard: a
// stream among them is logged when it ends, which may be during a later attack.
const (
	testsTrace     = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unguardedTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)

var byTest = apitest.Header("Traceparent", testsTrace)

// requests are what the gateway has logged of the browser from an offset on, with the guard or without it.
func (x *attacker) requests(from int, guarded bool) (list []logged) {
	for line := range strings.Lines(x.g.log.String()[from:]) {
		var l logged
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "request" && l.Traceparent != testsTrace && (l.Traceparent != unguardedTrace) == guarded && l.Peer == "" {
			list = append(list, l)
		}
	}
	return list
}

// logged is a line of the log about a request.
type logged struct {
	Msg, Operation, Method, Code, Traceparent string
	Status                                    int
	Peer                                      string `json:"forwarded_by"` // gateways follow each other
}

func (l logged) refused() bool { return l.Code == "cross_origin" || l.Code == "host_not_allowed" }

// happened reports whether an attack had its effect.
func (x *attacker) happened(a attack, base, name, read string, requests []logged) bool {
	t := x.t
	t.Helper()
	switch a.effect {
	case takes, limits, unlimits:
		lock, answer, err := x.g.Lock(t.Context(), name, byTest)
		expect(t, answer, err, http.StatusOK, "")
		switch a.effect {
		case takes:
			return len(lock.Holders) > 0
		case limits:
			return lock.Settings != nil
		}
		return lock.Settings == nil
	case subscribes:
		answer, err := x.g.Send(t.Context(), http.MethodGet, "/v1/webhooks", byTest)
		expect(t, answer, err, http.StatusOK, "")
		return strings.Contains(string(answer.Body), name)
	case reads, keeps:
		return strings.HasPrefix(read, "read")
	case reaches:
		for _, l := range requests {
			if l.Operation != "" && l.Status < 400 {
				return true
			}
		}
		return false
	default:
		return x.frames(base)
	}
}

// frames reports whether a frame of the page shows what is at base.
func (x *attacker) frames(base string) bool {
	x.t.Helper()
	tree := assert.Value(chromedp.Call(x.ctx, page.GetFrameTree, cdp.Empty{}))(x.t, "the page's frames")
	for _, f := range tree.FrameTree.ChildFrames {
		if strings.HasPrefix(f.Frame.URL, base+"/") && f.Frame.UnreachableURL == "" {
			return true
		}
	}
	return false
}

// unguarded is the gateway at an address of its own, with its guard taken out: what the browser tells of its pages is
// left out, and every answer may be read and framed. Through it each attack has to succeed.
func unguarded(t *testing.T, g *gateway) (base string) {
	to := assert.Value(url.Parse(g.url()))(t)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Set("Traceparent", unguardedTrace)
			for name := range r.Out.Header {
				if name == "Origin" || strings.HasPrefix(name, "Sec-Fetch-") {
					r.Out.Header.Del(name)
				}
			}
		},
		ModifyResponse: func(r *http.Response) error {
			for _, name := range []string{"Content-Security-Policy", "X-Frame-Options", "Cross-Origin-Resource-Policy", "Cross-Origin-Opener-Policy"} {
				r.Header.Del(name)
			}
			r.Header.Set("Access-Control-Allow-Origin", "*")
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			for name, value := range map[string]string{"Origin": "*", "Methods": "*, PUT, DELETE, OPTIONS", "Headers": "*, Idempotency-Key, Content-Type, X-Any"} {
				w.Header().Set("Access-Control-Allow-"+name, value)
			}
			w.WriteHeader(http.StatusNoContent)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// A page of another origin in a real browser changes nothing, reads nothing and frames nothing, by any name or
// address it asks for the gateway. Each attack succeeds where the guard is taken out, so it is one.
func TestNoPageOfAnotherOriginGetsThrough(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>hostile</title>"))
	}))
	defer hostile.Close()
	_, port, _ := strings.Cut(hostile.Listener.Addr().String(), ":")
	_, own, _ := strings.Cut(g.listen, ":")
	x := &attacker{g: g, tab: newTab(t, func(t testing.TB) context.Context {
		return browsertest.Start(t,
			chromedp.Flag("host-resolver-rules", "MAP evil.example 127.0.0.1, MAP localhost 127.0.0.1"),
			// What the browser may refuse by itself is not what is tested here.
			chromedp.Flag("disable-features", "Translate,LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests,PrivateNetworkAccessSendPreflights,IsolateOrigins,site-per-process"),
			chromedp.Flag("disable-site-isolation-trials", true))
	})}
	evil, neighbour := "http://evil.example:"+port, "http://localhost:"+port
	targets := []struct {
		page, base string
		guarded    bool
	}{
		{evil, unguarded(t, g), false},
		{evil, "http://localhost:" + own, true},
		{evil, "http://127.0.0.1:" + own, true},
		{evil, "http://0.0.0.0:" + own, true},
		{evil, "http://[::ffff:127.0.0.1]:" + own, true},
		{neighbour, "http://localhost:" + own, true}, // of the same site, not of the same origin
	}
	for i, c := range targets {
		x.visit(c.page)
		for j, a := range attacks {
			name := fmt.Sprintf("lock-%d-%d", i, j)
			if a.effect == unlimits {
				answer, err := g.Send(t.Context(), http.MethodPut, "/v1/locks/"+name, apitest.Query("limit=3"), byTest)
				expect(t, answer, err, http.StatusOK, "")
			}
			x.attack(a, c.page, c.base, name, c.guarded)
		}
	}
	for _, c := range targets {
		if strings.Contains(c.base, "//localhost:") || strings.Contains(c.base, "//127.0.0.1:") { // elsewhere the window shows a refusal
			x.visit(c.page)
			look := "300"
			if c.guarded {
				look = "30000"
			}
			x.attack(opens, c.page, c.base, look, c.guarded)
		}
	}
}

// attack makes sure that an attack arrives, and what comes of it.
func (x *attacker) attack(a attack, from, base, name string, guarded bool) {
	t := x.t
	t.Helper()
	began := len(x.g.log.String())
	read := x.try(a, base, name)
	if !guarded {
		eventually(t, patience, func() error {
			if !x.happened(a, base, name, read, x.requests(began, guarded)) {
				return fmt.Errorf("the page says %q, the log has %+v", read, x.requests(began, guarded))
			}
			return nil
		}, "without a guard: %s: %s", a.name, a.effect)
		return
	}
	eventually(t, patience, func() error {
		if len(x.requests(began, guarded)) == 0 {
			return fmt.Errorf("the page says %q", read)
		}
		return nil
	}, "%s from %s arrives at %s", a.name, from, base)
	requests := x.requests(began, guarded)
	assert.That(t, !x.happened(a, base, name, read, requests), "%s from %s to %s: %s (%q)", a.name, from, base, a.effect, read)
	for _, r := range requests {
		navigated := (a.effect == shows || a.effect == keeps) && r.Method == http.MethodGet // the page cannot see what it has opened
		assert.That(t, r.refused() || navigated, "%s from %s to %s reached a handler: %+v", a.name, from, base, r)
	}
}
