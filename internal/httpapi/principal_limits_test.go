package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/events"
	"lockkeeper/internal/fleet"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// slowly gives a guest a rate that brings nothing more while a test runs: its bucket has ten requests, and no eleventh.
func (g *guests) slowly(t *testing.T, who string) *guests {
	g.change(func(known map[string]auth.Caller) {
		c := known["Bearer "+who]
		grants := c.Principal.Rules.Grants()
		for i := range grants {
			grants[i].Rate = 1e-6
		}
		c.Principal.Rules = assert.Value(access.New(grants...))(t)
		known["Bearer "+who] = c
	})
	return g
}

const allowance = 10 // requests of a guest that is slow

// usedUp serves a slow guest that has used up its rate.
func usedUp(t *testing.T, change ...func(*Options)) *gateway {
	t.Helper()
	g := serve(t, append(change, newGuests(t).slowly(t, "all").options)...)
	for range allowance {
		assert.Equal(t, g.send(t, "GET", "/v1/locks", as("all")).Status, 200)
	}
	return g
}

func TestAPrincipalThatHasUsedUpItsRateNeverReachesTheManager(t *testing.T) {
	g := usedUp(t)
	g.asked()
	for _, c := range []struct{ method, path string }{
		{"POST", "/v1/locks/deploy/leases"}, {"POST", "/v1/leases"}, {"GET", "/v1/locks"}, {"GET", "/v1/leases/self"}, {"PATCH", "/v1/leases/self"}, {"POST", "/v1/leases/self/downgrade"},
		{"DELETE", "/v1/locks/deploy"}, {"POST", "/v1/locks/deploy/revoke"}, {"GET", "/v1/events"}, {"GET", "/v1/whoami"}, {"GET", "/no/such/path"}, {"POST", "/v1/whoami"}, {"GET", "/v1/webhooks"},
	} {
		a := g.send(t, c.method, c.path, as("all"), apitest.Token(someToken))
		assert.That(t, a.Status == 429 && a.Code() == codeRateLimited, "%s %s: %d %s", c.method, c.path, a.Status, a.Body)
		assert.That(t, a.Header.Get("Retry-After") != "" && strings.Contains(string(a.Body), "token:all may send 1e-06 requests in a second"), "%s %s: %v %s", c.method, c.path, a.Header, a.Body)
	}
	asked := g.asked()
	assert.That(t, len(asked) == 0, "the manager was asked: %q", asked)
	assert.Equal(t, g.send(t, "GET", "/v1/locks/deploy", as("reader")).Status, 200, "another principal")
}

func TestHeartbeatsAndReleasesAreNeverRefusedForTheRate(t *testing.T) {
	g := usedUp(t)
	for range 3 * allowance {
		for _, c := range []struct {
			method, path string
			status       int
			body         []apitest.Option
		}{
			{"POST", "/v1/leases/self/heartbeat", 200, nil}, {"POST", "/v1/leases/" + someID + "/heartbeat", 200, nil}, {"DELETE", "/v1/leases/self", 204, nil}, {"DELETE", "/v1/leases/" + someID, 204, nil},
			{"POST", "/v1/heartbeats", 200, []apitest.Option{apitest.JSON(`{"tokens":["` + someToken + `"]}`)}}, {"GET", "/healthz", 200, nil}, {"GET", "/readyz", 200, nil},
		} {
			options := append([]apitest.Option{as("all")}, c.body...)
			if strings.Contains(c.path, "leases") {
				options = append(options, apitest.Token(someToken))
			}
			a := g.send(t, c.method, c.path, options...)
			assert.Must(t, a.Status == c.status, "%s %s: %d %s", c.method, c.path, a.Status, a.Body)
		}
	}
}

