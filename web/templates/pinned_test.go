package templates

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// holders makes the page's queue have other holders, as a push does: each is {owner, lease id}.
func (b *browser) holders(list ...[2]string) {
	b.t.Helper()
	var rows strings.Builder
	for _, one := range list {
		rows.WriteString(`add("` + one[0] + `", "` + one[1] + `");`)
	}
	eval[bool](b, `htmx.swap({sourceElement: live, target: live, swap: "none", text: (() => {
		const q = document.querySelector("#queue").cloneNode(true), sample = q.querySelector(".holder");
		q.setAttribute("hx-swap-oob", "outerMorph"); // which the last swap took away
		for (const row of q.querySelectorAll(".holder")) row.remove();
		const add = (who, lease) => { const row = sample.cloneNode(true); row.id = "holder/" + lease; row.dataset.who = who; row.dataset.leaseId = lease; q.querySelector(".holders-list").append(row); };
		`+rows.String()+`
		return q.outerHTML; })()}).then(() => true)`)
}

const onlyAlice, onlyBob = `"lease_ids":["alice-1"]`, `"lease_ids":["bob-1"]`

// The push that tells of another holder comes while the dialog is open.
func TestTheDialogStaysWithTheHolderThatItHasShown(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/lock-asked", api)
	page.holders([2]string{"alice", "alice-1"})
	page.press("[data-act=revoke]")
	page.shows("#ask-revoke", "Will ask:", "Ask alice")
	page.fill("#ask-revoke [name=reason]", "maintenance")
	page.fill("#ask-revoke [name=force_after]", "30s")
	page.holders([2]string{"bob", "bob-1"})
	page.until(`document.querySelector("#ask-revoke [data-confirm]").disabled`, "there is no holder to ask")
	page.shows("#ask-revoke [role=status]", "alice no longer holds the lock. bob holds it now.")
	page.press("#ask-revoke [data-confirm]")
	got, n := api.last()
	assert.Must(t, n == 0, "it was sent: %v", got)
	page.shows("#ask-revoke [data-instead]", "Ask bob instead…")
	page.press("#ask-revoke [data-begin]")
	page.shows("#ask-revoke", "Will ask:", "Ask bob")
	api.says(http.StatusOK, map[string]any{"asked": []any{map[string]any{"owner": "bob", "lease_id": "bob-1"}}, "unreached": []any{}})
	page.press("#ask-revoke [data-confirm]")
	page.until(`!document.querySelector("dialog[open]")`, "it is done")
	page.shows("#done", "Asked bob to release.")
	if got, _ := api.last(); !strings.Contains(got, onlyBob) || strings.Contains(got, "force_after") || !strings.Contains(got, "maintenance") {
		t.Error("what was meant for alice goes to bob:", got)
	}

	page.press("[data-act=revoke]")
	page.holders()
	page.until(`document.querySelector("#ask-revoke [data-confirm]").disabled`, "there is no holder to ask")
	page.shows("#ask-revoke [role=status]", "bob no longer holds the lock. Nothing to do.")
}

// No push has come: the gateway tells it.
func TestTheDialogShowsWhatTheGatewayRefuses(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/lock-asked", api)
	page.holders([2]string{"alice", "alice-1"})
	page.press("[data-act=revoke]")
	api.says(http.StatusConflict, map[string]any{"code": "holder_changed", "detail": "it changed", "holders": []any{map[string]any{"owner": "bob", "lease_id": "bob-1"}}})
	page.press("#ask-revoke [data-confirm]")
	page.until(`document.querySelector("#ask-revoke").innerText.includes("Ask bob instead…")`, "it says who holds now")
	page.shows("#ask-revoke [role=status]", "No holder was asked. alice no longer holds the lock. bob holds it now.")
	got, _ := api.last()
	assert.That(t, strings.Contains(got, onlyAlice), "%v", got)
	assert.That(t, eval[bool](page, `document.querySelector("#ask-revoke [data-confirm]").disabled`), "alice can be asked once more")
	eval[bool](page, `htmx.swap({sourceElement: live, target: live, swap: "none", text: document.querySelector("#lock-head").outerHTML}).then(() => true)`)
	page.press("#ask-revoke [data-begin]")
	page.shows("#ask-revoke", "Will ask:", "Ask bob")
	api.says(http.StatusConflict, map[string]any{"code": "nothing_to_ask", "detail": "no holder can be asked to let go: why"})
	page.press("#ask-revoke [data-confirm]")
	page.until(`document.querySelector("#ask-revoke [data-problem]").textContent.includes("no holder can be asked") || document.querySelector("#ask-revoke [data-problem]").textContent.includes("No holder can be asked")`, "it says why")
	got, _ = api.last()
	assert.That(t, strings.Contains(got, onlyBob), "%v", got)
}

