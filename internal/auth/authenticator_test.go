package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/unixsock"
)

func TestWhoShowsNothingIsAnonymousAndWhoShowsSomethingWrongIsRefused(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		c, err := s.shows()
		assert.NoError(t, err)
		assert.That(t, c.Principal.Name == "anonymous" && !c.Principal.Rules.MayIn(access.Read, "default"), "%+v", c)
		s.letsIn("lkt_a", "token:ci-shop", "dev")
		s.refuses("lkt_b", "must be one that this fleet has", false)
		s.refuses("lk1.lk0123.k1.abc", "Lease-Token header", false)
		for _, header := range [][]string{{""}, {"Bearer"}, {"Bearer "}, {"Basic YTpi"}, {"lkt_a"}, {"Bearer lkt_a", "Bearer lkt_a"}} {
			_, err := s.shows(header...)
			assert.That(t, err != nil, "%q is let in", header)
		}
		s.tokens.unread = true
		s.refuses("lkt_a", "not read the API tokens yet", true)
	})
}

// The list in doc.go.
func TestOfSeveralCredentialsTheFirstOfTheListCounts(t *testing.T) {
	s := newScene(t, rulesInTests)
	verified := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{DNSNames: []string{"backup.example.com", "other"}}}}}
	const onSocket, elsewhere = "uid:1000", "192.0.2.1:1000"
	request := func(from string, state *tls.ConnectionState, authorization string) string {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = from
		if r.TLS = state; authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		c, err := s.Authenticate(r)
		if err != nil {
			return "refused"
		}
		return c.Principal.Name
	}
	unverified := &tls.ConnectionState{PeerCertificates: verified.VerifiedChains[0]}
	nameless := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: "backup.example.com"}}}}}
	for _, c := range []struct{ got, want string }{
		{request(onSocket, verified, "Bearer lkt_a"), "token:ci-shop"},
		{request(onSocket, verified, "Bearer lkt_b"), "refused"},
		{request(onSocket, verified, ""), "cert:backup.example.com"},
		{request(onSocket, nameless, ""), "refused"},
		{request(onSocket, unverified, ""), "uid:1000"},
		{request(onSocket, nil, ""), "uid:1000"},
		{request(elsewhere, unverified, ""), "anonymous"},
		{request("unix", nil, ""), "anonymous"}, // the kernel has not said whose process it is
	} {
		assert.Equal(t, c.got, c.want)
	}
}

// A connection may live for longer than the certificate that was shown when it was made.
func TestACertificateThatExpiresEndsItsCaller(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		until := time.Now().Add(time.Hour)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{DNSNames: []string{"backup.example.com"}, NotAfter: until}}}}
		c, err := s.Authenticate(r)
		assert.That(t, err == nil && c.Principal.Name == "cert:backup.example.com" && c.Expires.Equal(until), "%+v %v", c, err)
		time.Sleep(time.Hour)
		_, err = s.Again(c)
		assert.NoError(t, err)
		time.Sleep(time.Second)
		_, again := s.Again(c)
		_, err = s.Authenticate(r)
		assert.That(t, again != nil && err != nil && strings.Contains(err.Error(), "has expired"), "%v %v", again, err)
	})
}

func TestARevokedTokenEndsItsCaller(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		c := s.letsIn("lkt_a", "token:ci-shop", "dev")
		again, err := s.Again(c)
		assert.NoError(t, err)
		assert.Equal(t, again.Principal, c.Principal)
		s.tokens.put("a", &token.Record{ID: "a", Name: "other"}) // the same token, with another name
		again, err = s.Again(c)
		assert.That(t, err == nil && again.Principal.Name == "token:other" && len(again.Roles) == 0, "%+v %v", again, err)
		s.tokens.put("a", nil)
		_, err = s.Again(c)
		assert.That(t, err != nil, "a revoked token is let in again")
	})
}

func TestAChangedFileIsInForceInSeconds(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		c := s.letsIn("lkt_a", "token:ci-shop", "dev")
		text := ecKey().sign(t, s.issuer.url, nil)
		j := s.letsIn(text, "corp:ann", "dev")
		s.write(strings.Replace(rulesInTests, `"ci-*", roles: [dev]`, `"ci-*", roles: [sre]`, 1))
		time.Sleep(lookEvery)
		synctest.Wait()
		again, err := s.Again(c)
		assert.That(t, err == nil && again.Roles[0] == "sre" && again.Principal.Rules.Key() != c.Principal.Rules.Key(), "%+v %v", again, err)
		s.letsIn("lkt_a", "token:ci-shop", "sre")
		s.letsIn(text, "corp:ann", "dev")
		_, loaded := s.told()
		assert.Equal(t, loaded, 1)

		// Without its issuer a token that was verified is refused.
		s.write("roles: {}\n")
		time.Sleep(lookEvery)
		synctest.Wait()
		s.refuses(text, "issuer that this gateway knows", false)
		_, err = s.Again(j)
		assert.That(t, err != nil, "a caller of an issuer that is gone is let in again")
		_, known := s.gauge.reached["corp"]
		assert.That(t, !known, "the metric of an issuer that is gone is still there")
		// Its keys are not read any more.
		reads := s.issuer.reads()
		time.Sleep(3 * keysEvery)
		assert.Equal(t, s.issuer.reads(), reads)
	})
}