func TestTheRateIsToldWhenLittleOfItIsLeft(t *testing.T) {
	g := serve(t, newGuests(t).slowly(t, "all").options)
	for n := allowance - 1; n >= 0; n-- {
		h := g.send(t, "GET", "/v1/locks", as("all")).Header
		told := h.Get("RateLimit")
		if n >= allowance/4 {
			assert.That(t, told == "" && h.Get("RateLimit-Policy") == "", "%d are left, and it is told: %q", n, told)
			continue
		}
		assert.That(t, strings.HasPrefix(told, fmt.Sprintf(`"requests";r=%d;t=`, n)) && h.Get("RateLimit-Policy") == `"requests";q=10;w=10000000`, "%d are left: %q %q", n, told, h.Get("RateLimit-Policy"))
	}
	h := g.send(t, "GET", "/v1/locks", as("all")).Header
	assert.That(t, strings.HasPrefix(h.Get("RateLimit"), `"requests";r=0;t=`), "%q", h.Get("RateLimit"))
	h = serve(t, newGuests(t).slowly(t, "all").options).send(t, "GET", "/v1/whoami", as("all")).Header
	assert.That(t, strings.HasPrefix(h.Get("RateLimit"), `"requests";r=9;t=`), "whoami: %q", h.Get("RateLimit"))
	h = serve(t, newGuests(t).options).send(t, "GET", "/v1/whoami", as("all")).Header
	assert.Equal(t, h.Get("RateLimit"), "", "there is no bound")
}

func TestPrincipalsWithoutARateHaveTheOneOfAll(t *testing.T) {
	g := serve(t, newGuests(t).options, func(o *Options) { o.Principals.Rate = 1e-6 })
	for range allowance {
		assert.Equal(t, g.send(t, "GET", "/v1/locks", as("all")).Status, 200)
	}
	g.expect(t, 429, codeRateLimited, "GET", "/v1/locks", as("all"))
	assert.Equal(t, serve(t).server.callers == nil, true, "a gateway that asks none who it is counts for principals")
}

func TestClientsWithoutACredentialCountByTheirAddress(t *testing.T) {
	g := serve(t, newGuests(t).options, func(o *Options) { o.Principals.Rate = 1e-6 })
	from := func(address string) int {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1/openapi.yaml", nil)
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		g.server.ServeHTTP(w, r)
		return w.Code
	}
	for range allowance {
		assert.Equal(t, from("192.0.2.1:1234"), 200)
		assert.Equal(t, from("[2001:db8::1]:1234"), 200)
	}
	for address, want := range map[string]int{"192.0.2.1:4321": 429, "192.0.2.2:1234": 200, "[2001:db8::2]:1234": 429, "[2001:db8:0:1::1]:1": 200} {
		assert.Equal(t, from(address), want, address)
	}
}

func TestAForwardedRequestCountsWhereItWasAskedAlone(t *testing.T) {
	guests := newGuests(t).slowly(t, "all")
	asked, _ := member(t, "asked", "secret", guests.options)
	owner, _ := member(t, "owner", "secret", guests.options)
	asked.sendsTo("owner", owner.address())
	route := locks.Route{Gateway: "owner", Address: owner.address(), Zxid: routeZxid, Lease: someID, Seals: fleet.Seals}
	asked.lease = func(context.Context, locks.LeaseRequest) (locks.Lease, error) {
		return locks.Lease{}, &locks.Error{Code: locks.CodeNotOwner, Owner: &route}
	}
	for range allowance {
		assert.Equal(t, asked.send(t, "GET", "/v1/leases/"+someID, as("all")).Status, 200)
	}
	owner.asked()
	asked.expect(t, 429, codeRateLimited, "GET", "/v1/leases/"+someID, as("all"))
	assert.Equal(t, len(owner.asked()), 0)
	for range allowance {
		assert.Equal(t, owner.send(t, "GET", "/v1/leases/"+someID, as("all")).Status, 200, "each gateway counts for itself")
	}
	owner.expect(t, 429, codeRateLimited, "GET", "/v1/leases/"+someID, as("all"))
}

func TestAPrincipalsRequestsAtTheSameTimeAreBoundedByTheirWork(t *testing.T) {
	g := serve(t, newGuests(t).options, func(o *Options) { o.Principals = PrincipalLimits{Active: 1, Waiting: 1} })
	inside, answer := make(chan struct{}), make(chan struct{})
	g.lock = func(context.Context, locks.LockRequest) (locks.Lock, error) {
		inside <- struct{}{}
		<-answer
		return locks.Lock{NS: "default", Name: "deploy", State: locks.LockFree, Rev: "y"}, nil
	}
	const poll = "/v1/locks/deploy?wait=5m&since=x"
	first := g.later(t, "GET", poll, as("reader"))
	<-inside
	a := g.expect(t, 429, codePrincipalLimit, "GET", poll, as("reader"))
	assert.That(t, strings.Contains(string(a.Body), "token:reader has 1 requests that wait"), "%s", a.Body)
	a = g.send(t, "POST", "/v1/leases/self/heartbeat?wait=5m", apitest.Token(someToken), as("reader"))
	assert.Equal(t, a.Status, 200, "a heartbeat that may not wait is answered at once")
	assert.Equal(t, g.send(t, "GET", "/v1/whoami", as("reader")).Status, 200, "a request that waits keeps others out")
	other := g.later(t, "GET", poll, as("all"))
	<-inside
	answer <- struct{}{}
	answer <- struct{}{}
	<-first
	<-other
	g.locks = func(locks.LockFilter) (locks.LockPage, error) {
		inside <- struct{}{}
		<-answer
		return locks.LockPage{}, nil
	}
	busy := g.later(t, "GET", "/v1/locks", as("all"))
	<-inside
	a = g.expect(t, 429, codePrincipalLimit, "GET", "/v1/locks", as("all"))
	assert.That(t, strings.Contains(string(a.Body), "token:all has 1 requests under way"), "%s", a.Body)
	assert.Equal(t, g.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken), as("all")).Status, 204, "a release")
	answer <- struct{}{}
	assert.Equal(t, (<-busy).Status, 200)
	assert.Equal(t, g.send(t, "GET", "/v1/whoami", as("all")).Status, 200, "the place of an answered request stays taken")
}

func TestAHeartbeatThatWaitsTwiceTakesOnePlace(t *testing.T) {
	g := serve(t, newGuests(t).options, func(o *Options) { o.Principals = PrincipalLimits{Waiting: 1} })
	for range 3 {
		x := newExchange(g.server)
		x.r, x.operation = httptest.NewRequestWithContext(t.Context(), "POST", "/v1/leases/self/heartbeat", nil), "Heartbeat"
		for range 2 {
			assert.NoError(t, x.takeWaiting())
			x.giveWaiting()
		}
		x.place.Leave()
	}
}

func TestAPrincipalsStreamsAreBounded(t *testing.T) {
	eachForm(t, func(t *testing.T, form string) {
		w := watch(t, events.Options{}, newGuests(t).options, func(o *Options) { o.Principals = PrincipalLimits{Active: 1, Streams: 1} })
		w.open(t, form, as("all"))
		_, a, err := forms[form](w, as("all"))
		assert.That(t, err == nil && a != nil && a.Code() == codePrincipalLimit, "%v %+v", err, a)
		w.open(t, form, as("reader"))
		assert.Equal(t, w.send(t, "GET", "/v1/whoami", as("all")).Status, 200, "a stream keeps others out")
	})
}

func TestARefusalForTheRateIsAuditedOnceInAWhile(t *testing.T) {
	option, end := auditing(t)
	g := usedUp(t, option)
	for range 20 {
		g.expect(t, 429, codeRateLimited, "GET", "/v1/locks", as("all"))
	}
	lines := end()
	assert.That(t, len(lines) == 1 && lines[0].Code == codeRateLimited && lines[0].Principal == "token:all", "%+v", lines)
}

// What a refused request costs is bounded, so that a flood of them leaves the processors to others: no more than a request that
// the manager answers.
func TestARefusedRequestAllocatesLittle(t *testing.T) {
	g := usedUp(t)
	const n = 200
	r := httptest.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1/v1/locks/deploy/leases", http.NoBody)
	r.Header.Set("Authorization", "Bearer all")
	w := httptest.NewRecorder()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		w.Body.Reset()
		g.server.ServeHTTP(w, r)
	}
	runtime.ReadMemStats(&after)
	assert.Equal(t, w.Code, 429)
	each := float64(after.Mallocs-before.Mallocs) / n
	assert.That(t, each < 60, "%.0f allocations for each", each)
}
