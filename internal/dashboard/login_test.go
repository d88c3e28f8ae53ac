package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

func TestALoginLeadsToAPlaceOfThisGatewayAlone(t *testing.T) {
	for text, want := range map[string]string{
		"/locks/deploy?tab=zookeeper&ns=a%26b": "/locks/deploy?tab=zookeeper&ns=a%26b", "/": "/", "/?q=a+b": "/?q=a+b", "/locks/a%2Fb%20c": "/locks/a%2Fb%20c", "/webhooks": "/webhooks",
		"": "/", "locks/deploy": "/", "//evil.example": "/", "///evil.example": "/", `/\evil.example`: "/", `\\evil.example`: "/", "https://evil.example/": "/", "javascript:alert(1)": "/",
		"/\tevil": "/", "/\n/evil.example": "/", "https:evil.example": "/", "//user@evil.example/": "/", "/%2F/evil.example": "/", "/login?next=/login": "/", "/logout": "/", "/ui/fragments?page=overview": "/",
		"/" + strings.Repeat("a", maxNext): "/", "/locks/a#fragment": "/locks/a", "/.//evil.example": "/.//evil.example",
	} {
		assert.Equal(t, localPath(text), want, "%q", text)
	}
}

func FuzzLocalPath(f *testing.F) {
	for _, text := range []string{"/locks/a?b=c", "//evil.example", `/\evil`, "/%5cevil", "/..//evil"} {
		f.Add(text)
	}
	here := &url.URL{Scheme: "https", Host: "gw.example.com", Path: "/login"}
	f.Fuzz(func(t *testing.T, text string) {
		path := localPath(text)
		// A browser takes a backslash for a slash, and leaves out tabs and ends of lines.
		asBrowsers := strings.NewReplacer(`\`, "/", "\t", "", "\n", "", "\r", "").Replace(path)
		to, err := here.Parse(asBrowsers)
		if err != nil || to.Host != here.Host || to.Scheme != here.Scheme || !strings.HasPrefix(asBrowsers, "/") || strings.HasPrefix(asBrowsers, "//") {
			t.Errorf("%q leads to %q: %v %v", text, path, to, err)
		}
	})
}

// fakeLogins lets in by the token "right".
type fakeLogins struct {
	caller auth.Caller
	next   string
}

func (f *fakeLogins) Issuers() []string { return []string{"corp"} }
func (f *fakeLogins) LogIn(_ http.ResponseWriter, _ *http.Request, token string) (auth.Caller, error) {
	if token != "right" {
		return auth.Caller{}, &auth.Error{Detail: "the token is <wrong>", Unavailable: token == "later"}
	}
	return f.caller, nil
}
func (f *fakeLogins) LogOut(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Forgets", "it") }
func (f *fakeLogins) Begin(_ http.ResponseWriter, _ *http.Request, issuer, next string) (string, error) {
	f.next = next
	return "https://id.example.com/authorize?from=" + issuer, nil
}
func (f *fakeLogins) Finish(http.ResponseWriter, *http.Request) (auth.Caller, string, error) {
	return f.caller, f.next, nil
}

func TestTheLoginPagesLeadThroughALogin(t *testing.T) {
	logins := &fakeLogins{caller: auth.Caller{Principal: member(t, "token:ann", "*", "*", access.Read), Kind: auth.Token}}
	r := newRig(t, func(o *Options) { o.Logins = logins })
	ask := func(method, target, form string) (*httptest.ResponseRecorder, *auth.Visitor) {
		req := httptest.NewRequest(method, target, strings.NewReader(form))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		v := &auth.Visitor{Caller: auth.Caller{Kind: auth.Anonymous}}
		w := httptest.NewRecorder()
		r.Dashboard.ServeHTTP(w, req.WithContext(auth.WithVisitor(req.Context(), v)))
		return w, v
	}
	w, _ := ask("GET", "/gateways", "")
	assert.That(t, w.Code == http.StatusSeeOther && w.Header().Get("Location") == "/login?next=%2Fgateways", "%d %v", w.Code, w.Header())
	w, _ = ask("GET", w.Header().Get("Location"), "")
	page := w.Body.String()
	for _, part := range []string{`href="/login/with/corp?next=%2Fgateways"`, `name="next" value="/gateways"`, `method="post" action="/login"`} {
		assert.That(t, w.Code == http.StatusOK && strings.Contains(page, part), "the page lacks %s: %s", part, page)
	}
	w, v := ask("POST", "/login", "token=+right+&next=%2Fgateways")
	assert.That(t, w.Code == http.StatusSeeOther && w.Header().Get("Location") == "/gateways" && v.Principal.Name == "token:ann", "%d %v %+v", w.Code, w.Header(), v)
	w, _ = ask("POST", "/login", "token=right&next=//evil.example")
	assert.Equal(t, w.Header().Get("Location"), "/")
	for token, status := range map[string]int{"wrong": 401, "later": 503} {
		w, v = ask("POST", "/login", "next=%2Fgateways&token="+token)
		assert.That(t, w.Code == status && strings.Contains(w.Body.String(), "The token is &lt;wrong&gt;.") && strings.Contains(w.Body.String(), `value="/gateways"`) && v.Principal.Name == "", "%d %s", w.Code, w.Body)
	}
	w, _ = ask("POST", "/login", strings.Repeat("x", maxLoginForm+1))
	assert.Equal(t, w.Code, http.StatusBadRequest)

	w, _ = ask("GET", "/login/with/corp?next=//evil.example", "")
	assert.That(t, w.Header().Get("Location") == "https://id.example.com/authorize?from=corp" && logins.next == "/", "%v %q", w.Header(), logins.next)
	_, _ = ask("GET", "/login/with/corp?next=/namespaces", "")
	w, v = ask("GET", "/login/callback?code=x", "")
	assert.That(t, w.Header().Get("Location") == "/namespaces" && v.Principal.Name == "token:ann", "%v", w.Header())

	w, _ = ask("GET", "/logout", "")
	assert.That(t, w.Header().Get("Forgets") == "", "a GET logs out")
	w, _ = ask("POST", "/logout", "")
	assert.That(t, w.Header().Get("Forgets") == "it" && w.Header().Get("Location") == "/login?out=1", "%v", w.Header())
	for target, status := range map[string]int{"/login/": 303, "/login/nothing": 303, "/loginx": 303} {
		w, _ = ask("GET", target, "")
		assert.Equal(t, w.Code, status, "%s", target)
	}
	for _, target := range []string{"/", "/locks/a", "/webhooks"} {
		w, _ = ask("POST", target, "")
		assert.Equal(t, w.Code, http.StatusUnauthorized, "%s", target)
	}
	h := w.Header()
	assert.That(t, h.Get("Cache-Control") == "no-store" && strings.Contains(h.Get("Content-Security-Policy"), "form-action 'self'"), "%v", h)
}
