package e2e

import (
	"net/url"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// Another team's locks, owners, hosts and waits appear in no search, on no owner's page, and not in the graph.
func TestTheSearchAndThePagesOfOwnersShowATeamItsOwnAlone(t *testing.T) {
	t.Parallel()
	g, _ := sharedGateway(t)
	shop, bank := g.token("shop-ci"), g.token("bank-ci")
	g.hold("shop:till", "ttl=5m&"+owner("ann@shop-1"), bearer(shop))
	secret := g.hold("bank:vault", "ttl=5m&"+owner("zed@bank-1"), bearer(bank))
	g.queue("bank:vault", "ttl=5m&"+owner("yve@bank-1"), bearer(bank))
	g.hold("bank:other", "ttl=5m&"+owner("ann@shop-1"), bearer(bank)) // the same owner's name
	b := openBrowser(t, g.url())
	b.resize(desktop, "light")
	b.visit(g.url() + "/graph")
	b.arrives(g.url() + "/login?next=%2Fgraph")
	b.logIn(shop, g.url()+"/graph")
	b.untilLink("live")
	for _, path := range []string{"/graph", "/owners/ann@shop-1", "/owners/zed@bank-1", "/hosts/bank-1"} {
		b.visit(g.url() + path)
		b.untilLink("live")
		text := eval[string](b, `document.querySelector("#graph, #owned").innerText`)
		for _, hidden := range []string{"bank:", "yve", "zed"} {
			assert.That(t, !strings.Contains(text, hidden), "%s shows %s: %s", path, hidden, text)
		}
		assert.Equal(t, strings.Contains(text, "shop:till"), path == "/owners/ann@shop-1", "%s: %s", path, text)
	}
	for _, text := range []string{"bank", "zed", "yve", secret.LeaseID, secret.LeaseID[len(secret.LeaseID)-8:], secret.Znode, "bank-1"} {
		html := eval[string](b, `fetch("/ui/search?`+url.Values{"q": {text}}.Encode()+`").then((a) => a.text())`)
		assert.That(t, strings.Contains(html, "data-results") && !strings.Contains(html, "href=\"/locks/") && !strings.Contains(html, "/owners/") && !strings.Contains(html, "/hosts/"), "%s finds %s", text, html)
	}
	html := eval[string](b, `fetch("/ui/search?q=ann").then((a) => a.text())`)
	assert.That(t, strings.Contains(html, "1 holder, 0 waiting"), "what another team may see of the owner counts: %s", html)
}