// Of several the others are asked, and those who came are not.
func TestOfSeveralHoldersThoseThatWereShownAreAsked(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/lock-asked", api)
	page.holders([2]string{"alice", "alice-1"}, [2]string{"bob", "bob-1"})
	page.press("[data-act=revoke]")
	page.shows("#ask-revoke", "Will ask 2 holders:", "Ask 2 holders")
	page.holders([2]string{"bob", "bob-1"}, [2]string{"carol", "carol-1"})
	page.until(`document.querySelector("#ask-revoke [data-confirm]").textContent === "Ask bob"`, "alice is gone")
	page.shows("#ask-revoke [role=status]", "alice no longer holds the lock. carol came since, and is not asked. Will ask:")
	api.says(http.StatusOK, map[string]any{"asked": []any{map[string]any{"owner": "bob"}}})
	page.press("#ask-revoke [data-confirm]")
	page.until(`!document.querySelector("dialog[open]")`, "it is done")
	got, _ := api.last()
	assert.That(t, strings.Contains(got, onlyBob), "%v", got)
}

func TestAReapThatIsRefusedShowsTheQueueAnew(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/lock-readers", api)
	page.press("[data-act=reap]")
	waits := func(owner string) any {
		return map[string]any{"owner": owner, "lease_id": owner, "znode": "/" + owner, "position": 1}
	}
	looks := func(status int, problem any, list ...any) {
		api.mu.Lock()
		defer api.mu.Unlock()
		api.answer = func(_ string, body map[string]any) (int, any) {
			if body["dry_run"] == true || problem == nil {
				return http.StatusOK, map[string]any{"reaped": list}
			}
			return status, problem
		}
	}
	looks(200, nil, waits("ci-1"))
	page.press("#ask-reap [data-preview]")
	page.until(`document.querySelector("#ask-reap [data-confirm]").textContent === "Remove 1 contender"`, "it has looked")
	looks(http.StatusConflict, map[string]any{"code": "holder_changed", "detail": "it holds"}, waits("ci-2"), waits("ci-3"))
	page.fill("#ask-reap [name=reason]", "stuck")
	page.press("#ask-reap [data-confirm]")
	page.until(`document.querySelector("#ask-reap [data-confirm]").textContent === "Remove 2 contenders"`, "it shows the others")
	page.shows("#ask-reap [role=status]", "The queue has changed since, and nothing was removed. Will remove 2 contenders.")
	looks(200, nil, waits("ci-2"))
	page.fill("#ask-reap [name=reason]", "stuck")
	page.press("#ask-reap [data-confirm]")
	page.until(`!document.querySelector("dialog[open]")`, "it is done")
	// A contender shown as a waiter must not be ended as a holder.
	got, _ := api.last()
	assert.That(t, got == `POST /v1/locks/sample/reap {"lease_ids":["ci-2","ci-3"],"older_than":"0s","reason":"stuck","state":"waiting"}`, "%v", got)
}

func TestALockIsNotDestroyedWithNewContenders(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/lock-readers", api)
	destroyed := false // of api's mutex
	destroys := func() bool {
		api.mu.Lock()
		defer api.mu.Unlock()
		return destroyed
	}
	in := func(owners ...string) {
		var list []any
		for _, owner := range owners {
			list = append(list, map[string]any{"owner": owner, "lease_id": owner})
		}
		api.mu.Lock()
		defer api.mu.Unlock()
		api.answer = func(path string, body map[string]any) (int, any) {
			if strings.HasSuffix(path, "/destroy") {
				shown, pinned := body["lease_ids"].([]any)
				if pinned && slices.ContainsFunc(owners, func(owner string) bool { return !slices.Contains(shown, any(owner)) }) {
					return http.StatusConflict, map[string]any{"code": "holder_changed", "detail": "another has come"}
				}
				destroyed = true
				return http.StatusOK, map[string]any{"ended": len(list)}
			}
			return http.StatusOK, map[string]any{"dry_run": true, "reaped": list}
		}
	}
	in("alice")
	page.press("[data-act=destroy]")
	page.until(`document.querySelector("#ask-destroy").innerText.includes("Ends 1 contender.")`, "it says what it ends")
	page.fill("#ask-destroy [name=typed]", "catalogue")
	in("alice", "bob")
	page.fill("#ask-destroy [name=reason]", "stuck")
	page.press("#ask-destroy [data-confirm]")
	page.until(`document.querySelector("#ask-destroy").innerText.includes("New contenders came since, so the lock was not destroyed.")`, "it says so")
	page.shows("#ask-destroy", "Ends 2 contenders.", "bob")
	assert.Must(t, !destroys(), "who was not shown was ended")
	in("bob")
	page.fill("#ask-destroy [name=reason]", "stuck")
	page.press("#ask-destroy [data-confirm]")
	page.until(`!document.querySelector("dialog[open]")`, "a contender that has gone does not block the request")
	assert.That(t, destroys(), "it was not destroyed")
	in("alice")
	page.press("[data-act=destroy]")
	page.until(`document.querySelector("#ask-destroy").innerText.includes("Ends 1 contender.")`, "it says what it ends")
	page.fill("#ask-destroy [name=typed]", "catalogue")
	eval[int](page, `(document.querySelector("#ask-destroy [name=newcomers]").checked = true, 1)`)
	in("bob")
	page.fill("#ask-destroy [name=reason]", "stuck")
	page.press("#ask-destroy [data-confirm]")
	page.until(`!document.querySelector("dialog[open]")`, "newcomers are meant, too")
}

func TestARequestToReleaseIsWithdrawn(t *testing.T) {
	api := new(fakeAPI)
	page, _ := browseWith(t, "/lock-asked", api)
	page.shows("#queue .holder .asked", "Withdraw")
	api.says(http.StatusOK, map[string]any{"withdrawn": []any{map[string]any{}}, "unreached": []any{}, "more": false})
	page.press("#queue [data-withdraw]")
	page.until(`document.querySelector("#done.good")?.textContent.includes("Withdrawn: nightly-report is not asked to release any more.")`, "it is done")
	got, _ := api.last()
	assert.That(t, got == "DELETE /v1/locks/sample/revoke?lease_ids="+leaseID(1)+" null", "%v", got)
	api.says(http.StatusOK, map[string]any{"withdrawn": []any{}, "unreached": []any{map[string]any{"detail": "its lease ended"}}, "more": false})
	page.press("#queue [data-withdraw]")
	page.until(`document.querySelector("#done.bad")?.textContent.includes("Nothing was withdrawn")`, "force was quicker")
	page.shows("#done", "1 could not be: Its lease ended.")
	api.says(http.StatusConflict, map[string]any{"code": "holder_changed", "detail": "it holds no more"})
	page.press("#queue [data-withdraw]")
	page.until(`document.querySelector("#done.bad")?.textContent === "It holds no more."`, "it has gone")
}

func TestAskingIsNotOfferedWhereNoHolderCanBeAsked(t *testing.T) {
	root := parse(t, render(LockPage(Lock{Page: Page{}, Revoke: "/v1/x", NoneToAsk: true, Destroy: "/v1/y", Reap: "/v1/z"})))
	for _, e := range elements(root) {
		id, _ := attr(e, "id")
		_, disabled := attr(e, "disabled")
		why, _ := attr(e, "aria-describedby")
		assert.That(t, id != "act-revoke" || disabled && why == "act-revoke-why", "asking is offered")
		assert.That(t, id != "act-revoke-why" || strings.Contains(text(e), "cannot be asked"), "it says %q", text(e))
	}
}
