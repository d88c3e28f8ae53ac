package authtest

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// everyType are all types of events, which a webhook must name to get those that are best effort.
const everyType = `["lease.released","lease.expired","lease.cancelled","lease.unclaimed","lease.revoked","lease.removed","lock.destroyed",` +
	`"lease.queued","lease.granted","lease.updated","lease.revoke_requested","lease.revoke_withdrawn","lock.hazard","lock.hazard_cleared"]`

// webhook makes a webhook for all events of all locks. A receiver at a path that ends with "gone" answers 410.
func (m *team) webhook(g *Gateway, to string) (at string) {
	m.b.t.Helper()
	a := m.must(g, "POST", "/v1/webhooks", apitest.JSON(fmt.Sprintf(`{"url":"https://%s.example.com/%s","events":%s,"description":%q,"headers":{"X-Team":%q}}`,
		m.text("hook"), to, everyType, m.text("description"), m.text("header"))))
	_, secret, _ := strings.Cut(a.Body, `"secret":"`)
	secret, _, _ = strings.Cut(secret, `"`)
	m.secrets = append(m.secrets, secret, m.text("header"))
	return "/v1/webhooks/" + path.Base(a.Header.Get("Location"))
}

// hooked does with a webhook all that its maker may, and looks at it.
func (m *team) hooked(at string) {
	m.b.t.Helper()
	for _, g := range m.b.w.Gateways {
		m.must(g, "PATCH", at+"?enabled=true&description="+m.text("description"))
		m.must(g, "POST", at+"/test")
		for _, p := range []string{"", "/attempts", "/dead-letters"} {
			m.must(g, "GET", at+p)
		}
		m.must(g, "POST", at+"/replay")
		m.must(g, "GET", "/v1/webhooks")
	}
}

// What is sent to each team's webhooks for everything is about its own locks, whichever gateway notes and sends it.
func TestAWebhookForEverythingHasNoTextOfTheOtherTeam(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := besiege(t)
		teams := []*team{{b: b, caller: b.shop, prefix: "shop:", canary: "canaryshop"}, {b: b, caller: b.other, prefix: "other:", canary: "canaryother"}}
		var hooks [][]string
		for i, m := range teams {
			hooks = append(hooks, []string{m.webhook(b.w.Gateways[i], "x"), m.webhook(b.w.Gateways[1-i], "gone")})
		}
		for round := range 2 {
			for i, m := range teams {
				m.churn(b.w.Gateways[round], b.w.Gateways[1-round])
				b.w.Settle()
				for _, at := range hooks[i] {
					m.hooked(at)
				}
				for _, theirs := range hooks[1-i] {
					for _, g := range b.w.Gateways {
						for _, p := range []string{"GET ", "GET /attempts", "GET /dead-letters", "POST /test", "POST /rotate", "POST /replay", "PATCH ?enabled=false", "DELETE "} {
							method, below, _ := strings.Cut(p, " ")
							a := m.send(g, method, theirs+below)
							assert.That(t, a.Status == 404, "%s of %s's webhook: %+v", p, teams[1-i].canary, a)
						}
					}
				}
			}
		}
		mixed(b, teams)
		b.w.Settle()
		types := map[string]bool{}
		for _, l := range b.w.Mail.All() {
			if kind, of, found := strings.Cut(l.Body, `"data":{"type":"`); found && strings.Contains(kind+l.URL, "hook") {
				of, _, _ = strings.Cut(of, `"`)
				types[of] = true
			}
		}
		for _, kind := range []string{"lease.released", "lease.expired", "lease.revoked", "lock.destroyed", "lease.queued", "lease.granted", "lease.updated", "lease.revoke_requested", "lease.revoke_withdrawn"} {
			assert.That(t, types[kind], "no webhook was told of %s: the search shows nothing", kind)
		}
		teams[0].sees(t, "canaryother", "token:other")
		teams[1].sees(t, "canaryshop", "token:shop", "of-scene")
		noSecrets(t, b.w, teams...)
	})
}

// A webhook lives by the credential of its maker, and by the rules of now.
func TestAWebhookStopsWithItsMakersRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := besiege(t)
		m := &team{b: b, caller: b.shop, prefix: "shop:", canary: "canaryshop"}
		at := m.webhook(b.w.Gateways[0], "x")
		root := b.root
		// told is how many ends the webhook is told when one lease of each lock has ended, at each gateway.
		told := func(locks ...string) (n int) {
			before := len(b.w.Mail.All())
			for _, g := range b.w.Gateways {
				for _, lock := range locks {
					l := b.w.Acquire(g, root, lock, "ttl=1h")
					assert.Equal(t, b.w.Send(g, root, "DELETE", "/v1/leases/self", apitest.Token(l.Token)).Status, 204)
				}
			}
			time.Sleep(5 * time.Second)
			b.w.Settle()
			for _, l := range b.w.Mail.All()[before:] {
				if strings.Contains(l.URL, m.canary) && strings.Contains(l.Body, `"lease.released"`) {
					n++
				}
			}
			return n
		}
		paused := func(by *Caller, why string) {
			t.Helper()
			for _, g := range b.w.Gateways {
				a := b.w.Send(g, by, "GET", at)
				assert.That(t, a.Status == 200 && strings.Contains(a.Body, `"paused_reason"`) == (why != "") && strings.Contains(a.Body, why), "want %q: %+v", why, a)
			}
		}
		assert.Equal(t, told("shop:a", "other:a"), 2)
		paused(b.shop, "")

		b.w.Rule(strings.Replace(teamRules, `"shop:*"`, `"shop:b*"`, 1))
		time.Sleep(7 * time.Second) // the file is looked at every 5 s
		assert.Equal(t, told("shop:a", "shop:b", "other:a"), 2, "with other rules")

		b.w.Revoke(b.shop)
		time.Sleep(5 * time.Second)
		assert.Equal(t, told("shop:b"), 0, "with a revoked token")
		next := b.w.Bearer("shop", 0, false) // of the same name
		time.Sleep(5 * time.Second)
		assert.Equal(t, told("shop:b"), 0, "with another token of the name")
		paused(next, "was revoked")
		a := b.w.Send(b.w.Gateways[1], next, "PATCH", at, apitest.JSON(`{"enabled":true}`))
		assert.That(t, a.Status == 200 && !strings.Contains(a.Body, "paused_reason"), "%+v", a)
		time.Sleep(5 * time.Second)
		paused(next, "")
		assert.Equal(t, told("shop:b", "other:a"), 2, "with the next token")
	})
}
