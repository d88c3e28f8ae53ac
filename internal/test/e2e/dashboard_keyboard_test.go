package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/assert"
)

// farthest is how often the Tab key is pressed for one thing before it counts as out of reach.
const farthest = 60

// byTab goes on with the Tab key until it comes to an element, which must be seen to have the focus.
func (b *tab) byTab(selector string) {
	b.t.Helper()
	var passed []string
	for range farthest {
		if eval[bool](b, `document.activeElement.matches(`+quoted(selector)+`)`) {
			seen := eval[bool](b, `((e) => e.matches(":focus-visible") && e.checkVisibility({visibilityProperty: true, opacityProperty: true}) && getComputedStyle(e).outlineStyle !== "none" && parseFloat(getComputedStyle(e).outlineWidth) >= 1)(document.activeElement)`)
			assert.That(b.t, seen, "the focus on %s is not to be seen", selector)
			return
		}
		b.key(kb.Tab)
		passed = append(passed, eval[string](b, `((e) => e.id || e.name || e.dataset.act || e.className || e.tagName)(document.activeElement)`))
	}
	b.t.Fatalf("the Tab key does not come to %s, but to %s", selector, strings.Join(passed, ", "))
}

// push comes to a button by the Tab key and presses it with a key.
func (b *tab) push(selector, key string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`((e) => e && !e.disabled)(document.querySelector(%s))`, quoted(selector)), selector+" can be pressed")
	b.byTab(selector)
	b.key(key)
}

// write comes to a field by the Tab key and types.
func (b *tab) write(selector, text string) {
	b.t.Helper()
	b.byTab(selector)
	b.key(text)
}

// asks opens a dialog with a button, by the keyboard: Escape closes it and gives the focus back, then it is opened again.
func (b *tab) asks(button, dialog string) {
	b.t.Helper()
	for _, key := range []string{" ", kb.Enter} {
		b.push(button, key)
		b.until(`document.querySelector(`+quoted(dialog)+`).open`, button+" opens "+dialog)
		b.until(`document.querySelector(`+quoted(dialog)+`).contains(document.activeElement)`, "the focus is in "+dialog)
		if key == " " {
			b.key(kb.Escape)
			b.until(`!document.querySelector("dialog[open]")`, "Escape closes "+dialog)
			b.until(`document.activeElement.matches(`+quoted(button)+`) || document.activeElement.matches("[data-row]")`, "the focus is back on the button or in its row")
		}
	}
}

// confirms presses the last button of a dialog.
func (b *tab) confirms(dialog string) {
	b.t.Helper()
	b.push(dialog+" [data-confirm]", kb.Enter)
}

// Each dialog of a lock, without a mouse.
func TestAQueueIsRunByTheKeyboard(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	alice := g.hold("deploy", "ttl=5m&owner=alice")
	g.patiently("deploy", "ttl=5m&owner=bob")
	g.patiently("deploy", "ttl=5m&owner=carol")
	page := openPage(t, g, "/locks/deploy")
	page.until(`document.querySelectorAll("#queue .waiter").length === 2`, "two wait")

	page.asks("#act-revoke", "#ask-revoke")
	page.write("#ask-revoke [name=reason]", "maintenance")
	page.write("#ask-revoke [name=force_after]", "10m")
	page.confirms("#ask-revoke")
	page.says("#done", "Asked alice to release.")
	assert.That(t, g.beat(alice.Token, api.StateHeld).RevokeRequested != nil, "alice is not asked")
	page.push("#queue [data-withdraw]", kb.Enter)
	page.says("#done", "Withdrawn: alice is not asked to release any more.")

	// The rows: j and k go from one to the next, the Tab key to the buttons of the one that has the focus.
	eval[int](page, `(document.activeElement.blur(), 1)`)
	page.key("j")
	page.key("j")
	page.key(kb.ArrowDown)
	assert.Equal(t, eval[string](page, `document.activeElement.dataset.who`), "carol")
	page.key("k")
	assert.Equal(t, eval[string](page, `document.activeElement.dataset.who`), "bob")
	page.push(row("bob")+" [data-tell]", " ")
	page.until(`document.querySelector('`+row("bob")+` [data-tell]').ariaPressed === "true"`, "the viewer will be told")
	page.key(" ")
	page.until(`document.querySelector('`+row("bob")+` [data-tell]').ariaPressed === "false"`, "and will not")
	page.asks(row("bob")+" [data-act=break]", "#ask-break")
	page.write("#ask-break [name=reason]", "stuck")
	page.confirms("#ask-break")
	page.says("#done", "bob was removed.")
	page.until(`!document.querySelector('`+row("bob")+`')`, "bob is gone")

	page.asks("#act-reserve", "#ask-reserve")
	page.write("#ask-reserve [name=owner]", "mia")
	page.write("#ask-reserve [name=reason]", "load test")
	page.push("#ask-reserve [name=queue]", " ")
	page.push("#ask-reserve [name=queue]", " ") // off, and on again
	page.confirms("#ask-reserve")
	page.until(`document.activeElement.textContent.startsWith("lk1.")`, "the focus is on the lease token")
	page.push("#ask-reserve [data-copy-secret]", kb.Enter)
	page.until(`document.querySelector("#ask-reserve [data-copied]").textContent !== ""`, "it is copied, or selected")
	page.confirms("#ask-reserve")
	page.until(`!document.querySelector("dialog[open]")`, "it is closed")
	page.says(row("mia"), "load test")

	page.asks("#act-reap", "#ask-reap")
	page.write("#ask-reap [name=state]", "w")
	assert.Equal(t, eval[string](page, `document.activeElement.value`), "waiting")
	page.push("#ask-reap [data-preview]", kb.Enter)
	page.says("#ask-reap", "Will remove 2 contenders.", "carol", "mia")
	page.write("#ask-reap [name=reason]", "stale")
	page.confirms("#ask-reap")
	page.says("#done", "Removed 2 contenders.")

	page.asks("#act-destroy", "#ask-destroy")
	page.says("#ask-destroy", "Ends 1 contender.", "alice")
	page.write("#ask-destroy [name=reason]", "obsolete")
	page.write("#ask-destroy [name=typed]", "deploy")
	page.confirms("#ask-destroy")
	page.says("#done", "The lock was destroyed: 1 contender ended.")

	// The others: the keys and the owner's leases.
	eval[int](page, `(document.activeElement.blur(), 1)`)
	page.key("?")
	page.until(`document.querySelector("#help").open`, "? shows the keys")
	page.push("#help form button", kb.Enter)
	page.until(`!document.querySelector("#help").open`, "its button closes it")
	eve := g.hold("later", "ttl=5m&owner=eve")
	page.visit(g.url() + "/owners/eve")
	page.untilLink("live")
	page.asks("[data-act=ask-all]", "#ask-ask-all")
	page.write("#ask-ask-all [name=reason]", "maintenance")
	page.confirms("#ask-ask-all")
	page.says("#done", "Asked 1 lease to release.")
	assert.That(t, g.beat(eve.Token, api.StateHeld).RevokeRequested != nil, "eve is not asked")
}

