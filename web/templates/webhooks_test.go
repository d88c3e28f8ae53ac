package templates

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

var webhookTypes = WebhookTypes{
	Durable:    []string{"lease.released", "lease.expired", "lease.cancelled", "lease.unclaimed", "lease.revoked", "lease.removed", "lock.destroyed"},
	BestEffort: []string{"lease.queued", "lease.granted", "lease.updated", "lease.revoke_requested", "lease.revoke_withdrawn", "lease.ending", "lock.hazard", "lock.hazard_cleared"},
}

func webhooksSample(now time.Time) Webhooks {
	return Webhooks{Page: page(now, "Webhooks · Lockkeeper"), Types: webhookTypes, MayCreate: true, Unreached: []string{"6umd6vlxihgyo"}, Rows: []WebhookRow{
		{ID: "wh_aaaabbbbccccdddd", URL: "/webhook", Target: "https://hooks.example.com/lockkeeper/production?team=platform", Description: "tells the deployment board", Enabled: true},
		{ID: "wh_eeeeffffgggghhhh", URL: "/webhook", Target: "http://10.1.14.7:8080/hook", Events: []string{"lease.expired", "lease.granted", "lease.revoked"}, BestEffort: []string{"lease.granted"}, Locks: "billing:*", NS: "default", Owner: "ci-*", Reason: "*maintenance*", Format: "slack", Enabled: true,
			Failing: now.Add(-42 * time.Minute), Next: now.Add(4*time.Minute + 12*time.Second), Waiting: 1312, Dead: 4, Lost: 27, LastLost: now.Add(-3 * time.Minute)},
		{ID: "wh_iiiijjjjkkkkllll", URL: "/webhook", Target: "https://gone.example.com/", Disabled: "The receiver answered 410: it wants no more messages.", Dead: 17},
		{ID: "wh_mmmmnnnnoooopppp", URL: "/webhook", Target: "https://staging.example.com/locks"},
	}}
}

func webhookSample(now time.Time) Webhook {
	v := Webhook{Page: page(now, "wh_eeeeffffgggghhhh · Lockkeeper"), WebhookRow: webhooksSample(now).Rows[1], List: "/webhooks", API: "/v1/webhooks/wh_eeeeffffgggghhhh", Types: webhookTypes,
		Headers: []string{"Authorization", "X-Team"}, CA: true, Created: now.Add(-90 * 24 * time.Hour), OldSecretUntil: now.Add(11 * time.Hour), Unreached: []string{"6umd6vlxihgyo"}}
	v.Description, v.Maker, v.MayChange = "tells accounting", "corp:ann@example.com", true
	for i := range 6 {
		t := WebhookAttempt{At: now.Add(-time.Duration(i) * 5 * time.Minute), Message: "msg_nsigmjasmy4hxky7obihuhxypy", Type: "lease.expired", NS: "default", Lock: "billing:close-month", Number: 6 - i,
			Status: 503, Error: "The receiver answered 503.", Answer: "upstream connect error or disconnect/reset before headers", Took: 340 * time.Millisecond, Gateway: "hoa2n62b2646q"}
		switch i {
		case 2:
			t.Status, t.Error, t.Answer, t.Took = 0, "No answer within 15s.", "", 15*time.Second
		case 3:
			t.Answer, t.AnswerBytes = "", 1312
		case 5:
			t.Delivered, t.Status, t.Error, t.Answer = true, 204, "", ""
		}
		v.Attempts = append(v.Attempts, t)
	}
	for range 2 {
		v.DeadLetters = append(v.DeadLetters, WebhookDeadLetter{At: now.Add(-26 * time.Hour), Message: "msg_aaaaaaasmy4hxky7obihuhxyp" + string(rune('a'+len(v.DeadLetters))), Type: "lease.revoked", NS: "default", Lock: "billing:invoices",
			Owner: "worker-3", Attempts: 10, Error: "The receiver answered 500.", Gateway: "hoa2n62b2646q"})
	}
	return v
}

func evilWebhooks(p Page) Webhooks {
	row := WebhookRow{ID: hostile, URL: "/webhook", Target: hostile, Description: hostile, Events: []string{hostile}, NS: hostile, Locks: hostile, Owner: hostile, Reason: hostile, Purpose: hostile, Format: hostile, Disabled: hostile, Maker: hostile}
	return Webhooks{Page: p, MayCreate: true, Rows: []WebhookRow{row}, Types: WebhookTypes{[]string{hostile}, []string{hostile}}, Unreached: []string{hostile}}
}

