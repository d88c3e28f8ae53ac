package templates

import (
	"net/http"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// notifying stands in for the browser's notifications, which a browser without a desktop has none of.
const notifying = `(window.asked = 0, window.shown = [], window.Notification = class {
	static permission = "default";
	static async requestPermission() { window.asked++; return (Notification.permission = %s); }
	constructor(title, { body }) { window.shown.push(title + ": " + body); }
}, 1)`

// leases answers the long polls of the page, one after the other.
func leases(answers <-chan map[string]any) *fakeAPI {
	return &fakeAPI{answer: func(path string, _ map[string]any) (int, any) {
		if !strings.HasPrefix(path, "/v1/leases/") {
			return http.StatusOK, map[string]any{}
		}
		a, more := <-answers
		if !more {
			return http.StatusServiceUnavailable, map[string]any{}
		}
		return http.StatusOK, a
	}}
}

const (
	tellFirst  = "#queue .waiter:nth-child(1) [data-tell]"
	tellSecond = "#queue .waiter:nth-child(2) [data-tell]"
)

func TestTheViewerIsToldWhenAWaiterIsGranted(t *testing.T) {
	for permission, notes := range map[string]int{`"granted"`: 1, `"denied"`: 0} {
		answers := make(chan map[string]any, 8)
		api := leases(answers)
		page, _ := browseWith(t, "/lock-readers", api)
		t.Cleanup(func() { close(answers) })
		eval[int](page, strings.Replace(notifying, "%s", permission, 1))
		title := eval[string](page, "document.title")
		_, n := api.last()
		assert.Must(t, n == 0 && eval[int](page, "asked") == 0, "it asks before the viewer wants to know")
		page.press(tellFirst)
		page.until(`asked === 1 && document.querySelector("`+tellFirst+`").ariaPressed === "true"`, "it asks the viewer")
		page.until(`document.querySelector("#done").textContent.includes("granted")`, "it says whether a notification will come")
		answers <- map[string]any{"state": "waiting"}
		page.until(`document.title === `+"`"+title+"`", "nothing is told as yet")
		answers <- map[string]any{"state": "held"}
		page.until(`document.title === "● indexer holds catalogue."`, "the title says it")
		got, n := api.last()
		assert.That(t, n == 2 && got == "GET /v1/leases/"+leaseID(4)+"?wait=50000ms&until=granted null", "%d requests, at last %s", n, got)
		assert.Equal(t, eval[int](page, "shown.length"), notes, "with the permission %s", permission)
		if notes > 0 {
			assert.Equal(t, eval[string](page, "shown[0]"), "catalogue: indexer holds catalogue.")
		}
		page.until(`document.querySelector("`+tellFirst+`").ariaPressed === "false"`, "the button is as before")
		eval[int](page, `(document.dispatchEvent(new Event("pointerdown")), 1)`)
		assert.Equal(t, eval[string](page, "document.title"), title, "after the page was looked at")
	}
}

func TestAWaitThatEndsOtherwiseIsToldToo(t *testing.T) {
	answers := make(chan map[string]any, 8)
	page, _ := browseWith(t, "/lock-readers", leases(answers))
	t.Cleanup(func() { close(answers) })
	eval[int](page, strings.Replace(notifying, "%s", `"granted"`, 1))
	page.press(tellFirst)
	answers <- map[string]any{"state": "ended", "reason": "expired"}
	page.until(`shown.length === 1`, "it is told")
	assert.Equal(t, eval[string](page, "shown[0]"), "catalogue: indexer waits for catalogue no longer: expired.")
}

// A push renders all buttons as they are at first.
func TestAPushTakesNoWatchBackAndTheButtonDoes(t *testing.T) {
	answers := make(chan map[string]any, 8)
	page, _ := browseWith(t, "/lock-readers", leases(answers))
	t.Cleanup(func() { close(answers) })
	eval[int](page, strings.Replace(notifying, "%s", `"granted"`, 1))
	page.press(tellFirst)
	eval[bool](page, `htmx.swap({sourceElement: live, target: live, swap: "none", text: (() => {
		const q = document.querySelector("#queue").cloneNode(true); q.querySelectorAll("[data-tell]").forEach((b) => { b.ariaPressed = "false"; b.textContent = "Tell me"; });
		q.querySelector(".waiter .owner").textContent = "pushed"; return q.outerHTML; })()}).then(() => true)`)
	page.until(`document.querySelector(".waiter .owner").textContent === "pushed"`, "the push has come")
	page.until(`document.querySelector("`+tellFirst+`").ariaPressed === "true"`, "it is still watched")
	assert.Equal(t, eval[string](page, `document.querySelector("`+tellSecond+`").ariaPressed`), "false", "another one")
	page.press(tellFirst)
	page.until(`document.querySelector("`+tellFirst+`").ariaPressed === "false"`, "it is watched no more")
	answers <- map[string]any{"state": "held"}
	answers <- map[string]any{"state": "held"}
	page.press(tellSecond) // the answer to the first is taken by now, or by this
	page.until(`shown.length === 1`, "the second is told")
	assert.That(t, !strings.Contains(eval[string](page, "shown[0]"), "indexer"), "the first was told")
}
