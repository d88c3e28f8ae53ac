package templates

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"golang.org/x/net/html"

	"lockkeeper/internal/test/assert"
)

// fakeAPI notes requests and gives set answers; a reap that only looks finds two.
type fakeAPI struct {
	mu     sync.Mutex
	asked  []string
	etag   string // of all answers
	answer func(path string, body map[string]any) (int, any)
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	sent, _ := json.Marshal(body)
	f.mu.Lock()
	request := r.Method + " " + r.URL.RequestURI() + " " + string(sent)
	if match := r.Header.Get("If-Match"); match != "" {
		request += " if it is " + match
	}
	f.asked = append(f.asked, request)
	answer, etag := f.answer, f.etag
	f.mu.Unlock()
	status, content := http.StatusOK, any(map[string]any{"dry_run": true, "reaped": []any{ // from the tail
		map[string]any{"foreign": map[string]any{"program": "curator"}, "mode": "exclusive", "znode": "/b", "position": 3},
		map[string]any{"lease_id": leaseID(1), "owner": "web-1", "mode": "shared", "znode": "/a"}}})
	if answer != nil {
		status, content = answer(r.URL.Path, body)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("ETag", etag)
	if status >= http.StatusBadRequest {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content)
}

// last is the latest request, and how many there were.
func (f *fakeAPI) last() (request string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) == 0 {
		return "", 0
	}
	return f.asked[len(f.asked)-1], len(f.asked)
}

// has is what it says of a webhook that is looked at.
func (f *fakeAPI) has(etag string, webhook map[string]any) {
	f.says(http.StatusOK, webhook)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.etag = etag
}

func (f *fakeAPI) says(status int, content any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = func(string, map[string]any) (int, any) { return status, content }
}

// press clicks an element as a script may, also an invisible one.
func (b *browser) press(selector string) {
	b.t.Helper()
	eval[int](b, fmt.Sprintf(`(document.querySelector(%q).click(), 1)`, selector))
	// A dialog may come a moment later: its script is loaded when it is first needed.
	b.until(fmt.Sprintf(`((on) => !on || on.open)(document.querySelector("#ask-" + document.querySelector(%q)?.dataset.act))`, selector), "the dialog is open")
}

// fill types into a field.
func (b *browser) fill(selector, value string) {
	b.t.Helper()
	eval[int](b, fmt.Sprintf(`((e) => { e.value = %q; e.dispatchEvent(new Event("input", {bubbles: true})); return 1; })(document.querySelector(%q))`, value, selector))
}

func (b *browser) shows(selector string, want ...string) {
	b.t.Helper()
	got := b.text(selector)
	for _, w := range want {
		assert.That(b.t, strings.Contains(got, w), "%s says %q, not %q", selector, got, w)
	}
}

func TestAButtonCopiesAllOfWhatIsShownInPart(t *testing.T) {
	page, _ := browse(t, "/lock-readers")
	eval[int](page, `(navigator.clipboard.writeText = async (text) => { window.copied = text }, document.querySelector("#queue .holder .znode .copy").click(), 1)`)
	page.until("window.copied", "something is copied")
	znode := eval[string](page, `document.querySelector("#queue .holder").dataset.znode`)
	assert.Equal(t, eval[string](page, "window.copied"), znode, "what is copied")
}

// Most viewers only look.
func TestTheScriptOfAQueuesDialogsComesWhenItIsNeeded(t *testing.T) {
	const there = `Boolean(document.querySelector("script[src$='/queue.js']"))`
	page, stop := browse(t, "/lock-readers")
	assert.That(t, !eval[bool](page, there), "it comes with the page")
	stop()
	eval[int](page, `(document.querySelector("[data-act=reap]").click(), 1)`)
	page.until(`document.querySelector("#done").textContent === "The gateway did not answer."`, "the page says that it did not come")
	assert.That(t, !eval[bool](page, `Boolean(document.querySelector("dialog[open]"))`), "there is an empty dialog")

	page, _ = browse(t, "/lock-readers")
	eval[int](page, `(document.querySelector("[data-act=reap]").dispatchEvent(new Event("pointerover", {bubbles: true})), 1)`)
	page.until(there, "it comes when the pointer is on a button")
	page.press("[data-act=reap]")
	assert.Equal(t, eval[int](page, `document.querySelectorAll("script[src$='/queue.js']").length`), 1, "how often it was loaded")
}

