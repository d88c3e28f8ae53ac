package authtest

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// team is one of two that share the fleet. Each text that it sets has its canary, a dash, and the field's name.
type team struct {
	b       *besieged
	caller  *Caller
	prefix  string // of its locks
	canary  string
	secrets []string // which no log may have
	round   int
	hooks   []string // paths about its webhooks
}

// fields are those of a team's texts that the team itself must have seen again: else their search shows nothing.
var fields = []string{"lock", "owner", "metadata", "reason", "hold", "notify", "changed", "lock-group", "break", "destroy", "request", "description"}

// by is how an answer names the team where it has asked for an end or made it.
func (m *team) by() string { return `"by":"token:` + strings.TrimSuffix(m.prefix, ":") }

func (m *team) text(field string) string { return m.canary + "-" + field }

func (m *team) lock(kind string) string {
	return fmt.Sprintf("%s%s-%s-%d", m.prefix, m.text("lock"), kind, m.round)
}

// send sends a request with everything about it that a client may choose.
func (m *team) send(g *Gateway, method, path string, options ...apitest.Option) *Answer {
	m.b.t.Helper()
	return m.b.w.Send(g, m.caller, method, path, append(m.marks(), options...)...)
}

// marks are what a client may say with any request.
func (m *team) marks() []apitest.Option {
	return []apitest.Option{apitest.Header("X-Request-Id", m.text("request")), apitest.Header("User-Agent", m.text("agent")), apitest.Header("Referer", "https://"+m.text("referer")+".example.com/"),
		apitest.Header("Lockkeeper-Client", m.text("client")), apitest.Header("X-Forwarded-For", m.text("forwarded"))}
}

func (m *team) acquire(g *Gateway, kind, query string, options ...apitest.Option) api.Lease {
	m.b.t.Helper()
	a := m.send(g, "POST", "/v1/locks/"+m.lock(kind)+"/leases?owner="+m.text("owner")+"&metadata="+m.text("metadata")+"&"+query, options...)
	assert.Must(m.b.t, a.Status == 201 || a.Status == 202, "%s of %s: %+v", kind, m.canary, a)
	l := a.Lease()
	m.secrets = append(m.secrets, l.Token)
	if l.NotifySecret != "" {
		m.secrets = append(m.secrets, l.NotifySecret)
	}
	return l
}

func (m *team) key(kind string) apitest.Option {
	key := fmt.Sprintf("%s-%s-%d", m.text("idempotency-key"), kind, m.round)
	m.secrets = append(m.secrets, key)
	return apitest.Key(key)
}

// must is send for a request that has to be done.
func (m *team) must(g *Gateway, method, path string, options ...apitest.Option) *Answer {
	m.b.t.Helper()
	a := m.send(g, method, path, options...)
	assert.That(m.b.t, a.Status >= 200 && a.Status < 300, "%s %s of %s: %+v", method, path, m.canary, a)
	return a
}

// subscribe makes a webhook for all that the team may be told of, at a gateway, and looks at it at the other one.
func (m *team) subscribe(g, other *Gateway) {
	a := m.must(g, "POST", "/v1/webhooks", apitest.JSON(fmt.Sprintf(`{"url":"https://%s.example.com/%s?q=%s","description":%q,"locks":"*","events":["lease.released","lease.expired","lease.revoked","lease.queued","lease.granted","lease.updated"],
		"headers":{"X-Canary":%q}}`, m.text("hook"), m.text("hook-path"), m.text("hook-query"), m.text("description"), m.text("header"))))
	var hook api.Webhook
	assert.NoError(m.b.t, json.Unmarshal([]byte(a.Body), &hook))
	m.secrets = append(m.secrets, hook.Secret, m.text("header"), m.text("hook-query"))
	m.b.w.Settle()
	for _, p := range []string{"", "/" + hook.ID, "/" + hook.ID + "/attempts", "/" + hook.ID + "/dead-letters"} {
		m.hooks = append(m.hooks, "/v1/webhooks"+p)
	}
	m.must(other, "POST", "/v1/webhooks/"+hook.ID+"/test")
	m.must(other, "PATCH", "/v1/webhooks/"+hook.ID, apitest.JSON(fmt.Sprintf(`{"description":%q}`, m.text("description"))))
}

