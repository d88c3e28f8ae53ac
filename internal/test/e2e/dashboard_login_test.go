package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/issuertest"
)

const teamRules = `
issuers:
  corp: {issuer: "ISSUER", audience: lockkeeper, groups: groups, dashboard: {client_id: lockkeeper-dashboard, secret_file: SECRET}}
roles:
  shop: [{ns: default, locks: "shop:*", verbs: [acquire]}]
  bank: [{ns: default, locks: "bank:*", verbs: [acquire]}]
  bank-sre: [{ns: default, locks: "bank:*", verbs: [operate]}]
who:
  - {token: "shop-*", roles: [shop]}
  - {token: "bank-*", roles: [bank]}
  - {issuer: corp, group: bank, roles: [bank, bank-sre]}
`

// sharedGateway is a gateway that two teams share. Users log in with tokens, or through the issuer.
func sharedGateway(t *testing.T) (*gateway, *issuertest.Issuer) {
	t.Helper()
	issuer := issuertest.Serve(t)
	secret := filepath.Join(t.TempDir(), "secret")
	assert.NoError(t, os.WriteFile(secret, []byte(issuertest.Secret), 0o600))
	g := newStandalone(t, "--auth-file="+rulesFile(t, strings.NewReplacer("ISSUER", issuer.URL, "SECRET", secret).Replace(teamRules)))
	g.start()
	g.awaitReady()
	return g, issuer
}

// token makes a token with that name.
func (g *gateway) token(name string) string {
	g.t.Helper()
	made := must(g.t, "token", "create", "--name", name, "--data-dir", g.dataDir)
	return made[strings.Index(made, "lkt_"):][:63]
}

func bearer(token string) apitest.Option { return apitest.Header("Authorization", "Bearer "+token) }

// logIn logs in on the login page, which leads to the address.
func (b *tab) logIn(token, address string) {
	b.t.Helper()
	b.fill("[name=token]", token)
	b.follow(".login-form button")
	b.arrives(address)
}

// follow clicks what leads to another page, once the browser has answered: while the page goes it cannot be asked.
func (b *tab) follow(selector string) {
	b.t.Helper()
	b.untilLoaded(fmt.Sprintf(`((e) => e && (setTimeout(() => e.click(), 50), true))(document.querySelector(%s))`, quoted(selector)), selector+" can be followed")
}

// frames records what comes to the tab over sockets.
func (b *tab) frames() (received func() string) {
	var mu sync.Mutex
	var text strings.Builder
	events := chromedp.Events(b.ctx, network.WebSocketFrameReceived)
	b.listening.Go(func() {
		for e, err := range events {
			if err != nil {
				return
			}
			mu.Lock()
			text.WriteString(string(e.Response.PayloadData))
			mu.Unlock()
		}
	})
	return func() string { mu.Lock(); defer mu.Unlock(); return text.String() }
}

func TestTwoTeamsThatShareAGatewaySeeTheirOwnLocksAlone(t *testing.T) {
	t.Parallel()
	g, _ := sharedGateway(t)
	type team struct {
		name, others, token string
		tab                 *tab
		frames              func() string
		lease               api.Lease
	}
	teams := []*team{{name: "shop", others: "bank"}, {name: "bank", others: "shop"}}
	for _, m := range teams {
		m.token = g.token(m.name + "-ci")
		m.lease = g.hold(m.name+":till", "ttl=5m&owner="+m.name+"-canary&metadata="+m.name+"-data", bearer(m.token))
	}
	for _, m := range teams {
		m.tab = openBrowser(t, g.url())
		m.frames = m.tab.frames()
		m.tab.resize(desktop, "light")
		m.tab.visit(g.url() + "/?state=held")
		m.tab.arrives(g.url() + "/login?next=%2F%3Fstate%3Dheld")
		m.tab.shot("login-" + m.name)
		m.tab.logIn(m.token, g.url()+"/?state=held")
		m.tab.untilLink("live")
		m.tab.until(fmt.Sprintf(`document.querySelector("#locks").innerText.includes("%s-canary")`, m.name), "the team's own lock")
	}
	// What happens now comes as pushes to the pages that show it.
	shown := func(m *team, page string) {
		t.Helper()
		html := eval[string](m.tab, "document.documentElement.outerHTML")
		assert.That(t, !strings.Contains(strings.ReplaceAll(html, "token:"+m.name, ""), m.others), "%s shows %s: %s", page, m.others, html)
		assert.That(t, strings.Contains(html, "token:"+m.name+"-ci"), "%s does not say who looks", page)
	}
	for _, path := range []string{"/", "/locks/TEAM:till", "/locks/TEAM:till?tab=zookeeper", "/namespaces", "/gateways"} {
		for _, m := range teams {
			m.tab.visit(g.url() + strings.ReplaceAll(path, "TEAM", m.name))
			m.tab.untilLink("live")
		}
		for _, m := range teams {
			waits := g.queue(m.name+":till", "ttl=1m&owner="+m.name+"-waiter", bearer(m.token))
			if path == "/" || path == "/locks/TEAM:till" {
				m.tab.until(`document.querySelector("#locks .waiting .n, #queue .approach .n")?.innerText === "1"`, "the waiter is pushed")
			}
			g.letGo(waits.Token)
		}
		for _, m := range teams {
			shown(m, path)
		}
	}
	for _, m := range teams {
		m.tab.expectOutage(true) // the page of another team's lock is 403
		m.tab.visit(g.url() + "/locks/" + m.others + ":till")
		m.tab.until(`document.querySelector(".problem-code")?.innerText === "403"`, "the other team's lock is refused")
		text := eval[string](m.tab, "document.body.innerText")
		assert.That(t, !strings.Contains(text, "canary") && !strings.Contains(text, "data"), "the refusal tells of the lock: %s", text)
		m.tab.visit(g.url() + "/locks/" + m.name + ":till")
		m.tab.untilLink("live")
		buttons := eval[string](m.tab, `[...document.querySelectorAll("[data-act]")].map((b) => b.dataset.act).join()`)
		assert.Equal(t, buttons, "reserve,revoke", "what the team may do to its lock")
		frames := m.frames()
		assert.That(t, strings.Contains(frames, m.name+"-waiter") && !strings.Contains(frames, m.others), "the pushes to %s", m.name)
	}
}

