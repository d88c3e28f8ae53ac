package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// aPast gives a lock a past: anna's lease expired, ben's was revoked, carl released it, dora holds it and eve waits. It returns an instant at
// which anna held it.
func (g *gateway) aPast(lock string) (annas time.Time, dora api.Lease) {
	g.t.Helper()
	g.hold(lock, "ttl=2s&owner=anna&"+url.Values{"reason": {"nightly <b>import</b>"}}.Encode())
	annas = time.Now().Truncate(time.Second).Add(time.Second) // within the two seconds
	ended := func(owner string) func([]api.HistoryItem) bool {
		return func(l []api.HistoryItem) bool { return len(l) > 0 && l[0].Owner == owner && l[0].EndedAt != "" }
	}
	g.awaitHistory("limit=1&lock="+lock, ended("anna"))
	ben := g.hold(lock, "ttl=5m&owner=ben")
	a, err := g.Send(g.t.Context(), http.MethodPost, "/v1/leases/"+ben.LeaseID+"/break", apitest.Query("reason=stuck"))
	assert.Must(g.t, err == nil && a.Status == http.StatusNoContent, "%v, %+v", err, a)
	g.awaitHistory("limit=1&lock="+lock, ended("ben"))
	carl := g.hold(lock, "ttl=5m&owner=carl")
	g.letGo(carl.Token)
	g.awaitHistory("limit=1&lock="+lock, ended("carl"))
	dora = g.hold(lock, "ttl=5m&owner=dora&"+url.Values{"metadata": {`{"job": "https://ci.example.com/jobs/7", "trap": "javascript:alert(1)"}`}}.Encode())
	g.patiently(lock, "ttl=5m&owner=eve")
	g.awaitHistory("limit=1&lock="+lock, func(l []api.HistoryItem) bool { return len(l) == 1 && l[0].Owner == "dora" })
	return annas, dora
}

// whoHeldAt goes from the overview to who held a lock at an instant, and counts the clicks.
func (b *tab) whoHeldAt(g *gateway, lock string, at time.Time) (clicks int) {
	b.t.Helper()
	click := func(selector string) {
		b.press2(selector)
		clicks++
	}
	b.visit(g.url() + "/")
	b.untilLink("live")
	click(`.lock-name a[href="/locks/` + lock + `"]`)
	b.untilLoaded(`document.querySelector("#past-at")`, "the lock's page")
	click("#past-at")
	b.fill("#past-at", at.Local().Format("2006-01-02T15:04:05")) // the field is in the zone of the browser, which is that of the test
	click(".past-at .button")
	b.untilLoaded(`document.querySelector(".timeline-at")`, "the page of that instant")
	return clicks
}

// press2 clicks what need not be a button.
func (b *tab) press2(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`((e) => e && (e.click(), true))(document.querySelector(%s))`, quoted(selector)), selector+" can be clicked")
}

func TestWhoHeldALockAtAnInstantIsThreeClicksAwayAndSurvivesAKilledGateway(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	annas, _ := g.aPast("deploy")
	page := openPage(t, g, "/")
	clicks := page.whoHeldAt(g, "deploy", annas)
	assert.That(t, clicks <= 3, "%d clicks", clicks)
	page.says(".timeline-at", "it was held by", "anna", "expired", "no heartbeat")
	page.says("#holds summary", "4 holds as a list")
	address := eval[string](page, `location.href`)

	// The bar leads to the hold's facts, and so does the list.
	page.press2(".timeline-at .owner")
	page.untilLoaded(`document.querySelector("#hold")`, "the hold")
	page.says("#hold", "anna", "nightly <b>import</b>", "expired", "Next holder", "ben", "Waited", "Postmortem in the API")
	var postmortem api.Postmortem
	a, err := g.Send(t.Context(), http.MethodGet, eval[string](page, `document.querySelector('#hold a[href^="/v1/"]').getAttribute("href")`))
	assert.Must(t, err == nil && a.Status == http.StatusOK, "%v, %+v", err, a)
	assert.NoError(t, json.Unmarshal(a.Body, &postmortem))
	assert.That(t, postmortem.Owner == "anna" && postmortem.Reason == "expired", "%+v", postmortem)
	page.press2(`#hold dd a`)
	page.untilLoaded(`document.querySelector("#hold h3")?.textContent === "ben"`, "the next holder")
	page.says("#hold", "revoked", "by an administrator", "stuck")

	page.mu.Lock()
	page.away = true
	page.mu.Unlock()
	g.kill()
	g.restart()
	page.visit(address)
	page.untilLink("live")
	page.says(".timeline-at", "anna", "expired")
	page.visit(g.url() + "/locks/deploy")
	page.untilLink("live")
	page.says("#holds summary", "4 holds as a list")
	page.says("#timeline", "not recorded")
	page.until(`document.querySelectorAll("#timeline .bar-loud").length >= 1 && document.querySelector("#timeline .bar-on")`, "the bars are there")
	page.until(`Date.now() - document.querySelector(".holder-held time").dataset.since > 1000 && !("over" in document.querySelector(".holder-held time").dataset)`, "since when dora holds is known after the restart")
}

