package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/events"
	"lockkeeper/internal/fleet"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// guests are callers by their credential. Those without one are anonymous and may do nothing.
type guests struct {
	mu    sync.Mutex
	known map[string]auth.Caller
}

func newGuests(t *testing.T) *guests {
	rules := func(verb access.Verb, locks string) *access.Rules {
		return assert.Value(access.New(access.Grant{NS: "*", Locks: locks, Verbs: []access.Verb{verb}}))(t)
	}
	return &guests{known: map[string]auth.Caller{
		"Bearer reader": {Principal: locks.Principal{Name: "token:reader", Rules: rules(access.Read, "deploy")}, Kind: auth.Token, ID: "abcdefgh", Roles: []string{"reader"}},
		"Bearer all":    {Principal: locks.Principal{Name: "token:all", Rules: rules(access.Read, "*")}, Kind: auth.Token, Roles: []string{"all"}},
		"Bearer admin":  {Principal: locks.Principal{Name: "token:admin", Rules: rules(access.Admin, "*")}, Kind: auth.Token, Roles: []string{"admin"}},
		"":              {Principal: locks.Principal{Name: "anonymous", Rules: assert.Value(access.New())(t)}, Kind: auth.Anonymous},
	}}
}

func (g *guests) find(credential string) (auth.Caller, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c, ok := g.known[credential]; ok {
		return c, nil
	}
	return auth.Caller{}, &auth.Error{Detail: "not one of the guests", Unavailable: credential == "Bearer later"}
}

func (g *guests) Authenticate(r *http.Request) (auth.Caller, error) {
	return g.find(r.Header.Get("Authorization"))
}

func (g *guests) Again(c auth.Caller) (auth.Caller, error) {
	if c.Kind == auth.Anonymous {
		return g.find("")
	}
	return g.find("Bearer " + strings.TrimPrefix(c.Principal.Name, "token:"))
}

// Forwarded gives the rules that the role has here.
func (g *guests) Forwarded(name string, roles []string) auth.Caller {
	if roles != nil && roles[0] == auth.Gateway().Roles[0] {
		return auth.Gateway()
	}
	if len(roles) != 1 {
		return auth.Caller{Kind: auth.Anonymous}
	}
	c, _ := g.find("Bearer " + roles[0])
	c.Principal.Name = name
	return c
}

func (g *guests) change(to func(map[string]auth.Caller)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	to(g.known)
}

func (g *guests) options(o *Options) { o.Auth = g }

func as(who string) apitest.Option {
	if who == "" {
		return func(*http.Request) {}
	}
	return apitest.Header("Authorization", "Bearer "+who)
}

func TestEachOperationAsksForACredentialOrALeaseTokenBeforeAnythingElse(t *testing.T) {
	g := serve(t, newGuests(t).options)
	for _, route := range append(routeTable(), documents()...) {
		path := strings.NewReplacer("{lock}", "deploy", "{id}", "self", "{name}", "x", "{code}", "internal").Replace(route.pattern)
		method := route.method
		for _, c := range []struct {
			who, code string
			options   []apitest.Option
		}{
			{"stranger", codeUnauthenticated, nil}, {"later", codeAuthUnavailable, nil}, {"", codeUnauthenticated, nil},
		} {
			open := needs[route.operation] == needsNothing
			switch {
			case route.operation == "Healthz" || route.operation == "Readyz", c.who == "" && open:
				c.code = ""
			case c.who == "" && needs[route.operation] == needsLeaseToken, route.operation == "HeartbeatMany": // whose tokens are in the body
				continue
			}
			a := g.send(t, method, path, append(c.options, as(c.who))...)
			assert.Equal(t, a.Code(), c.code, "%s of %q: %d", route.operation, c.who, a.Status)
			if c.code == codeUnauthenticated {
				assert.That(t, strings.HasPrefix(a.Header.Get("Www-Authenticate"), "Bearer "), "%s: WWW-Authenticate %q", route.operation, a.Header.Get("Www-Authenticate"))
			}
		}
	}
	assert.That(t, len(g.asked()) == 0, "the manager was asked: %q", g.asked())
}

func TestTheLeaseTokenAloneKeepsItsLease(t *testing.T) {
	g := serve(t, newGuests(t).options)
	for _, c := range []struct{ method, path string }{
		{"POST", "/v1/leases/self/heartbeat"}, {"DELETE", "/v1/leases/self"}, {"GET", "/v1/leases/self"}, {"POST", "/v1/leases/self/downgrade"},
	} {
		a := g.send(t, c.method, c.path, apitest.Token(someToken))
		assert.That(t, a.Status < 300, "%s %s: %d %s", c.method, c.path, a.Status, a.Body)
	}
	a := g.send(t, "POST", "/v1/heartbeats", apitest.JSON(`{"tokens":["`+someToken+`"]}`))
	assert.Equal(t, a.Status, 200)
}