func TestAUserLogsInWithATokenActsLogsOutAndIsTurnedAwayWhenItIsRevoked(t *testing.T) {
	t.Parallel()
	g, _ := sharedGateway(t)
	text := g.token("shop-ann")
	lease := g.hold("shop:till", "ttl=5m&owner=alice", bearer(text))
	b := openBrowser(t, g.url())
	b.resize(desktop, "light")
	b.visit(g.url() + "/locks/shop:till")
	b.expectOutage(true) // the next answer is 401
	b.arrives(g.url() + "/login?next=%2Flocks%2Fshop%3Atill")
	b.fill("[name=token]", "lkt_wrong")
	b.follow(".login-form button")
	b.untilLoaded(`document.querySelector(".login [role=alert]:not([hidden])")?.innerText.includes("must be one that this fleet has")`, "a wrong token is refused")
	b.shot("login-refused")
	b.logIn(text, g.url()+"/locks/shop:till")
	b.expectOutage(false)
	b.untilLink("live")
	b.says(".viewer", "token:shop-ann", "Log out")
	b.shot("lock-by-token")

	b.press("[data-act=revoke]")
	assert.That(t, !eval[bool](b, `Boolean(document.querySelector("[name=force_after]"))`), "force is offered to one who may not use it")
	b.press("#ask-revoke [data-confirm]")
	b.says("#done", "Asked alice to release.")
	beat := g.beat(lease.Token, api.StateHeld)
	assert.That(t, beat.RevokeRequested != nil, "%+v", beat)
	// A reservation without an owner is that of the user.
	b.press("[data-act=reserve]")
	b.press("#ask-reserve [data-confirm]")
	b.until(`document.querySelector("#ask-reserve [data-value]").textContent.startsWith("lk1.")`, "it shows the lease token")
	reserved := eval[string](b, `document.querySelector("#ask-reserve [data-value]").textContent`)
	b.press("#ask-reserve [data-confirm]")
	b.says(`#queue .waiter`, "shop-ann", "reserves 1h")
	g.letGo(reserved)
	// The gateway refuses what the page does not offer.
	b.expectOutage(true) // 403
	assert.Equal(t, eval[int](b, `fetch("/v1/locks/shop:till/destroy", {method: "POST", headers: {"Content-Type": "application/json"}, body: '{"reason":"x"}'}).then((a) => a.status)`), 403)

	cookie := func() int {
		return eval[int](b, `fetch("/v1/whoami").then((a) => a.json()).then((w) => w.session ? 1 : 0)`)
	}
	assert.Equal(t, cookie(), 1)
	assert.Equal(t, eval[string](b, "document.cookie"), "", "a script can read the session")
	b.follow(".viewer form button")
	b.arrives(g.url() + "/login?out=1")
	b.says(".login", "You have logged out.")
	b.shot("logged-out")
	assert.Equal(t, cookie(), 0)
	b.visit(g.url() + "/locks/shop:till")
	b.arrives(g.url() + "/login?next=%2Flocks%2Fshop%3Atill")

	b.logIn(text, g.url()+"/locks/shop:till")
	b.untilLink("live")
	must(t, "token", "revoke", "shop-ann", "--data-dir", g.dataDir)
	b.untilLink("ended") // within 15 s
	b.says("#away", "The session has ended.", "Log in again")
	b.shot("session-ended")
	assert.Equal(t, eval[int](b, `[...document.querySelectorAll("[data-act]")].filter((e) => e.checkVisibility()).length`), 0, "buttons stay")
	b.follow("#away a")
	b.arrives(g.url() + "/login?next=%2Flocks%2Fshop%3Atill")
	b.visit(g.url() + "/namespaces")
	b.arrives(g.url() + "/login?next=%2Fnamespaces&ended=1")
	b.says(".login", "The session has ended.")
}