// A dialog shows the request that it will send. Here the viewer sends it.
func TestTheCurlLineOfADialogDoesWhatTheDialogDoes(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	g.hold("deploy", "ttl=5m&owner=alice")
	g.patiently("deploy", "ttl=5m&owner=bob")
	page := openPage(t, g, "/locks/deploy")
	page.until(`document.querySelector("#queue .waiter")`, "bob waits")
	line := func(act string) string {
		return eval[string](page, `document.querySelector("#ask-`+act+` [data-curl]").textContent`)
	}
	run := func(command string) string {
		out, err := exec.Command("sh", "-c", command+" --fail-with-body").CombinedOutput()
		assert.Must(t, err == nil, "%s: %v\n%s", command, err, out)
		return string(out)
	}
	page.press(row("alice") + ` ~ li [data-act=break], .waiter [data-act=break]`)
	page.fill("#ask-break [name=reason]", `it's "stuck"; $(touch /tmp/never) `+"`x`")
	page.until(`document.querySelector("#ask-break [data-curl]").textContent.includes("stuck")`, "the line follows the fields")
	run(line("break"))
	g.awaitLock(patience, "deploy", 1, 0)
	page.says("#history", `it's "stuck"; $(touch /tmp/never) `+"`x`")
	page.press("#ask-break [data-close]")

	page.press("[data-act=revoke]")
	page.fill("#ask-revoke [name=reason]", "maintenance")
	page.fill("#ask-revoke [name=force_after]", "5m")
	page.until(`document.querySelector("#ask-revoke [data-curl]").textContent.includes("5m")`, "the line follows the fields")
	assert.That(t, strings.Contains(run(line("revoke")), "alice"), "%s", line("revoke"))
	page.says(row("alice"), "Asked to release", "ends in")
	page.press("#ask-revoke [data-close]")

	// What would end contenders that were not shown is not there to be copied.
	page.press("[data-act=reap]")
	assert.That(t, line("reap") == "" && eval[bool](page, `!document.querySelector("#ask-reap [data-curl-none]").hidden`), "%s", line("reap"))
	page.press("#ask-reap [data-preview]")
	page.says("#ask-reap", "Will remove 1 contender.")
	page.fill("#ask-reap [name=reason]", "stale")
	assert.That(t, strings.Contains(line("reap"), "lease_ids"), "%s", line("reap"))
	page.press("#ask-reap [data-close]")
	page.press("[data-act=destroy]")
	page.until(`document.querySelector("#ask-destroy [data-hits] li")`, "it says what it ends")
	assert.Equal(t, line("destroy"), "", "before the name is typed")
	page.fill("#ask-destroy [name=typed]", "deploy")
	page.fill("#ask-destroy [name=reason]", "moved")
	run(line("destroy"))
	g.awaitLock(patience, "deploy", 0, 0)
	page.press("#ask-destroy [data-close]")
	page.press("[data-act=reserve]")
	page.fill("#ask-reserve [name=owner]", "o'hara")
	page.until(`document.querySelector("#ask-reserve [data-curl]").textContent.includes("hara")`, "the line follows the fields")
	assert.That(t, strings.Contains(run(line("reserve")), `"held"`), "%s", line("reserve"))
	page.says(row("o'hara"), "o'hara")
}

func TestAnIncidentIsCopiedAsTextAndAsALink(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	_, dora := g.aPast("deploy")
	page := openPage(t, g, "/locks/deploy")
	page.until(`document.querySelector("#queue .waiter")`, "eve waits")
	page.press("[data-incident=text]")
	text := eval[string](page, `document.querySelector("[data-incident=text]").dataset.copy`)
	for _, part := range []string{"Lock deploy (namespace default) at 20", g.url() + "/locks/deploy?at=20", "Held by 1:", "- dora (" + dora.LeaseID + "), held since 20", "Waiting: 1", "- eve (", "queued since",
		"curl -sS -X GET " + g.url() + "/v1/locks/deploy", "/v1/history?lock=deploy&ns=default", "curl -sS -X POST", `{"lease_ids":["` + dora.LeaseID + `"],"reason":"WHY"}`, g.url() + "/v1/locks/deploy/revoke"} {
		assert.That(t, strings.Contains(text, part), "%q is not in\n%s", part, text)
	}
	page.press("[data-incident=link]")
	link := eval[string](page, `document.querySelector("[data-incident=link]").dataset.copy`)
	g.letGo(dora.Token)
	page.visit(link)
	page.untilLink("live")
	page.says(".timeline-at", "dora")
	assert.Equal(t, eval[int](page, `document.querySelectorAll('a[href^="javascript"]').length`), 0)
}

