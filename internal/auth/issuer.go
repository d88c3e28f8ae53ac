package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"
)

const (
	keysEvery  = time.Hour        // keys are read again
	keysPause  = 10 * time.Second // between two reads: a token may name any key
	keysWithin = 10 * time.Second // one read may take
	// keyAwait is how long a request waits for the keys when its token names an unknown one, and maxAwaiting how many do.
	keyAwait    = 3 * time.Second
	maxAwaiting = 64
	maxKeys     = 1 << 20 // bytes of a discovery document, or of keys
)

// algorithms that signatures may have.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

// Errors of keys.
var (
	errNoKeys   = errors.New("the issuer's keys could not be read")
	errAwaiting = errors.New("too many requests wait for the issuer's keys")
)

// source is an issuer with its keys. It verifies without I/O; its goroutine (run) reads the keys.
type source struct {
	issuer
	verifier *oidc.IDTokenVerifier
	logins   *oidc.IDTokenVerifier // of ID tokens that are for the dashboard
	log      *slog.Logger
	report   func(issuer string, reached bool)
	through  http.RoundTripper // nil: the network

	wake     chan struct{} // asks run to read the keys
	awaiting chan struct{} // places of requests that wait for them

	mu     sync.Mutex
	keys   []jose.JSONWebKey
	at     oauth2.Endpoint // where users log in; empty while it has not been read
	failed bool            // the last read did
	read   chan struct{}   // closed when the keys are read next, or could not be
}

func newSource(iss *issuer, o *Options) *source {
	s := &source{issuer: *iss, log: o.Logger, report: o.Metrics.Issuer, through: o.Through, wake: make(chan struct{}, 1), awaiting: make(chan struct{}, maxAwaiting), read: make(chan struct{})}
	names := make([]string, len(algorithms))
	for i, alg := range algorithms {
		names[i] = string(alg)
	}
	// Times are looked at in verify and check: with the same leeway on both sides.
	s.verifier = oidc.NewVerifier(iss.url, s, &oidc.Config{ClientID: iss.audience, SupportedSigningAlgs: names, SkipExpiryCheck: true})
	s.logins = oidc.NewVerifier(iss.url, s, &oidc.Config{ClientID: iss.login.id, SupportedSigningAlgs: names, SkipExpiryCheck: true})
	return s
}

// client reads from the issuer. It is made for each read, so that a changed ca_file counts. tokenFile has a bearer token to
// show; "": none.
func (s *source) client(tokenFile string) (*http.Client, error) {
	roots, err := s.roots()
	if err != nil {
		return nil, fmt.Errorf("ca_file %s %w", s.caFile, err)
	}
	through := s.through
	if through == nil {
		through = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	}
	return &http.Client{Transport: bounded{through, tokenFile}, Timeout: keysWithin}, nil
}

// roots sign the issuer's own certificate; nil: those that the system trusts.
func (iss *issuer) roots() (*x509.CertPool, error) {
	if iss.caFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(iss.caFile)
	if err != nil {
		return nil, fmt.Errorf("must be a file that this process can read: %w", unwrapped(err))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("must be a file with certificates in PEM form, each between BEGIN CERTIFICATE and END CERTIFICATE")
	}
	return pool, nil
}

// bounded bounds answers, and shows the issuer the token that it asks for.
type bounded struct {
	inner     http.RoundTripper
	tokenFile string
}

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.tokenFile != "" {
		token, err := os.ReadFile(b.tokenFile) // anew each time: Kubernetes renews it
		if err != nil {
			return nil, fmt.Errorf("token_file: %w", err)
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	answer, err := b.inner.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxKeys)
	}
	return answer, err
}

// run reads the keys until ctx ends: at once, every keysEvery, and when a token names an unknown one.
func (s *source) run(ctx context.Context) {
	failing := false
	for {
		err := s.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		s.report(s.name, err == nil)
		again := keysEvery
		switch {
		case err != nil:
			again = keysPause
			if !failing {
				s.log.Warn("the keys of an issuer cannot be read: known keys stay in use, and they are read again every 10 s", "issuer", s.name, "url", s.url, "err", err)
			}
		case failing:
			s.log.Info("the keys of an issuer are read again", "issuer", s.name)
		}
		failing = err != nil
		if !sleep(ctx, keysPause, nil) || !sleep(ctx, again-keysPause, s.wake) {
			return
		}
	}
}