func evilWebhook(p Page) Webhook {
	return Webhook{Page: p, MayChange: true, WebhookRow: evilWebhooks(p).Rows[0], List: "/webhooks", API: "/v1/webhooks/x", Types: WebhookTypes{[]string{hostile}, []string{hostile}}, Headers: []string{hostile}, Unreached: []string{hostile},
		Attempts:    []WebhookAttempt{{Message: hostile, Type: hostile, NS: hostile, Lock: hostile, Error: hostile, Answer: hostile, Gateway: hostile}},
		DeadLetters: []WebhookDeadLetter{{Message: hostile, Type: hostile, NS: hostile, Lock: hostile, Owner: hostile, Error: hostile, Gateway: hostile}}}
}

func TestAWebhookIsMadeAndItsSecretShownOnce(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/webhooks", api)
	page.press("[data-act=hook-create]")
	page.press("#ask-hook-create [data-confirm]")
	_, n := api.last()
	assert.Must(t, n == 0, "a form without an address was sent")
	page.fill("#ask-hook-create [name=url]", "https://example.com/hook")
	page.fill("#ask-hook-create [name=locks]", "deploy:*")
	page.press(`#ask-hook-create [value="lease.expired"]`)
	page.press(`#ask-hook-create [value="lock.hazard"]`)
	page.fill("#ask-hook-create [name=owner]", "ci-*")
	page.fill("#ask-hook-create [name=reason]", "expired")
	page.fill("#ask-hook-create [name=acquire_reason]", "*db*")
	page.fill("#ask-hook-create [name=format]", "slack")
	legends := eval[string](page, `[...document.querySelectorAll("#ask-hook-create legend")].map((l) => l.textContent).join("\n")`)
	assert.That(t, strings.Contains(legends, "durable") && strings.Contains(legends, "best effort"), "the form does not say how events are delivered: %s", legends)
	api.says(http.StatusUnprocessableEntity, map[string]any{"field": "url", "detail": "the receiver's address is private"})
	page.press("#ask-hook-create [data-confirm]")
	page.until(`document.querySelector("#ask-hook-create [data-error=url]").textContent === "The receiver's address is private."`, "it is said at the field")
	if !eval[bool](page, `document.activeElement.matches("#ask-hook-create [name=url][aria-invalid=true]") && document.querySelector("#ask-hook-create [data-problem]").textContent === ""`) {
		t.Error("the field is not marked, or it is said twice")
	}
	page.fill("#ask-hook-create [name=url]", "https://example.com/hook")
	if page.text("#ask-hook-create [data-error=url]") != "" || eval[bool](page, `document.querySelector("#ask-hook-create [name=url]").hasAttribute("aria-invalid")`) {
		t.Error("it is still said of another address")
	}
	api.says(http.StatusCreated, map[string]any{"id": "wh_aaaabbbbccccdddd", "secret": "whsec_c2VjcmV0"})
	page.press("#ask-hook-create [data-confirm]")
	page.until(`document.querySelector("#ask-hook-create [data-value]").textContent === "whsec_c2VjcmV0"`, "the secret is shown")
	got, n := api.last()
	assert.That(t, got == `POST /v1/webhooks {"acquire_reason":"*db*","events":["lease.expired","lock.hazard"],"format":"slack","locks":"deploy:*","owner":"ci-*","reason":"expired","url":"https://example.com/hook"}`, "%v", got)
	assert.That(t, !eval[bool](page, `Boolean(document.querySelector("#ask-hook-create [data-form]").offsetParent)`),
		"the form is still there")
	page.press("#ask-hook-create [data-confirm]")
	page.until(`!document.querySelector("dialog[open]") && document.querySelector("#ask-hook-create [data-value]").textContent === ""`, "it is gone")
	_, again := api.last()
	assert.That(t, again == n, "it was sent again")
	page.press("[data-act=hook-create]")
	if !eval[bool](page, `Boolean(document.querySelector("#ask-hook-create [name=url]").offsetParent) && !document.querySelector("#ask-hook-create [name=url]").disabled`) {
		t.Error("a second one cannot be made")
	}
}