func TestTheTimelineCanBeUsedByEveryone(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	annas, _ := g.aPast("deploy")
	for n := range 3 {
		g.hold("gpu", fmt.Sprintf("ttl=5m&mode=semaphore&limit=16&permits=5&owner=a-worker-with-a-long-name-%d", n))
	}
	g.patiently("gpu", "ttl=5m&mode=semaphore&limit=16&permits=4&owner=next")
	g.awaitHistory("lock=gpu", func(l []api.HistoryItem) bool { return len(l) == 3 })
	b := openPage(t, g, "/locks/deploy")
	at := "?at=" + annas.UTC().Format("2006-01-02T15:04:05Z")
	b.press2("#holds summary")
	chosen := eval[string](b, `[...document.querySelectorAll("#holds td a")].find((a) => a.textContent === "anna").getAttribute("href").replace(/#.*/, "")`)
	b.eachLook(func(look string) {
		for name, path := range map[string]string{"live": "/locks/deploy", "instant": "/locks/deploy" + at, "hold": chosen, "lanes": "/locks/gpu", "week": "/locks/deploy?range=7d"} {
			b.visit(g.url() + path)
			b.untilLink("live")
			b.until(`document.querySelector("#timeline .bars")`, "the timeline")
			eval[int](b, `(document.querySelectorAll("main details").forEach((d) => d.open = true), 1)`)
			b.flawless(name + ", " + look)
			wide := eval[int](b, `document.documentElement.scrollWidth - innerWidth`)
			assert.That(t, wide <= 0, "%s, %s: %d wider than the window", name, look, wide)
			eval[int](b, `(document.querySelectorAll("main details").forEach((d) => d.open = false), 1)`)
			b.shot(strings.Join([]string{"past", name, look}, "-"))
		}
		b.visit(g.url() + "/locks/deploy")
		b.untilLink("live")
		b.press("[data-act=revoke]")
		b.says("#ask-revoke", "Will ask:")
		eval[int](b, `(document.querySelector("#ask-revoke .ask-curl").open = true, 1)`)
		b.flawless("a dialog with its curl line, " + look)
		b.shot("past-curl-" + look)
	})
}

// On a phone the holder and the queue come before the timeline, to the eye as to the keyboard and to screen readers; in a wide window the timeline
// stands above them.
func TestThePartsOfALockComeInTheOrderInWhichTheyAreShown(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	annas, _ := g.aPast("deploy")
	wide := window{width: 1440, height: 900}
	page := openPage(t, g, "/locks/deploy")
	page.untilLink("live")
	const order = `[["#timeline", "past"], ["#queue", "queue"], ["#history", "history"]].map(([s, name]) => ({name, e: document.querySelector(s)}))`
	shows := func(w window, scheme, want string) {
		t.Helper()
		page.resize(w, scheme)
		page.until(order+`.sort((a, b) => a.e.compareDocumentPosition(b.e) & 4 ? -1 : 1).map((p) => p.name).join(" ") === `+quoted(want), "the document has "+want)
		const where = `({name, y: e.getBoundingClientRect().top, x: e.getBoundingClientRect().left})`
		assert.Equal(t, eval[string](page, order+`.map(({name, e}) => `+where+`).sort((a, b) => a.y - b.y || a.x - b.x).map((p) => p.name).join(" ")`), want, "to the eye")
		page.shot(fmt.Sprintf("lock-order-%d", w.width))
		page.flawless(want)
	}
	shows(wide, "light", "past queue history")
	shows(phone, "light", "queue past history")
	below := eval[float64](page, `document.querySelector("#queue .holder-who").getBoundingClientRect().bottom - innerHeight`)
	assert.That(t, below < 0, "the holder's name ends %v px below the fold of a phone", below)
	shows(wide, "light", "past queue history")
	// A page that was asked for an instant shows that first.
	page.resize(phone, "light")
	page.shot("lock-order-phone")
	page.visit(g.url() + "/locks/deploy?at=" + annas.UTC().Format("2006-01-02T15:04:05Z"))
	page.untilLink("live")
	shows(phone, "light", "past queue history")
}

// The history of an own gateway, because five holds must have ended before the row is looked at.
func TestARowOfTheOverviewSaysForHowLongItsLockIsUsuallyHeld(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	for range 5 {
		g.letGo(g.hold("deploy", "ttl=5m&owner=anna").Token)
	}
	g.hold("deploy", "ttl=5m&owner=ben")
	g.awaitHistory("limit=1&lock=deploy", func(l []api.HistoryItem) bool { return len(l) == 1 && l[0].Owner == "ben" })
	page := openPage(t, g, "/")
	page.says("#locks", "(usually under 1 s)")
	page.notReloaded()
}