// sleep waits for a span, or until it is woken. It reports whether ctx still runs.
func sleep(ctx context.Context, span time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

// fetch reads the discovery document and the keys that it names.
func (s *source) fetch(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, keysWithin)
	defer cancel()
	var keys []jose.JSONWebKey
	var at oauth2.Endpoint
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.failed = err != nil; !s.failed {
			s.keys, s.at = keys, at
		}
		close(s.read)
		s.read = make(chan struct{})
	}()
	client, err := s.client(s.token)
	if err != nil {
		return err
	}
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, client), s.url)
	if err != nil {
		return err
	}
	var found struct {
		Keys   string   `json:"jwks_uri"`
		Proofs []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := provider.Claims(&found); err != nil {
		return err
	}
	if err := checkURL(s.url, "jwks_uri", found.Keys); err != nil {
		return err
	}
	if s.login.id != "" {
		at = provider.Endpoint()
		at.AuthStyle = s.login.style(found.Proofs)
		if err := errors.Join(checkURL(s.url, "authorization_endpoint", at.AuthURL), checkURL(s.url, "token_endpoint", at.TokenURL)); err != nil {
			return err
		}
	}
	keys, err = fetchKeys(ctx, client, found.Keys)
	return err
}

// checkURL refuses an address that is reached by a way that others can change, when the issuer is not.
func checkURL(issuer, what, at string) error {
	if strings.HasPrefix(issuer, "https://") && !strings.HasPrefix(at, "https://") {
		return fmt.Errorf("%s %q must begin with https://, as the issuer does", what, at)
	}
	return nil
}

func fetchKeys(ctx context.Context, client *http.Client, from string) ([]jose.JSONWebKey, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", from, answer.Status)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("the keys at %s: %w", from, err)
	}
	var keys []jose.JSONWebKey
	for _, one := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(one) == nil && key.IsPublic() && (key.Use == "" || key.Use == "sig") {
			keys = append(keys, key) // keys of other kinds are for others
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s has no key for signatures", from)
	}
	return keys, nil
}

// named are the keys with that id; all of them when the token names none. all: the last read brought every key. next is closed
// when the keys have been read again.
func (s *source) named(id string) (keys []jose.JSONWebKey, all bool, next <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.keys {
		if id == "" || s.keys[i].KeyID == id {
			keys = append(keys, s.keys[i])
		}
	}
	return keys, s.keys != nil && !s.failed, s.read
}

// withdrew reports whether the issuer has keys, and the one with that id is not among them.
func (s *source) withdrew(id string) bool {
	keys, _, _ := s.named("")
	return len(keys) > 0 && !s.has(id)
}

// has reports whether the issuer still has the key.
func (s *source) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return id == "" || slices.ContainsFunc(s.keys, func(k jose.JSONWebKey) bool { return k.KeyID == id })
}

// awaitKey returns when the key with that id is known, or surely is not the issuer's. Its error is that this cannot be said now.
func (s *source) awaitKey(ctx context.Context, id string) error {
	keys, _, next := s.named(id)
	if len(keys) > 0 {
		return nil
	}
	if err := s.await(ctx, next); err != nil {
		return err
	}
	if keys, all, _ := s.named(id); len(keys) == 0 && !all {
		return errNoKeys
	}
	return nil
}

// VerifySignature implements oidc.KeySet.
func (s *source) VerifySignature(_ context.Context, jwt string) ([]byte, error) {
	signed, err := jose.ParseSignedCompact(jwt, algorithms)
	if err != nil {
		return nil, err
	}
	keys, _, _ := s.named(signed.Signatures[0].Header.KeyID)
	if len(keys) == 0 {
		return nil, errors.New("the issuer has no key with the id that the token names")
	}
	for i := range keys {
		if payload, err := signed.Verify(&keys[i]); err == nil {
			return payload, nil
		}
	}
	return nil, errors.New("the signature is not of the issuer's key")
}

// await waits until the keys have been read once more.
func (s *source) await(ctx context.Context, next <-chan struct{}) error {
	select {
	case s.awaiting <- struct{}{}:
		defer func() { <-s.awaiting }()
	default:
		return errAwaiting
	}
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
	ctx, cancel := context.WithTimeout(ctx, keyAwait)
	defer cancel()
	select {
	case <-next:
		return nil
	case <-ctx.Done():
		return errNoKeys
	}
}
