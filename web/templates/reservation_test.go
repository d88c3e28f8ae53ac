package templates

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

func TestALockIsReservedFromThePage(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/lock-readers", api)
	const token = "lk1.token.of.it"
	page.press("[data-act=reserve]")
	page.fill("#ask-reserve [name=for]", "until six")
	page.press("#ask-reserve [data-confirm]")
	_, n := api.last()
	assert.Must(t, n == 0, "a time without a unit was sent")
	page.fill("#ask-reserve [name=for]", " 2h ")
	api.says(http.StatusUnprocessableEntity, map[string]any{"title": "A field is invalid", "detail": "name the owner of the reservation", "field": "owner"})
	page.press("#ask-reserve [data-confirm]")
	page.until(`document.querySelector("#ask-reserve [data-error=owner]").textContent === "Name the owner of the reservation."`, "the field is named")
	page.fill("#ask-reserve [name=owner]", "mia")
	page.fill("#ask-reserve [name=reason]", "load test")
	key := `JSON.stringify(sent.map((r) => r.key))`
	eval[int](page, `(window.sent = [], window.fetch = ((f) => (url, o) => { sent.push({ key: o.headers["Idempotency-Key"] }); return f(url, o); })(fetch), 1)`)
	api.says(http.StatusServiceUnavailable, map[string]any{"title": "Unavailable"})
	page.press("#ask-reserve [data-confirm]")
	page.until(`sent.length === 1 && document.querySelector("#ask-reserve [data-problem]").textContent !== ""`, "it was not done")
	api.says(http.StatusAccepted, map[string]any{"state": "waiting", "position": 4, "token": token, "lease_id": "lk1"})
	page.press("#ask-reserve [data-confirm]")
	page.until(`document.querySelector("#ask-reserve [data-value]").textContent === "`+token+`"`, "the token is shown")
	assert.That(t, eval[bool](page, `sent.length === 2 && sent[0].key === sent[1].key && sent[0].key.length === 32`), "a repeat takes another place: %s", eval[string](page, key))
	page.shows("#done", "You wait at place 4.")
	if got, _ := api.last(); got != `POST /v1/locks/sample/leases {"async":true,"for":"2h","owner":"mia","reason":"load test"}` {
		t.Error(got)
	}
	page.press("#ask-reserve [data-confirm]")
	page.until(`!document.querySelector("dialog[open]")`, "it is closed")
	page.until(`document.querySelector("#ask-reserve [data-value]").textContent === ""`, "the token is forgotten")
	page.press("[data-act=reserve]")
	assert.That(t, eval[bool](page, `!document.querySelector("#ask-reserve [data-form]").hidden && document.querySelector("#ask-reserve [data-secret]").hidden`), "the form is there again")
}

// sentTo notes what the page sends, with its lease tokens.
const sentTo = `(window.sent = [], window.fetch = ((f) => (url, o) => { sent.push([o.method, url, o.headers["Lease-Token"], o.body].join(" ")); return f(url, o); })(fetch), 1)`

// ownsReservation has the browser keep the lease token of the holder of /lock, which has reserved it.
func ownsReservation(t *testing.T, page *browser) {
	t.Helper()
	eval[int](page, fmt.Sprintf(`(localStorage.setItem("lockkeeper.reservations ", JSON.stringify([[%q, "lk1.secret"]])), document.dispatchEvent(new Event("htmx:after:swap")), 1)`, leaseID(12)))
	eval[int](page, sentTo)
}

func TestItsMakerExtendsAndReleasesAReservationOnThePage(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/lock", api)
	const buttons = `document.querySelector("#queue .holder [data-own]")`
	assert.Must(t, eval[bool](page, buttons+`.hidden`), "others see the buttons")
	ownsReservation(t, page)
	assert.Must(t, eval[bool](page, `!`+buttons+`.hidden && document.querySelector("#queue .waiter [data-own]").hidden`), "the maker of one sees the buttons of that one")
	page.press("#queue .holder [data-act=extend]")
	page.shows("#ask-extend", "ci-runner-3")
	page.fill("#ask-extend [name=for]", " 2h ")
	api.says(http.StatusUnprocessableEntity, map[string]any{"title": "A field is invalid", "detail": "for must be at most 744h", "field": "for"})
	page.press("#ask-extend [data-confirm]")
	page.until(`document.querySelector("#ask-extend [data-error=for]").textContent === "For must be at most 744h."`, "the field is named")
	api.says(http.StatusOK, map[string]any{"state": "held"})
	page.press("#ask-extend [data-confirm]")
	page.until(`!document.querySelector("dialog[open]")`, "it is closed")
	page.shows("#done", "The reservation has its new end.")
	page.press("#queue .holder [data-act=release]")
	page.shows("#ask-release", "ci-runner-3")
	page.press("#ask-release [data-confirm]")
	page.until(`!document.querySelector("dialog[open]")`, "it is closed")
	id := leaseID(12)
	assert.Equal(t, eval[string](page, `sent.slice(1).join("\n")`), "PATCH /v1/leases/"+id+` lk1.secret {"for":"2h"}`+"\nDELETE /v1/leases/"+id+" lk1.secret ")
	assert.That(t, eval[bool](page, buttons+`.hidden && localStorage.getItem("lockkeeper.reservations ") === "[]"`), "the token is forgotten")
}

