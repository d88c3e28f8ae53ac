package e2e

import (
	"fmt"
	"net/url"
	"testing"

	"lockkeeper/internal/test/assert"
)

// clicks counts what a user clicks from one page on, on links that are visible.
type clicks struct {
	*tab
	n int
}

// click clicks what a user sees.
func (c *clicks) click(selector string) {
	c.t.Helper()
	c.n++
	c.until(fmt.Sprintf(`document.querySelector(%s)?.checkVisibility({visibilityProperty: true, opacityProperty: true})`, quoted(selector)), selector+" is to be seen")
	c.follow(selector)
}

// goes clicks what leads to another page, and waits until that is live.
func (c *clicks) goes(selector, part string) {
	c.t.Helper()
	c.click(selector)
	c.untilLoaded(`location.href.includes(`+quoted(part)+`) && document.querySelector("#link")?.dataset.link === "live"`, "the page "+part+" is live")
	eval[int](c.tab, "window.sinceTheBeginning = 1")
}

// deadlockOfThree has three owners wait for each other's locks, and a job wait behind one of them.
func deadlockOfThree(g *gateway) {
	g.t.Helper()
	owners := []string{"alice", "bob", "jörg"}
	for i, owner := range owners {
		g.hold(fmt.Sprint("chain:", i+1), "ttl=30m&"+url.Values{"owner": {owner}}.Encode())
	}
	for i, owner := range owners {
		g.patiently(fmt.Sprint("chain:", (i+1)%3+1), "ttl=30m&"+url.Values{"owner": {owner}}.Encode())
	}
}

func TestWhyAJobWaitsIsFoundInTwoClicks(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	cron := g.hold("db:orders", "ttl=30m&owner=cron")
	g.hold("deploy:web", "ttl=30m&owner=bob")
	bob := g.patiently("db:orders", "ttl=30m&owner=bob")
	g.patiently("deploy:web", "ttl=30m&owner=eve")
	job := g.patiently("deploy:web", "ttl=30m&owner=my-job")
	page := clicks{tab: openPage(t, g, "/")}
	page.goes(`#locks a[href="/locks/deploy:web"]`, "/locks/deploy:web")
	page.click(row("my-job") + " .why-open")
	page.says(row("my-job")+" .chain", "my-job", "waits", "for deploy:web", "held by bob", "for db:orders", "held by cron", "heartbeat", "same owner name")
	assert.That(t, page.n <= 2, "%d clicks", page.n)
	page.notReloaded()
	page.untilLink("live")
	assert.Equal(t, eval[string](page.tab, "location.search"), "?contender="+job.LeaseID)
	page.eachLook(func(look string) {
		page.shot("why-" + look)
		page.flawless("why, " + look)
	})
	// It is live: cron lets go, and bob's wait is over.
	g.letGo(cron.Token)
	g.awaitLock(patience, "db:orders", 1, 0)
	page.until(`!document.querySelector(".chain").innerText.includes("cron") && document.querySelector(".chain").innerText.includes("held by bob")`, "the chain ends at bob")
	page.notReloaded()
	g.letGo(bob.Token)
	page.click(row("my-job") + " [data-why-close]")
	page.until(`!document.querySelector(".chain") && location.search === ""`, "the chain is closed")
	page.notReloaded()
}

func TestADeadlockOfThreeIsFoundFromTheOverview(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	overview := openPage(t, g, "/")
	lock := openPage(t, g, "/locks/chain:2")
	deadlockOfThree(g)
	g.patiently("chain:1", "ttl=30m&owner=zoe")
	page := clicks{tab: overview}
	page.says("#deadlocks", "Deadlock:", "alice", "chain:2", "bob", "chain:3", "jörg", "chain:1", "for ", "Break one", "the youngest wait, of jörg", "POST /v1/leases")
	lock.says("#lock-head", "Deadlock:", "alice", "jörg")
	page.eachLook(func(look string) {
		page.shot("deadlock-overview-" + look)
		page.flawless("the overview with a deadlock, " + look)
	})
	page.goes("#deadlocks .deadlock a[href^='/graph']", "/graph")
	page.says("#graph", "Deadlock:", "in a cycle", "zoe", "same owner name", "Cycles are red.")
	page.until(`document.querySelectorAll(".drawn-party.drawn-bad").length === 3 && document.querySelectorAll(".drawn-party").length === 4 && document.querySelectorAll(".drawn-wait.drawn-bad").length === 3`, "the drawing has the cycle in red, and zoe")
	page.eachLook(func(look string) {
		page.shot("graph-" + look)
		page.flawless("the graph, " + look)
		wide := eval[int](page.tab, "document.documentElement.scrollWidth")
		assert.That(t, wide <= eval[int](page.tab, "innerWidth"), "%s: %d wide", look, wide)
	})
	// Its youngest wait leads to where it can be broken.
	page.resize(desktop, "light")
	page.goes(`#graph .deadlock a[href*="contender"]`, "/locks/chain:1")
	page.says(row("jörg")+".is-marked .chain", "Deadlock:")
	page.eachLook(func(look string) {
		page.shot("deadlock-chain-" + look)
		page.flawless("the chain of a deadlock, " + look)
	})
	page.press(row("jörg") + " [data-act=break]")
	page.fill("#ask-break [name=reason]", "deadlock")
	page.press("#ask-break [data-confirm]")
	page.until(`!document.querySelector(".deadlock")`, "the deadlock is over")
	lock.until(`!document.querySelector(".deadlock")`, "the deadlock is over")
	assert.That(t, page.n <= 2, "%d clicks", page.n)
}
