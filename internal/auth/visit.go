package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"lockkeeper/internal/auth/session"
	"lockkeeper/internal/auth/token"
)

// MaxSession is how long a browser is let in at most. A credential that ends earlier ends its session.
const MaxSession = 12 * time.Hour

// visit is the session of a user who has logged in: all that its cookie holds. It is immutable.
type visit struct {
	ID      string `json:"id"`
	Expires int64  `json:"exp"` // seconds since 1970

	Token string `json:"token,omitempty"` // id of the API token with which the user has logged in

	// Of a user that an issuer has logged in.
	Issuer string         `json:"iss,omitempty"` // see source.mark
	Key    string         `json:"kid,omitempty"` // that signed the ID token
	Name   string         `json:"name,omitempty"`
	Groups []string       `json:"groups,omitempty"` // those that the rules named at the login
	Claims map[string]any `json:"claims,omitempty"` // those that the rules named at the login

	sealed string // the cookie that it was read from; "" at the login itself
}

// mark names an issuer as the file had it at a login. A session ends when what decides about its user is written in another way.
func (s *source) mark() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", s.name, s.url, s.subject, s.groups, s.login.id))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// ended is the refusal of a session.
func ended(format string, args ...any) *Error {
	e := refused(format, args...)
	e.Session = true
	return e
}

// LogIn lets the browser that sent the request keep a session of an API token. Its error is an *Error.
func (a *Authenticator) LogIn(w http.ResponseWriter, r *http.Request, text string) (c Caller, err error) {
	defer func() { a.count(r, err) }()
	now := a.now.Load()
	if !token.Form(text) {
		return Caller{}, refused("an API token must be given, whole and unchanged: it begins with lkt_")
	}
	if c, err = a.ofToken(now, text); err != nil {
		return Caller{}, err
	}
	return a.begin(w, r, now, &visit{Token: c.token.ID})
}

// LogOut lets the browser forget its session.
func (a *Authenticator) LogOut(w http.ResponseWriter, r *http.Request) {
	session.Forget(w, r, session.Session)
}

// begin seals a session. v.Expires is when its credential ends; 0: never.
func (a *Authenticator) begin(w http.ResponseWriter, r *http.Request, now *inForce, v *visit) (Caller, error) {
	last := time.Now().Add(MaxSession)
	if v.Expires != 0 {
		last = earlier(last, time.Unix(v.Expires, 0))
	}
	v.ID, v.Expires = rand.Text()[:12], last.Unix()
	c, err := a.visitor(now, v)
	if err != nil {
		return Caller{}, err
	}
	value, err := a.sealer.Seal(session.Session, v)
	switch {
	case errors.Is(err, session.ErrNotReady):
		return Caller{}, &Error{Detail: "this gateway has not read the fleet's secret yet: log in again in a moment", Unavailable: true, Err: err}
	case err != nil:
		return Caller{}, &Error{Detail: "the session must fit into a cookie: let fewer groups and claims of the issuer decide", Err: err}
	}
	session.Keep(w, r, session.Session, value, c.Expires)
	return c, nil
}

// ofCookie is the caller of a browser's session.
func (a *Authenticator) ofCookie(now *inForce, value string, several bool) (Caller, error) {
	if several {
		return Caller{}, ended("the session's cookie must be there once: delete the cookies of this site and log in again")
	}
	var v visit
	switch err := a.sealer.Open(session.Session, value, &v); {
	case errors.Is(err, session.ErrNotReady):
		return Caller{}, &Error{Detail: "this gateway has not read the fleet's secret yet: repeat the request", Unavailable: true, Session: true, Err: err}
	case err != nil:
		e := ended("the session has ended: log in again")
		e.Err = err
		return Caller{}, e
	}
	v.sealed = value
	return a.visitor(now, &v)
}

// visitor is the caller of a session as of now. Its error is an *Error.
func (a *Authenticator) visitor(now *inForce, v *visit) (Caller, error) {
	expires := time.Unix(v.Expires, 0)
	if !time.Now().Before(expires) {
		return Caller{}, ended("the session has ended: log in again")
	}
	if v.Token != "" {
		record, err := a.opt.Tokens.Lookup(v.Token)
		if err != nil {
			return Caller{}, sessionError(tokenError(err, "the API token of the session has expired or was revoked"))
		}
		c, err := now.tokenCaller(record)
		c.token, c.visit = nil, v
		if c.Expires = expires; !record.Expires.IsZero() {
			c.Expires = earlier(expires, record.Expires)
		}
		return c, sessionError(err)
	}
	from := now.marked(v.Issuer)
	switch {
	case from == nil:
		return Caller{}, ended("the issuer of the session is written in another way in the file of rules by now: log in again")
	case from.withdrew(v.Key):
		return Caller{}, ended("the issuer has withdrawn the key of the session: log in again")
	}
	known, err := now.decide(&identity{kind: JWT, issuer: from.name, name: v.Name, groups: v.Groups, claims: v.Claims})
	if err != nil {
		return Caller{}, sessionError(err)
	}
	return Caller{Principal: known.principal, Kind: JWT, ID: v.ID, Roles: known.roles, Expires: expires, visit: v}, nil
}

// marked is the issuer with that mark through which users log in, nil when there is none.
func (now *inForce) marked(mark string) *source {
	for _, s := range now.sources {
		if s.login.id != "" && s.mark() == mark {
			return s
		}
	}
	return nil
}

// sessionError says of a refusal that it is about a session.
func sessionError(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		again := *e
		again.Session = true
		return &again
	}
	return err
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// matter leaves of an issuer's groups and claims those that the rules name.
func (p *Policy) matter(id *identity) (groups []string, claims map[string]any) {
	for i := range p.who {
		e := &p.who[i]
		if e.kind != JWT || e.issuer != id.issuer {
			continue
		}
		for _, g := range e.groups {
			if slices.Contains(id.groups, g) && !slices.Contains(groups, g) {
				groups = append(groups, g)
			}
		}
		for name := range e.claims {
			if value, given := id.claims[name]; given {
				if claims == nil {
					claims = map[string]any{}
				}
				claims[name] = value
			}
		}
	}
	return groups, claims
}
