package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/issuertest"
)

// fakeIssuer is an OIDC issuer with keys of its own.
type fakeIssuer struct {
	url string

	mu   sync.Mutex
	keys []jose.JSONWebKey // public
	away bool
	read int // how often its keys were
}

func (f *fakeIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case f.away:
		http.Error(w, "away", http.StatusBadGateway)
	case r.URL.Path == "/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": f.url, "jwks_uri": f.url + "/keys"})
	case r.URL.Path == "/keys":
		f.read++
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: f.keys})
	}
}

// RoundTrip answers without a network.
func (f *fakeIssuer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w.Result(), nil
}

func (f *fakeIssuer) set(away bool, keys ...*signer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away, f.keys = away, nil
	for _, k := range keys {
		f.keys = append(f.keys, jose.JSONWebKey{Key: k.private.Public(), KeyID: k.id, Use: "sig"})
	}
}

func (f *fakeIssuer) reads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read
}

// signer is a key that signs tokens.
type signer struct {
	id      string
	alg     jose.SignatureAlgorithm
	private crypto.Signer
}

var (
	rsaKey     = sync.OnceValue(func() *signer { k, _ := rsa.GenerateKey(rand.Reader, 2048); return &signer{"r1", jose.RS256, k} })
	ecKey      = newEC("e1")
	otherECKey = newEC("e2")
	edKey      = sync.OnceValue(func() *signer { _, k, _ := ed25519.GenerateKey(rand.Reader); return &signer{"d1", jose.EdDSA, k} })
)

func newEC(id string) func() *signer {
	return sync.OnceValue(func() *signer {
		k, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		return &signer{id, jose.ES256, k}
	})
}

type claims = map[string]any

// sign makes a token. claims replace and, where nil, remove those that a good one has.
func (s *signer) sign(t testing.TB, issuer string, more claims) string {
	t.Helper()
	now := time.Now().Unix()
	all := claims{"iss": issuer, "aud": "lockkeeper", "sub": "ann", "iat": now, "exp": now + 300}
	for name, value := range more {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	payload := assert.Value(json.Marshal(all))(t)
	with := assert.Value(jose.NewSigner(jose.SigningKey{Algorithm: s.alg, Key: jose.JSONWebKey{Key: s.private, KeyID: s.id}}, nil))(t)
	return assert.Value(assert.Value(with.Sign(payload))(t).CompactSerialize())(t)
}

// fakeTokens has tokens whose text is lkt_ and their id.
type fakeTokens struct {
	mu      sync.Mutex
	records map[string]*token.Record
	unread  bool
}

func (f *fakeTokens) set(unread bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unread = unread
}

func (f *fakeTokens) Authenticate(text string) (*token.Record, error) {
	return f.Lookup(strings.TrimPrefix(text, "lkt_"))
}

func (f *fakeTokens) Lookup(id string) (*token.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unread {
		return nil, token.ErrNotReady
	}
	if r := f.records[id]; r != nil {
		return r, nil
	}
	return nil, token.ErrRefused
}

func (f *fakeTokens) put(id string, r *token.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records[id] = r
}

// gauge is what the metrics were told.
type gauge struct {
	mu      sync.Mutex
	inForce bool
	reached map[string]bool
}

func (g *gauge) AuthFile(inForce bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inForce = inForce
}

func (g *gauge) IssuerGone(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.reached, name)
}

func (g *gauge) Issuer(name string, reached bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reached == nil {
		g.reached = map[string]bool{}
	}
	g.reached[name] = reached
}

func (g *gauge) is(issuer string) (inForce, reached bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inForce, g.reached[issuer]
}

// scene is an authenticator over a file, with an issuer and tokens of its own.
type scene struct {
	*Authenticator
	t      *testing.T
	path   string
	rules  string // as they were written first
	issuer *fakeIssuer
	tokens *fakeTokens
	gauge  *gauge
	shown  int // credentials

	mu      sync.Mutex
	refused []*FileError
	loaded  int
}

// told is what the authenticator told of its file.
func (s *scene) told() (refused []*FileError, loaded int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.refused), s.loaded
}

