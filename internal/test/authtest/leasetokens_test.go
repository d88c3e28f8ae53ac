package authtest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

func TestALeaseOfAFiveMinuteTokenLivesAnHourByItsHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, tableRules)
		root := w.Bearer("root", 0, true)
		job := w.JWT("job", w.Issuer, "shopper", Audience, 5*time.Minute)
		lease := w.Acquire(w.Gateways[0], job, "shop:release", "ttl=1m")
		token := apitest.Token(lease.Token)
		nobody, stranger := &Caller{Name: "nobody"}, w.Bearer("elsewhere", 0, false)
		w.Issuer.Away.Store(true) // nothing of this needs it
		for i, begun := 0, time.Now(); time.Since(begun) < time.Hour; i++ {
			time.Sleep(40 * time.Second)
			// The owner and the other gateway; without the credential, with one that has expired by now, and with that of another team.
			g, c := w.Gateways[i%2], []*Caller{nobody, job, stranger}[i%3]
			a := w.Send(g, c, "POST", "/v1/leases/self/heartbeat", token)
			assert.Must(t, a.Status == http.StatusOK, "%s after %s: %+v", c.Name, time.Since(begun), a)
		}
		for _, g := range w.Gateways {
			for _, c := range []*Caller{nobody, job, stranger} {
				a := w.Send(g, c, "GET", "/v1/leases/self", token)
				assert.That(t, a.Status == http.StatusOK && a.Lease().LeaseID == lease.LeaseID, "%s: %+v", c.Name, a)
				a = w.Send(g, c, "GET", "/v1/leases/"+lease.LeaseID, token)
				assert.That(t, a.Status == http.StatusOK && a.Lease().Lock == lease.Lock, "%s: %+v", c.Name, a)
				a = w.Send(g, c, "POST", "/v1/heartbeats", apitest.JSON(fmt.Sprintf(`{"tokens":[%q]}`, lease.Token)))
				assert.That(t, a.Status == http.StatusOK, "%s: %+v", c.Name, a)
				a = w.Send(g, c, "PATCH", "/v1/leases/self?metadata=m", token)
				assert.That(t, a.Status == http.StatusOK, "%s: %+v", c.Name, a)
				a = w.Send(g, c, "POST", "/v1/leases/self/downgrade", token)
				assert.That(t, a.Status == http.StatusOK, "%s: %+v", c.Name, a)
				// What bounds the acquire is not lifted: a longer TTL needs the caller's rules.
				a = w.Send(g, c, "PATCH", "/v1/leases/self?ttl=2h", token)
				assert.That(t, a.Status == http.StatusForbidden || a.Status == http.StatusUnauthorized, "%s: %+v", c.Name, a)
				a = w.Send(g, c, "POST", "/v1/leases/self/heartbeat?ttl=2h", token)
				assert.That(t, a.Status == http.StatusForbidden || a.Status == http.StatusUnauthorized, "%s: %+v", c.Name, a)
			}
		}
		a := w.Send(w.Gateways[1], job, "DELETE", "/v1/leases/self", token)
		assert.That(t, a.Status == http.StatusNoContent, "%+v", a)
		a = w.Send(w.Gateways[0], root, "GET", "/v1/locks/shop:release")
		assert.That(t, a.Status == http.StatusOK && a.Lease().State == "free", "%+v", a)
	})
}

func TestALeaseTokenGivesNothingButItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, tableRules)
		root := w.Bearer("root", 0, true)
		mine := w.Acquire(w.Gateways[0], root, "shop:mine", "ttl=1h")
		s := w.NewScene(root, 1)
		token := func(*Scene) []apitest.Option { return []apitest.Option{apitest.Token(mine.Token)} }
		for _, c := range []*Caller{{Name: "nobody"}, w.Bearer("elsewhere", 0, false)} {
			for _, r := range rows() {
				if r.open || r.pattern() == "/v1/heartbeats" || r.socket {
					continue
				}
				if c.Authorization != "" && r.route == "POST /v1/webhooks" {
					continue // its own roles let it make one, about what it may read
				}
				for _, g := range w.Gateways {
					// As without the token: what is about the token's own lease is in another test.
					if strings.HasPrefix(r.pattern(), "/v1/leases/self") {
						continue
					}
					r.with = withToken(r.with, token)
					nodes, lists := w.Tree.Snapshot(), w.Lists()
					a := w.Send(g, c, r.method(), r.path(s), r.with(s)...)
					about := fmt.Sprintf("%s of %s with the token of another lease at %s", r.route, c.Name, g.name)
					assert.That(t, a.Status >= 300 || r.reads() || !strings.Contains(r.pattern(), "{"), "%s: %+v", about, a)
					assert.That(t, !strings.Contains(a.Body, "of-scene"), "%s: %+v", about, a)
					w.Settle()
					same(t, about, nodes, w.Tree.Snapshot())
					same(t, about, lists, w.Lists())
				}
			}
		}
	})
}

// withToken adds a lease token to a request.
func withToken(with, token func(*Scene) []apitest.Option) func(*Scene) []apitest.Option {
	return func(s *Scene) []apitest.Option {
		if with == nil {
			return token(s)
		}
		return append(with(s), token(s)...)
	}
}
