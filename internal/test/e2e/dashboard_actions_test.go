package e2e

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// press clicks the first element that the selector finds, and fill writes into one. Looking and clicking are one step: what
// comes to the page in between may replace the element. A dialog may come a moment later: its script is loaded when it is first needed.
func (b *tab) press(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`((e) => e?.disabled === false && (window.pressed = e.dataset.act, e.click(), true))(document.querySelector(%s))`, quoted(selector)), selector+" can be pressed")
	b.until(`((on) => !on || on.open)(document.querySelector("#ask-" + window.pressed))`, selector+" opens its dialog")
}

func (b *tab) fill(selector, value string) {
	b.t.Helper()
	eval[int](b, fmt.Sprintf(`((e) => { e.value = %s; e.dispatchEvent(new Event("input", {bubbles: true})); return 1; })(document.querySelector(%s))`, quoted(value), quoted(selector)))
}

func TestHoldersAreAskedToReleaseFromThePage(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	alice := g.hold("deploy", "ttl=5m&owner=alice")
	g.patiently("deploy", "ttl=5m&owner=bob")
	page := openPage(t, g, "/locks/deploy")
	page.press("[data-act=revoke]")
	page.says("#ask-revoke", "Will ask:", "alice")
	page.fill("#ask-revoke [name=reason]", "maintenance <b>tonight</b>")
	page.press("#ask-revoke [data-confirm]")
	page.says("#done", "Asked alice to release.")
	page.says(row("alice"), "Asked to release", "maintenance <b>tonight</b>")
	if beat := g.beat(alice.Token, api.StateHeld); beat.RevokeRequested == nil || beat.RevokeRequested.Reason != "maintenance <b>tonight</b>" {
		t.Errorf("the heartbeat tells %+v", beat.RevokeRequested)
	}
	// Then by force.
	page.press("[data-act=revoke]")
	page.fill("#ask-revoke [name=reason]", "now")
	page.fill("#ask-revoke [name=force_after]", "2s")
	page.press("#ask-revoke [data-confirm]")
	page.says(row("alice"), "ends in")
	page.says("#history", "revoked", "by an administrator")
	page.until(`!document.querySelector('`+row("alice")+`')`, "alice is gone")
	page.until(`document.querySelector('#queue .holder[data-who="bob"]')`, "bob holds")
	page.notReloaded()
}

func TestContendersAreBrokenFromThePage(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	g.hold("deploy", "ttl=5m&owner=alice")
	g.patiently("deploy", "ttl=5m&owner=bob")
	g.foreign(t).put("/lockkeeper/locks/deploy/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-", []byte("10.0.3.17"))
	g.patiently("deploy", "ttl=5m&owner=carol")
	page := openPage(t, g, "/locks/deploy")
	for _, c := range []struct{ row, says string }{
		{row("bob"), "It loses its place in line."},
		{"#queue .is-foreign", "It belongs to another program"},
		{row("alice"), "may go on working"},
	} {
		page.until(`document.querySelector('`+c.row+`')`, "it is there")
		id := eval[string](page, `document.querySelector('`+c.row+`').id`)
		page.press(c.row + " [data-act=break]")
		page.says("#ask-break", c.says)
		page.fill("#ask-break [name=reason]", "stuck")
		page.press("#ask-break [data-confirm]")
		page.says("#done", "was removed")
		page.until(`!document.getElementById(`+quoted(id)+`)`, "it is gone from the page")
	}
	page.until(`document.querySelector('#queue .holder[data-who="carol"]')`, "carol holds")
	page.says("#history", "by an administrator: stuck")
	// One who is gone: the gateway says so, in the dialog.
	page.press(row("carol") + " [data-act=break]")
	eval[int](page, `(window.fetch = ((f) => (url, o) => f("/v1/locks/deploy/contenders/gone-lock-0000000099/break", o))(window.fetch), 1)`)
	page.expectOutage(true) // the browser complains of the 404
	page.fill("#ask-break [name=reason]", "stuck")
	page.press("#ask-break [data-confirm]")
	page.until(`document.querySelector("#ask-break [data-problem]").textContent.length > 20`, "it says what went wrong")
	page.notReloaded()
}

