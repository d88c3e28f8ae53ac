package auth

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/issuertest"
	"lockkeeper/internal/zk/layout"
)

const dashboardRules = `
anonymous: []
issuers:
  corp:
    issuer: "https://id.example.com"
    audience: lockkeeper
    groups: groups
    dashboard: {client_id: lockkeeper-dashboard, secret_file: SECRET, scopes: [groups]}
roles: {dev: [{ns: default, locks: "*", verbs: [acquire]}], sre: [{ns: "*", locks: "*", verbs: [operate]}], ops: [{ns: ops, locks: "*", verbs: [read]}]}
who:
  - {issuer: corp, group: sre, roles: [sre]}
  - {issuer: corp, claims: {team: shop}, roles: [dev]}
  - {issuer: corp, name: ann, roles: [ops]}
  - {token: "ci-*", roles: [dev]}
  - {cert: backup.example.com, roles: [sre]}
`

// fleetKeys are the cluster secret's keys; a test may change them.
type fleetKeys struct{ keys []layout.TokenKey }

func (f *fleetKeys) get() []layout.TokenKey { return f.keys }

// desk is a scene in which users log in.
type desk struct {
	*scene
	keys *fleetKeys
	idp  *issuertest.Issuer
}

// atDesk runs a test in virtual time with an authenticator that runs.
func atDesk(t *testing.T, f func(t *testing.T, d *desk)) {
	t.Helper()
	idp := issuertest.New(t, issuerURLInTests)
	synctest.Test(t, func(t *testing.T) {
		d := &desk{idp: idp, keys: &fleetKeys{[]layout.TokenKey{{ID: "aaaa", Key: []byte("a key of the fleet")}}}}
		d.scene = newSceneWith(t, dashboardRules, func(o *Options) { o.Secret, o.Through = d.keys.get, idp })
		d.run()
		f(t, d)
	})
}

// browser keeps cookies as a browser does, and shows them.
type browser map[string]string

func (b browser) request(target string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "https://gw.example.com"+target, nil)
	for name, value := range b {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	return r
}

func (b browser) take(w *httptest.ResponseRecorder) {
	for _, c := range w.Result().Cookies() {
		if b[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b, c.Name)
		}
	}
}

func (d *desk) logIn(b browser, text string) (Caller, error) {
	w := httptest.NewRecorder()
	c, err := d.LogIn(w, b.request("/login"), text)
	b.take(w)
	return c, err
}

// through logs in through the issuer.
func (d *desk) through(b browser, change ...func(back *url.URL)) (c Caller, next string, err error) {
	d.t.Helper()
	w := httptest.NewRecorder()
	to, err := d.Begin(w, b.request("/login/with/corp"), "corp", "/locks/deploy")
	assert.NoError(d.t, err)
	b.take(w)
	answer := assert.Value(d.idp.RoundTrip(httptest.NewRequest(http.MethodGet, to, nil)))(d.t)
	assert.MustEqual(d.t, answer.StatusCode, http.StatusFound, "%s", to)
	back := assert.Value(answer.Location())(d.t)
	assert.Equal(d.t, back.Host+back.Path, "gw.example.com/login/callback")
	for _, how := range change {
		how(back)
	}
	w = httptest.NewRecorder()
	c, next, err = d.Finish(w, b.request(back.RequestURI()))
	b.take(w)
	return c, next, err
}

const sessionCookie = "__Host-lockkeeper"

func TestABrowserWithASessionOfATokenMayDoWhatTheTokenMay(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		b := browser{}
		c, err := d.logIn(b, "lkt_a")
		assert.NoError(t, err)
		assert.That(t, c.Session() && c.Expires.Equal(time.Now().Add(12*time.Hour)), "%+v", c)
		assert.That(t, !strings.Contains(b[sessionCookie], "lkt_"), "the cookie has the token")
		shown, err := d.Authenticate(b.request("/"))
		assert.NoError(t, err)
		direct := d.letsIn("lkt_a", "token:ci-shop", "dev")
		assert.That(t, shown.Principal == direct.Principal && shown.Kind == Token && shown.ID == "a" && shown.Session() && !direct.Session(), "%+v", shown)
		d.LogOut(httptest.NewRecorder(), b.request("/"))

		// An Authorization header counts before the cookie, the cookie before a certificate.
		r := b.request("/")
		r.Header.Set("Authorization", "Bearer lkt_unknown")
		_, err = d.Authenticate(r)
		assert.That(t, err != nil && !err.(*Error).Session, "%v", err)
		w := httptest.NewRecorder()
		d.LogOut(w, b.request("/"))
		b.take(w)
		assert.Equal(t, len(b), 0, "a cookie is kept after the logout")

		for _, text := range []string{"", "lkt_b", "lk1.lk0123.k1.abc", "eyJhbGciOiJub25lIn0.e30."} {
			_, err := d.logIn(b, text)
			assert.That(t, err != nil && len(b) == 0, "%q logs in: %v", text, b)
		}
	})
}

func TestARevokedOrExpiredTokenEndsItsSessionsAtEachGateway(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		other := newSceneWith(t, dashboardRules, func(o *Options) { o.Secret, o.Tokens, o.Through = d.keys.get, d.tokens, d.idp })
		b := browser{}
		c, err := d.logIn(b, "lkt_a")
		assert.NoError(t, err)
		_, err = other.Authenticate(b.request("/"))
		assert.NoError(t, err, "another gateway of the fleet")
		d.tokens.put("a", nil)
		for _, gateway := range []*scene{d.scene, other} {
			_, err = gateway.Authenticate(b.request("/"))
			assert.That(t, err != nil && err.(*Error).Session && !err.(*Error).Unavailable, "%v", err)
			_, err = gateway.Again(c)
			assert.That(t, err != nil, "an open page goes on")
		}

		d.tokens.put("a", &token.Record{ID: "a", Name: "ci-shop", Expires: time.Now().Add(time.Hour)})
		c, err = d.logIn(b, "lkt_a")
		assert.NoError(t, err)
		assert.That(t, c.Expires.Equal(time.Now().Add(time.Hour)), "the session outlives its token: %v", c.Expires)
	})
}

func TestASessionGoesOnWhileAGatewayHasNotReadTheTokens(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		b := browser{}
		assert.Value(d.logIn(b, "lkt_a"))(t)
		d.tokens.set(true)
		_, err := d.Authenticate(b.request("/"))
		wrong, ok := err.(*Error)
		assert.That(t, ok && wrong.Unavailable && wrong.Session, "%v", err)
		d.tokens.set(false)
		assert.Value(d.Authenticate(b.request("/")))(t)
	})
}

// Who has read the key seals sessions of any user, which end with it.
func TestWhatASessionHasOpenEndsWhenItsKeyIsDropped(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		b := browser{}
		_, err := d.logIn(b, "lkt_a")
		assert.NoError(t, err)
		open, err := d.Authenticate(b.request("/v1/events"))
		assert.NoError(t, err)
		old := d.keys.keys[0]
		d.keys.keys = []layout.TokenKey{{ID: "bbbb", Key: []byte("the new key of the fleet")}, old}
		_, err = d.Again(open)
		assert.NoError(t, err)
		d.keys.keys = d.keys.keys[:1]
		_, err = d.Again(open)
		wrong, ok := errors.AsType[*Error](err)
		assert.That(t, ok && !wrong.Unavailable && strings.Contains(wrong.Detail, "log in again"), "%v", err)
	})
}

func TestASessionEndsAfterTwelveHours(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		b := browser{}
		c, err := d.logIn(b, "lkt_a")
		assert.NoError(t, err)
		time.Sleep(12*time.Hour - time.Second)
		_, err = d.Authenticate(b.request("/"))
		assert.NoError(t, err)
		time.Sleep(time.Second)
		_, err = d.Authenticate(b.request("/"))
		assert.That(t, err != nil && strings.Contains(err.Error(), "has ended"), "%v", err)
		_, err = d.Again(c)
		assert.That(t, err != nil, "an open page goes on")
	})
}

func TestACookieThatTheFleetHasNotSealedIsRefusedAndNotAnonymous(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		b := browser{}
		_, err := d.logIn(b, "lkt_a")
		assert.NoError(t, err)
		good := b[sessionCookie]
		for _, wrong := range []string{"x", good[:len(good)-4], good + "AAAA"} {
			_, err := d.Authenticate(browser{sessionCookie: wrong}.request("/"))
			assert.That(t, err != nil && err.(*Error).Session, "%q: %v", wrong, err)
		}
		r := b.request("/")
		r.Header.Add("Cookie", sessionCookie+"="+good)
		_, err = d.Authenticate(r)
		assert.That(t, err != nil && strings.Contains(err.Error(), "once"), "two cookies: %v", err)
		// Rotation: the old key opens until it is dropped.
		d.keys.keys = append([]layout.TokenKey{{ID: "bbbb", Key: []byte("another key")}}, d.keys.keys...)
		_, err = d.Authenticate(b.request("/"))
		assert.NoError(t, err)
		d.keys.keys = d.keys.keys[:1]
		_, err = d.Authenticate(b.request("/"))
		assert.That(t, err != nil && err.(*Error).Session, "%v", err)
		d.keys.keys = nil
		_, err = d.Authenticate(b.request("/"))
		assert.That(t, err != nil && err.(*Error).Unavailable, "%v", err)
		_, err = d.logIn(b, "lkt_a")
		assert.That(t, err != nil && err.(*Error).Unavailable, "%v", err)
	})
}

func TestASessionThroughAnIssuerHasTheRolesOfItsUser(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		d.idp.User(map[string]any{"sub": "bob", "team": "shop", "groups": []string{"sre", "everyone", "other"}, "secret": strings.Repeat("x", 5000)})
		b := browser{}
		c, next, err := d.through(b)
		assert.NoError(t, err)
		assert.That(t, next == "/locks/deploy" && c.Principal.Name == "corp:bob" && strings.Join(c.Roles, ",") == "dev,sre" && c.Kind == JWT && c.Session(), "%q %+v", next, c)
		assert.That(t, c.Expires.Equal(time.Now().Add(time.Hour)), "the session outlives its ID token: %v", c.Expires)
		assert.That(t, len(b) == 1 && b[sessionCookie] != "", "the state of the login is kept: %v", b)
		shown, err := d.Authenticate(b.request("/"))
		assert.NoError(t, err)
		assert.That(t, shown.Principal == c.Principal && shown.ID == c.ID, "%+v", shown)

		// Another file of rules decides anew. What it did not name at the login is not known of the user.
		d.write(strings.NewReplacer("group: sre", "group: everyone", "team: shop", "secret: y").Replace(d.rules))
		time.Sleep(lookEvery)
		synctest.Wait()
		again, err := d.Again(c)
		assert.That(t, err == nil && len(again.Roles) == 0 && !again.Principal.Rules.MayIn(access.Read, "default"), "%+v %v", again, err)
		// An issuer that is written in another way has other users.
		d.write(strings.Replace(d.rules, "groups: groups", "groups: teams", 1))
		time.Sleep(lookEvery)
		synctest.Wait()
		_, err = d.Again(c)
		assert.That(t, err != nil && strings.Contains(err.Error(), "another way"), "%v", err)
	})
}

func TestAnIssuerThatIsAwayEndsNoSession(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		b := browser{}
		_, _, err := d.through(b)
		assert.NoError(t, err)
		d.idp.Away(true)
		time.Sleep(30 * time.Minute)
		_, err = d.Authenticate(b.request("/"))
		assert.NoError(t, err)
		fresh := newSceneWith(t, d.rules, func(o *Options) { o.Secret, o.Through = d.keys.get, d.idp }) // it has never read the keys
		_, err = fresh.Authenticate(b.request("/"))
		assert.NoError(t, err)
	})
}

func TestAWithdrawnKeyEndsItsSessions(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		d.idp.Mangle(func(claims map[string]any) { claims["exp"] = time.Now().Add(5 * time.Hour).Unix() })
		b := browser{}
		_, _, err := d.through(b)
		assert.NoError(t, err)
		d.idp.NewKey(t)
		time.Sleep(keysEvery)
		synctest.Wait()
		_, err = d.Authenticate(b.request("/"))
		assert.That(t, err != nil && strings.Contains(err.Error(), "withdrawn"), "%v", err)
	})
}

