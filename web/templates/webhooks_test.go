package templates

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/testkit"
)

var webhookTypes = []string{"lease.released", "lease.expired", "lease.cancelled", "lease.unclaimed", "lease.revoked", "lease.removed", "lock.destroyed"}

func webhooksSample(now time.Time) Webhooks {
	return Webhooks{Page: page(now, "Webhooks · Lockkeeper"), Types: webhookTypes, Unreached: []string{"6umd6vlxihgyo"}, Rows: []WebhookRow{
		{ID: "wh_aaaabbbbccccdddd", URL: "/webhook", Target: "https://hooks.example.com/lockkeeper/production?team=platform", Description: "tells the deployment board", Enabled: true},
		{ID: "wh_eeeeffffgggghhhh", URL: "/webhook", Target: "http://10.1.14.7:8080/hook", Events: []string{"lease.expired", "lease.revoked"}, Locks: "billing:*", NS: "default", Enabled: true,
			Failing: now.Add(-42 * time.Minute), Waiting: 1312, Dead: 4},
		{ID: "wh_iiiijjjjkkkkllll", URL: "/webhook", Target: "https://gone.example.com/", Disabled: "The receiver answered 410: it wants no more messages.", Dead: 17},
		{ID: "wh_mmmmnnnnoooopppp", URL: "/webhook", Target: "https://staging.example.com/locks"},
	}}
}

func webhookSample(now time.Time) Webhook {
	v := Webhook{Page: page(now, "wh_eeeeffffgggghhhh · Lockkeeper"), WebhookRow: webhooksSample(now).Rows[1], List: "/webhooks", API: "/v1/webhooks/wh_eeeeffffgggghhhh",
		Headers: []string{"Authorization", "X-Team"}, CA: true, Created: now.Add(-90 * 24 * time.Hour), OldSecretUntil: now.Add(11 * time.Hour), Unreached: []string{"6umd6vlxihgyo"}}
	v.Description = "tells accounting"
	for i := range 6 {
		t := WebhookTry{At: now.Add(-time.Duration(i) * 5 * time.Minute), Message: "msg_nsigmjasmy4hxky7obihuhxypy", Type: "lease.expired", NS: "default", Lock: "billing:close-month", Number: 6 - i,
			Status: 503, Error: "The receiver answered 503.", Answer: "upstream connect error or disconnect/reset before headers", Took: 340 * time.Millisecond, Gateway: "hoa2n62b2646q"}
		switch i {
		case 2:
			t.Status, t.Error, t.Answer, t.Took = 0, "No answer within 15s.", "", 15*time.Second
		case 5:
			t.Delivered, t.Status, t.Error, t.Answer = true, 204, "", ""
		}
		v.Tries = append(v.Tries, t)
	}
	for range 2 {
		v.Letters = append(v.Letters, WebhookLetter{At: now.Add(-26 * time.Hour), Message: "msg_aaaaaaasmy4hxky7obihuhxyp" + string(rune('a'+len(v.Letters))), Type: "lease.revoked", NS: "default", Lock: "billing:invoices",
			Owner: "worker-3", Attempts: 10, Error: "The receiver answered 500.", Gateway: "hoa2n62b2646q"})
	}
	return v
}

func evilWebhooks(p Page) Webhooks {
	row := WebhookRow{ID: hostile, URL: "/webhook", Target: hostile, Description: hostile, Events: []string{hostile}, NS: hostile, Locks: hostile, Disabled: hostile}
	return Webhooks{Page: p, Rows: []WebhookRow{row}, Types: []string{hostile}, Unreached: []string{hostile}}
}

func evilWebhook(p Page) Webhook {
	return Webhook{Page: p, WebhookRow: evilWebhooks(p).Rows[0], List: "/webhooks", API: "/v1/webhooks/x", Headers: []string{hostile}, Unreached: []string{hostile},
		Tries:   []WebhookTry{{Message: hostile, Type: hostile, NS: hostile, Lock: hostile, Error: hostile, Answer: hostile, Gateway: hostile}},
		Letters: []WebhookLetter{{Message: hostile, Type: hostile, NS: hostile, Lock: hostile, Owner: hostile, Error: hostile, Gateway: hostile}}}
}

func TestAWebhookIsMadeAndItsSecretShownOnce(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/webhooks", api)
	page.press("[data-act=hook-create]")
	page.press("#ask-hook-create [data-confirm]")
	if _, n := api.last(); n != 0 {
		t.Fatal("a form without an address was sent")
	}
	page.fill("#ask-hook-create [name=url]", "https://example.com/hook")
	page.fill("#ask-hook-create [name=locks]", "deploy:*")
	page.press(`#ask-hook-create [value="lease.expired"]`)
	api.says(http.StatusUnprocessableEntity, map[string]any{"field": "url", "detail": "the receiver's address is private"})
	page.press("#ask-hook-create [data-confirm]")
	page.until(`document.querySelector("#ask-hook-create [data-problem]").textContent === "Url: the receiver's address is private."`, "it names the field")
	api.says(http.StatusCreated, map[string]any{"id": "wh_aaaabbbbccccdddd", "secret": "whsec_c2VjcmV0"})
	page.press("#ask-hook-create [data-confirm]")
	page.until(`document.querySelector("#ask-hook-create [data-value]").textContent === "whsec_c2VjcmV0"`, "the secret is shown")
	got, n := api.last()
	if got != `POST /v1/webhooks {"events":["lease.expired"],"locks":"deploy:*","url":"https://example.com/hook"}` {
		t.Error(got)
	}
	if eval[bool](page, `Boolean(document.querySelector("#ask-hook-create [data-form]").offsetParent)`) {
		t.Error("the form is still there")
	}
	page.press("#ask-hook-create [data-confirm]")
	page.until(`!document.querySelector("dialog[open]") && document.querySelector("#ask-hook-create [data-value]").textContent === ""`, "it is gone")
	if _, again := api.last(); again != n {
		t.Error("it was sent again")
	}
	page.press("[data-act=hook-create]")
	if !eval[bool](page, `Boolean(document.querySelector("#ask-hook-create [name=url]").offsetParent) && !document.querySelector("#ask-hook-create [name=url]").disabled`) {
		t.Error("a second one cannot be made")
	}
}

func TestWhatIsDoneToAWebhookIsAskedFirst(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/webhook", api)
	const at = "/v1/webhooks/wh_eeeeffffgggghhhh"
	for _, c := range []struct {
		button, act  string
		says, sends  string
		status       int
		answer       map[string]any
		done         string
		before, tone string
	}{
		{button: "#act-hook-test", act: "hook-test", says: "goes out at once", sends: "POST " + at + "/test null", answer: map[string]any{"result": "failed", "error": "no answer within 15s"}, done: "The test failed. No answer within 15s.", tone: "bad"},
		{button: "#act-hook-test", act: "hook-test", says: "goes out at once", sends: "POST " + at + "/test null", answer: map[string]any{"result": "delivered", "status": 204}, done: "The receiver took the test: 204.", tone: "good"},
		{button: "#act-hook-replay", act: "hook-replay", says: "4 messages are sent again", sends: "POST " + at + "/replay {}", answer: map[string]any{"replayed": 3, "unreached": []any{map[string]any{"gateway_id": "g", "detail": "it does not answer"}}},
			done: "3 messages are sent again. 1 could not be: It does not answer."},
		{button: "#dead-letters [data-act=hook-replay]", act: "hook-replay", says: "One message is sent again", sends: "POST " + at + `/replay {"message_id":"msg_aaaaaaasmy4hxky7obihuhxypa"}`, answer: map[string]any{"replayed": 1}, done: "1 message is sent again."},
		{button: "#act-hook-disable", act: "hook-disable", says: "becomes dead letters", sends: "PATCH " + at + ` {"enabled":false}`, answer: map[string]any{}, done: "The webhook is disabled."},
		{button: "#act-hook-rotate", act: "hook-rotate", says: "shown once", sends: "POST " + at + `/rotate {"overlap":"48h"}`, before: "48h", answer: map[string]any{"secret": "whsec_bmV3"}, done: "There is a new secret."},
		{button: "#act-hook-delete", act: "hook-delete", says: "its dead letters go", sends: "DELETE " + at + " null", answer: map[string]any{}, done: "The webhook was deleted."},
	} {
		_, n := api.last()
		api.says(http.StatusOK, c.answer)
		page.press(c.button)
		page.shows("#ask-"+c.act, c.says)
		if _, now := api.last(); now != n {
			t.Fatalf("%s has asked before it was told to", c.act)
		}
		if c.before != "" {
			page.fill("#ask-"+c.act+" [name=overlap]", c.before)
		}
		page.press("#ask-" + c.act + " [data-confirm]")
		if c.act == "hook-delete" {
			// Then it goes to the list, so the page cannot be asked.
			testkit.Eventually(t, patience, func() bool { got, _ := api.last(); return got == c.sends }, "it is deleted")
		} else {
			page.until(`document.querySelector("#done").textContent === `+quote(c.done), c.done)
		}
		if got, _ := api.last(); got != c.sends {
			t.Errorf("%s sent %s", c.act, got)
		}
		if c.tone != "" && !eval[bool](page, `document.querySelector("#done").classList.contains("`+c.tone+`")`) {
			t.Errorf("%s: it does not look %s", c.done, c.tone)
		}
		if c.act == "hook-rotate" {
			page.shows("#ask-hook-rotate", "whsec_bmV3", "I have it")
			page.press("#ask-hook-rotate [data-confirm]")
		}
	}
}

func quote(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }
