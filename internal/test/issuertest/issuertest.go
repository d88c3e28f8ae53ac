// Package issuertest is an OIDC issuer for tests: discovery, keys, and logins by authorization code with PKCE. It approves every
// login at once. It is test support; no shipped code may import it.
package issuertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"lockkeeper/internal/test/assert"
)

// What clients must show.
const (
	ClientID = "lockkeeper-dashboard"
	Secret   = "the secret of the client"
)

// Issuer is an issuer. Make one with New or Serve.
type Issuer struct {
	URL string

	mu     sync.Mutex
	key    *ecdsa.PrivateKey
	keyID  string
	away   bool
	user   map[string]any // claims of the user who logs in
	answer url.Values     // what the issuer sends back in place of a code
	mangle func(claims map[string]any)
	codes  map[string]login
	errors []string
}

// login is an approved one, by its code.
type login struct{ challenge, redirect, nonce string }

// New makes an issuer whose address is url. It answers as an http.Handler and an http.RoundTripper.
func New(t testing.TB, url string) *Issuer {
	t.Helper()
	return &Issuer{URL: url, key: assert.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t), keyID: rand.Text(), codes: map[string]login{},
		user: map[string]any{"sub": "ann"}}
}

// Serve makes an issuer that listens on loopback until the test ends.
func Serve(t testing.TB) *Issuer {
	t.Helper()
	i := New(t, "")
	server := httptest.NewServer(i)
	t.Cleanup(server.Close)
	i.URL = server.URL
	return i
}

// User sets the claims of the user who logs in.
func (i *Issuer) User(claims map[string]any) { i.set(func() { i.user = claims }) }

// Away lets every request fail.
func (i *Issuer) Away(is bool) { i.set(func() { i.away = is }) }

// Answers lets logins end with these parameters in place of a code; nil: with a code again.
func (i *Issuer) Answers(with url.Values) { i.set(func() { i.answer = with }) }

// Mangle changes the claims of ID tokens before they are signed; nil: nothing does.
func (i *Issuer) Mangle(how func(claims map[string]any)) { i.set(func() { i.mangle = how }) }

// NewKey withdraws the key and takes another one.
func (i *Issuer) NewKey(t testing.TB) {
	t.Helper()
	key := assert.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	i.set(func() { i.key, i.keyID = key, rand.Text() })
}

func (i *Issuer) set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

// Refused are the reasons for which the issuer has refused codes.
func (i *Issuer) Refused() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.errors
}

// RoundTrip answers without a network.
func (i *Issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	i.ServeHTTP(w, r)
	return w.Result(), nil
}

func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.away {
		http.Error(w, "away", http.StatusBadGateway)
		return
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		answer(w, map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token"})
	case "/keys":
		answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: i.keyID, Use: "sig"}}})
	case "/authorize":
		i.authorize(w, r)
	case "/token":
		i.token(w, r)
	default:
		http.NotFound(w, r)
	}
}

func answer(w http.ResponseWriter, content any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(content)
}

func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	if asked.Get("client_id") != ClientID || asked.Get("response_type") != "code" || asked.Get("code_challenge_method") != "S256" || asked.Get("state") == "" {
		http.Error(w, "wrong parameters: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	back := maps.Clone(i.answer)
	if back == nil {
		code := rand.Text()
		i.codes[code] = login{asked.Get("code_challenge"), asked.Get("redirect_uri"), asked.Get("nonce")}
		back = url.Values{"code": {code}, "iss": {i.URL}}
	}
	back.Set("state", asked.Get("state"))
	http.Redirect(w, r, asked.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	code := r.FormValue("code")
	one, known := i.codes[code]
	delete(i.codes, code) // it counts once
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	id, secret, _ := r.BasicAuth()
	if id == "" {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	secret, _ = url.QueryUnescape(secret)
	wrong := ""
	switch {
	case !known:
		wrong = "the code is not known"
	case id != ClientID || secret != Secret:
		wrong = "the client is not known"
	case base64.RawURLEncoding.EncodeToString(sum[:]) != one.challenge:
		wrong = "the verifier is not of this login"
	case r.FormValue("redirect_uri") != one.redirect:
		wrong = "the redirect is another one"
	}
	if wrong != "" {
		i.errors = append(i.errors, wrong)
		w.WriteHeader(http.StatusBadRequest)
		answer(w, map[string]any{"error": "invalid_grant", "error_description": wrong})
		return
	}
	now := time.Now().Unix()
	claims := map[string]any{"iss": i.URL, "aud": ClientID, "iat": now, "exp": now + 3600, "nonce": one.nonce}
	maps.Copy(claims, i.user)
	if i.mangle != nil {
		i.mangle(claims)
	}
	text, err := i.sign(claims)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, map[string]any{"access_token": "none", "token_type": "Bearer", "id_token": text})
}

func (i *Issuer) sign(claims map[string]any) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	with, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: i.keyID}}, nil)
	if err != nil {
		return "", err
	}
	signed, err := with.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}
