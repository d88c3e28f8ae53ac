package e2e

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"lockkeeper/internal/test/assert"
)

func TestALockIsReservedFromThePageAndItsViewerToldWhenItIsGranted(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	alice := g.hold("staging", "ttl=5m&owner=alice")
	page := openPage(t, g, "/locks/staging")
	reserve := func(span string) {
		t.Helper()
		page.press("[data-act=reserve]")
		page.fill("#ask-reserve [name=for]", span)
		page.fill("#ask-reserve [name=owner]", "mia")
		page.fill("#ask-reserve [name=reason]", "load test")
	}
	reserve("2h")
	page.press("#ask-reserve [name=queue]")
	page.expectOutage(true) // the browser complains of the 409
	page.press("#ask-reserve [data-confirm]")
	page.until(`document.querySelector("#ask-reserve [data-problem]").textContent.includes("is held")`, "it says that the lock is held")
	page.expectOutage(false)
	page.press("#ask-reserve [name=queue]")
	page.press("#ask-reserve [data-confirm]")
	page.until(`document.querySelector("#ask-reserve [data-value]").textContent.startsWith("lk1.")`, "it shows the lease token")
	page.flawless("the token of a reservation")
	token := eval[string](page, `document.querySelector("#ask-reserve [data-value]").textContent`)
	page.press("#ask-reserve [data-confirm]")
	page.says(row("mia"), "load test", "reserves 2h")
	// A browser without a desktop has no notifications: what the page gives them is noted.
	eval[int](page, `(window.told = [], window.Notification = class {
		static permission = "default";
		static async requestPermission() { return (Notification.permission = "granted"); }
		constructor(title, { body }) { told.push(body); }
	}, 1)`)
	page.press(row("mia") + " [data-tell]")
	page.says("#done", "You will be notified when mia is granted.")
	g.letGo(alice.Token)
	page.until(`told.join() === "mia holds staging." && document.title.includes("mia holds staging.")`, "the viewer is told")
	page.says(row("mia"), "reserved until")
	g.letGo(token)
	page.until(`!document.querySelector('`+row("mia")+`')`, "the token releases it")
	page.notReloaded()
}

// Task j of an on-call night: take a lock for an hour, with a reason. One lock is held, and on the overview; the other one is not in use.
func TestALockIsReservedForAnHourWithAReasonInThreeClicks(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	g.hold("staging", "ttl=5m&owner=alice")
	says := func(page *clicks) {
		t.Helper()
		page.click("[data-act=reserve]")
		page.until(`document.querySelector("#ask-reserve").open && document.querySelector("#ask-reserve [name=for]").value === "1h"`, "an hour is what it offers")
		page.fill("#ask-reserve [name=owner]", "mia")
		page.fill("#ask-reserve [name=reason]", "firmware update")
	}
	held := clicks{tab: openPage(t, g, "/")}
	held.goes(`#locks a[href="/locks/staging"]`, "/locks/staging")
	says(&held)
	held.click("#ask-reserve [data-confirm]")
	held.says(row("mia"), "firmware update", "reserves 1h")
	assert.That(t, held.n <= 3, "%d clicks", held.n)

	free := clicks{tab: openPage(t, g, "/")}
	free.click("#search-open")
	free.until(`document.activeElement?.id === "search-text"`, "the search is open")
	free.key("rack-7")
	free.goes(`#search-results a[href="/locks/rack-7"]`, "/locks/rack-7")
	says(&free)
	eval[int](free.tab, `(document.querySelector("#ask-reserve [name=reason]").focus(), 1)`)
	free.key(kb.Enter)
	free.says(row("mia"), "firmware update", "reserved until")
	assert.That(t, free.n <= 3, "%d clicks", free.n)
}

func TestItsMakerExtendsAndReleasesAReservation(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	page := openPage(t, g, "/locks/staging")
	page.press("[data-act=reserve]")
	page.fill("#ask-reserve [name=for]", "4m")
	page.fill("#ask-reserve [name=owner]", "mia")
	page.press("#ask-reserve [data-confirm]")
	page.until(`document.querySelector("#ask-reserve [data-value]").textContent.startsWith("lk1.")`, "it shows the lease token")
	page.press("#ask-reserve [data-confirm]")
	page.says(row("mia"), "reserved until", "ends in 3m")
	shown := func(selector string) string {
		return fmt.Sprintf(`document.querySelector(%s)?.checkVisibility()`, quoted(row("mia")+" "+selector))
	}
	page.until(shown("[data-act=extend]")+` && `+shown("[data-act=release]"), "its maker has the buttons")
	page.eachLook(func(look string) {
		page.shot("reservation-" + look)
		page.flawless("a reservation that ends soon, " + look)
		page.press("[data-act=extend]")
		page.shot("reservation-extend-" + look)
		page.flawless("extending a reservation, " + look)
		page.press("#ask-extend [data-close]")
		page.until(`!document.querySelector("dialog[open]")`, "it is closed")
	})
	page.press("[data-act=extend]")
	page.press("#ask-extend [data-confirm]")
	page.says("#done", "The reservation has its new end.")
	page.until(`!document.querySelector("#queue .purpose .chip")`, "it does not end soon any more")
	page.visit(g.url() + "/locks/staging") // the page is loaded again, and the browser has the token
	page.untilLink("live")
	page.press(row("mia") + " [data-act=release]")
	page.press("#ask-release [data-confirm]")
	page.says("#done", "The reservation is released.")
	page.says("#queue", "This lock is free")
}
