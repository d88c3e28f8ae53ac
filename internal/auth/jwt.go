package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"lockkeeper/internal/locks"
)

const (
	maxJWT     = 8 << 10  // bytes
	maxIDToken = 64 << 10 // bytes; it comes from the issuer itself
	// skew is how much the clocks of an issuer and this machine may differ.
	skew        = 30 * time.Second
	maxVerified = 4096 // tokens that are remembered
	maxName     = 256  // bytes of a caller's name
)

// verified is a JWT whose signature has been checked. It is immutable but for current.
type verified struct {
	identity
	from    *source
	key     string // id of the key that signed it
	expires time.Time
	id      string // for the log: a part of its hash

	current atomic.Pointer[resolved] // what the caller may do under the policy that was asked last
}

// resolved is what a policy says of a caller.
type resolved struct {
	policy    *Policy
	roles     []string
	principal locks.Principal
}

// remembered are verified tokens by the SHA-256 of their text.
type remembered struct {
	mu     sync.Mutex
	tokens map[[sha256.Size]byte]*verified
}

func (m *remembered) find(sum [sha256.Size]byte) *verified {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tokens[sum]
}

// add makes room by what has expired, or else by any.
func (m *remembered) add(sum [sha256.Size]byte, v *verified, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tokens == nil {
		m.tokens = map[[sha256.Size]byte]*verified{}
	}
	if len(m.tokens) >= maxVerified {
		for other, old := range m.tokens {
			if !now.Before(old.expires) {
				delete(m.tokens, other)
			}
		}
	}
	for other := range m.tokens {
		if len(m.tokens) < maxVerified {
			break
		}
		delete(m.tokens, other)
	}
	m.tokens[sum] = v
}

// looksLikeJWT reports whether the text is three parts of base64url.
func looksLikeJWT(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return strings.Count(text, ".") == 2 && strings.HasPrefix(text, "eyJ") // {" begins every header
}

// unverified is what a token says before it is verified.
type unverified struct {
	Issuer string   `json:"iss"`
	Expiry *float64 `json:"exp"`
}

func saidBy(text string) (u unverified, err error) {
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(text, ".")[1])
	if err == nil {
		err = json.Unmarshal(payload, &u)
	}
	return u, err
}

// over reports whether the token says that it has expired: then no signature check is worth it. A job that goes on showing such a
// token beside its lease's does no harm to others of its address.
func (u *unverified) over(now time.Time) bool {
	return u.Expiry != nil && !now.Before(lastsUntil(*u.Expiry))
}

// lastsUntil is when a token with that expiry is accepted last.
func lastsUntil(expiry float64) time.Time { return moment(expiry).Add(skew) }

// ofJWT verifies a token, or remembers that it was.
func (a *Authenticator) ofJWT(r *http.Request, now *inForce, text string) (*verified, error) {
	if len(text) > maxJWT {
		return nil, refused("a JWT must have at most %d KiB", maxJWT>>10)
	}
	sum := sha256.Sum256([]byte(text))
	if v := a.remembered.find(sum); v != nil && now.sources[v.from.url] == v.from {
		return v, v.check(time.Now())
	}
	says, err := saidBy(text)
	from := now.sources[says.Issuer]
	switch {
	case err != nil:
		return nil, refused("the JWT cannot be read: send it as the issuer gave it")
	case from == nil:
		return nil, refused("the JWT must be of an issuer that this gateway knows: its iss is none of theirs")
	case says.over(time.Now()):
		return nil, hasExpired()
	}
	address := addressOf(r)
	if err := a.guesses.mayGuess(address); err != nil {
		return nil, err
	}
	g := &guess{guesses: &a.guesses, from: address}
	v, err := from.verify(r.Context(), from.verifier, from.audience, text, g)
	if err != nil {
		if wrong, ok := err.(*Error); ok && !wrong.Unavailable && !wrong.TooMany {
			g.isWrong()
		}
		return nil, err
	}
	v.id = base64.RawURLEncoding.EncodeToString(sum[:6])
	if err := v.check(time.Now()); err != nil {
		return nil, err
	}
	a.remembered.add(sum, v, time.Now())
	return v, nil
}

// check looks at what may change about a verified token.
func (v *verified) check(now time.Time) error {
	switch {
	case !now.Before(v.expires):
		return hasExpired()
	case !v.from.has(v.key):
		return refused("the issuer has withdrawn the key of the JWT: get a new one")
	}
	return nil
}

func hasExpired() *Error { return refused("the JWT has expired: get a new one from its issuer") }

// verify checks a token's signature, audience and times, and takes what it says of the caller.
func (s *source) verify(ctx context.Context, verifier *oidc.IDTokenVerifier, audience, text string, g *guess) (*verified, error) {
	key := keyOf(text)
	if err := s.awaitKey(ctx, key); err != nil {
		return nil, &Error{Detail: "the keys of the JWT's issuer cannot be read at present: repeat the request", Unavailable: true, Err: err}
	}
	var token *oidc.IDToken
	if err := g.check(ctx, func() (err error) { token, err = verifier.Verify(ctx, text); return err }); err != nil {
		if tooMany, ok := err.(*Error); ok {
			return nil, tooMany
		}
		return nil, &Error{Detail: fmt.Sprintf("the JWT must be signed by its issuer with RS256, ES256 or EdDSA, and be for the audience %q", audience), Err: err}
	}
	claims := map[string]any{}
	var times struct {
		Expiry    *float64 `json:"exp"`
		NotBefore *float64 `json:"nbf"`
		IssuedAt  *float64 `json:"iat"`
	}
	if err := errors.Join(token.Claims(&claims), token.Claims(&times)); err != nil {
		return nil, &Error{Detail: "the claims of the JWT cannot be read", Err: err}
	}
	now := time.Now()
	late := func(at *float64) bool { return at != nil && now.Add(skew).Before(moment(*at)) }
	if times.Expiry == nil {
		return nil, refused("the JWT must have an expiry (exp)")
	}
	if late(times.NotBefore) || late(times.IssuedAt) {
		return nil, refused("the JWT is not valid yet: the clocks of its issuer and of this gateway differ by more than 30 s, or it is for later")
	}
	v := &verified{identity: identity{kind: JWT, issuer: s.name, claims: claims}, from: s, key: key, expires: lastsUntil(*times.Expiry)}
	if v.name, _ = claims[s.subject].(string); v.name == "" || locks.CheckText("name", v.name, maxName) != nil {
		return nil, refused("the JWT must have the claim %s, a text of at most %d bytes without control characters: it is the caller's name", s.subject, maxName)
	}
	if sure, given := claims["email_verified"]; s.subject == "email" && given && sure != true && sure != "true" {
		return nil, refused("the JWT's email must be verified by its issuer: it is the caller's name")
	}
	v.groups = textsIn(claims[s.groups])
	return v, nil
}

// moment is a NumericDate. What is out of range is far away.
func moment(seconds float64) time.Time {
	const far = 1 << 40
	return time.Unix(int64(max(-far, min(seconds, far))), 0)
}

// keyOf is the id of the key that a token names.
func keyOf(text string) string {
	header, err := base64.RawURLEncoding.DecodeString(text[:strings.IndexByte(text, '.')])
	var named struct {
		Key string `json:"kid"`
	}
	if err != nil || json.Unmarshal(header, &named) != nil {
		return ""
	}
	return named.Key
}

// textsIn is a claim that is a list of texts, or one.
func textsIn(claim any) (texts []string) {
	switch v := claim.(type) {
	case string:
		return []string{v}
	case []any:
		for _, item := range v {
			if text, ok := item.(string); ok {
				texts = append(texts, text)
			}
		}
	}
	return texts
}