// churn is what a team does with locks, at a gateway and at the other one.
func (m *team) churn(g, other *Gateway) {
	m.round++
	w := m.b.w
	held := m.acquire(g, "held", "ttl=1h&hold="+m.text("hold")+"&notify_url=https://"+m.text("notify")+".example.com/"+m.text("path")+"?q="+m.text("query"), m.key("held"))
	waiter := w.Later(context.Background(), other, m.caller, "POST", "/v1/locks/"+m.lock("held")+"/leases?ttl=1h&wait=1m&owner="+m.text("owner"), append(m.marks(), m.key("wait"))...)
	ticket := m.acquire(other, "held", "ttl=1h&async=true")
	time.Sleep(time.Second)
	for _, at := range []*Gateway{g, other} {
		a := m.send(at, "POST", "/v1/locks/"+m.lock("held")+"/leases")
		assert.That(m.b.t, a.Status == 409, "%+v", a)
		m.looks(at, held)
	}
	m.must(other, "PATCH", "/v1/leases/self?owner="+m.text("owner")+"&metadata="+m.text("changed"), apitest.Token(held.Token))
	m.must(g, "POST", "/v1/leases/self/heartbeat", apitest.Token(held.Token))
	m.must(other, "POST", "/v1/heartbeats", apitest.JSON(fmt.Sprintf(`{"tokens":[%q,%q]}`, held.Token, ticket.Token)))
	m.must(g, "POST", "/v1/locks/"+m.lock("held")+"/leases?hold="+m.text("hold")+"-2", apitest.Token(held.Token))
	m.must(other, "POST", "/v1/locks/"+m.lock("held")+"/revoke?reason="+m.text("reason"))
	m.must(g, "DELETE", "/v1/locks/"+m.lock("held")+"/revoke")
	m.must(other, "POST", "/v1/leases/self/downgrade", apitest.Token(held.Token))
	m.must(other, "DELETE", "/v1/leases/self", apitest.Token(ticket.Token))
	m.must(g, "DELETE", "/v1/leases/self", apitest.Token(held.Token))
	next := <-waiter
	assert.Must(m.b.t, next.Status < 300, "%+v", next)
	m.secrets = append(m.secrets, next.Lease().Token)
	m.must(other, "POST", "/v1/leases/"+next.Lease().LeaseID+"/break?reason="+m.text("break"))
	gone := m.send(g, "POST", "/v1/leases/self/heartbeat", apitest.Token(next.Lease().Token))
	assert.That(m.b.t, gone.Status == 410 && strings.Contains(gone.Body, m.text("break")) && strings.Contains(gone.Body, m.by()), "%+v", gone)
	m.ends(g, other)
	for _, at := range []*Gateway{g, other} {
		m.looks(at, held)
	}
}

// ends ends leases in the other ways.
func (m *team) ends(g, other *Gateway) {
	expires := m.acquire(g, "expires", "ttl=1s&lock_delay=2s")
	m.acquire(other, "unclaimed", "ttl=1h&async=true")
	m.must(g, "PUT", "/v1/locks/"+m.lock("permits")+"?limit=2")
	m.acquire(other, "permits", "mode=semaphore&permits=2&ttl=1h")
	full := m.send(g, "POST", "/v1/locks/"+m.lock("permits")+"/leases?mode=semaphore")
	assert.That(m.b.t, full.Status == 409, "%+v", full)
	group := m.must(g, "POST", "/v1/leases", apitest.JSON(fmt.Sprintf(`{"locks":[{"lock":%q},{"lock":%q}],"ttl":"1h","owner":%q}`, m.lock("group"), m.lock("group")+"-too", m.text("owner"))), m.key("group")).Lease()
	m.secrets = append(m.secrets, group.Token)
	m.must(other, "GET", "/v1/leases/"+group.LeaseID)
	time.Sleep(time.Second)
	m.must(other, "GET", "/v1/locks/"+m.lock("expires"))
	m.must(other, "POST", "/v1/locks/"+m.lock("group")+"/reap?older_than=0s&reason="+m.text("reason"))
	time.Sleep(5 * time.Second)
	m.must(g, "GET", "/v1/leases/"+expires.LeaseID+"/postmortem")
	for _, kind := range []string{"expires", "permits", "held", "unclaimed"} {
		m.must(other, "POST", "/v1/locks/"+m.lock(kind)+"/destroy?reason="+m.text("destroy"))
	}
}

