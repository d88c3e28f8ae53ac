package auth

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"lockkeeper/internal/auth/session"
	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/unixsock"
	"lockkeeper/internal/zk/layout"
)

// Tokens are the API tokens.
type Tokens interface {
	// Authenticate finds the record of a token. Its error is token.ErrNotReady when the tokens have not been read, else the
	// token is none of this fleet's.
	Authenticate(text string) (*token.Record, error)
	// Lookup finds a token that is usable now, with the errors of Authenticate.
	Lookup(id string) (*token.Record, error)
}

// Metrics are told how the file and the issuers are.
type Metrics interface {
	AuthFile(inForce bool)
	Issuer(name string, reached bool)
	IssuerGone(name string) // the file has it no more
}

// Options of an Authenticator.
type Options struct {
	Path    string // of the file
	Tokens  Tokens
	Logger  *slog.Logger
	Metrics Metrics
	// Secret are the cluster secret's keys, the one that signs first; nil while they are not known. Sessions of browsers are sealed
	// under keys derived from them.
	Secret func() []layout.TokenKey
	// Refused is called when a content of the file is refused, and Loaded when one comes into force after the first. Both
	// are called by Run, one at a time.
	Refused func(*FileError)
	Loaded  func()
	// Through is the way to the issuers; nil: the network.
	Through http.RoundTripper
}

// Authenticator says who sends a request. Make one with New; Run keeps it up to date.
type Authenticator struct {
	opt        Options
	sealer     session.Sealer
	now        atomic.Pointer[inForce]
	remembered remembered
	guesses    guesses
	watch      fileWatch // of Run alone
}

// inForce is a policy with its issuers. It is immutable.
type inForce struct {
	*Policy
	sources map[string]*source // by the address that tokens name
}

// New reads the file. Its error is a *FileError. It starts nothing.
func New(o Options) (*Authenticator, error) {
	if o.Secret == nil {
		o.Secret = func() []layout.TokenKey { return nil }
	}
	a := &Authenticator{opt: o, sealer: session.Sealer{Secret: o.Secret}, guesses: newGuesses()}
	text, seen, err := a.watch.look(o.Path)
	if err != nil {
		return nil, err
	}
	policy, err := compile(o.Path, text)
	if err != nil {
		return nil, err
	}
	a.watch.seen = seen
	a.apply(policy)
	o.Logger.Info("the rules of the file are in force", "file", o.Path, "roles", len(policy.roles), "entries", len(policy.who))
	return a, nil
}

// apply puts a policy in force. An issuer that has not changed keeps its keys.
func (a *Authenticator) apply(p *Policy) {
	next := &inForce{Policy: p, sources: map[string]*source{}}
	before := a.now.Load()
	for _, iss := range p.issuers {
		if before != nil {
			if old := before.sources[iss.url]; old != nil && old.issuer == *iss {
				next.sources[iss.url] = old
				continue
			}
		}
		next.sources[iss.url] = newSource(iss, &a.opt)
	}
	a.now.Store(next)
	a.opt.Metrics.AuthFile(true)
}

// Caller is who sent a request, and what the caller may do.
type Caller struct {
	Principal locks.Principal
	Kind      Kind
	ID        string // of the credential, for logs: a token's id, a part of a JWT's hash
	Roles     []string
	Expires   time.Time // zero: never

	token *token.Record
	jwt   *verified
	other *identity // of another credential; nil for a forwarded caller
	visit *visit    // of a browser; the fields above are nil then
}

// Session reports whether the caller's credential is the session of a browser, which the browser sends by itself.
func (c *Caller) Session() bool { return c.visit != nil }

// Authenticate says who sends the request. Its error is an *Error.
func (a *Authenticator) Authenticate(r *http.Request) (Caller, error) {
	c, err := a.authenticate(r)
	a.count(r, err)
	return c, err
}

// count counts a refusal of an address, and marks it when the address is refused all the time.
func (a *Authenticator) count(r *http.Request, err error) {
	if wrong, ok := err.(*Error); ok && !wrong.Unavailable {
		wrong.Repeated = !a.guesses.tells(addressOf(r))
	}
}

func (a *Authenticator) authenticate(r *http.Request) (Caller, error) {
	now := a.now.Load()
	switch values := r.Header["Authorization"]; {
	case len(values) > 1:
		return Caller{}, refused("Authorization must be given once")
	case len(values) == 1:
		return a.bearer(r, now, values[0])
	}
	if value, several := session.Given(r, session.Session); value != "" {
		return a.ofCookie(now, value, several)
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		shown := r.TLS.VerifiedChains[0][0]
		name, err := now.certificateName(shown)
		if err != nil {
			return Caller{}, err
		}
		return now.caller(&identity{kind: Certificate, name: name, expires: shown.NotAfter})
	}
	if uid, ok := unixsock.UID(r.RemoteAddr); ok {
		return now.caller(&identity{kind: User, name: uid})
	}
	return now.caller(unnamed)
}

var unnamed = &identity{kind: Anonymous}

// bearer authenticates by the Authorization header.
func (a *Authenticator) bearer(r *http.Request, now *inForce, value string) (Caller, error) {
	scheme, text, _ := strings.Cut(value, " ")
	if strings.HasPrefix(r.URL.Path, "/compat/") && strings.EqualFold(scheme, "basic") {
		_, password, ok := r.BasicAuth()
		if !ok || password == "" {
			return Caller{}, refused("the password of Authorization: Basic must be an API token (lkt_...) or a JWT; the user name does not count")
		}
		scheme, text = "bearer", password
	}
	if !strings.EqualFold(scheme, "bearer") || text == "" {
		return Caller{}, refused("Authorization must be Bearer with an API token (lkt_...) or a JWT: curl -H @FILE, where FILE has the line Authorization: Bearer lkt_...")
	}
	switch {
	case token.Form(text):
		return a.ofToken(now, text)
	case looksLikeJWT(text):
		v, err := a.ofJWT(r, now, text)
		if err != nil {
			return Caller{}, err
		}
		return v.caller(now)
	case strings.HasPrefix(text, "lk1."):
		return Caller{}, refused("this is a lease token: send it in the Lease-Token header, and in Authorization an API token, a JWT or nothing")
	}
	return Caller{}, refused("Authorization must hold an API token (lkt_...) or a JWT, whole and unchanged")
}

func (a *Authenticator) ofToken(now *inForce, text string) (Caller, error) {
	record, err := a.opt.Tokens.Authenticate(text)
	if err != nil {
		return Caller{}, tokenError(err, "the API token must be one that this fleet has, not revoked and not expired: gateway token create makes one")
	}
	return now.tokenCaller(record)
}

// tokenError is the refusal for an error of Tokens. detail is for a token that is none of this fleet's.
func tokenError(err error, detail string) *Error {
	if errors.Is(err, token.ErrNotReady) {
		return &Error{Detail: "this gateway has not read the API tokens yet: repeat the request", Unavailable: true, Err: err}
	}
	return &Error{Detail: detail, Err: err}
}

func (now *inForce) tokenCaller(record *token.Record) (Caller, error) {
	known := now.known(callerKey{Token, record.Name, record.Admin})
	if known == nil {
		var err error
		if known, err = now.resolve(&identity{kind: Token, name: record.Name, admin: record.Admin}); err != nil {
			return Caller{}, err
		}
	}
	return Caller{Principal: known.principal, Kind: Token, ID: record.ID, Roles: known.roles, Expires: record.Expires, token: record}, nil
}

// caller is a caller that no JWT names.
func (now *inForce) caller(id *identity) (Caller, error) {
	if !id.expires.IsZero() && time.Now().After(id.expires) { // since the connection was made, which lives as long as its client likes
		return Caller{}, refused("the client certificate has expired: connect anew with one that has not")
	}
	known, err := now.resolve(id)
	if err != nil {
		return Caller{}, err
	}
	return Caller{Principal: known.principal, Kind: id.kind, Roles: known.roles, Expires: id.expires, other: id}, nil
}

// caller is the caller of a JWT.
func (v *verified) caller(now *inForce) (Caller, error) {
	known := v.current.Load()
	if known == nil || known.policy != now.Policy {
		var err error
		if known, err = now.decide(&v.identity); err != nil {
			return Caller{}, err
		}
		v.current.Store(known)
	}
	return Caller{Principal: known.principal, Kind: JWT, ID: v.id, Roles: known.roles, Expires: v.expires, jwt: v}, nil
}

// Again is the same caller as of now. Its error is an *Error: the caller is not let in any more.
func (a *Authenticator) Again(c Caller) (Caller, error) {
	now := a.now.Load()
	switch {
	case c.visit != nil && c.visit.sealed != "": // under a key that may have been dropped since
		return a.ofCookie(now, c.visit.sealed, false)
	case c.visit != nil:
		return a.visitor(now, c.visit)
	case c.token != nil:
		record, err := a.opt.Tokens.Lookup(c.token.ID)
		if err != nil {
			return Caller{}, tokenError(err, "the API token has expired or was revoked")
		}
		return now.tokenCaller(record)
	case c.jwt != nil:
		if now.sources[c.jwt.from.url] != c.jwt.from {
			return Caller{}, refused("the JWT's issuer is not one that this gateway knows any more")
		}
		if err := c.jwt.check(time.Now()); err != nil {
			return Caller{}, err
		}
		return c.jwt.caller(now)
	case c.other != nil:
		return now.caller(c.other)
	}
	return a.Forwarded(c.Principal.Name, c.Roles), nil
}

// Forwarded is the caller of a request that another gateway has authenticated. Without a name it may do nothing: that
// gateway authenticates none.
func (a *Authenticator) Forwarded(name string, roles []string) Caller {
	if name == "" {
		return Caller{Kind: Anonymous}
	}
	return Caller{Principal: a.now.Load().principal(name, roles), Kind: Kind("forwarded"), Roles: slices.Clone(roles)}
}
