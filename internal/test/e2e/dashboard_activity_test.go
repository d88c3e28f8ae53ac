package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"lockkeeper/internal/test/assert"
)

// clicked opens the page of all locks and clicks the links, one after the other: the clicks of a task.
func clicked(t testing.TB, g *gateway, links ...string) *tab {
	t.Helper()
	b := openPage(t, g, "/")
	for _, link := range links {
		to := eval[string](b, fmt.Sprintf(`document.querySelector(%s).href`, quoted(link)))
		eval[int](b, fmt.Sprintf(`(setTimeout(() => document.querySelector(%s).click()), 1)`, quoted(link)))
		b.arrives(to)
		b.untilLink("live")
	}
	return b
}

// Tasks f and i of an on-call night, a click each: how busy is it, and what is contended, longest held, and most expired today.
func TestActivityIsOneClickAway(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	for i := range 3 {
		g.letGo(g.hold(fmt.Sprintf("job-%d", i), "ttl=1m&owner=ci").Token)
	}
	first := g.hold("contended", "ttl=1m&owner=alice")
	second := g.queue("contended", "ttl=1m&owner=bob")
	g.hold("gpu", "ttl=1m&owner=carol&mode=semaphore&permits=3&limit=4")
	g.queue("gpu", "ttl=1m&owner=dan&mode=semaphore&permits=2&limit=4")
	b := clicked(t, g, `nav a[href="/activity"]`)
	b.until(`document.querySelector("#longest li")?.innerText.includes("contended")`, "the longest held")
	b.until(`/3 of 4 used, 1 free, the next one needs 2/.test(document.querySelector("#semaphores").innerText)`, "semaphores are compared")
	b.until(`document.querySelector("#activity .figures dd").innerText !== "0" && document.querySelector("#grants-sum").innerText.includes("a second")`, "the rate")
	b.until(`document.querySelector("#ends-title").parentElement.innerText.includes("released")`, "how holds ended")
	b.until(`/p50[\s\S]*p95[\s\S]*p99[\s\S]*Waited/.test(document.querySelector("#spans-title").parentElement.innerText)`, "how long it took")
	eval[bool](b, `new Promise((done) => setTimeout(() => done(true), 1200))`) // a wait of a second counts as contention
	g.letGo(first.Token)
	b.until(`document.querySelector("#contended li")?.innerText.includes("contended")`, "the most contended, without a reload")
	assert.Equal(t, eval[string](b, `document.querySelector("#contended a").getAttribute("href")`), "/locks/contended")
	g.letGo(second.Token)
	b.eachLook(func(look string) {
		b.flawless("activity, " + look)
		b.shot("activity-" + look)
	})
}

func TestActivitySaysThatTheHistoryIsOff(t *testing.T) {
	t.Parallel()
	g := onShared(t, "--history=off")
	b := openPage(t, g, "/activity?window=1h")
	b.until(`document.querySelector("#activity").innerText.includes("keeps no history")`, "it is off")
	b.flawless("activity without a history")
}

// Tasks g and k: the fleet, and which permits are left, a click each.
func TestTheFleetAndPermitsAreOneClickAway(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	g.hold("gpu", "ttl=1m&owner=carol&mode=semaphore&permits=3&limit=8")
	b := clicked(t, g, `nav a[href="/gateways"]`)
	b.until(`document.querySelector("#gateways").innerText.includes("serving")`, "the state of the gateway")
	b = clicked(t, g, `nav a[href="/activity"]`)
	b.until(`/3 of 8 used, 5 free/.test(document.querySelector("#semaphores").innerText)`, "the permits that are left")
}

func TestTheWallShowsWhatItsAddressAsksForAndSaysWhenItIsStale(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	g.hold("prod:deploy", "ttl=1m&owner=alice")
	g.queue("prod:deploy", "ttl=1m&owner=bob")
	g.hold("staging", "ttl=1m&owner=eve")
	b := openBrowser(t, g.url())
	b.resize(desktop, "light")
	b.visit(g.url() + "/wall?q=prod&warn=2s")
	b.untilLink("live")
	b.until(`document.querySelectorAll(".wall-card").length === 1 && document.querySelector(".wall-card").innerText.includes("alice")`, "the card of what matches")
	b.until(`document.querySelector(".wall-card.wall-late")`, "it turns red when the wait is too long")
	b.eachLook(func(look string) {
		b.flawless("the wall, " + look)
		b.shot("wall-" + look)
	})
	b.expectOutage(true)
	g.kill()
	b.until(`getComputedStyle(document.querySelector(".wall-stale")).display !== "none"`, "it says STALE")
	b.resize(desktop, "light")
	b.shot("wall-stale")
	g.start()
	g.awaitServing()
	b.until(`getComputedStyle(document.querySelector(".wall-stale")).display === "none"`, "it is live again")
}

func TestPinnedLocksStandBeforeAllOthers(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	g.hold("zebra", "ttl=1m&owner=alice")
	lock := openPage(t, g, "/locks/zebra")
	eval[int](lock, `(document.querySelector("#follow").focus(), 1)`)
	lock.until(`document.querySelector("#following")`, "the script comes")
	lock.until(`document.querySelector(".follow [data-pin]").ariaPressed === "true" || (document.querySelector(".follow [data-pin]").click(), false)`, "it is pinned")
	lock.visit(g.url() + "/")
	lock.untilLink("live")
	lock.until(`/zebra[\s\S]*alice/.test(document.querySelector("#pinned").innerText)`, "it stands first")
	g.queue("zebra", "ttl=1m&owner=bob")
	lock.until(`document.querySelector("#pinned .waiting .n").textContent === "1"`, "it is kept up to date")
	lock.eachLook(func(look string) { lock.flawless("the overview with a pin, " + look) })
	eval[int](lock, `(document.querySelector("#pinned [data-pin]").click(), 1)`)
	lock.until(`document.querySelector("#pinned").innerText.trim() === ""`, "it is gone")
}

func TestAFollowedLockTellsWhenItIsFree(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	lease := g.hold("deploy", "ttl=1m&owner=alice")
	waiter := g.queue("deploy", "ttl=1m&owner=bob")
	b := openPage(t, g, "/locks/deploy")
	eval[int](b, `(document.querySelector("#follow").focus(), 1)`)
	b.until(`document.querySelector("#following")`, "the script comes")
	b.until(`(() => { const s = document.querySelector("#follow"); if (document.title.startsWith("(1)")) return true; s.value = "free"; s.dispatchEvent(new Event("change", {bubbles: true})); return false; })()`,
		"the title has the number of waiters")
	g.letGo(waiter.Token)
	b.until(`document.title === "(0) deploy"`, "the title follows")
	g.letGo(lease.Token)
	b.until(`document.title === "● deploy is free."`, "the title says it")
	b.until(`document.querySelector("#done").innerText === "deploy is free." && document.querySelector("#done").role === "status"`, "a polite live region says it")
	b.until(`document.querySelector("link[rel=icon]").href.includes("favicon-open")`, "the gate in the tab is open")
	answer := assert.Value(http.Get(eval[string](b, `document.querySelector("link[rel=icon]").href`)))(t)
	assert.NoError(t, answer.Body.Close())
	assert.Equal(t, answer.StatusCode, http.StatusOK)
	b.eachLook(func(look string) { b.flawless("a lock that is followed, " + look) })
}