// looks asks for all that a team may read, page by page.
func (m *team) looks(g *Gateway, l api.Lease) {
	for _, p := range append(m.hooks, "/v1/locks?limit=1", "/v1/leases?limit=1", "/v1/locks?format=text", "/v1/locks?prefix="+m.prefix+"&sort=waiting", "/v1/locks/"+m.lock("held")+"?limit=1", "/v1/locks/"+m.lock("held")+"?format=text",
		"/v1/locks/"+m.lock("held")+"/history", "/v1/locks/"+m.lock("held")+"/preview", "/v1/locks/"+m.lock("held")+"/fence?fencing_token=1", "/v1/check-fence?fencing_token=1&lock="+m.lock("held"),
		"/v1/leases/"+l.LeaseID, "/v1/leases/"+l.LeaseID+"/postmortem", "/v1/info", "/v1/gateways", "/v1/namespaces", "/v1/whoami", "/metrics", "/", "/namespaces", "/gateways", "/webhooks", "/locks/"+m.lock("held"),
		"/ui/fragments?page=overview", "/v1/webhooks", "/v1/locks?prefix=nothing-begins-so") {
		a := m.send(g, "GET", p)
		for next := nextCursor.FindStringSubmatch(a.Body); next != nil; next = nextCursor.FindStringSubmatch(a.Body) {
			a = m.send(g, "GET", p+"&cursor="+next[1])
		}
	}
}

// listen follows the events in each form, until ctx ends.
func (m *team) listen(ctx context.Context, g *Gateway) (ended []<-chan string) {
	for _, query := range []string{"format=sse&type=*", "format=jsonl&type=*", "format=jsonl&type=*&lock=*", "format=sse&type=*&ns=default"} {
		a, rest := m.b.w.Open(ctx, g, m.caller, "/v1/events?"+query)
		assert.Must(m.b.t, a.Status == 200, "%+v", a)
		ended = append(ended, rest)
	}
	for _, path := range []string{"/v1/events/ws?type=*", "/ui/live?page=overview", "/ui/live?page=namespaces", "/ui/live?page=gateways", "/ui/live?page=lock&lock=" + m.prefix + m.text("lock") + "-held-1"} {
		conn, a := m.b.w.Socket(g, m.caller, path)
		assert.Must(m.b.t, conn != nil, "%s: %+v", path, a)
		over := make(chan string, 1)
		go func() {
			messages := 0
			for {
				if _, _, err := conn.ReadMessage(); err != nil {
					assert.That(m.b.t, messages > 0, "%s has told %s nothing", path, m.canary)
					over <- ""
					return
				}
				messages++
			}
		}()
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		ended = append(ended, over)
	}
	return ended
}

func TestNoTextOfOneTeamReachesTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := besiege(t)
		shop := &team{b: b, caller: b.shop, prefix: "shop:", canary: "canaryshop"}
		other := &team{b: b, caller: b.other, prefix: "other:", canary: "canaryother"}
		teams := []*team{shop, other}
		ctx, cancel := context.WithCancel(t.Context())
		var ended []<-chan string
		for _, m := range teams {
			m.secrets = append(m.secrets, strings.TrimPrefix(m.caller.Authorization, "Bearer "))
			for _, g := range b.w.Gateways {
				ended = append(ended, m.listen(ctx, g)...)
			}
			m.subscribe(b.w.Gateways[0], b.w.Gateways[1])
			m.subscribe(b.w.Gateways[1], b.w.Gateways[0])
		}
		for round := range 4 {
			for _, m := range teams {
				m.churn(b.w.Gateways[round%2], b.w.Gateways[(round+1)%2])
			}
		}
		mixed(b, teams)
		// The namespace that only the shop may use.
		a := b.w.Send(b.w.Gateways[0], b.shop, "POST", "/v1/locks/"+shop.text("lock")+"/leases?ns=vault&ttl=1h")
		assert.Must(t, a.Status == 201, "%+v", a)
		for _, m := range teams {
			for _, g := range b.w.Gateways {
				m.looks(g, a.Lease())
			}
		}
		b.w.Settle()
		cancel()
		for _, rest := range ended {
			<-rest
		}
		b.w.Settle()
		shop.sees(t, "canaryother", "token:other")
		other.sees(t, "canaryshop", "token:shop", "vault", "of-scene")
		noSecrets(t, b.w, shop, other)
	})
}