// Each dialog of a webhook, without a mouse.
func TestAWebhookIsRunByTheKeyboard(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	status.Store(http.StatusNoContent)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	t.Cleanup(receiver.Close)
	g := onShared(t, "--webhook-allow=127.0.0.1")
	page := openPage(t, g, "/webhooks")

	page.asks("[data-act=hook-create]", "#ask-hook-create")
	page.write("#ask-hook-create [name=url]", receiver.URL+"/hook")
	page.write("#ask-hook-create [name=locks]", "deploy")
	page.push("#ask-hook-create summary", " ")
	page.write("#ask-hook-create [name=headers]", "X-Team: north")
	page.confirms("#ask-hook-create")
	page.until(`document.activeElement.textContent.startsWith("whsec_")`, "the focus is on the secret")
	page.confirms("#ask-hook-create")
	page.says("#webhooks", "enabled")

	eval[int](page, `(document.activeElement.blur(), 1)`)
	page.key("j")
	page.key(kb.Enter)
	page.untilLoaded(`location.pathname.startsWith("/webhooks/wh_") && document.querySelector("#link")?.dataset.link === "live"`, "its page")
	page.asks("#act-hook-test", "#ask-hook-test")
	page.confirms("#ask-hook-test")
	page.says("#done", "The receiver accepted the test: 204.")
	page.asks("#act-hook-edit", "#ask-hook-edit")
	page.until(`document.activeElement.name === "url"`, "what it is has been loaded")
	page.write("#ask-hook-edit [name=description]", "the board")
	page.push("#ask-hook-edit [name=drop]", " ")
	page.confirms("#ask-hook-edit")
	page.says("#done", "Webhook saved.")
	page.says("#webhook-head", "the board")

	status.Store(http.StatusGone)
	g.letGo(g.hold("deploy", "ttl=5m").Token)
	page.says("#webhook-head", "disabled by its receiver")
	page.says("#dead-letters", "lease.released")
	status.Store(http.StatusNoContent)
	page.asks("#act-hook-enable", "#ask-hook-enable")
	page.confirms("#ask-hook-enable")
	page.says("#done", "The webhook is enabled.")
	page.asks("#act-hook-replay", "#ask-hook-replay")
	page.confirms("#ask-hook-replay")
	page.says("#done", "1 message is sent again.")
	page.until(`!document.querySelector("#act-hook-replay")`, "nothing is left to replay")
	page.asks("#act-hook-rotate", "#ask-hook-rotate")
	page.confirms("#ask-hook-rotate")
	page.until(`document.activeElement.textContent.startsWith("whsec_")`, "the focus is on the new secret")
	page.confirms("#ask-hook-rotate")
	page.asks("#act-hook-disable", "#ask-hook-disable")
	page.confirms("#ask-hook-disable")
	page.says("#done", "The webhook is disabled.")
	page.asks("#act-hook-delete", "#ask-hook-delete")
	page.push("#ask-hook-delete [data-confirm]", kb.Enter)
	page.arrives(g.url() + "/webhooks")
	a := assert.Value(g.Send(t.Context(), http.MethodGet, "/v1/webhooks"))(t)
	var list struct{ Webhooks []json.RawMessage }
	assert.NoError(t, json.Unmarshal(a.Body, &list))
	assert.That(t, len(list.Webhooks) == 0, "%s", a.Body)
}
