package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/dashboard"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// examined are the pages of one gateway, and their dialogs, that axe-core has examined.
type examined struct {
	*tab
	g       *gateway
	paths   []string
	dialogs map[string]bool // by id; those that were seen in a page, and not examined yet, are false
	done    map[string]bool // by look and button
}

func examine(b *tab, g *gateway) *examined {
	return &examined{tab: b, g: g, dialogs: map[string]bool{}, done: map[string]bool{}}
}

// looksOf are those in which the page is examined: one of them, in turn; all with LOCKKEEPER_FULL.
func looksOf(n int) []look {
	if os.Getenv("LOCKKEEPER_FULL") != "" {
		return everyLook
	}
	return everyLook[n%len(everyLook):][:1]
}

// page examines a page, and each dialog that it opens and that was not examined in that look.
func (e *examined) page(path string, wrong bool) {
	e.t.Helper()
	for _, l := range looksOf(len(e.paths)) {
		e.expectOutage(wrong) // the console tells of a page that says what is wrong
		e.resize(l.window, l.scheme)
		e.visit(e.g.url() + path)
		e.until(`(document.querySelector("#link")?.dataset.link ?? "live") === "live"`, path+" is live")
		e.expectOutage(false)
		what := path + ", " + l.String()
		e.flawless(what)
		wide := eval[int](e.tab, "document.documentElement.scrollWidth")
		assert.That(e.t, wide <= int(l.width), "%s: %d wide", what, wide)
		for _, id := range eval[[]string](e.tab, `[...document.querySelectorAll("dialog")].map((d) => d.id)`) {
			e.dialogs[id] = e.dialogs[id] || false
		}
		for _, opener := range eval[[]string](e.tab, `[...new Set([...document.querySelectorAll("[data-act]:not(:disabled)")].map((b) => "[data-act=" + b.dataset.act + "]")), ...["#keys", "#search-open"].filter((s) => document.querySelector(s))]`) {
			e.dialog(opener, l)
		}
	}
	e.paths = append(e.paths, path)
}

// dialog examines the dialog that a button opens.
func (e *examined) dialog(opener string, l look) {
	e.t.Helper()
	if e.done[l.String()+opener] {
		return
	}
	e.done[l.String()+opener] = true
	e.press(opener)
	const open = `document.querySelector("dialog[open]")`
	e.until(open+`?.matches(":not([aria-busy])")`, opener+" opens a dialog")
	id := eval[string](e.tab, open+".id")
	if eval[bool](e.tab, `Boolean(`+open+`.querySelector("[data-preview]"))`) {
		e.press("#" + id + " [data-preview]")
	}
	if eval[bool](e.tab, `Boolean(`+open+`.querySelector("[data-hits]"))`) {
		e.until(open+`.querySelector("[data-hits] li")`, id+" says what it ends")
	}
	eval[int](e.tab, `(() => {
		const dialog = document.querySelector("dialog[open]");
		for (const details of dialog.querySelectorAll("details")) details.open = true;
		for (const place of dialog.querySelectorAll("[data-problem], [data-error]")) place.textContent = "It went wrong.";
		return 1;
	})()`)
	what := id + ", " + l.String()
	e.flawless(what)
	e.shot("dialog-" + strings.ReplaceAll(what, ", ", "-"))
	e.dialogs[id] = true
	eval[int](e.tab, `(document.querySelector("dialog[open]").close(), 1)`)
	e.until(`!document.querySelector("dialog[open]")`, "it is closed")
}

// all checks that no page and no dialog was forgotten.
func (e *examined) all() {
	e.t.Helper()
	for _, pattern := range (*dashboard.Dashboard)(nil).Paths() {
		prefix, below := strings.CutSuffix(pattern, "*")
		if prefix == "/ui/" || prefix == "/static/" {
			continue
		}
		assert.That(e.t, slices.ContainsFunc(e.paths, func(path string) bool {
			path, _, _ = strings.Cut(path, "?")
			return path == pattern || below && strings.HasPrefix(path, prefix) && path != prefix
		}), "no page of %s was examined", pattern)
	}
	for id, done := range e.dialogs {
		assert.That(e.t, done, "the dialog %s was not examined", id)
	}
}