func TestALoginThroughAnIssuerEndsInTheBrowserThatBeganItAndOnce(t *testing.T) {
	refused := func(t *testing.T, d *desk, why string, mangle func(map[string]any), change ...func(*url.URL)) {
		t.Helper()
		d.idp.Mangle(mangle)
		defer d.idp.Mangle(nil)
		b := browser{}
		_, _, err := d.through(b, change...)
		assert.That(t, err != nil && strings.Contains(err.Error(), why), "%v, want %s", err, why)
		assert.That(t, b[sessionCookie] == "", "there is a session all the same: %s", why)
	}
	with := func(name, value string) func(*url.URL) {
		return func(back *url.URL) {
			query := back.Query()
			query.Set(name, value)
			back.RawQuery = query.Encode()
		}
	}
	claim := func(name string, value any) func(map[string]any) {
		return func(claims map[string]any) { claims[name] = value }
	}
	atDesk(t, func(t *testing.T, d *desk) {
		refused(t, d, "the browser, and at the address", nil, with("state", "another"))
		refused(t, d, "the browser, and at the address", nil, func(back *url.URL) { back.RawQuery += "&state=x" })
		refused(t, d, "must be of the issuer corp", nil, with("iss", "https://evil.example.com"))
		refused(t, d, "refused the code", nil, with("code", "another"))
		refused(t, d, "answer with a code", nil, with("code", ""))
		refused(t, d, "must be of this login", claim("nonce", "another"))
		refused(t, d, "must be signed by its issuer", claim("aud", "lockkeeper")) // the audience of the API
		refused(t, d, "must be for this gateway", claim("azp", "another"))
		refused(t, d, "has expired", claim("exp", time.Now().Add(-time.Minute).Unix()))
		refused(t, d, "has expired", claim("exp", time.Now().Unix()))
		refused(t, d, "the claim sub", claim("sub", ""))
		refused(t, d, "took longer", nil, func(*url.URL) { time.Sleep(loginWithin) })

		d.idp.Answers(url.Values{"error": {"access_denied"}})
		refused(t, d, "did not let you in", nil)
		d.idp.Answers(nil)

		// Another browser has no state of the login, and its own is of another one.
		b, other := browser{}, browser{}
		w := httptest.NewRecorder()
		_, err := d.Begin(w, other.request("/"), "corp", "/")
		assert.NoError(t, err)
		other.take(w)
		_, _, err = d.through(b, func(back *url.URL) {
			for _, who := range []browser{{}, other} {
				_, _, err := d.Finish(httptest.NewRecorder(), who.request(back.RequestURI()))
				assert.That(t, err != nil && strings.Contains(err.Error(), "the browser"), "another browser: %v", err)
			}
		})
		assert.NoError(t, err)
		// The code has a verifier that only this browser's login knows.
		_, _, err = d.through(b, func(back *url.URL) {
			w := httptest.NewRecorder()
			to, err := d.Begin(w, other.request("/"), "corp", "/")
			assert.NoError(t, err)
			other.take(w)
			state := assert.Value(url.Parse(to))(t).Query().Get("state")
			code := *back
			with("state", state)(&code)
			_, _, err = d.Finish(httptest.NewRecorder(), other.request(code.RequestURI()))
			assert.That(t, err != nil && strings.Contains(err.Error(), "refused the code"), "a code of another browser: %v", err)
		})
		assert.That(t, err != nil, "a code counts twice")
		assert.Equal(t, strings.Join(d.idp.Refused(), "; "), "the code is not known; the verifier is not of this login; the code is not known")
	})
}

func TestAnIssuerThatIsAwayLetsNobodyLogInThroughIt(t *testing.T) {
	idp := issuertest.New(t, issuerURLInTests)
	synctest.Test(t, func(t *testing.T) {
		keys := &fleetKeys{[]layout.TokenKey{{ID: "aaaa", Key: []byte("a key of the fleet")}}}
		s := newSceneWith(t, dashboardRules, func(o *Options) { o.Secret, o.Through = keys.get, idp })
		idp.Away(true)
		s.run()
		_, err := s.Begin(httptest.NewRecorder(), browser{}.request("/"), "corp", "/")
		assert.That(t, err != nil && err.(*Error).Unavailable && strings.Contains(err.Error(), "cannot be reached"), "%v", err)
		_, err = s.Begin(httptest.NewRecorder(), browser{}.request("/"), "github", "/")
		assert.That(t, err != nil && strings.Contains(err.Error(), `no issuer "github"`), "%v", err)
		idp.Away(false)
		time.Sleep(2 * keysPause)
		synctest.Wait()
		d := &desk{scene: s, keys: keys, idp: idp}
		_, _, err = d.through(browser{})
		assert.NoError(t, err)
		assert.Equal(t, strings.Join(s.Issuers(), ","), "corp")
	})
}
