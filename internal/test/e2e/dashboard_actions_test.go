package e2e

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/assert"
)

// press clicks the first element that the selector finds, and fill writes into one. Looking and clicking are one step: what
// comes to the page in between may replace the element.
func (b *tab) press(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`((e) => e?.disabled === false && (e.click(), true))(document.querySelector(%s))`, quoted(selector)), selector+" can be pressed")
}

func (b *tab) fill(selector, value string) {
	b.t.Helper()
	eval[int](b, fmt.Sprintf(`((e) => { e.value = %s; e.dispatchEvent(new Event("input", {bubbles: true})); return 1; })(document.querySelector(%s))`, quoted(value), quoted(selector)))
}

func TestHoldersAreAskedToReleaseFromThePage(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	alice := g.hold("deploy", "ttl=5m&owner=alice")
	g.patiently("deploy", "ttl=5m&owner=bob")
	page := openPage(t, g, "/locks/deploy")
	page.press("[data-act=revoke]")
	page.says("#ask-revoke", "Asks 1 holder.", "alice")
	page.fill("#ask-revoke [name=reason]", "maintenance <b>tonight</b>")
	page.press("#ask-revoke [data-confirm]")
	page.says("#done", "Asked alice to release.")
	page.says(row("alice"), "Asked to release", "maintenance <b>tonight</b>")
	if beat := g.beat(alice.Token, api.StateHeld); beat.RevokeRequested == nil || beat.RevokeRequested.Reason != "maintenance <b>tonight</b>" {
		t.Errorf("the heartbeat tells %+v", beat.RevokeRequested)
	}
	// Then by force.
	page.press("[data-act=revoke]")
	page.fill("#ask-revoke [name=reason]", "now")
	page.fill("#ask-revoke [name=force_after]", "2s")
	page.press("#ask-revoke [data-confirm]")
	page.says(row("alice"), "ends in")
	page.says("#history", "revoked", "by an administrator")
	page.until(`!document.querySelector('`+row("alice")+`')`, "alice is gone")
	page.until(`document.querySelector('#queue .holder[data-who="bob"]')`, "bob holds")
	page.notReloaded()
}

func TestContendersAreBrokenFromThePage(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	g.hold("deploy", "ttl=5m&owner=alice")
	g.patiently("deploy", "ttl=5m&owner=bob")
	g.foreign(t).put("/lockkeeper/locks/deploy/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-", []byte("10.0.3.17"))
	g.patiently("deploy", "ttl=5m&owner=carol")
	page := openPage(t, g, "/locks/deploy")
	for _, c := range []struct{ row, says string }{
		{row("bob"), "It loses its place in line."},
		{"#queue .is-foreign", "It belongs to another program"},
		{row("alice"), "may go on working"},
	} {
		page.until(`document.querySelector('`+c.row+`')`, "it is there")
		id := eval[string](page, `document.querySelector('`+c.row+`').id`)
		page.press(c.row + " [data-act=break]")
		page.says("#ask-break", c.says)
		page.fill("#ask-break [name=reason]", "stuck")
		page.press("#ask-break [data-confirm]")
		page.says("#done", "was ended")
		page.until(`!document.getElementById(`+quoted(id)+`)`, "it is gone from the page")
	}
	page.until(`document.querySelector('#queue .holder[data-who="carol"]')`, "carol holds")
	page.says("#history", "by an administrator: stuck")
	// One who is gone: the gateway says so, in the dialog.
	page.press(row("carol") + " [data-act=break]")
	eval[int](page, `(window.fetch = ((f) => (url, o) => f("/v1/locks/deploy/contenders/gone-lock-0000000099/break", o))(window.fetch), 1)`)
	page.expectOutage(true) // the browser complains of the 404
	page.press("#ask-break [data-confirm]")
	page.until(`document.querySelector("#ask-break [data-problem]").textContent.length > 20`, "it says what went wrong")
	page.notReloaded()
}

func TestALockIsReapedAndDestroyedFromThePage(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	g.hold("deploy", "ttl=5m&owner=alice")
	g.patiently("deploy", "ttl=5m&owner=nightly")
	g.patiently("deploy", "ttl=5m&owner=nightly")
	g.patiently("deploy", "ttl=5m&owner=bob")
	g.foreign(t).put("/lockkeeper/locks/deploy/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-", []byte("10.0.3.17"))
	page := openPage(t, g, "/locks/deploy")
	page.until(`document.querySelectorAll("#queue .waiter").length === 4`, "all are there")
	page.press("[data-act=reap]")
	page.fill("#ask-reap [name=owner]", "nightly")
	page.press("#ask-reap [data-preview]")
	page.says("#ask-reap", "Ends 2 contenders.", "nightly", "waiting at 1")
	n := eval[int](page, `document.querySelectorAll("#queue .waiter").length`)
	assert.That(t, n == 4, "a look has ended a contender: %d wait", n)
	page.press("#ask-reap [data-confirm]")
	page.says("#done", "Reaped 2 contenders.")
	page.until(`document.querySelectorAll("#queue .waiter").length === 2`, "they are gone")

	page.press("[data-act=destroy]")
	page.says("#ask-destroy", "Ends 3 contenders, 1 of other programs.", "alice", "bob")
	page.fill("#ask-destroy [name=typed]", "deploy")
	page.press("#ask-destroy [data-confirm]")
	page.says("#done", "The lock was destroyed: 3 contenders ended, 1 of other programs.")
	page.says("#queue", "This lock is free")
	page.says("#history", "the lock was destroyed")
	assert.That(t, !eval[bool](page, `Boolean(document.querySelector("[data-act]"))`), "there is no contender left to act on")
	page.notReloaded()
}

// Each dialog, open, with the contenders that it would end.
func TestNothingSeriousStandsInTheWayInADialog(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	const lock = "gpu"
	g.hold(lock, "ttl=30m&mode=semaphore&limit=10&permits=4&"+url.Values{"owner": {"transcode-1"}}.Encode())
	g.hold(lock, "ttl=30m&mode=semaphore&limit=10&permits=3&owner=transcode-2")
	g.patiently(lock, "ttl=30m&mode=semaphore&limit=10&permits=5&owner=transcode-3")
	g.patiently(lock, "ttl=30m&mode=shared&owner=inventory")
	g.patiently(lock, "ttl=30m&mode=shared&owner=inventory-2")
	g.foreign(t).put("/lockkeeper/locks/gpu/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-", []byte("10.0.3.17"))
	b := openPage(t, g, "/locks/"+lock)
	b.eachLook(func(look string) {
		for _, act := range []string{"", "revoke", "break", "reap", "destroy"} {
			b.visit(g.url() + "/locks/" + lock)
			b.untilLink("live")
			switch act {
			case "":
			case "reap":
				b.press("[data-act=reap]")
				b.press("#ask-reap [data-preview]")
				b.says("#ask-reap", "Ends 6 contenders")
			default:
				b.press("[data-act=" + act + "]")
				b.until(`document.querySelector("#ask-`+act+` [data-hits] li")`, "it says what it ends")
				eval[int](b, `(document.querySelector("#ask-`+act+` [data-problem]").textContent = "It went wrong.", 1)`)
			}
			b.shot(strings.Join([]string{"dialog", act, look}, "-"))
			b.accessible(act + ", " + look)
		}
	})
}