func TestALockIsReapedAndDestroyedFromThePage(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	g.hold("deploy", "ttl=5m&owner=alice")
	g.patiently("deploy", "ttl=5m&owner=nightly")
	g.patiently("deploy", "ttl=5m&owner=nightly")
	g.patiently("deploy", "ttl=5m&owner=bob")
	g.foreign(t).put("/lockkeeper/locks/deploy/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-", []byte("10.0.3.17"))
	page := openPage(t, g, "/locks/deploy")
	page.until(`document.querySelectorAll("#queue .waiter").length === 4`, "all are there")
	page.press("[data-act=reap]")
	page.fill("#ask-reap [name=owner]", "nightly")
	page.press("#ask-reap [data-preview]")
	page.says("#ask-reap", "Will remove 2 contenders.", "nightly", "waiting at 1")
	n := eval[int](page, `document.querySelectorAll("#queue .waiter").length`)
	assert.That(t, n == 4, "a look has ended a contender: %d wait", n)
	page.fill("#ask-reap [name=reason]", "stuck")
	page.press("#ask-reap [data-confirm]")
	page.says("#done", "Removed 2 contenders.")
	page.until(`document.querySelectorAll("#queue .waiter").length === 2`, "they are gone")

	page.press("[data-act=destroy]")
	page.says("#ask-destroy", "Ends 3 contenders, 1 of other programs.", "alice", "bob")
	page.fill("#ask-destroy [name=typed]", "deploy")
	page.fill("#ask-destroy [name=reason]", "stuck")
	page.press("#ask-destroy [data-confirm]")
	page.says("#done", "The lock was destroyed: 3 contenders ended, 1 of other programs.")
	page.says("#queue", "This lock is free")
	page.says("#history", "lock destroyed")
	assert.That(t, !eval[bool](page, `Boolean(document.querySelector("[data-act]:not([data-act=reserve])"))`), "there is no contender left to act on")
	page.notReloaded()
}

// several takes, or queues for, several locks at once.
func (g *gateway) several(query string) (lease api.Lease) {
	g.t.Helper()
	a, err := g.Send(g.t.Context(), http.MethodPost, "/v1/leases", apitest.Query(query), apitest.Query("async=true"))
	assert.Must(g.t, err == nil && (a.Status == http.StatusCreated || a.Status == http.StatusAccepted), "%v, %+v", err, a)
	assert.NoError(g.t, json.Unmarshal(a.Body, &lease))
	return lease
}

// patiently queues as a client that heartbeats until the test is over.
func (g *gateway) patiently(lock, query string) (lease api.Lease) {
	g.t.Helper()
	lease = g.queue(lock, query)
	g.keepAlive(lease.Token)
	return lease
}

// says waits until an element shows all of the words.
func (b *tab) says(selector string, words ...string) {
	b.t.Helper()
	for _, w := range words {
		b.until(fmt.Sprintf(`document.querySelector(%s)?.innerText.includes(%s)`, quoted(selector), quoted(w)), selector+" says "+w)
	}
}

// row is a selector of the contender of that name.
func row(owner string) string { return `#queue [data-who="` + owner + `"]` }

func TestThePageShowsWhyAClientWaits(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	var readers []api.Lease
	for _, owner := range []string{"web-1", "web-2", "web-3"} {
		readers = append(readers, g.hold("catalogue", "ttl=5m&mode=shared&owner="+owner))
	}
	g.patiently("catalogue", "ttl=5m&owner=indexer")
	g.patiently("catalogue", "ttl=5m&mode=shared&owner=web-4")
	g.patiently("catalogue", "ttl=5m&mode=shared&owner=web-5")
	g.hold("gpu", "ttl=5m&mode=semaphore&limit=10&permits=4&owner=transcode-1")
	g.hold("gpu", "ttl=5m&mode=semaphore&limit=10&permits=3&owner=transcode-4")
	g.patiently("gpu", "ttl=5m&mode=semaphore&limit=10&permits=5&owner=transcode-2")
	blocker := g.hold("account:2", "ttl=5m&owner=audit")
	g.keepAlive(g.several("locks=account:1,account:2&ttl=5m&owner=mover").Token)
	g.patiently("account:1", "ttl=5m&owner=report")

	page := openPage(t, g, "/locks/catalogue")
	page.says("#queue", "Held by 3 readers together")
	page.says(row("indexer"), "waits for 3 readers")
	page.says(row("web-4"), "waits for the writer at 1; is granted with the next reader")
	g.letGo(readers[0].Token)
	page.says("#queue", "Held by 2 readers together")
	page.says(row("indexer"), "waits for web-2 and web-3")

	page.visit(g.url() + "/locks/gpu")
	page.says("#queue", "7 of 10 permits taken", "transcode-2 needs 5, 3 are free")
	page.says(row("transcode-2"), "needs 5 permits; those ahead leave 3 of 10")

	page.says("#lock-head", "limit 10")

	page.visit(g.url() + "/locks/account:1")
	page.untilLink("live")
	page.says("#lock-head", "queued", "0 holders")
	page.says("#queue", "The next in line is waiting for another lock of its group")
	page.says(row("mover"), "Next in line. Waiting for", "Waits for its other locks", "account:2")
	assert.Equal(t, eval[string](page, `document.querySelector("#queue .group a").pathname`), "/locks/account:2", "the link leads to")
	g.letGo(blocker.Token)
	page.says("#queue", "Held by")
	page.says(row("mover"), "Together with", "held")

	page.visit(g.url() + "/")
	page.says("#locks", "7 of 10", "shared")

	// A reentrant lease, and one that ends with its gateway's session.
	g.hold("warehouse", "ttl=5m&owner=nightly&hold=extract")
	g.hold("plain", "ttl=5m&owner=cron&ephemeral=true")
	page.visit(g.url() + "/locks/warehouse")
	page.says(row("nightly"), "Holds", "extract")
	page.visit(g.url() + "/locks/plain")
	page.says(row("cron"), "ephemeral")
}