// untilLoaded is until for a page that loads itself again meanwhile: while it goes it cannot be asked.
func (b *tab) untilLoaded(expression, what string) {
	b.t.Helper()
	eventually(b.t, patience, func() error {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		defer cancel()
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("document.readyState === 'complete' && Boolean("+expression+")"))
		if err == nil && !is {
			err = errors.New("not yet")
		}
		return err
	}, "%s", what)
}

// beside opens another tab of the same browser, with the same cookies.
func (b *tab) beside() *tab {
	b.t.Helper()
	other := newTab(b.t, func(t testing.TB) context.Context {
		ctx, cancel := chromedp.NewContext(b.ctx)
		t.Cleanup(cancel)
		assert.NoError(t, chromedp.Do(ctx), "opening a tab")
		return ctx
	})
	other.host = b.host
	other.listen()
	return other
}

func TestAPageFollowsTheRulesAndTheLogoutOfItsUser(t *testing.T) {
	t.Parallel()
	g, _ := sharedGateway(t)
	text := g.token("shop-ann")
	g.hold("shop:till", "ttl=5m&owner=alice", bearer(text))
	b := openBrowser(t, g.url())
	b.resize(desktop, "light")
	b.visit(g.url() + "/locks/shop:till")
	b.arrives(g.url() + "/login?next=%2Flocks%2Fshop%3Atill")
	b.logIn(text, g.url()+"/locks/shop:till")
	b.untilLink("live")
	eval[int](b, "window.sinceTheBeginning = 1")
	other := b.beside()
	other.visit(g.url() + "/namespaces")
	other.untilLink("live")

	file := strings.TrimPrefix(g.flags[len(g.flags)-1], "--auth-file=")
	rules := string(assert.Value(os.ReadFile(file))(t))
	assert.NoError(t, os.WriteFile(file, []byte(strings.Replace(rules, `locks: "shop:*", verbs: [acquire]`, `locks: "shop:*", verbs: [operate]`, 1)), 0o600))
	b.expectOutage(true) // a gateway that closes the socket lets it be opened again
	b.untilLoaded(`!window.sinceTheBeginning && document.querySelector("[data-act=break]") && !document.querySelector("[data-act=revoke]")`, "the page has the buttons of the new rules")
	b.untilLoaded(`document.querySelector("#link")?.dataset.link === "live"`, "the page is live")

	other.expectOutage(true) // its socket may try again before the page asks who it is
	b.follow(".viewer form button")
	b.arrives(g.url() + "/login?out=1")
	other.arrives(g.url() + "/login?next=%2Fnamespaces")
}

func TestAUserLogsInThroughTheIssuer(t *testing.T) {
	t.Parallel()
	g, issuer := sharedGateway(t)
	issuer.User(map[string]any{"sub": "bob", "groups": []string{"bank", "staff"}})
	g.hold("bank:till", "ttl=5m&owner=alice", bearer(g.token("bank-ci")))
	b := openBrowser(t, g.url())
	b.also = assert.Value(url.Parse(issuer.URL))(t).Host
	b.resize(desktop, "light")
	b.visit(g.url() + "/locks/bank:till")
	b.arrives(g.url() + "/login?next=%2Flocks%2Fbank%3Atill")
	b.shot("login-issuer")
	b.follow(".login-issuers a")
	b.arrives(g.url() + "/locks/bank:till")
	b.untilLink("live")
	b.says(".viewer", "corp:bob", "Log out")
	b.press("#queue .holder [data-act=break]")
	b.fill("#ask-break [name=reason]", "stuck")
	b.press("#ask-break [data-confirm]")
	b.says("#done", "alice was removed.")
	b.says("#history", "stuck")

	b.follow(".viewer form button")
	b.arrives(g.url() + "/login?out=1")
	issuer.Answers(url.Values{"error": {"access_denied"}})
	b.expectOutage(true) // 401
	b.follow(".login-issuers a")
	b.untilLoaded(`document.querySelector(".login [role=alert]:not([hidden])")?.innerText.includes("did not let you in")`, "a refusal of the issuer is shown")
	b.shot("login-issuer-refused")
}