// mixed has an operator's leases take a lock of each team at once: each team sees its own lock of them.
func mixed(b *besieged, teams []*team) {
	for i, g := range b.w.Gateways {
		var names []string
		for _, m := range teams {
			m.round = 100 + i
			names = append(names, fmt.Sprintf(`{"lock":%q}`, m.lock("held")))
		}
		a := b.w.Send(g, b.root, "POST", "/v1/leases", apitest.JSON(`{"locks":[`+strings.Join(names, ",")+`],"ttl":"1h","owner":"operator"}`))
		assert.Must(b.t, a.Status == 201, "%+v", a)
		lease := a.Lease()
		b.w.Settle()
		for _, m := range teams {
			for _, at := range b.w.Gateways {
				m.looks(at, lease)
				taken := m.send(at, "POST", "/v1/locks/"+m.lock("held")+"/leases")
				assert.That(b.t, taken.Status == 409 && strings.Contains(taken.Body, lease.LeaseID), "%+v", taken)
				m.send(at, "DELETE", "/v1/locks/"+m.lock("held")) // 409 lock_in_use, with its holders
				m.must(at, "POST", "/v1/locks/"+m.lock("held")+"/reap?older_than=0s&dry_run=true&reason=x")
				m.send(at, "POST", "/v1/locks/"+m.lock("held")+"/revoke", apitest.JSON(`{"reason":"x","lease_ids":["`+b.mine.LeaseID+`"]}`))
			}
			m.must(g, "POST", "/v1/locks/"+m.lock("held")+"/revoke?reason=please")
			m.must(g, "DELETE", "/v1/locks/"+m.lock("held")+"/revoke")
		}
		last := teams[i]
		last.must(b.w.Gateways[1], "POST", "/v1/leases/"+lease.LeaseID+"/break?reason=why")
		b.w.Settle()
		for _, m := range teams {
			for _, at := range b.w.Gateways {
				m.looks(at, lease)
			}
		}
	}
}

// sees searches all that a team has received for the other team's texts.
func (m *team) sees(t *testing.T, foreign ...string) {
	heard := m.caller.heard.String()
	for _, field := range fields {
		assert.That(t, strings.Contains(heard, m.text(field)), "%s has not seen its own %s: its search shows nothing", m.canary, field)
	}
	assert.That(t, strings.Contains(heard, m.by()), "%s has not seen its own name as that of an administrator: its search shows nothing", m.canary)
	letters, ends := 0, 0
	for _, l := range m.b.w.Mail.All() {
		if strings.Contains(l.URL, m.canary) {
			if letters++; strings.Contains(l.URL, m.text("hook")) && strings.Contains(l.Body, m.text("lock")) {
				ends++
			}
			heard += "\n" + l.URL + "\n" + fmt.Sprint(l.Headers) + "\n" + l.Body
		}
	}
	assert.That(t, letters > ends && ends > 0, "%s has had %d messages, of them %d of webhooks", m.canary, letters, ends)
	for _, text := range append(encoded(heard), heard) {
		for _, word := range foreign {
			if at := strings.Index(strings.ToLower(text), word); at >= 0 {
				t.Errorf("%s has received %q: …%s…", m.canary, word, text[max(0, at-600):min(len(text), at+100)])
				break
			}
		}
	}
}

var words = regexp.MustCompile(`[A-Za-z0-9_+/%-]{8,}={0,2}`)

// encoded are the texts that words of a text stand for.
func encoded(text string) (all []string) {
	seen := map[string]bool{}
	for _, word := range words.FindAllString(text, -1) {
		if !seen[word] {
			seen[word] = true
			all = append(all, decodings(word)[1:]...)
		}
	}
	return all
}

// noSecrets searches the logs for what only clients may know.
func noSecrets(t *testing.T, w *World, teams ...*team) {
	log := w.Log.String()
	for _, m := range teams {
		assert.That(t, strings.Contains(log, m.text("owner")) && strings.Contains(log, m.text("lock")), "the log says nothing of %s", m.canary)
		for _, secret := range m.secrets {
			mac := secret[strings.LastIndexByte(secret, '.')+1:] // of a lease token; all of another secret
			if at := strings.Index(log, mac); at >= 0 && mac != "" {
				t.Errorf("a secret of %s is in a log: %s", m.canary, log[max(0, at-400):min(len(log), at+100)])
			}
		}
	}
}