func TestABrokenFileLeavesTheOldRulesInForce(t *testing.T) {
	inBubble(t, rulesInTests, func(t *testing.T, s *scene) {
		broken := func(change func(), why string) {
			t.Helper()
			before, _ := s.told()
			change()
			time.Sleep(4 * lookEvery)
			synctest.Wait()
			s.letsIn("lkt_a", "token:ci-shop", "dev")
			inForce, _ := s.gauge.is("corp")
			refused, _ := s.told()
			assert.Must(t, !inForce && len(refused) == len(before)+1, "in force %v, refusals %v: once each", inForce, refused)
			assert.Equal(t, refused[len(before)].Error(), s.path+why)
		}
		broken(func() { s.write("roles:\n  dev: [{ns: a}]\n") }, ":2:9: a grant must have the key locks")
		broken(func() { assert.NoError(t, os.Remove(s.path)) }, ": it must be a file that this process can read: no such file or directory")
		s.write(rulesInTests)
		time.Sleep(lookEvery)
		synctest.Wait()
		inForce, _ := s.gauge.is("corp")
		_, loaded := s.told()
		assert.That(t, inForce && loaded == 1, "in force %v, loaded %d", inForce, loaded)
		broken(func() { assert.NoError(t, os.Chmod(s.path, 0o622)) }, ": others can write it (mode 0622), and what they write makes them administrator: chmod go-w "+s.path)
	})
}

func TestANewBrokenFileStopsTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	assert.NoError(t, os.WriteFile(path, []byte("rolls: {}"), 0o600))
	_, err := New(Options{Path: path, Metrics: &gauge{}, Logger: slog.New(slog.DiscardHandler)})
	assert.That(t, err != nil && strings.HasPrefix(err.Error(), path+":1:1: "), "%v", err)
}

func TestAForwardedCallerHasTheRulesOfThisGateway(t *testing.T) {
	s := newScene(t, rulesInTests)
	c := s.Forwarded("corp:ann", []string{"sre", "unknown"})
	assert.That(t, c.Principal.Name == "corp:ann" && c.Principal.Rules.May(access.Operate, "x", "y"), "%+v", c)
	admin := s.Forwarded("token:root", []string{administrator})
	assert.That(t, admin.Principal.Rules.MayAll(access.Admin), "%+v", admin)
	for _, c := range []Caller{s.Forwarded("", nil), s.Forwarded("", []string{"sre"}), s.Forwarded("x", []string{"unknown"})} {
		assert.That(t, !c.Principal.Rules.MayIn(access.Read, "default"), "%+v", c)
	}
}

func TestTheUserAtTheOtherEndOfASocketIsKnown(t *testing.T) {
	s := newScene(t, rulesInTests)
	path := filepath.Join(t.TempDir(), "s")
	listener := assert.Value(unixsock.Listen(path, 0o600))(t)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := s.Authenticate(r)
		_, _ = fmt.Fprint(w, c.Principal.Name, err)
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return unixsock.Dial(ctx, path)
	}}}
	answer := assert.Value(client.Get("http://localhost/"))(t)
	defer answer.Body.Close()
	assert.Equal(t, string(assert.Value(io.ReadAll(answer.Body))(t)), "uid:"+strconv.Itoa(os.Geteuid())+"<nil>")
}

// The whole way, over a network and TLS with an authority of its own.
func TestAnIssuerIsReadOverTLSWithItsOwnAuthority(t *testing.T) {
	issuer := &fakeIssuer{}
	issuer.set(false, ecKey())
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer for the issuer" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		issuer.ServeHTTP(w, r)
	}))
	defer server.Close()
	issuer.url = server.URL
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o600))
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte("for the issuer\n"), 0o600))
	path := filepath.Join(dir, "auth.yaml")
	assert.NoError(t, os.WriteFile(path, []byte("issuers: {k: {issuer: \""+server.URL+"\", audience: lockkeeper, ca_file: ca.pem, token_file: token}}"), 0o600))
	a := assert.Value(New(Options{Path: path, Metrics: &gauge{}, Logger: slog.New(slog.DiscardHandler)}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = a.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	text := ecKey().sign(t, server.URL, nil)
	testkit.EventuallyNil(t, time.Minute, func() error {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+text)
		c, err := a.Authenticate(r)
		if err == nil {
			assert.Equal(t, c.Principal.Name, "k:ann")
		}
		return err
	}, "the token is not let in")
}