func TestHoldersAreAskedToReleaseAfterTheDialogHasNamedThem(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/lock-readers", api)
	page.press("[data-act=revoke]")
	page.shows("#ask-revoke", "Will ask 3 holders:", "web-1", "web-2", "web-7", "Ask 3 holders")
	_, n := api.last()
	assert.Must(t, n == 0, "it has asked before it was told to")
	page.fill("#ask-revoke [name=reason]", "maintenance")
	page.fill("#ask-revoke [name=force_after]", "soon")
	page.press("#ask-revoke [data-confirm]")
	_, n = api.last()
	assert.Must(t, n == 0, "a time without a unit was sent")
	page.fill("#ask-revoke [name=force_after]", " 30s ")
	api.says(http.StatusConflict, map[string]any{"title": "Conflict", "detail": "the lock is somewhere else"})
	page.press("#ask-revoke [data-confirm]")
	page.until(`document.querySelector("#ask-revoke [data-problem]").textContent === "The lock is somewhere else."`, "it says what went wrong")
	api.says(http.StatusOK, map[string]any{"asked": []any{1, 2}, "unreached": []any{map[string]any{"contender": map[string]any{}, "detail": "another program has it"}}})
	page.press("#ask-revoke [data-confirm]")
	page.until(`!document.querySelector("dialog[open]")`, "it is done")
	page.shows("#done", "Asked 2 holders to release.", "1 could not be: Another program has it.")
	if got, _ := api.last(); got != `POST /v1/locks/sample/revoke {"force_after":"30s","lease_ids":["`+leaseID(1)+`","`+leaseID(2)+`","`+leaseID(3)+`"],"reason":"maintenance"}` {
		t.Error(got)
	}
}

// The API asks no program for a reason; a person at a page is asked for one.
func TestWhatEndsLeasesNeedsAReason(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/lock-readers", api)
	sent := func() (n int) { _, n = api.last(); return n }
	for _, c := range []struct{ button, dialog string }{
		{"#queue .holder:nth-child(2) [data-act=break]", "break"}, {"[data-act=reap]", "reap"}, {"[data-act=destroy]", "destroy"}, {"[data-act=revoke]", "revoke"},
	} {
		dialog := "#ask-" + c.dialog
		page.press(c.button)
		switch c.dialog {
		case "reap":
			page.press(dialog + " [data-preview]") // what is only looked at needs none
			page.until(`!document.querySelector("#ask-reap [data-confirm]").disabled`, "it has looked")
		case "destroy":
			page.fill(dialog+" [name=typed]", "catalogue")
		case "revoke":
			page.fill(dialog+" [name=force_after]", "30s") // a request alone needs none
		}
		page.until(`!document.querySelector("`+dialog+`").hasAttribute("aria-busy")`, "it has read what it ends")
		before := sent()
		for _, reason := range []string{"", "  "} {
			page.fill(dialog+" [name=reason]", reason)
			page.press(dialog + " [data-confirm]")
			assert.That(t, sent() == before && eval[bool](page, `document.querySelector("`+dialog+`").open`), "%s: %q is taken for a reason", c.dialog, reason)
		}
		page.press(dialog + " [data-close]")
	}
	page.press("[data-act=revoke]")
	api.says(http.StatusOK, map[string]any{"asked": []any{1}})
	page.press("#ask-revoke [data-confirm]")
	page.until(`!document.querySelector("dialog[open]")`, "a request alone is sent without a reason")
}

func TestABreakSaysWhatItMeansForThatContender(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/lock-readers", api)
	for selector, want := range map[string]struct{ says, sends string }{
		".holder:nth-child(2)": {"Ends the lease of a holder:", "POST /v1/leases/" + leaseID(2) + "/break null"},
		".waiter:nth-child(1)": {"loses its place in line", "POST /v1/leases/" + leaseID(4) + "/break null"},
		".waiter.is-foreign":   {"It belongs to another program", "POST /v1/locks/sample/contenders/_c_0b6f-lock-0000000014/break null"},
	} {
		page.press("#queue " + selector + " [data-act=break]")
		page.shows("#ask-break", want.says)
		assert.That(t, !strings.Contains(page.text("#ask-break"), "its other locks"), "%s is of no group", selector)
		api.says(http.StatusOK, map[string]any{})
		page.fill("#ask-break [name=reason]", "stuck")
		page.press("#ask-break [data-confirm]")
		page.until(`!document.querySelector("dialog[open]")`, "it is done")
		got, _ := api.last()
		assert.That(t, got == strings.Replace(want.sends, "null", `{"reason":"stuck"}`, 1), "%v", got)
		page.until(`document.activeElement === document.querySelector("#queue `+selector+`")`, "the focus is back on the row")
	}
	run(page, chromedp.Navigate(eval[string](page, "location.origin")+"/lock-group"))
	page.press("#queue .waiter [data-act=break]")
	page.shows("#ask-break", "in its other locks, too: account:4711, account:815 and team/ledger.")
}

func TestAContenderThatHasGoneMeanwhileIsNotBroken(t *testing.T) {
	page, _ := browse(t, "/lock-readers")
	page.press("#queue .holder:nth-child(2) [data-act=break]")
	eval[bool](page, `htmx.swap({sourceElement: live, target: live, swap: "none", text: (() => {
		const q = document.querySelector("#queue").cloneNode(true); q.querySelector(".holder:nth-child(2)").remove(); return q.outerHTML; })()}).then(() => true)`)
	page.until(`document.querySelector("#ask-break [data-confirm]").disabled`, "there is nothing to break")
	page.shows("#ask-break", "It is not on this page any more", "web-2")
	eval[int](page, `(document.querySelector("#ask-break [data-close]").click(), 1)`)
	page.until(`document.activeElement.id === "main"`, "the focus is not lost")
}

func TestAWaiterThatHoldsByNowIsShownAsAHolder(t *testing.T) {
	page, _ := browse(t, "/lock-readers")
	page.press("#queue .waiter:nth-child(1) [data-act=break]")
	page.shows("#ask-break", "Remove from the queue:", "It loses its place in line.")
	eval[bool](page, `htmx.swap({sourceElement: live, target: live, swap: "none", text: (() => {
		const q = document.querySelector("#queue").cloneNode(true), holder = q.querySelector(".holder:nth-child(2)"), waiter = q.querySelector(".waiter");
		holder.id += "/now"; holder.dataset.who = waiter.dataset.who; holder.dataset.leaseId = waiter.dataset.leaseId; waiter.remove(); return q.outerHTML; })()}).then(() => true)`)
	page.until(`document.querySelector("#ask-break").innerText.includes("Ends the lease of a holder:")`, "it holds")
	page.shows("#ask-break", "indexer", "may go on working")
	page.press("#ask-break [data-close]")
	page.until(`document.activeElement.id.endsWith("/now")`, "the focus is where it is now")
}

