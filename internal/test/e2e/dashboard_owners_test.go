package e2e

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/assert"
)

func owner(name string) string { return url.Values{"owner": {name}}.Encode() }

func TestAllLocksOfAnOwnerAndOfAHostAreFoundInTwoClicks(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	first := g.hold("deploy:web", "ttl=30m&"+owner("alice@ci-eu1-01"))
	second := g.hold("billing", "ttl=30m&"+owner("alice@ci-eu1-01"))
	other := g.hold("db:orders", "ttl=30m&"+owner("bob@ci-eu1-01"))
	g.patiently("db:orders", "ttl=30m&"+owner("alice@ci-eu1-01"))
	g.letGo(g.hold("nightly", "ttl=30m&"+owner("alice@ci-eu1-01")).Token)

	page := clicks{tab: openPage(t, g, "/")}
	page.goes(`#locks a[href="/owners/alice@ci-eu1-01"]`, "/owners/alice@ci-eu1-01")
	page.says("#owned", "holds 2 locks, waits for 1", "deploy:web", "billing", "db:orders")
	page.until(`document.querySelector("#owned").innerText.includes("nightly")`, "what has ended")
	page.eachLook(func(look string) {
		page.shot("owner-" + look)
		page.flawless("an owner, " + look)
		wide := eval[int](page.tab, "document.documentElement.scrollWidth")
		assert.That(t, wide <= eval[int](page.tab, "innerWidth"), "%s: %d wide", look, wide)
	})
	page.resize(desktop, "light")
	page.goes(`.crumbs a[href="/hosts/ci-eu1-01"]`, "/hosts/ci-eu1-01")
	assert.That(t, page.n <= 2, "%d clicks", page.n)
	page.says("#owned", "holds 3 locks, waits for 1", "alice@ci-eu1-01", "bob@ci-eu1-01")
	page.eachLook(func(look string) {
		page.shot("host-" + look)
		page.flawless("a host, " + look)
	})

	// All are asked that were shown, and no other: one ends while the dialog is open, and one comes.
	page.resize(desktop, "light")
	page.press("[data-act=ask-all]")
	page.says("#ask-ask-all", "Will ask 3 leases.", "deploy:web", "billing", "db:orders", "Ask 3 leases")
	page.eachLook(func(look string) {
		page.shot("ask-all-" + look)
		page.flawless("the dialog, " + look)
	})
	g.letGo(second.Token)
	newcomer := g.hold("later", "ttl=30m&"+owner("eve@ci-eu1-01"))
	page.says("#ask-ask-all", "Will ask 2 leases. 1 lease of this list has ended since. 1 lease came since, and is not asked.", "Ask 2 leases")
	page.fill("#ask-ask-all [name=reason]", "maintenance")
	page.press("#ask-ask-all [data-confirm]")
	page.says("#done", "Asked 2 leases to release.")
	for _, l := range []api.Lease{first, other} {
		beat := g.beat(l.Token, api.StateHeld)
		assert.That(t, beat.RevokeRequested != nil && beat.RevokeRequested.Reason == "maintenance", "%+v", beat)
	}
	beat := g.beat(newcomer.Token, api.StateHeld)
	assert.That(t, beat.RevokeRequested == nil, "one that was not shown is asked: %+v", beat)
}

// The page hears of nothing, and a lease of its list is another's by now: the gateway refuses, and the others are asked.
func TestALeaseThatHoldsNoLongerIsNotAskedInThePlaceOfAnother(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	kept := g.hold("one", "ttl=30m&owner=alice")
	gone := g.hold("two", "ttl=30m&owner=alice")
	next := g.patiently("two", "ttl=30m&owner=bob")
	page := openPage(t, g, "/owners/alice")
	page.says("#owned", "holds 2 locks")
	page.deaf()
	page.press("[data-act=ask-all]")
	page.says("#ask-ask-all", "Ask 2 leases")
	g.letGo(gone.Token)
	g.beatUntil(next.Token, api.StateHeld)
	page.expectOutage(true) // the browser complains of the 409
	page.press("#ask-ask-all [data-confirm]")
	page.says("#done", "Asked 1 lease to release. 1 lease held the lock no longer")
	assert.That(t, g.beat(kept.Token, api.StateHeld).RevokeRequested != nil, "the other lease was not asked")
	assert.That(t, g.beat(next.Token, api.StateHeld).RevokeRequested == nil, "bob is asked")
}

func (b *tab) key(keys string) {
	b.t.Helper()
	do(b, "pressing "+keys, chromedp.KeyEvent(keys))
}