func TestAWebhookIsMadeWithHeadersAndCertificatesThatAreWrittenAsLines(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/webhooks", api)
	page.press("[data-act=hook-create]")
	page.fill("#ask-hook-create [name=url]", "https://example.com/hook")
	for lines, wrong := range map[string]string{
		"Authorization: a\n\nBearer 42": "Line 3 is not a name, a colon and a value.",
		": a":                           "Line 1 is not a name, a colon and a value.",
		"X-Team: a\nx-team:b":           "x-team is there twice.",
	} {
		eval[int](page, `(document.querySelector("#ask-hook-create details").open = false, 1)`)
		page.fill("#ask-hook-create [name=headers]", lines)
		page.press("#ask-hook-create [data-confirm]")
		page.shows("#ask-hook-create [data-error=headers]", wrong) // so the part that was folded away is open
	}
	_, n := api.last()
	assert.Must(t, n == 0, "it was sent")
	page.fill("#ask-hook-create [name=headers]", " Authorization: Bearer a:b \n\nX-Empty:")
	page.fill("#ask-hook-create [name=ca]", "\n-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n")
	api.says(http.StatusUnprocessableEntity, map[string]any{"field": "ca", "detail": "it is one or more certificates in PEM"})
	page.press("#ask-hook-create [data-confirm]")
	page.until(`document.querySelector("#ask-hook-create [data-error=ca]").innerText === "It is one or more certificates in PEM."`, "it is said at the field")
	if got, _ := api.last(); got != `POST /v1/webhooks {"ca":"-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----","events":[],"headers":{"Authorization":"Bearer a:b","X-Empty":""},"url":"https://example.com/hook"}` {
		t.Error(got)
	}
	page.press("#ask-hook-create [data-close]")
	page.until(`!document.querySelector("dialog[open]") && document.querySelector("#ask-hook-create [name=headers]").value === ""`, "the headers' values are not shown")
}

// A form is the webhook as it was; only what was changed in it is asked for, and only without another change.
func TestAWebhookIsEditedAsItIsNowAndNotOverAnotherChange(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/webhook", api)
	const at, edit, save = "/v1/webhooks/wh_eeeeffffgggghhhh", "#ask-hook-edit ", "#ask-hook-edit [data-confirm]"
	hook := map[string]any{"url": "https://example.com/...", "events": []string{"lease.expired", "lease.of_a_later_release", "lease.revoked"}, "locks": "billing:*", "owner": "ci-*", "reason": "expired", "format": "standard", "description": "now",
		"headers": []string{"Authorization", "X-Team"}, "ca": "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"}
	asked := func(want string) {
		t.Helper()
		testkit.Eventually(t, patience, func() bool { got, _ := api.last(); return got == want }, "it asks %s", want)
	}
	idle := func(want bool) {
		t.Helper()
		assert.Equal(t, eval[bool](page, `document.querySelector("`+save+`").disabled`), want, "nothing is to be saved")
	}
	const loaded = `!document.querySelector("#ask-hook-edit [name=url]").disabled`
	api.says(http.StatusServiceUnavailable, map[string]any{"title": "Unavailable", "detail": "the subscriptions are not known yet"})
	page.press("#act-hook-edit")
	page.until(`document.querySelector("#ask-hook-edit [data-why]").innerText === "The subscriptions are not known yet."`, "it says why nothing is there")
	idle(true)
	api.has(`W/"3"`, hook)
	page.press(edit + "[data-load]")
	page.until(loaded, "it is there")
	asked("GET " + at + " null")
	if got := eval[string](page, `((f) => [f.url.value, f.url.placeholder, f.url.required, f.locks.value, f.ns.value, f.description.value, f.ca.value.length, f.headers.value, [...f.querySelectorAll("[name=events]:checked")].map((e) => e.value),
			[...f.querySelectorAll("[data-names] code")].map((e) => e.textContent), f.querySelector("details").open].join("|"))(document.querySelector("#ask-hook-edit form"))`); got != "|https://example.com/...|false|billing:*||now|58||lease.expired,lease.revoked|Authorization,X-Team|true" {
		t.Errorf("the form is %q", got)
	}
	idle(true)
	page.fill(edit+"[name=locks]", "x")
	idle(false)
	page.fill(edit+"[name=locks]", "billing:*")
	idle(true)
	for name, value := range map[string]string{"owner": "ci-*", "reason": "expired", "format": ""} {
		assert.Equal(t, eval[string](page, `document.querySelector("#ask-hook-edit [name=`+name+`]").value`), value, name)
		page.fill(edit+"[name="+name+"]", map[string]string{"owner": "x", "reason": "x", "format": "ntfy"}[name])
		idle(false)
		page.fill(edit+"[name="+name+"]", value)
		idle(true)
	}
	// The address is secret: an empty field keeps it.
	page.fill(edit+"[name=url]", "https://example.com/other")
	idle(false)
	page.fill(edit+"[name=url]", "")
	idle(true)

	// Each of them alone, and an empty one is one that is removed. A type that the form does not offer stays.
	page.fill(edit+"[name=locks]", "")
	page.press(edit + `[value="lease.revoked"]`)
	page.press(edit + "[name=drop][value=Authorization]")
	page.press(edit + "[name=drop][value=X-Team]")
	page.fill(edit+"[name=headers]", "x-team: b")
	api.says(http.StatusUnprocessableEntity, map[string]any{"field": "headers", "detail": "together they have at most 2048 bytes"})
	page.press(save)
	page.until(`document.querySelector("#ask-hook-edit [data-error=headers]").innerText === "Together they have at most 2048 bytes."`, "it is said at the field")
	asked("PATCH " + at + ` {"events":["lease.of_a_later_release","lease.expired"],"headers":{"Authorization":null,"x-team":"b"},"locks":""} if it is "3"`)

	api.says(http.StatusPreconditionFailed, map[string]any{"field": "If-Match", "code": "precondition_failed", "detail": "look at it again"})
	page.press(save)
	page.until(`document.activeElement.matches("#ask-hook-edit [data-load]")`, "it offers to reload it")
	page.shows(edit+"[data-again]", "This webhook was changed", "nothing was saved")
	page.fill(edit+"[name=description]", "later")
	idle(true) // not over another change
	hook["description"], hook["headers"] = "theirs", []string{}
	api.has(`"4"`, hook)
	page.press(edit + "[data-load]")
	page.until(`document.querySelector("#ask-hook-edit [name=description]").value === "theirs"`, "what they wrote is there")
	if !eval[bool](page, `document.querySelector("#ask-hook-edit [data-again]").hidden && document.querySelector("#ask-hook-edit [data-kept]").hidden && document.querySelector("#ask-hook-edit [name=headers]").value === ""`) {
		t.Error("something of before is left")
	}
	idle(true)
	page.fill(edit+"[name=description]", "both")
	page.fill(edit+"[name=url]", "https://example.com/other")
	page.press(save)
	page.until(`document.querySelector("#done").textContent === "Webhook saved."`, "it is done")
	asked("PATCH " + at + ` {"description":"both","url":"https://example.com/other"} if it is "4"`)
	assert.That(t, !eval[bool](page, `Boolean(document.querySelector("dialog[open]"))`), "the dialog is still open")
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
		{button: "#act-hook-test", act: "hook-test", says: "goes out at once", sends: "POST " + at + "/test null", answer: map[string]any{"result": "delivered", "status": 204}, done: "The receiver accepted the test: 204.", tone: "good"},
		{button: "#act-hook-replay", act: "hook-replay", says: "4 messages are sent again", sends: "POST " + at + "/replay {}", answer: map[string]any{"replayed": 3, "unreached": []any{map[string]any{"gateway_id": "g", "detail": "it does not answer"}}},
			done: "3 messages are sent again. 1 could not be: It does not answer."},
		{button: "#dead-letters [data-act=hook-replay]", act: "hook-replay", says: "One message is sent again", sends: "POST " + at + `/replay {"message_id":"msg_aaaaaaasmy4hxky7obihuhxypa"}`, answer: map[string]any{"replayed": 1}, done: "1 message is sent again."},
		{button: "#act-hook-deliver", sends: "POST " + at + `/replay {"waiting":true}`, answer: map[string]any{"replayed": 2, "unreached": []any{map[string]any{"gateway_id": "g", "detail": "it does not answer"}}},
			done: "2 messages are tried now. 1 gateway could not be asked: It does not answer.", tone: "good"},
		{button: "#act-hook-disable", act: "hook-disable", says: "become dead letters", sends: "PATCH " + at + ` {"enabled":false}`, answer: map[string]any{}, done: "The webhook is disabled."},
		{button: "#act-hook-rotate", act: "hook-rotate", says: "shown once", sends: "POST " + at + `/rotate {"overlap":"48h"}`, before: "48h", answer: map[string]any{"secret": "whsec_bmV3"}, done: "There is a new secret."},
		{button: "#act-hook-delete", act: "hook-delete", says: "dead letters are deleted", sends: "DELETE " + at + " null", answer: map[string]any{}, done: "The webhook was deleted."},
	} {
		_, n := api.last()
		api.says(http.StatusOK, c.answer)
		page.press(c.button)
		if c.act == "" { // nothing is lost by it, so it asks nothing first
			page.until(`document.querySelector("#done").textContent === `+quote(c.done), c.done)
			got, _ := api.last()
			assert.That(t, got == c.sends && !eval[bool](page, `Boolean(document.querySelector("dialog[open]"))`), "%s sent %s", c.button, got)
			continue
		}
		page.shows("#ask-"+c.act, c.says)
		_, now := api.last()
		assert.Must(t, now == n, "%s has asked before it was told to", c.act)
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
		got, _ := api.last()
		assert.That(t, got == c.sends, "%s sent %s", c.act, got)
		assert.That(t, c.tone == "" || eval[bool](page, `document.querySelector("#done").classList.contains("`+c.tone+`")`),
			"%s: it does not look %s", c.done, c.tone)
		if c.act == "hook-rotate" {
			page.shows("#ask-hook-rotate", "whsec_bmV3", "I have saved it")
			page.press("#ask-hook-rotate [data-confirm]")
		}
	}
}

func quote(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }
