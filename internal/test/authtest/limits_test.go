package authtest

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

const limitRules = `
roles:
  few: [{ns: default, locks: "shop:*", verbs: [acquire], max_ttl: 5m, leases: 2, rate: 20/s}]
who: [{token: few, roles: [few]}]
`

// What a role bounds holds at the gateway that runs the lease, and through the other one.
func TestTheLimitsOfARoleHoldAtEachGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, limitRules)
		few, root := w.Bearer("few", 0, false), w.Bearer("root", 0, true)
		pause := func() { time.Sleep(time.Second) } // the rate is another test
		for _, g := range w.Gateways {
			a := w.Send(g, few, "POST", "/v1/locks/shop:a/leases?ttl=6m")
			assert.That(t, a.Status == http.StatusForbidden && strings.Contains(a.Body, "ttl must be at most 5m"), "%+v", a)
		}
		lease := w.Acquire(w.Gateways[0], few, "shop:a", "ttl=1m")
		assert.That(t, lease.Owner == "token:few" && lease.Principal == "token:few", "%+v", lease)
		token := apitest.Token(lease.Token)
		for _, g := range w.Gateways {
			pause()
			for _, change := range []struct{ method, path string }{{"POST", "/v1/leases/self/heartbeat?ttl=6m"}, {"PATCH", "/v1/leases/self?ttl=6m"}} {
				a := w.Send(g, few, change.method, change.path, token)
				assert.That(t, a.Status == http.StatusForbidden && strings.Contains(a.Body, "ttl must be at most 5m"), "%s %s at %s: %+v", change.method, change.path, g.name, a)
			}
			a := w.Send(g, few, "POST", "/v1/leases/self/heartbeat?ttl=5m", token)
			assert.That(t, a.Status == http.StatusOK, "%+v", a)
			a = w.Send(g, root, "GET", "/v1/locks/shop:a")
			assert.That(t, strings.Contains(a.Body, `"principal":"token:few"`), "the other gateway does not show the principal: %+v", a)
		}
		pause()
		for _, g := range w.Gateways { // each counts the leases that it runs
			if g != w.Gateways[0] {
				w.Acquire(g, few, "shop:c-"+g.name, "ttl=1m")
			}
			w.Acquire(g, few, "shop:b-"+g.name, "ttl=1m")
			a := w.Send(g, few, "POST", "/v1/locks/shop:d/leases?ttl=1m")
			assert.That(t, a.Status == http.StatusTooManyRequests && strings.Contains(a.Body, "principal_limit") && strings.Contains(a.Body, "2 of at most 2 leases"), "at %s: %+v", g.name, a)
			assert.That(t, w.Send(g, root, "POST", "/v1/locks/shop:d-"+g.name+"/leases?ttl=1m").Status == http.StatusCreated, "another principal is refused at %s", g.name)
		}
	})
}

// A client that has used its rate up keeps its lease and can give it back, through each gateway.
func TestAPrincipalAtItsRateKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, limitRules)
		few := w.Bearer("few", 0, false)
		lease := w.Acquire(w.Gateways[0], few, "shop:a", "ttl=1m")
		token := apitest.Token(lease.Token)
		for _, g := range w.Gateways {
			refused := 0
			for range 40 { // in no time
				if a := w.Send(g, few, "POST", "/v1/locks/shop:a/leases"); a.Status == http.StatusTooManyRequests {
					refused++
				}
			}
			assert.That(t, refused >= 19 && refused <= 21, "%d of 40 were refused at %s", refused, g.name)
			for range 40 {
				a := w.Send(g, few, "POST", "/v1/leases/self/heartbeat", token)
				assert.Must(t, a.Status == http.StatusOK, "%+v", a)
			}
		}
		a := w.Send(w.Gateways[1], few, "DELETE", "/v1/leases/self", token)
		assert.Must(t, a.Status == http.StatusNoContent, "%+v", a)
		time.Sleep(time.Second)
		w.Acquire(w.Gateways[1], few, "shop:a", "ttl=1m")
	})
}