func TestTheTokenOfAReservationThatHasEndedIsForgotten(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/lock", api)
	ownsReservation(t, page)
	api.says(http.StatusGone, map[string]any{"title": "The lease has ended", "detail": "the lease has ended: expired"})
	page.press("#queue .holder [data-act=extend]")
	page.press("#ask-extend [data-confirm]")
	page.until(`document.querySelector("#ask-extend [data-problem]").textContent === "The lease has ended: expired."`, "it says why")
	assert.That(t, eval[bool](page, `document.querySelector("[data-own]").hidden && document.querySelector("#ask-extend [data-confirm]").disabled`), "it can be extended again")
}

func TestAReservationIsItsMakersAlone(t *testing.T) {
	page, _ := browse(t, "/lock")
	ownsReservation(t, page)
	eval[int](page, `((form) => {
		form.action = "/logout";
		form.addEventListener("submit", (event) => event.preventDefault());
		document.body.append(form);
		form.requestSubmit();
		document.dispatchEvent(new Event("htmx:after:swap"));
		return 1;
	})(document.createElement("form"))`)
	assert.That(t, eval[bool](page, `localStorage.length === 0 && document.querySelector("[data-own]").hidden`), "a logout leaves the lease tokens")
}

func TestTheViewerIsToldBeforeAReservationEnds(t *testing.T) {
	answers := make(chan map[string]any, 8)
	page, _ := browseWith(t, "/lock", leases(answers))
	t.Cleanup(func() { close(answers) })
	eval[int](page, strings.Replace(notifying, "%s", `"granted"`, 1))
	eval[int](page, `(window.urls = [], window.fetch = ((f) => (url, o) => { urls.push(url); return f(url, o); })(fetch), 1)`)
	page.press("#queue .holder [data-tell]")
	page.until(`document.querySelector("#done").textContent === "You will be notified 5 minutes before the reservation of ci-runner-3 ends."`, "it says when")
	answers <- map[string]any{"state": "held", "ends_at": "2026-11-28T12:00:00Z", "expires_in_ms": 300_000 + 20_000}
	page.until(`urls.length === 2`, "it asks again, when the time has come")
	assert.Equal(t, eval[string](page, `urls.map((u) => new URL(u, location).search).join()`), "?wait=1000ms&until=ended,?wait=20000ms&until=ended")
	assert.Equal(t, eval[int](page, "shown.length"), 0, "it is told too early")
	answers <- map[string]any{"state": "held", "ends_at": "2026-11-28T12:00:00Z", "expires_in_ms": 299_990}
	page.until(`shown.length === 1`, "it is told")
	assert.Equal(t, eval[string](page, "shown[0]"), eval[string](page, `document.querySelector(".lock-title").textContent`)+": The reservation of ci-runner-3 ends in less than 5 minutes.")
}

// One press is for both: the grant, and the end of what was granted.
func TestTheViewerOfAWaitingReservationIsToldOfItsGrantAndBeforeItsEnd(t *testing.T) {
	answers := make(chan map[string]any, 8)
	page, _ := browseWith(t, "/lock-readers", leases(answers))
	t.Cleanup(func() { close(answers) })
	eval[int](page, strings.Replace(notifying, "%s", `"granted"`, 1))
	page.press(tellFirst)
	answers <- map[string]any{"state": "held", "ends_at": "2026-11-28T12:00:00Z", "expires_in_ms": 3_600_000}
	page.until(`shown.length === 1`, "the grant is told")
	answers <- map[string]any{"state": "held", "ends_at": "2026-11-28T12:00:00Z", "expires_in_ms": 1000}
	page.until(`shown.length === 2`, "the end is told")
	assert.Equal(t, eval[string](page, "shown.join()"), "catalogue: indexer holds catalogue.,catalogue: The reservation of indexer ends in less than 5 minutes.")
	page.until(`document.querySelector("`+tellFirst+`").ariaPressed === "false"`, "the button is as before")
}