const issuerURLInTests = "https://id.example.com"

const rulesInTests = `
issuers: {corp: {issuer: "https://id.example.com", audience: lockkeeper, groups: groups}}
roles: {dev: [{ns: default, locks: "*", verbs: [acquire]}], sre: [{ns: "*", locks: "*", verbs: [operate]}]}
who:
  - {issuer: corp, everyone: true, roles: [dev]}
  - {issuer: corp, group: sre, roles: [sre]}
  - {token: "ci-*", roles: [dev]}
  - {cert: backup.example.com, roles: [sre]}
  - {uid: 1000, roles: [sre]}
`

func newScene(t *testing.T, rules string) *scene {
	t.Helper()
	return newSceneWith(t, rules)
}

// newSceneWith is newScene with other options. SECRET in the rules is a file with the secret of issuertest.
func newSceneWith(t *testing.T, rules string, change ...func(*Options)) *scene {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	assert.NoError(t, os.WriteFile(secret, []byte(issuertest.Secret+"\n"), 0o600))
	rules = strings.Replace(rules, "SECRET", secret, 1)
	s := &scene{t: t, path: filepath.Join(t.TempDir(), "auth.yaml"), issuer: &fakeIssuer{url: issuerURLInTests}, gauge: &gauge{},
		tokens: &fakeTokens{records: map[string]*token.Record{"a": {ID: "a", Name: "ci-shop"}}}}
	s.issuer.set(false, ecKey())
	s.write(rules)
	o := Options{Path: s.path, Tokens: s.tokens, Metrics: s.gauge, Logger: slog.New(slog.DiscardHandler), Through: s.issuer,
		Refused: func(e *FileError) { s.mu.Lock(); defer s.mu.Unlock(); s.refused = append(s.refused, e) },
		Loaded:  func() { s.mu.Lock(); defer s.mu.Unlock(); s.loaded++ }}
	for _, how := range change {
		how(&o)
	}
	s.rules, s.Authenticator = rules, assert.Value(New(o))(t)
	return s
}

func (s *scene) write(rules string) {
	s.t.Helper()
	assert.NoError(s.t, os.WriteFile(s.path, []byte(rules), 0o600))
}

// run runs the authenticator for as long as the test.
func (s *scene) run() {
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Run(ctx) }()
	s.t.Cleanup(func() { cancel(); <-ended })
	synctest.Wait()
}

func (s *scene) shows(header ...string) (Caller, error) {
	r := httptest.NewRequest(http.MethodGet, "/v1/locks", nil)
	r.Header["Authorization"] = header
	if len(header) == 0 {
		delete(r.Header, "Authorization")
	}
	s.shown++ // each from an address of its own: see guesses
	r.RemoteAddr = fmt.Sprintf("198.51.100.%d:1", s.shown%250)
	return s.Authenticate(r)
}

func (s *scene) letsIn(text, name, roles string) Caller {
	s.t.Helper()
	c, err := s.shows("Bearer " + text)
	assert.NoError(s.t, err)
	assert.Equal(s.t, c.Principal.Name+" "+strings.Join(c.Roles, ","), name+" "+roles)
	return c
}

func (s *scene) refuses(text, why string, unavailable bool) {
	s.t.Helper()
	_, err := s.shows("Bearer " + text)
	wrong, ok := errors.AsType[*Error](err)
	assert.Must(s.t, ok, "%q is let in, and must not: %s", text, why)
	assert.That(s.t, strings.Contains(wrong.Detail, why) && wrong.Unavailable == unavailable, "the refusal is %+v, want %q", wrong, why)
	assert.That(s.t, !strings.Contains(wrong.Detail, text), "the refusal holds the credential: %s", wrong.Detail)
}

func inBubble(t *testing.T, rules string, test func(t *testing.T, s *scene)) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, rules)
		s.run()
		test(t, s)
	})
}

func TestAJWTOfAnIssuerNamesItsCaller(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		s.issuer.set(false, ecKey(), rsaKey(), edKey())
		time.Sleep(keysEvery)
		synctest.Wait()
		for _, k := range []*signer{ecKey(), rsaKey(), edKey()} {
			c := s.letsIn(k.sign(t, s.issuer.url, nil), "corp:ann", "dev")
			assert.Equal(t, c.Expires, time.Unix(time.Now().Unix()+300, 0).Add(skew), "%s", k.alg)
		}
		s.letsIn(ecKey().sign(t, s.issuer.url, claims{"groups": []string{"x", "sre"}, "sub": "bob", "aud": []string{"x", "lockkeeper"}}), "corp:bob", "dev,sre")
	})
}

func TestAWrongJWTIsRefused(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		now := time.Now().Unix()
		good := ecKey().sign(t, s.issuer.url, nil)
		parts := strings.Split(good, ".")
		stranger := &signer{"e1", jose.ES256, otherECKey().private}
		for why, texts := range map[string][]string{
			"signed by its issuer": {
				stranger.sign(t, s.issuer.url, nil),
				ecKey().sign(t, s.issuer.url, claims{"aud": "other"}), ecKey().sign(t, s.issuer.url, claims{"aud": nil}),
				parts[0] + "." + parts[1] + ".", parts[0] + "." + parts[1] + "." + parts[2][:40],
				none(t, s.issuer.url), hmacOfKey(t, s.issuer.url),
			},
			"issuer that this gateway knows": {ecKey().sign(t, "https://other.example.com", nil), ecKey().sign(t, s.issuer.url+"/", nil)},
			"has expired":                    {ecKey().sign(t, s.issuer.url, claims{"exp": now - 30})},
			"must have an expiry":            {ecKey().sign(t, s.issuer.url, claims{"exp": nil})},
			"not valid yet":                  {ecKey().sign(t, s.issuer.url, claims{"nbf": now + 31}), ecKey().sign(t, s.issuer.url, claims{"iat": now + 31})},
			"must have the claim sub":        {ecKey().sign(t, s.issuer.url, claims{"sub": nil}), ecKey().sign(t, s.issuer.url, claims{"sub": "a\nb"})},
			"at most 8 KiB":                  {ecKey().sign(t, s.issuer.url, claims{"x": strings.Repeat("x", maxJWT)})},
			"Authorization must hold":        {"x", good + ".x", "eyJ.", "secret"},
		} {
			for _, text := range texts {
				s.refuses(text, why, false)
			}
		}
		s.letsIn(ecKey().sign(t, s.issuer.url, claims{"exp": now - 29}), "corp:ann", "dev")
		s.letsIn(ecKey().sign(t, s.issuer.url, claims{"nbf": now + 30, "iat": now + 30}), "corp:ann", "dev")
	})
}

// none is a token without a signature.
func none(t *testing.T, issuer string) string {
	parts := strings.Split(ecKey().sign(t, issuer, nil), ".")
	return "eyJhbGciOiJub25lIn0." + parts[1] + "."
}

// hmacOfKey is a token whose "signature" is a MAC with the public key.
func hmacOfKey(t *testing.T, issuer string) string {
	public := assert.Value(json.Marshal(jose.JSONWebKey{Key: ecKey().private.Public(), KeyID: "e1"}))(t)
	with := assert.Value(jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: public}, (&jose.SignerOptions{}).WithHeader("kid", "e1")))(t)
	payload := assert.Value(json.Marshal(claims{"iss": issuer, "aud": "lockkeeper", "sub": "ann", "exp": time.Now().Unix() + 300}))(t)
	return assert.Value(assert.Value(with.Sign(payload))(t).CompactSerialize())(t)
}

func TestAnEmailThatIsNotVerifiedIsNoName(t *testing.T) {
	inBubble(t, strings.Replace(rulesInTests, "groups: groups", "groups: groups, name: email", 1), func(t *testing.T, s *scene) {
		s.letsIn(ecKey().sign(t, s.issuer.url, claims{"email": "a@example.com"}), "corp:a@example.com", "dev")
		s.letsIn(ecKey().sign(t, s.issuer.url, claims{"email": "a@example.com", "email_verified": true}), "corp:a@example.com", "dev")
		s.refuses(ecKey().sign(t, s.issuer.url, claims{"email": "a@example.com", "email_verified": false}), "must be verified", false)
	})
}

func TestARememberedJWTCostsNoSignatureCheck(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		text := ecKey().sign(t, s.issuer.url, nil)
		s.letsIn(text, "corp:ann", "dev")
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+text)
		assert.That(t, testing.AllocsPerRun(100, func() { _, _ = s.Authenticate(r) }) <= 1, "a request of a remembered token allocates")
		time.Sleep(330 * time.Second)
		s.refuses(text, "has expired", false)
	})
}

func TestAtMostSoManyJWTsAreRemembered(t *testing.T) {
	var m remembered
	now := time.Unix(1000, 0)
	at := func(i int) [32]byte { return [32]byte{byte(i), byte(i >> 8)} }
	for i := range maxVerified + 10 {
		m.add(at(i), &verified{expires: now.Add(time.Hour)}, now)
		assert.Must(t, len(m.tokens) <= maxVerified, "%d", len(m.tokens))
	}
	assert.That(t, m.find(at(maxVerified+9)) != nil, "the last one is not remembered")
	m.add([32]byte{1, 2, 3}, &verified{expires: now.Add(3 * time.Hour)}, now.Add(2*time.Hour))
	assert.Equal(t, len(m.tokens), 1, "expired ones stay")
}

func TestAnIssuerThatRotatesItsKeysIsFollowed(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		old := ecKey().sign(t, s.issuer.url, claims{"exp": time.Now().Unix() + 7200})
		c := s.letsIn(old, "corp:ann", "dev")
		time.Sleep(time.Minute)
		s.issuer.set(false, ecKey(), otherECKey())
		fresh := otherECKey().sign(t, s.issuer.url, claims{"exp": time.Now().Unix() + 7200})
		s.letsIn(fresh, "corp:ann", "dev") // the keys are read at once
		s.letsIn(old, "corp:ann", "dev")
		s.issuer.set(false, otherECKey())
		time.Sleep(keysEvery)
		synctest.Wait()
		s.letsIn(fresh, "corp:ann", "dev")
		s.refuses(old, "withdrawn the key", false)
		_, err := s.Again(c)
		assert.That(t, err != nil && strings.Contains(err.Error(), "withdrawn"), "a caller by a withdrawn key: %v", err)
	})
}

func TestUnknownKeysLetTheIssuerBeAskedOnceInTenSeconds(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		time.Sleep(time.Minute)
		before := s.issuer.reads()
		for i := range 40 {
			wrong := &signer{string(rune('a' + i)), jose.ES256, otherECKey().private}
			_, err := s.shows("Bearer " + wrong.sign(t, s.issuer.url, nil))
			assert.That(t, err != nil, "let in")
			time.Sleep(time.Second)
		}
		asked := s.issuer.reads() - before
		assert.That(t, asked >= 2 && asked <= 18, "the keys were read %d times for 40 unknown keys", asked)
	})
}

func TestAnIssuerThatIsAwayStopsNoKnownCallerAndNoStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, rulesInTests)
		s.issuer.set(true)
		s.run()
		s.refuses(ecKey().sign(t, s.issuer.url, nil), "cannot be read at present", true)
		s.letsIn("lkt_a", "token:ci-shop", "dev")
		_, reached := s.gauge.is("corp")
		assert.That(t, !reached, "an issuer that is away is reported as reached")
		s.issuer.set(false, ecKey())
		time.Sleep(2 * keysPause)
		synctest.Wait()
		known := ecKey().sign(t, s.issuer.url, claims{"exp": time.Now().Unix() + 7*3600})
		c := s.letsIn(known, "corp:ann", "dev")
		s.issuer.set(true)
		time.Sleep(6 * time.Hour)
		s.letsIn(known, "corp:ann", "dev")
		s.letsIn(ecKey().sign(t, s.issuer.url, nil), "corp:ann", "dev") // a new one, by a known key
		_, err := s.Again(c)
		assert.NoError(t, err)
		s.refuses(otherECKey().sign(t, s.issuer.url, nil), "cannot be read at present", true)
	})
}
