package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"lockkeeper"
	"lockkeeper/docs"
	"lockkeeper/internal/docsite"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// documentation are the addresses of all pages of the documentation, and of one page of each other kind in its look.
func documentation(t testing.TB) []string {
	t.Helper()
	site := &docsite.Site{Files: docs.Files, OpenAPI: lockkeeper.OpenAPI}
	pages := []string{"/problems/held_by_other"}
	for _, at := range assert.Value(site.Paths())(t) {
		if strings.HasPrefix(assert.Value(site.Get(at))(t).Type, "text/html") {
			pages = append(pages, at)
		}
	}
	slices.Sort(pages)
	return pages
}

// Each kind of page is shown in each window and each scheme of colours, all others in one of them; with LOCKKEEPER_FULL all
// in each. The browser itself notes each request to another host, each refusal of the policy, and each error (check).
func TestEveryPageOfTheDocumentationIsAccessible(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	b := openBrowser(t, g.url())
	kinds := []string{"/docs", "/docs/glossary", "/docs/api", "/docs/api/leases", "/problems/held_by_other"}
	for i, at := range documentation(t) {
		b.visit(g.url() + at)
		shown := everyLook
		if !slices.Contains(kinds, at) && os.Getenv("LOCKKEEPER_FULL") == "" {
			shown = everyLook[i%len(everyLook):][:1]
		}
		for _, l := range shown {
			b.resize(l.window, l.scheme)
			b.flawless(at + " " + l.String())
			b.shot("docs" + strings.ReplaceAll(at, "/", "-") + "-" + l.String())
			width := eval[int64](b, "innerWidth")
			wide := eval[int64](b, "document.documentElement.scrollWidth")
			assert.That(t, wide <= width, "%s is %d wide in a window of %d", at, wide, width)
		}
	}
}

func TestABlockOfTheDocumentationIsCopied(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	b := openBrowser(t, g.url())
	b.visit(g.url() + "/docs/api")
	link := eval[string](b, `[...document.querySelectorAll(".operations a")].map((a) => a.href).find((h) => h.endsWith("#ListLocks"))`)
	b.visit(link)
	const block = `document.querySelector("[aria-labelledby=ListLocks] .code")`
	assert.Equal(t, eval[string](b, block+`.querySelector("pre").textContent`), "curl localhost:8080/v1/locks", "the line")
	eval[int](b, `(navigator.clipboard.writeText = async (text) => { window.copied = text }, `+block+`.querySelector("button").click(), 1)`)
	b.until(`window.copied === "curl localhost:8080/v1/locks"`, "the button copies the line")
}

// commands are those that the reference shows, by the ids of their operations.
func (g *gateway) commands() map[string]string {
	g.t.Helper()
	found := map[string]string{}
	for _, at := range documentation(g.t) {
		if !strings.HasPrefix(at, "/docs/api/") {
			continue
		}
		response := assert.Value(http.Get(g.url() + at))(g.t)
		page := assert.Value(html.Parse(response.Body))(g.t)
		assert.NoError(g.t, response.Body.Close())
		for n := range page.Descendants() {
			for _, a := range n.Attr {
				if command, ok := strings.CutPrefix(firstCode(n), "curl "); n.Data == "section" && a.Key == "aria-labelledby" && ok {
					found[a.Val] = command
				}
			}
		}
	}
	return found
}

// firstCode is the first block of code in an element.
func firstCode(n *html.Node) string {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && d.Data == "pre" {
			return d.FirstChild.FirstChild.Data
		}
	}
	return ""
}

// Each command is run as it is shown, but for the gateway's address and that of a webhook's receiver. A conflict with what is
// there is an answer, too; a request that is no such request is not.
func TestEveryCommandOfTheReferenceIsARequestThatTheGatewayTakes(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t)
	g := startStandalone(t, "--webhook-allow=127.0.0.1")
	commands := g.commands()
	assert.Must(t, len(commands) > 30, "%d commands", len(commands))
	hook := post[api.Webhook](g, http.MethodPost, "/v1/webhooks", http.StatusCreated, "", apitest.JSON(fmt.Sprintf(`{"url": %q}`, receiver.URL)))
	for _, id := range slices.Sorted(maps.Keys(commands)) {
		if id == "DeleteWebhook" {
			continue // the last
		}
		lease := g.hold("deploy", "ttl=1m")
		znode := lease.Znode[strings.LastIndexByte(lease.Znode, '/')+1:]
		environment := []string{"LEASE_ID=" + lease.LeaseID, "LEASE_TOKEN=" + lease.Token, fmt.Sprint("FENCING_TOKEN=", lease.FencingToken), "NAME=" + znode,
			"WEBHOOK_ID=" + hook.ID, "MESSAGE_ID=msg_abcdefghijklmnopqrstuvwxyz"}
		if strings.HasPrefix(id, "Acquire") || id == "GetPostmortem" || id == "ForgetPeriod" {
			g.letGo(lease.Token)
		}
		if id == "ForgetPeriod" {
			g.letGo(g.hold("deploy", "once_per=24h&period=2026-11-22").Token)
		}
		status := g.runCurl(strings.ReplaceAll(commands[id], "https://example.com", receiver.URL), environment)
		assert.That(t, status[0] == '2' || status == "101" || status == "409", "%s is answered with %s: curl %s", id, status, commands[id])
		post[any](g, http.MethodPost, "/v1/locks/deploy/destroy", http.StatusOK, "")
	}
	assert.Equal(t, g.runCurl(commands["DeleteWebhook"], []string{"WEBHOOK_ID=" + hook.ID}), "204", "DeleteWebhook")
}

// runCurl runs curl in a shell, up to the first line of the answer, and returns its status.
func (g *gateway) runCurl(arguments string, environment []string) (status string) {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec curl -sSi "+strings.ReplaceAll(arguments, "localhost:8080", g.listen))
	cmd.Env = append(os.Environ(), environment...)
	output := assert.Value(cmd.StdoutPipe())(g.t)
	assert.NoError(g.t, cmd.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	cancel() // a stream goes on
	_ = cmd.Wait()
	words := strings.Fields(line)
	assert.Must(g.t, err == nil && len(words) > 1, "curl %s: %q, %v", arguments, line, err)
	return words[1]
}

// Without a script nothing is lost but the buttons.
func TestTheDocumentationNeedsNoScript(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	for at, want := range map[string]string{"/docs": `href="/docs/api"`, "/docs/api/leases": "localhost:8080/v1/locks/", "/": `href="/docs"`, "/docs/glossary": `<a href="/gateways">Gateways</a>`} {
		response := assert.Value(http.Get(g.url() + at))(t)
		defer response.Body.Close()
		body := string(assert.Value(io.ReadAll(response.Body))(t))
		assert.That(t, response.StatusCode == http.StatusOK && strings.Contains(body, want), "%s lacks %s: %s", at, want, fmt.Sprintf("%.500s", body))
	}
}