func TestALockDelayIsSeenOnThePage(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	held := g.hold("deploy", "ttl=5m&owner=alice&lock_delay=3s&lock_delay_on=always")
	g.patiently("deploy", "ttl=5m&owner=bob")
	page := openPage(t, g, "/locks/deploy")
	g.letGo(held.Token)
	page.says("#lock-head", "delayed", "no holder")
	page.says("#queue", "In lock delay")
	page.says(row("alice"), "lock delay", "released")
	page.says(row("bob"), "waits for the end of alice's lock delay")
	page.until(`document.querySelector('#queue .holder[data-who="bob"]')`, "then bob holds")
	page.notReloaded()
}

// From the empty list to the deletion, as a user with a browser does it; the receiver is gone for a while.
func TestWhatWaitsForAMendedReceiverIsDeliveredWithOneClick(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	var delivered atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		delivered.Add(1)
	}))
	t.Cleanup(receiver.Close)
	g := onShared(t, "--webhook-allow=127.0.0.1")
	hook := post[api.Webhook](g, "POST", "/v1/webhooks?url="+receiver.URL, http.StatusCreated, "")
	page := openPage(t, g, "/webhooks/"+hook.ID)
	for i := range 8 {
		assert.Value(g.Release(t.Context(), g.hold(fmt.Sprint("delivered", i), "ttl=5m&owner=alice").Token))(t)
	}
	page.says("#webhook-head", "failing", "8 waiting", "next try in")
	broken.Store(false)
	page.press("#act-hook-deliver")
	page.says("#done", "8 messages are tried now.")
	page.says("#webhook-head", "enabled", "0 waiting")
	assert.Equal(t, delivered.Load(), 8, "were delivered")
	page.until(`!document.querySelector("#act-hook-deliver")`, "nothing is left to deliver")
	page.notReloaded()
}

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
	page.flawless("a webhook that was refused")
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
	page.says("#done", "Webhook saved.")
	page.says("#webhook-head", "the new board", "all endings of deploy*", "X-Team")
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
			page.flawless(what)
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
	page.flawless("a new secret")
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
		page.flawless("a new webhook, " + look)
		page.press("#ask-hook-create [data-close]")
		page.until(`!document.querySelector("dialog[open]")`, "it is closed")
		if !told {
			a, err := g.Send(t.Context(), "POST", "/v1/webhooks", apitest.JSON(`{"url":"`+receiver.URL+`","locks":"deploy:*","events":["lease.expired"]}`))
			assert.Must(t, err == nil && a.Status == 201, "%v %v", err, a)
			page.says("#webhooks", "deploy:*")
			told = true
		}
		page.shot("webhooks-" + look)
		page.flawless("webhooks, " + look)
	})
	a, err = g.Send(t.Context(), "GET", "/v1/webhooks/"+id)
	assert.That(t, err == nil && a.Status == 404, "%v %v", err, a)
}

// showInLooks takes pictures and checks the page in each look.
func showInLooks(page *tab, what string) {
	page.t.Helper()
	page.eachLook(func(look string) {
		page.shot(what + "-" + look)
		page.flawless(what + ", " + look)
	})
}