// hook subscribes a receiver that answers with the status, and returns the path of the webhook's page.
func (g *gateway) hook(status int, locks string) string {
	g.t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	g.t.Cleanup(receiver.Close)
	a, err := g.Send(g.t.Context(), http.MethodPost, "/v1/webhooks", apitest.JSON(fmt.Sprintf(`{"url":%q,"locks":%q,"description":"the board","headers":{"X-Team":"north"}}`, receiver.URL, locks)))
	assert.Must(g.t, err == nil && a.Status == http.StatusCreated, "%v %v", err, a)
	var hook struct {
		ID string `json:"id"`
	}
	assert.NoError(g.t, json.Unmarshal(a.Body, &hook))
	return "/webhooks/" + hook.ID
}

func TestEveryPageAndEveryDialogCanBeUsedByEveryone(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot, "--namespace=python=/app/locks:kazoo", "--webhook-allow=127.0.0.1")
	f := newForeign(t, addr, chroot)
	fillForShow(t, g, f)
	deadlockOfThree(g)
	for _, path := range []string{"/app/locks/odd", "/app/locks/odd/stray"} {
		assert.Value(f.Create(f.chroot+path, nil, 0, zk.WorldACL(zk.PermAll)))(t)
	}
	g.hold("asked", "ttl=30m&owner=alice")
	g.patiently("asked", "ttl=30m&owner=bob")
	a, err := g.Send(t.Context(), http.MethodPost, "/v1/locks/asked/revoke", apitest.JSON(`{"reason":"maintenance","force_after":"20m"}`))
	assert.Must(t, err == nil && a.Status == http.StatusOK, "%v %v", err, a)
	a, err = g.Send(t.Context(), http.MethodPost, "/v1/locks/staging/leases", apitest.JSON(`{"for":"1h","owner":"mia","reason":"load test"}`))
	assert.Must(t, err == nil && a.Status == http.StatusCreated, "%v %v", err, a)
	enabled := g.hook(http.StatusNoContent, "deploy:*")
	disabled, again := g.hook(http.StatusGone, "gone"), g.hook(http.StatusGone, "gone")
	g.letGo(g.hold("gone", "ttl=5m").Token)

	b := openBrowser(t, g.url())
	e := examine(b, g)
	b.resize(desktop, "light")
	for _, hook := range []string{disabled, again} {
		b.visit(g.url() + hook)
		b.says("#webhook-head", "disabled by its receiver")
		b.says("#dead-letters", "lease.released")
	}
	a, err = g.Send(t.Context(), http.MethodPatch, "/v1"+again, apitest.JSON(`{"enabled":true}`))
	assert.Must(t, err == nil && a.Status == http.StatusOK, "%v %v", err, a)
	for _, path := range []string{
		"/", "/?q=nothing-has-this-name", "/?ns=python&state=hazard", "/pinned?pin=default/deploy:prod,default/transcode", "/wall?warn=1s", "/namespaces",
		"/owners/alice@laptop", "/hosts/fra1", "/graph", "/activity", "/gateways", "/webhooks", enabled, disabled, again,
		"/locks/billing:close-month", "/locks/billing:close-month?tab=zookeeper", "/locks/transcode", "/locks/cache:warm", "/locks/asked", "/locks/staging", "/locks/chain:2", "/locks/unused", "/locks/odd?ns=python",
		"/docs/api",
	} {
		e.page(path, false)
	}
	for _, path := range []string{"/nope", "/locks/no%20such%20name", "/locks/deploy?tab=nonsense", "/webhooks/" + url.PathEscape("no such")} {
		e.page(path, true)
	}
	e.all()
}

func TestTheLoginAndThePagesOfOneWhoHasLoggedInCanBeUsedByEveryone(t *testing.T) {
	t.Parallel()
	g, _ := sharedGateway(t)
	token := g.token("bank-ci")
	g.hold("bank:till", "ttl=5m&owner=teller", bearer(token))
	b := openBrowser(t, g.url())
	e := examine(b, g)
	e.page("/login?next=%2F", false)
	b.fill("[name=token]", "lkt_wrong")
	b.expectOutage(true)
	b.follow(".login-form button")
	b.untilLoaded(`document.querySelector(".login [role=alert]:not([hidden])")`, "the login is refused")
	b.expectOutage(false)
	b.flawless("a login that was refused")
	b.visit(g.url() + "/login?next=%2F")
	b.logIn(token, g.url()+"/")
	for _, path := range []string{"/", "/locks/bank:till", "/locks/shop:till"} {
		e.page(path, path == "/locks/shop:till")
	}
}
