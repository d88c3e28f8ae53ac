package e2e

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// From the empty list to the deletion, as a user with a browser does it; the receiver is gone for a while.
func TestAWebhookIsRunFromItsPages(t *testing.T) {
	t.Parallel()
	var status, came atomic.Int64
	var team atomic.Value // what came in that header
	status.Store(http.StatusNoContent)
	// Only a client with its certificate trusts it.
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came.Add(1)
		team.Store(r.Header.Get("X-Team"))
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(receiver.Close)
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw}))
	g := onShared(t, "--webhook-allow=127.0.0.1")
	page := openPage(t, g, "/webhooks")
	page.says("#webhooks", "No webhooks yet")
	page.press("[data-act=hook-create]")
	page.fill("#ask-hook-create [name=url]", "http://10.0.0.1/hook")
	page.expectOutage(true) // the browser complains of the 422
	page.press("#ask-hook-create [data-confirm]")
	page.says("#ask-hook-create [data-error=url]", "private")
	page.fill("#ask-hook-create [name=url]", receiver.URL+"/hook-of-ours?token=in-the-query")
	page.fill("#ask-hook-create [name=headers]", "X-Team: north by northwest\nAuthorization: Bearer 42")
	page.fill("#ask-hook-create [name=ca]", "-----BEGIN CERTIFICATE-----")
	page.press("#ask-hook-create [data-confirm]")
	page.says("#ask-hook-create [data-error=ca]", "certificates in PEM")
	page.expectOutage(false)
	page.shot("webhook-create-refused")
	page.accessible("a webhook that was refused")
	page.fill("#ask-hook-create [name=ca]", certificate)
	page.fill("#ask-hook-create [name=description]", "the board")
	page.press("#ask-hook-create [data-confirm]")
	page.says("#ask-hook-create [data-value]", "whsec_")
	secret := eval[string](page, `document.querySelector("#ask-hook-create [data-value]").textContent`)
	page.press("#ask-hook-create [data-confirm]")
	page.says("#webhooks", "the board", receiver.URL+"/...")
	page.says("#webhooks", "enabled")
	page.notReloaded()

	page.visit(g.url() + eval[string](page, `document.querySelector("#webhooks tbody a").getAttribute("href")`))
	page.untilLink("live")
	id := strings.TrimPrefix(eval[string](page, "location.pathname"), "/webhooks/")
	page.press("#act-hook-test")
	page.press("#ask-hook-test [data-confirm]")
	page.says("#done", "The receiver accepted the test: 204.")
	page.says("#attempts", "webhook.test")
	assert.Equal(t, team.Load(), "north by northwest", "X-Team")
	assert.That(t, !eval[bool](page, `/hook-of-ours|in-the-query/.test(document.documentElement.outerHTML)`),
		"the page has the path of the address")
	// Two edit it. The one who is slower is told, and writes nothing over the other's change.
	page.press("#act-hook-edit")
	page.until(`document.querySelector("#ask-hook-edit [name=description]").value === "the board"`, "it is there as it is")
	page.says("#ask-hook-edit [data-names]", "Authorization", "X-Team")
	a, err := g.Send(t.Context(), "PATCH", "/v1/webhooks/"+id, apitest.JSON(`{"locks":"deploy*"}`))
	assert.Must(t, err == nil && a.Status == 200, "%v %v", err, a)
	page.fill("#ask-hook-edit [name=description]", "the new board")
	page.resize(phone, "dark")
	page.expectOutage(true)
	page.press("#ask-hook-edit [data-confirm]")
	page.says("#ask-hook-edit [data-again]", "This webhook was changed")
	page.expectOutage(false)
	showInLooks(page, "webhook-edit-stale")
	page.press("#ask-hook-edit [data-load]")
	page.until(`document.querySelector("#ask-hook-edit [name=locks]").value === "deploy*"`, "what the other wrote is there")
	page.fill("#ask-hook-edit [name=description]", "the new board")
	page.fill("#ask-hook-edit [name=headers]", "X-Team: south")
	page.press("#ask-hook-edit [name=drop][value=Authorization]")
	showInLooks(page, "webhook-edit")
	page.press("#ask-hook-edit [data-confirm]")
	page.says("#done", "The webhook was changed.")
	page.says("#webhook-head", "the new board", "every end of deploy*", "X-Team")
	page.until(`!document.querySelector("#webhook-head").innerText.includes("Authorization")`, "it is removed")
	page.press("#act-hook-test")
	page.press("#ask-hook-test [data-confirm]")
	page.until(`document.querySelectorAll("#attempts tbody tr").length === 2`, "it was tried once more")
	if got := team.Load(); got != "south" || eval[bool](page, `/north by|south|Bearer 42|hook-of-ours|in-the-query/.test(document.documentElement.outerHTML)`) {
		t.Errorf("X-Team is %q, or the page says what was sent or where to", got)
	}
	assert.That(t, !eval[bool](page, `[...document.querySelectorAll("textarea")].some((e) => e.value !== "")`),
		"a form still has what was written")
	// The receiver wants no more: the release becomes a dead letter, and its webhook is disabled.
	status.Store(http.StatusGone)
	g.letGo(g.hold("deploy", "ttl=5m&owner=alice").Token)
	page.says("#webhook-head", "disabled by its receiver")
	page.says("#dead-letters", "lease.released")
	status.Store(http.StatusNoContent)
	page.press("#act-hook-enable")
	page.press("#ask-hook-enable [data-confirm]")
	page.says("#done", "The webhook is enabled.")
	page.until(`document.querySelector("#act-hook-replay")`, "it can be replayed")
	page.eachLook(func(look string) {
		for _, act := range []string{"", "replay", "rotate", "delete"} {
			what := strings.Join([]string{"webhook", act, look}, "-")
			if act != "" {
				page.press("#act-hook-" + act)
			}
			page.shot(what)
			page.accessible(what)
			if act != "" {
				page.press("#ask-hook-" + act + " [data-close]")
				page.until(`!document.querySelector("dialog[open]")`, "it is closed")
			}
		}
	})
	before := came.Load()
	page.press("#act-hook-replay")
	page.press("#ask-hook-replay [data-confirm]")
	page.says("#done", "1 message is sent again.")
	page.says("#dead-letters", "None.")
	assert.That(t, came.Load() == before+1, "%d came", came.Load()-before)
	page.press("#act-hook-rotate")
	page.press("#ask-hook-rotate [data-confirm]")
	page.says("#ask-hook-rotate [data-value]", "whsec_")
	page.shot("webhook-secret")
	page.accessible("a new secret")
	assert.That(t, eval[string](page, `document.querySelector("#ask-hook-rotate [data-value]").textContent`) != secret,
		"the secret is the old one")
	page.press("#ask-hook-rotate [data-confirm]")
	page.says("#webhook-head", "Old secret")
	page.until(`!document.documentElement.outerHTML.includes("whsec_")`, "the page has no secret any more") // a dialog tells a little later that it was closed
	page.press("#act-hook-delete")
	page.press("#ask-hook-delete [data-confirm]")
	eventually(t, patience, func() error { return g.status("GET", "/v1/webhooks/"+id, http.StatusNotFound) }, "it is deleted")
	page.arrives(g.url() + "/webhooks")
	page.untilLink("live")
	page.says("#webhooks", "No webhooks yet")
	told := false
	page.eachLook(func(look string) {
		page.press("[data-act=hook-create]")
		page.shot("webhook-create-" + look)
		eval[int](page, `(document.querySelector("#ask-hook-create summary").click(), 1)`)
		page.shot("webhook-create-all-" + look)
		page.accessible("a new webhook, " + look)
		page.press("#ask-hook-create [data-close]")
		page.until(`!document.querySelector("dialog[open]")`, "it is closed")
		if !told {
			a, err := g.Send(t.Context(), "POST", "/v1/webhooks", apitest.JSON(`{"url":"`+receiver.URL+`","locks":"deploy:*","events":["lease.expired"]}`))
			assert.Must(t, err == nil && a.Status == 201, "%v %v", err, a)
			page.says("#webhooks", "deploy:*")
			told = true
		}
		page.shot("webhooks-" + look)
		page.accessible("webhooks, " + look)
	})
	a, err = g.Send(t.Context(), "GET", "/v1/webhooks/"+id)
	assert.That(t, err == nil && a.Status == 404, "%v %v", err, a)
}

// showInLooks takes pictures and checks the page in each look.
func showInLooks(page *tab, what string) {
	page.t.Helper()
	page.eachLook(func(look string) {
		page.shot(what + "-" + look)
		page.accessible(what + ", " + look)
	})
}
