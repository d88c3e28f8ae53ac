package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"lockkeeper/internal/auth/session"
	"lockkeeper/internal/secretfile"
)

const (
	loginWithin = 10 * time.Minute // from the redirect to an issuer until the user is back
	maxPassword = 4 << 10          // bytes of a secret_file
	// CallbackPath is where an issuer sends users back to.
	CallbackPath = "/login/callback"
)

// underWay is a login through an issuer, between the redirect and the return. Its cookie binds it to the browser that began it.
type underWay struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	Issuer   string `json:"iss"` // see source.mark
	Next     string `json:"next"`
	Expires  int64  `json:"exp"`
}

// Issuers are the names of those through which users log in, in order.
func (a *Authenticator) Issuers() (names []string) {
	for _, s := range a.now.Load().sources {
		if s.login.id != "" {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return names
}

// Begin begins a login through an issuer. It gives the address to which the browser must go next. The login ends at next. Its error
// is an *Error.
func (a *Authenticator) Begin(w http.ResponseWriter, r *http.Request, issuer, next string) (to string, err error) {
	defer func() { a.count(r, err) }()
	from := a.now.Load().named(issuer)
	if from == nil {
		return "", refused("there is no issuer %q to log in with", issuer)
	}
	config, err := from.config(r)
	if err != nil {
		return "", err
	}
	login := &underWay{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Issuer: from.mark(), Next: next,
		Expires: time.Now().Add(loginWithin).Unix()}
	value, err := a.sealer.Seal(session.Login, login)
	if errors.Is(err, session.ErrTooLarge) { // the place is a long one: it is not worth a login
		login.Next = "/"
		value, err = a.sealer.Seal(session.Login, login)
	}
	if err != nil {
		return "", &Error{Detail: "this gateway has not read the fleet's secret yet: log in again in a moment", Unavailable: true, Err: err}
	}
	session.Keep(w, r, session.Login, value, time.Unix(login.Expires, 0))
	return config.AuthCodeURL(login.State, oidc.Nonce(login.Nonce), oauth2.S256ChallengeOption(login.Verifier)), nil
}

// Finish ends a login that Begin began: the request is the return from the issuer. The browser keeps a session then. Its error is
// an *Error.
func (a *Authenticator) Finish(w http.ResponseWriter, r *http.Request) (c Caller, next string, err error) {
	defer func() { a.count(r, err) }()
	now := a.now.Load()
	login, err := a.returned(w, r)
	if err != nil {
		return Caller{}, "", err
	}
	from := now.marked(login.Issuer)
	if from == nil {
		return Caller{}, "", refused("the issuer must still be in the file of rules as it was when the login began: log in again")
	}
	code, err := from.codeIn(r.URL.Query())
	if err != nil {
		return Caller{}, "", err
	}
	v, err := from.redeem(r, login, code)
	if err != nil {
		return Caller{}, "", err
	}
	groups, claims := now.matter(&v.identity)
	c, err = a.begin(w, r, now, &visit{Expires: v.expires.Add(-skew).Unix(), Issuer: login.Issuer, Key: v.key, Name: v.name, Groups: groups, Claims: claims})
	return c, login.Next, err
}

// returned is the login that the return belongs to. The browser forgets it: a login ends once.
func (a *Authenticator) returned(w http.ResponseWriter, r *http.Request) (*underWay, error) {
	value, several := session.Given(r, session.Login)
	session.Forget(w, r, session.Login)
	login := &underWay{}
	err := session.ErrSealed
	if value != "" && !several {
		err = a.sealer.Open(session.Login, value, login)
	}
	state := r.URL.Query()["state"]
	switch {
	case errors.Is(err, session.ErrNotReady):
		return nil, &Error{Detail: "this gateway has not read the fleet's secret yet: log in again in a moment", Unavailable: true, Err: err}
	case err != nil, len(state) != 1, subtle.ConstantTimeCompare([]byte(state[0]), []byte(login.State)) != 1:
		return nil, refused("the login must end in the browser, and at the address, at which it began: log in again")
	case !time.Now().Before(time.Unix(login.Expires, 0)):
		return nil, refused("the login took longer than %s: log in again", loginWithin)
	}
	return login, nil
}

// named is the issuer with that name through which users log in, nil when there is none.
func (now *inForce) named(issuer string) *source {
	for s := range maps.Values(now.sources) {
		if s.login.id != "" && s.name == issuer {
			return s
		}
	}
	return nil
}

// codeIn is the code in the answer of the issuer.
func (s *source) codeIn(answer url.Values) (string, error) {
	switch wrong, from := answer.Get("error"), answer["iss"]; {
	case len(from) > 0 && (len(from) > 1 || from[0] != s.url): // RFC 9207: another issuer was made to answer in its place
		return "", refused("the answer must be of the issuer %s", s.name)
	case wrong == "access_denied":
		return "", refused("the issuer %s did not let you in", s.name)
	case wrong != "":
		return "", refused("the issuer %s answered %q: %s", s.name, wrong, answer.Get("error_description"))
	case len(answer["code"]) != 1 || answer.Get("code") == "":
		return "", refused("the issuer %s must answer with a code", s.name)
	}
	return answer.Get("code"), nil
}

// config is the gateway as the issuer knows it. It waits for what the issuer says of itself if that has not been read.
func (s *source) config(r *http.Request) (*oauth2.Config, error) {
	at, next := s.endpoint()
	if at.AuthURL == "" {
		err := s.await(r.Context(), next)
		if at, _ = s.endpoint(); at.AuthURL == "" {
			return nil, &Error{Detail: fmt.Sprintf("the issuer %s cannot be reached at present: log in again in a moment", s.name), Unavailable: true, Err: err}
		}
	}
	password, err := s.login.password()
	if err != nil {
		return nil, &Error{Detail: fmt.Sprintf("the gateway cannot read its secret for the issuer %s: the gateway's log says why", s.name), Unavailable: true, Err: err}
	}
	return &oauth2.Config{ClientID: s.login.id, ClientSecret: password, Endpoint: at, RedirectURL: session.Origin(r) + CallbackPath,
		Scopes: strings.Fields(s.login.scopes)}, nil
}

// endpoint is where users log in; empty while it has not been read. next is closed when it has been read again.
func (s *source) endpoint() (at oauth2.Endpoint, next <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at, s.read
}

// password is what the gateway shows the issuer, "" for nothing. It is read for each login, so that a changed one counts.
func (c *client) password() (string, error) {
	if c.secret == "" {
		return "", nil
	}
	text, err := secretfile.Read(c.secret, maxPassword)
	if err != nil {
		return "", fmt.Errorf("secret_file %s must be a file that this process alone can read: %w", c.secret, err)
	}
	password := strings.TrimSpace(string(text))
	if password == "" {
		return "", fmt.Errorf("secret_file %s must not be empty", c.secret)
	}
	return password, nil
}

// style is how the gateway shows its secret, by the ways that the issuer names. A way that fails may use up the code, so none is tried
// out. Without a name it is the header (OpenID Connect Discovery, section 3).
func (c *client) style(ways []string) oauth2.AuthStyle {
	if c.secret == "" || len(ways) > 0 && !slices.Contains(ways, "client_secret_basic") && slices.Contains(ways, "client_secret_post") {
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleInHeader
}

// redeem changes the code for an ID token, and verifies that.
func (s *source) redeem(r *http.Request, login *underWay, code string) (*verified, error) {
	ctx, cancel := context.WithTimeout(r.Context(), keysWithin)
	defer cancel()
	config, err := s.config(r)
	if err != nil {
		return nil, err
	}
	through, err := s.client("")
	if err != nil {
		return nil, &Error{Detail: fmt.Sprintf("the issuer %s cannot be asked: the gateway's log says why", s.name), Unavailable: true, Err: err}
	}
	answer, err := config.Exchange(oidc.ClientContext(ctx, through), code, oauth2.VerifierOption(login.Verifier))
	if failed, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		// Without the answer's body: it may repeat the code.
		return nil, &Error{Detail: fmt.Sprintf("the issuer %s refused the code of the login: log in again", s.name), Err: fmt.Errorf("%s %s", failed.ErrorCode, failed.ErrorDescription)}
	}
	if err != nil {
		return nil, &Error{Detail: fmt.Sprintf("the issuer %s cannot be reached at present: log in again in a moment", s.name), Unavailable: true, Err: err}
	}
	text, _ := answer.Extra("id_token").(string)
	if text == "" || len(text) > maxIDToken {
		return nil, refused("the issuer %s must answer with an ID token of at most %d KiB", s.name, maxIDToken>>10)
	}
	v, err := s.verify(ctx, s.logins, s.login.id, text, nil) // the issuer itself has sent it
	if err != nil {
		return nil, err
	}
	nonce, _ := v.claims["nonce"].(string)
	party, parted := v.claims["azp"]
	switch {
	case subtle.ConstantTimeCompare([]byte(nonce), []byte(login.Nonce)) != 1:
		return nil, refused("the ID token of the issuer %s must be of this login: log in again", s.name)
	case parted && party != s.login.id: // OpenID Connect Core, section 3.1.3.7
		return nil, refused("the ID token of the issuer %s must be for this gateway", s.name)
	case !time.Now().Before(v.expires.Add(-skew)):
		return nil, refused("the ID token of the issuer %s has expired: the clocks of the issuer and of this gateway must agree", s.name)
	}
	return v, nil
}