// openSearch opens the search by the keyboard, and types.
func (b *tab) openSearch(text string) {
	b.t.Helper()
	eval[bool](b, `document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "k", ctrlKey: true, bubbles: true, cancelable: true}))`)
	b.until(`document.querySelector("#search")?.open && document.activeElement.id === "search-text"`, "the search is open")
	b.key(text)
}

func TestTheKeyboardSearches(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	g.hold("deploy:web", "ttl=30m&"+owner("alice@ci-1"))
	waits := g.patiently("deploy:web", "ttl=30m&"+owner("bob@ci-1"))
	g.hold("deploy:db", "ttl=30m&"+owner("alice@ci-1"))
	page := openPage(t, g, "/")
	arrived := func(path string) {
		t.Helper()
		page.untilLoaded(`location.pathname + location.search === `+quoted(path)+` && document.querySelector("#link")?.dataset.link === "live"`, path)
	}
	const chosen = `document.getElementById(document.querySelector("#search-text").getAttribute("aria-activedescendant"))?.innerText`
	page.openSearch("deploy")
	page.until(chosen+`.includes("deploy:db")`, "the first result is chosen")
	page.eachLook(func(look string) {
		page.shot("search-" + look)
		page.flawless("the search, " + look)
	})
	page.key(kb.ArrowDown)
	page.until(chosen+`.includes("deploy:web")`, "the next one")
	page.key(kb.ArrowUp)
	page.until(chosen+`.includes("deploy:db")`, "the one before")
	page.key(kb.ArrowDown)
	page.key(kb.Enter)
	arrived("/locks/deploy:web")
	marked := "/locks/deploy:web?contender=" + waits.LeaseID
	for _, c := range [][2]string{{"alice", "/owners/alice@ci-1"}, {waits.LeaseID, marked}, {"gatew", "/gateways"}, {waits.Znode, marked}, {"unused-lock", "/locks/unused-lock"}} {
		page.openSearch(c[0])
		page.until(`document.querySelector("#search-results [aria-selected=true]")?.getAttribute("href") === `+quoted(c[1]), "the result for "+c[0]+" is chosen")
		page.key(kb.Enter)
		arrived(c[1])
	}
	page.openSearch(waits.LeaseID[len(waits.LeaseID)-8:])
	page.key(kb.Enter)
	arrived(marked)
	page.until(`document.querySelector(`+quoted(row("bob@ci-1"))+`).matches(".is-marked[aria-current=true]")`, "the contender is marked")

	page.openSearch("keyboard")
	page.key(kb.Enter)
	page.until(`document.querySelector("#help").open`, "an action is done")
	page.key(kb.Escape)
	page.until(`!document.querySelector("#help").open`, "Escape closes it")
	page.openSearch("nothing has this name")
	page.says("#search-says", "Nothing has this in its name.")
	page.key(kb.Escape)
	page.until(`!document.querySelector("#search").open`, "Escape closes the search")

	// Without a keyboard: the button, and a tap.
	page.resize(phone, "dark")
	page.press("#search-open")
	page.until(`document.querySelector("#search")?.open`, "the search is open")
	page.fill("#search-text", "bob")
	page.until(`document.querySelector("#search-results a")?.innerText.includes("bob@ci-1")`, "the result")
	wide := eval[int](page, "document.documentElement.scrollWidth")
	assert.That(t, wide <= int(phone.width), "%d wide", wide)
	page.follow("#search-results a")
	arrived("/owners/bob@ci-1")
}

// The links of a queue's rows are reached with the Tab key while their row has the focus.
func TestTheLinksOfARowAreReachedWithTheKeyboard(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	g.hold("deploy", "ttl=30m&owner=alice")
	for i := range 3 {
		g.patiently("deploy", fmt.Sprintf("ttl=30m&owner=waiter-%d", i))
	}
	page := openPage(t, g, "/locks/deploy")
	page.until(`document.querySelectorAll("#queue .waiter").length === 3`, "three wait")
	reachable := func() string {
		return eval[string](page, `[...document.querySelectorAll("#queue .waiter a")].filter((a) => a.tabIndex === 0).map((a) => a.innerText).join()`)
	}
	assert.Equal(t, reachable(), "")
	eval[int](page, `(document.querySelectorAll("#queue .waiter")[1].focus(), 1)`)
	assert.Equal(t, reachable(), "waiter-1,Why?")
	g.patiently("deploy", "ttl=30m&owner=waiter-3")
	page.until(`document.querySelectorAll("#queue .waiter").length === 4`, "a push has come")
	assert.Equal(t, reachable(), "waiter-1,Why?", "after a push")
	page.key(kb.Tab)
	assert.Equal(t, eval[string](page, "document.activeElement.innerText"), "waiter-1")
}