func TestAWrongCredentialBesideALeaseTokenIsAsGoodAsNone(t *testing.T) {
	g := serve(t, newGuests(t).options)
	for _, who := range []string{"stranger", "later"} {
		for _, c := range []struct{ method, path string }{
			{"POST", "/v1/leases/self/heartbeat"}, {"DELETE", "/v1/leases/self"}, {"GET", "/v1/leases/self"}, {"GET", "/v1/leases/" + someID}, {"POST", "/v1/leases/self/downgrade"},
			{"PATCH", "/v1/leases/self?metadata=m"},
		} {
			a := g.send(t, c.method, c.path, apitest.Token(someToken), as(who))
			assert.That(t, a.Status < 300 && a.Header.Get("Www-Authenticate") == "", "%s %s of %s: %d %s", c.method, c.path, who, a.Status, a.Body)
		}
		a := g.send(t, "POST", "/v1/heartbeats", apitest.JSON(`{"tokens":["`+someToken+`"]}`), as(who))
		assert.Equal(t, a.Status, 200, "%s", a.Body)
		// What the lease token does not give: there the credential counts.
		for _, c := range []struct{ method, path string }{
			{"POST", "/v1/leases/" + someID + "/break?reason=why"}, {"GET", "/v1/leases/self/postmortem"}, {"GET", "/v1/leases"}, {"GET", "/v1/locks/deploy"}, {"POST", "/v1/locks/deploy/leases"},
		} {
			a := g.send(t, c.method, c.path, apitest.Token(someToken), as(who))
			assert.That(t, a.Code() == codeUnauthenticated || who == "later" && a.Code() == codeAuthUnavailable, "%s %s of %s: %d %s", c.method, c.path, who, a.Status, a.Body)
		}
		a = g.send(t, "GET", "/v1/leases/"+someID, apitest.Header("Lease-Token", ""), as("stranger"))
		assert.Equal(t, a.Code(), codeUnauthenticated, "an empty lease token")
	}
	g.update = func(locks.UpdateRequest) (locks.Lease, error) {
		return locks.Lease{}, &locks.Error{Code: locks.CodeForbidden, Detail: "ttl must be less"}
	}
	a := g.send(t, "PATCH", "/v1/leases/self?ttl=2h", apitest.Token(someToken), as("stranger"))
	assert.That(t, a.Code() == codeUnauthenticated && strings.Contains(a.Problem.Detail, "not one of the guests"), "what needs more than the lease token: %s", a.Body)
}

func TestTheManagerIsToldWhoAsks(t *testing.T) {
	guests := newGuests(t)
	g := serve(t, guests.options)
	var got locks.Principal
	g.locks = func(f locks.LockFilter) (locks.LockPage, error) {
		got = f.Principal
		return locks.LockPage{}, nil
	}
	assert.Equal(t, g.send(t, "GET", "/v1/locks", as("reader")).Status, 200)
	assert.Equal(t, got, guests.known["Bearer reader"].Principal)
}

func TestWhatHasNoLockNeedsItsVerb(t *testing.T) {
	g := serve(t, newGuests(t).options)
	for path, may := range map[string][]string{"/v1/info": {"reader", "all", "admin"}, "/metrics": {"all"}, "/v1/gateways": {"reader", "all", "admin"}} {
		for _, who := range []string{"reader", "all", "admin"} {
			want := map[bool]int{true: 200, false: 403}[slices.Contains(may, who)]
			assert.Equal(t, g.send(t, "GET", path, as(who)).Status, want, "%s by %s", path, who)
		}
	}
}

func TestAPageIsToldWhoAsks(t *testing.T) {
	guests := newGuests(t)
	asked := make(chan auth.Visitor, 1)
	g := serve(t, guests.options, func(o *Options) {
		o.Pages = fakePages{http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- *auth.VisitorOf(r.Context()) })}
	})
	for who, bearer := range map[string]string{"reader": "Bearer reader", "": ""} {
		headers := []string{"Authorization", bearer}
		if who == "" {
			headers = nil
		}
		assert.Equal(t, get(t, g, "GET", "/", headers...).status, 200)
		assert.Equal(t, (<-asked).Principal, guests.known[bearer].Principal)
	}
	assert.Equal(t, get(t, g, "GET", "/", "Authorization", "Bearer stranger").status, 401, "the page is asked on behalf of a stranger")
	assert.Equal(t, get(t, g, "GET", "/login", "Authorization", "Bearer stranger").status, 200)
	v := <-asked
	assert.That(t, v.Principal.Rules.Nothing() && v.Refused == nil, "%+v", v)

	// A gateway that asks for no credential says so, too: a page that is told nothing shows nothing.
	g = serve(t, func(o *Options) {
		o.Pages = fakePages{http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- *auth.VisitorOf(r.Context()) })}
	})
	get(t, g, "GET", "/")
	assert.Equal(t, (<-asked).Principal, locks.Anonymous)
	assert.That(t, auth.VisitorOf(t.Context()).Principal.Rules.Nothing(), "without a visitor there are rules")
}

func TestTheOwnerDecidesByTheCallerThatTheAskedGatewayHasAuthenticated(t *testing.T) {
	guests := newGuests(t)
	asked, _ := member(t, "asked", "secret", guests.options)
	owner, _ := member(t, "owner", "secret", guests.options)
	asked.sendsTo("owner", owner.address())
	var got []locks.Principal
	owner.lease = func(_ context.Context, req locks.LeaseRequest) (locks.Lease, error) {
		got = append(got, req.Principal)
		return held(), nil
	}
	route := locks.Route{Gateway: "owner", Address: owner.address(), Zxid: routeZxid, Lease: someID}
	asked.lease = func(context.Context, locks.LeaseRequest) (locks.Lease, error) {
		return locks.Lease{}, &locks.Error{Code: locks.CodeNotOwner, Owner: &route}
	}
	// A gateway that has not said that it looks at callers is not asked on behalf of one.
	a := asked.send(t, "GET", "/v1/leases/"+someID, as("reader"))
	assert.That(t, a.Code() == codeOwnerUnreachable && len(got) == 0, "%s: %v", a.Body, got)
	route.Seals = fleet.Seals
	a = asked.send(t, "GET", "/v1/leases/"+someID, as("reader"))
	assert.That(t, a.Status == 200 && len(got) == 1 && got[0] == guests.known["Bearer reader"].Principal, "%d %s: %+v", a.Status, a.Body, got)
}

// Gateways of the release before, and those without rules, ask for no credential: a caller with few rights must not act through them.
func TestAGatewayThatKnowsNoCallersIsSentLeaseTokensAlone(t *testing.T) {
	guests := newGuests(t)
	for name, seals := range map[string]int{"of an earlier release": 0, "without rules": fleet.SealsWithoutCaller} {
		asked, _ := member(t, "asked", "secret", guests.options)
		owner, _ := member(t, "owner", "secret")
		asked.seals = seals
		asked.sendsTo("owner", owner.address())
		for _, c := range []struct {
			method, path, who string
			token, reaches    bool
		}{
			{"POST", "/v1/leases/self/heartbeat", "", true, true}, {"POST", "/v1/leases/self/heartbeat", "reader", true, true},
			{"DELETE", "/v1/leases/self", "reader", true, true}, {"POST", "/v1/leases/self/downgrade", "reader", true, true},
			{"POST", "/v1/heartbeats", "reader", false, true},
			{"GET", "/v1/leases/" + someID, "reader", false, false}, {"GET", "/v1/leases/" + someID, "reader", true, false},
			{"PATCH", "/v1/leases/self?metadata=x", "reader", true, false},
		} {
			options := []apitest.Option{as(c.who)}
			if c.token {
				options = append(options, apitest.Token(someToken))
			}
			if c.path == "/v1/heartbeats" {
				options = append(options, apitest.JSON(`{"tokens":["`+someToken+`"]}`))
			}
			owner.asked()
			a := asked.send(t, c.method, c.path, options...)
			reached := acted(owner.asked())
			assert.That(t, reached == c.reaches && (reached || a.Code() == codeOwnerUnreachable && strings.Contains(string(a.Body), "--auth-file")),
				"%s: %s %s of %q: %d %s, reached %v", name, c.method, c.path, c.who, a.Status, a.Body, reached)
		}
	}
}

// acted reports whether a manager was asked for more than to wait for its replica.
func acted(calls []string) bool {
	return slices.ContainsFunc(calls, func(call string) bool {
		return !strings.HasPrefix(call, "arrive") && !strings.HasPrefix(call, "reached")
	})
}

// What such a gateway sends has no caller: it gets what a lease token alone gives.
func TestAGatewayThatKnowsNoCallersGetsWhatLeaseTokensGive(t *testing.T) {
	asked, _ := member(t, "asked", "secret")
	owner, _ := member(t, "owner", "secret", newGuests(t).options)
	asked.seals = fleet.Seals
	asked.sendsTo("owner", owner.address())
	for _, c := range []struct {
		method, path string
		token        bool
		code         string
	}{
		{"POST", "/v1/leases/self/heartbeat", true, ""}, {"DELETE", "/v1/leases/self", true, ""}, {"GET", "/v1/leases/self", true, ""},
		{"POST", "/v1/heartbeats", false, ""},
		{"GET", "/v1/leases/" + someID, false, codeAuthUnavailable},
	} {
		var options []apitest.Option
		if c.token {
			options = append(options, apitest.Token(someToken))
		}
		if c.path == "/v1/heartbeats" {
			options = append(options, apitest.JSON(`{"tokens":["`+someToken+`"]}`))
		}
		owner.asked()
		a := asked.send(t, c.method, c.path, options...)
		reached := acted(owner.asked())
		assert.That(t, a.Code() == c.code && reached == (c.code == ""), "%s %s: %d %s, reached %v", c.method, c.path, a.Status, a.Body, reached)
	}
}

func TestAStreamEndsWhenItsCallerIsNotLetInAnyMore(t *testing.T) {
	for _, how := range []string{"revoked", "other rules"} {
		eachForm(t, func(t *testing.T, form string) {
			guests := newGuests(t)
			w := watch(t, events.Options{}, guests.options)
			w.server.rechecks.every = 10 * time.Millisecond
			s := w.open(t, form, as("reader"))
			guests.change(func(known map[string]auth.Caller) {
				if how == "revoked" {
					delete(known, "Bearer reader")
				} else {
					c := known["Bearer all"]
					c.Principal.Name = "token:reader"
					known["Bearer reader"] = c
				}
			})
			_, err := s.Next()
			closed, _ := errors.AsType[*websocket.CloseError](err)
			want := 4401
			if how != "revoked" {
				want = websocket.CloseTryAgainLater
			}
			assert.That(t, form != "socket" && errors.Is(err, io.EOF) || closed != nil && closed.Code == want, "%s, %s: ended with %v", how, form, err)
			if how == "revoked" {
				_, a, err := forms[form](w, as("reader"))
				assert.That(t, err == nil && a != nil && a.Status == 401, "a new one: %v %+v", err, a)
			}
		})
	}
}

func TestAWaitEndsWhenItsCallerIsNotLetInAnyMore(t *testing.T) {
	guests := newGuests(t)
	g := serve(t, guests.options)
	g.server.rechecks.every = 10 * time.Millisecond
	begun, _ := blocking(g)
	for _, p := range []struct{ method, path string }{
		{"POST", "/v1/locks/deploy/leases?wait=forever"}, {"GET", "/v1/leases/" + someID + "?wait=5m&since=x"}, {"GET", "/v1/locks/deploy?wait=5m&since=x"},
	} {
		guests.change(func(known map[string]auth.Caller) { known["Bearer brief"] = known["Bearer reader"] })
		guests.change(func(known map[string]auth.Caller) {
			c := known["Bearer brief"]
			c.Principal.Name = "token:brief"
			known["Bearer brief"] = c
		})
		answer := g.later(t, p.method, p.path, as("brief"))
		<-begun
		guests.change(func(known map[string]auth.Caller) { delete(known, "Bearer brief") })
		a := <-answer
		assert.That(t, a.Status == 401 && a.Code() == codeUnauthenticated, "%s: %d %s", p.path, a.Status, a.Body)
	}
}

func TestWhoAmISaysWhoAsks(t *testing.T) {
	g := serve(t, newGuests(t).options)
	a := g.send(t, "GET", "/v1/whoami", as("reader"))
	want := `{"authentication":true,"credential_id":"abcdefgh","grants":[{"locks":"deploy","ns":"*","verbs":["read"]}],"kind":"token","name":"token:reader","roles":["reader"]}`
	assert.Equal(t, strings.TrimSpace(string(a.Body)), want)
	a = serve(t).send(t, "GET", "/v1/whoami")
	want = `{"authentication":false,"grants":[{"locks":"*","ns":"*","verbs":["read","acquire","operate","admin"]}],"kind":"anonymous","name":"anonymous","roles":[]}`
	assert.Equal(t, strings.TrimSpace(string(a.Body)), want)
}
