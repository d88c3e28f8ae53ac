package authtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"lockkeeper/internal/test/assert"
)

// Audience is that of the gateways.
const Audience = "lockkeeper"

// Issuer is an OIDC issuer.
type Issuer struct {
	url  string
	key  *ecdsa.PrivateKey
	Away atomic.Bool // it does not answer
}

func newIssuer(url string) *Issuer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return &Issuer{url: url, key: key}
}

// Sign makes a JWT for a subject, valid for that long.
func (i *Issuer) Sign(t testing.TB, subject, audience string, valid time.Duration) string {
	t.Helper()
	now := time.Now()
	payload := assert.Value(json.Marshal(map[string]any{"iss": i.url, "aud": audience, "sub": subject, "iat": now.Unix(), "exp": now.Add(valid).Unix()}))(t)
	signer := assert.Value(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: "k1"}}, nil))(t)
	return assert.Value(assert.Value(signer.Sign(payload))(t).CompactSerialize())(t)
}

// ServeHTTP answers gateways that read the issuer's keys.
func (i *Issuer) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		_ = json.NewEncoder(rw).Encode(map[string]any{"issuer": i.url, "jwks_uri": i.url + "/keys"})
	case "/keys":
		_ = json.NewEncoder(rw).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: "k1", Use: "sig"}}})
	default:
		http.NotFound(rw, r)
	}
}

// issuers is the way from a gateway to the issuers.
type issuers struct{ w *World }

// RoundTrip implements http.RoundTripper.
func (to issuers) RoundTrip(r *http.Request) (*http.Response, error) {
	for _, i := range []*Issuer{to.w.Issuer, to.w.Stranger} {
		if "https://"+r.URL.Host == i.url && !i.Away.Load() {
			rec := httptest.NewRecorder()
			i.ServeHTTP(rec, r)
			return rec.Result(), nil
		}
	}
	return nil, errors.New("the issuer is away")
}