func TestAReapShowsWhatItEndsFirst(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/lock-readers", api)
	page.press("[data-act=reap]")
	assert.Must(t, eval[bool](page, `document.querySelector("#ask-reap [data-confirm]").disabled`), "one may reap unseen")
	page.fill("#ask-reap [name=older_than]", "10m")
	page.fill("#ask-reap [name=foreign]", "false")
	page.press("#ask-reap [data-preview]")
	page.until(`!document.querySelector("#ask-reap [data-confirm]").disabled`, "it has looked")
	got := page.text("#ask-reap [data-hits] li")
	assert.That(t, strings.Contains(got, "web-1"), "%s comes before who holds", got)
	page.shows("#ask-reap", "Will remove 2 contenders, 1 of other programs.", "web-1", "holds", "curator", "waiting at 3", "Remove 2 contenders")
	got, _ = api.last()
	assert.Equal(t, got, `POST /v1/locks/sample/reap {"dry_run":true,"foreign":false,"older_than":"10m"}`)
	page.fill("#ask-reap [name=older_than]", "")
	page.press("#ask-reap [data-preview]")
	page.until(`!document.querySelector("#ask-reap").hasAttribute("aria-busy")`, "it has looked")
	got, _ = api.last()
	assert.Equal(t, got, `POST /v1/locks/sample/reap {"dry_run":true,"foreign":false,"older_than":"0s"}`)
	page.fill("#ask-reap [name=older_than]", "1m")
	assert.That(t, eval[bool](page, `document.querySelector("#ask-reap [data-confirm]").disabled`),
		"another filter, and its contenders have not been shown")
	page.press("#ask-reap [data-preview]")
	page.until(`!document.querySelector("#ask-reap [data-confirm]").disabled`, "it has looked again")
	page.fill("#ask-reap [name=reason]", "old")
	api.says(http.StatusOK, map[string]any{"reaped": []any{map[string]any{}}, "unreached": []any{map[string]any{"contender": map[string]any{}, "detail": "it has ended"}}})
	page.press("#ask-reap [data-confirm]")
	page.until(`!document.querySelector("dialog[open]")`, "it is done")
	// Two requests: first those that were shown waiting, then the others. The fake answers both alike.
	page.shows("#done", "Removed 2 contenders. Skipped 2: It has ended.")
	got, _ = api.last()
	assert.Equal(t, got, `POST /v1/locks/sample/reap {"foreign":false,"lease_ids":["`+leaseID(1)+`"],"older_than":"1m","reason":"old"}`)
}

// The answer to an old filter shows nothing, and allows nothing.
func TestAReapThatIsAnsweredLateAllowsNothing(t *testing.T) {
	api, goOn := new(fakeAPI), make(chan struct{})
	api.answer = func(string, map[string]any) (int, any) {
		<-goOn
		return http.StatusOK, map[string]any{"reaped": []any{map[string]any{"owner": "web-1"}}}
	}
	page, _ := browseWith(t, "/lock-readers", api)
	page.press("[data-act=reap]")
	page.press("#ask-reap [data-preview]")
	page.until(`document.querySelector("#ask-reap").hasAttribute("aria-busy")`, "it looks")
	page.fill("#ask-reap [name=state]", "held")
	close(goOn)
	page.until(`!document.querySelector("#ask-reap").hasAttribute("aria-busy")`, "it has looked")
	if !eval[bool](page, `document.querySelector("#ask-reap [data-confirm]").disabled`) || strings.Contains(page.text("#ask-reap"), "web-1") {
		t.Error("it shows the contenders of another filter")
	}
}

func TestALockIsDestroyedOnlyByItsName(t *testing.T) {
	api := new(fakeAPI)
	page, stop := browseWith(t, "/lock-readers", api)
	page.press("[data-act=destroy]")
	page.until(`document.querySelector("#ask-destroy").innerText.includes("Ends 2 contenders, 1 of other programs.")`, "it says what it ends")
	got, _ := api.last()
	assert.Equal(t, got, `POST /v1/locks/sample/reap {"dry_run":true,"older_than":"0s"}`)
	for _, name := range []string{"", "catalog", "Catalogue"} {
		page.fill("#ask-destroy [name=typed]", name)
		page.fill("#ask-destroy [name=reason]", "stuck")
		page.press("#ask-destroy [data-confirm]")
	}
	got, n := api.last()
	assert.Must(t, n == 1, "it took the wrong name: %v", got)
	page.fill("#ask-destroy [name=typed]", "catalogue")
	api.says(http.StatusOK, map[string]any{"ended": 9, "foreign": 1})
	page.fill("#ask-destroy [name=reason]", "stuck")
	page.press("#ask-destroy [data-confirm]")
	page.until(`!document.querySelector("dialog[open]")`, "it is done")
	page.shows("#done", "9 contenders ended, 1 of other programs.")
	got, _ = api.last()
	assert.Equal(t, got, `POST /v1/locks/sample/destroy {"lease_ids":["lk2s4u7q3vwkd2xhm5a9e3779b1"],"reason":"stuck","znodes":["/b"]}`)

	page.press("[data-act=destroy]")
	page.fill("#ask-destroy [name=typed]", "catalogue")
	page.until(`!document.querySelector("#ask-destroy").hasAttribute("aria-busy")`, "it has looked")
	assert.That(t, eval[bool](page, `document.querySelector("#ask-destroy [data-confirm]").disabled`), "it would destroy what it has not shown")
	page.press("#ask-destroy [name=newcomers]")
	stop()
	page.fill("#ask-destroy [name=reason]", "stuck")
	page.press("#ask-destroy [data-confirm]")
	page.until(`document.querySelector("#ask-destroy [data-problem]").innerText.includes("check the queue before you repeat it")`, "no answer comes")
}

// Keys belong to the dialog while it is open, and Escape leaves everything as it was.
func TestADialogIsLeftWithTheKeyboard(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/lock-readers", api)
	eval[int](page, `(document.querySelector("[data-act=revoke]").focus(), 1)`)
	run(page, chromedp.KeyEvent("\r"))
	page.until(`document.querySelector("#ask-revoke").open && document.activeElement.name === "reason"`, "the first field has the focus")
	run(page, chromedp.KeyEvent("j?"))
	assert.Equal(t, eval[string](page, `document.querySelector("#ask-revoke [name=reason]").value`), "j?", "the field has")
	run(page, chromedp.KeyEvent("\u001b"))
	page.until(`!document.querySelector("dialog[open]") && document.activeElement.id === "act-revoke"`, "the focus is back")
	got, n := api.last()
	assert.That(t, n == 0, "it was done: %v", got)
}

func TestEveryDialogHasANameAndEveryFieldALabel(t *testing.T) {
	for path, v := range states(noon) {
		root := parse(t, render(LockPage(v)))
		ids, dialogs := map[string]*html.Node{}, 0
		for _, e := range elements(root) {
			if id, ok := attr(e, "id"); ok {
				ids[id] = e
			}
		}
		for _, e := range elements(root) {
			if e.Data == "dialog" {
				dialogs++
				label, _ := attr(e, "aria-labelledby")
				assert.That(t, ids[label] != nil && strings.TrimSpace(text(ids[label])) != "", "%s: a dialog without a name", path)
			}
			if e.Data != "input" && e.Data != "select" {
				continue
			}
			labelled := false
			for p := range e.Ancestors() {
				labelled = labelled || p.Data == "label" && strings.TrimSpace(text(p)) != ""
			}
			assert.That(t, labelled, "%s: a field without a label: %v", path, e.Attr)
		}
		assert.That(t, dialogs == 8, "%s: %d dialogs", path, dialogs)
	}
}

func TestNoDialogIsWiderThanAPhone(t *testing.T) {
	page, _ := browse(t, "/lock-readers")
	_, err := chromedp.Call(page.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 320, Height: 700, DeviceScaleFactor: 1})
	assert.NoError(t, err)
	for _, act := range []string{"reserve", "revoke", "reap", "destroy", "break"} {
		page.press("[data-act=" + act + "]")
		page.until(`document.querySelector("#ask-`+act+`").open`, "it is open")
		if left, right := eval[float64](page, `document.querySelector("dialog[open]").getBoundingClientRect().left`), eval[float64](page, `document.querySelector("dialog[open]").getBoundingClientRect().right`); left < 0 || right > 320 {
			t.Errorf("%s: from %v to %v", act, left, right)
		}
		wide := eval[bool](page, `document.querySelector("dialog[open]").scrollWidth > document.querySelector("dialog[open]").clientWidth`)
		assert.That(t, !wide, "%s: it must be scrolled sideways", act)
		page.press("#ask-" + act + " [data-close]")
	}
}
