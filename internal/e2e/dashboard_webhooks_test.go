package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"lockkeeper/internal/httpapi/apitest"
	"lockkeeper/internal/zk/zkreal"
)

// From the empty list to the deletion, as somebody with a browser does it; the receiver is gone for a while.
func TestAWebhookIsRunFromItsPages(t *testing.T) {
	t.Parallel()
	axe, err := os.ReadFile("testdata/axe-core/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	var status, came atomic.Int64
	status.Store(http.StatusNoContent)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		came.Add(1)
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(receiver.Close)
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot, "--webhook-allow=127.0.0.1")
	page := openPage(t, g, "/webhooks")
	page.says("#webhooks", "Nobody is told yet")
	page.press("[data-act=hook-create]")
	page.fill("#ask-hook-create [name=url]", "http://10.0.0.1/hook")
	page.expectOutage(true) // the browser complains of the 422
	page.press("#ask-hook-create [data-confirm]")
	page.says("#ask-hook-create [data-problem]", "Url: ")
	page.expectOutage(false)
	page.fill("#ask-hook-create [name=url]", receiver.URL+"/hook")
	page.fill("#ask-hook-create [name=description]", "the board")
	page.press("#ask-hook-create [data-confirm]")
	page.says("#ask-hook-create [data-value]", "whsec_")
	secret := eval[string](page, `document.querySelector("#ask-hook-create [data-value]").textContent`)
	page.press("#ask-hook-create [data-confirm]")
	page.says("#webhooks", "the board")
	page.says("#webhooks", "enabled")
	page.notReloaded()

	page.visit(g.url() + eval[string](page, `document.querySelector("#webhooks tbody a").getAttribute("href")`))
	page.untilLink("live")
	id := strings.TrimPrefix(eval[string](page, "location.pathname"), "/webhooks/")
	page.press("#act-hook-test")
	page.press("#ask-hook-test [data-confirm]")
	page.says("#done", "The receiver took the test: 204.")
	page.says("#attempts", "webhook.test")
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
	for _, look := range []struct {
		window
		scheme string
	}{{desktop, "light"}, {phone, "dark"}} {
		page.resize(look.window, look.scheme)
		for _, act := range []string{"", "replay", "rotate", "delete"} {
			what := strings.Join([]string{"webhook", act, look.scheme, fmt.Sprint(look.width)}, "-")
			if act != "" {
				page.press("#act-hook-" + act)
			}
			page.shot(what)
			checkAxe(t, page, string(axe), what)
			if act != "" {
				page.press("#ask-hook-" + act + " [data-close]")
				page.until(`!document.querySelector("dialog[open]")`, "it is closed")
			}
		}
	}
	before := came.Load()
	page.press("#act-hook-replay")
	page.press("#ask-hook-replay [data-confirm]")
	page.says("#done", "1 message is sent again.")
	page.says("#dead-letters", "None.")
	if came.Load() != before+1 {
		t.Errorf("%d came", came.Load()-before)
	}
	page.press("#act-hook-rotate")
	page.press("#ask-hook-rotate [data-confirm]")
	page.says("#ask-hook-rotate [data-value]", "whsec_")
	page.shot("webhook-secret")
	checkAxe(t, page, string(axe), "a new secret")
	if fresh := eval[string](page, `document.querySelector("#ask-hook-rotate [data-value]").textContent`); fresh == secret {
		t.Error("the secret is the old one")
	}
	page.press("#ask-hook-rotate [data-confirm]")
	page.says("#webhook-head", "Old secret")
	if eval[bool](page, `document.documentElement.outerHTML.includes("whsec_")`) {
		t.Error("the page still has a secret")
	}
	page.press("#act-hook-delete")
	page.press("#ask-hook-delete [data-confirm]")
	eventually(t, patience, func() error { return g.status("GET", "/v1/webhooks/"+id, http.StatusNotFound) }, "it is deleted")
	page.arrives(g.url() + "/webhooks")
	page.untilLink("live")
	page.says("#webhooks", "Nobody is told yet")
	for _, look := range []struct {
		window
		scheme string
	}{{desktop, "light"}, {phone, "dark"}} {
		page.resize(look.window, look.scheme)
		page.press("[data-act=hook-create]")
		page.shot("webhook-create-" + look.scheme)
		checkAxe(t, page, string(axe), "a new webhook, "+look.scheme)
		page.press("#ask-hook-create [data-close]")
		page.until(`!document.querySelector("dialog[open]")`, "it is closed")
		if look.scheme == "light" {
			if a, err := g.Send(t.Context(), "POST", "/v1/webhooks", apitest.JSON(`{"url":"`+receiver.URL+`","locks":"deploy:*","events":["lease.expired"]}`)); err != nil || a.Status != 201 {
				t.Fatal(err, a)
			}
			page.says("#webhooks", "deploy:*")
		}
		page.shot("webhooks-" + look.scheme)
		checkAxe(t, page, string(axe), "webhooks, "+look.scheme)
	}
	if a, err := g.Send(t.Context(), "GET", "/v1/webhooks/"+id); err != nil || a.Status != 404 {
		t.Error(err, a)
	}
}
