package e2e

import (
	"fmt"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/zk/zkreal"
)

// press clicks the first element that the selector finds, and fill writes into one.
func (b *tab) press(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`document.querySelector(%s)?.disabled === false`, quoted(selector)), selector+" can be pressed")
	eval[int](b, fmt.Sprintf(`(document.querySelector(%s).click(), 1)`, quoted(selector)))
}

func (b *tab) fill(selector, value string) {
	b.t.Helper()
	eval[int](b, fmt.Sprintf(`((e) => { e.value = %s; e.dispatchEvent(new Event("input", {bubbles: true})); return 1; })(document.querySelector(%s))`, quoted(value), quoted(selector)))
}

func TestHoldersAreAskedToLetGoFromThePage(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	alice := g.hold("deploy", "ttl=5m&owner=alice")
	g.patiently("deploy", "ttl=5m&owner=bob")
	page := openPage(t, g, "/locks/deploy")
	page.press("[data-act=revoke]")
	page.says("#ask-revoke", "Asks 1 holder.", "alice")
	page.fill("#ask-revoke [name=reason]", "maintenance <b>tonight</b>")
	page.press("#ask-revoke [data-confirm]")
	page.says("#done", "Asked 1 holder to let go.")
	page.says(row("alice"), "Asked to let go", "maintenance <b>tonight</b>")
	if beat := g.beat(alice.Token, api.StateHeld); beat.RevokeRequested == nil || beat.RevokeRequested.Reason != "maintenance <b>tonight</b>" {
		t.Errorf("the heartbeat tells %+v", beat.RevokeRequested)
	}
	// Then by force.
	page.press("[data-act=revoke]")
	page.fill("#ask-revoke [name=reason]", "now")
	page.fill("#ask-revoke [name=force_after]", "2s")
	page.press("#ask-revoke [data-confirm]")
	page.says(row("alice"), "ends in")
	page.says("#history", "revoked", "taken back")
	page.until(`!document.querySelector('`+row("alice")+`')`, "alice is gone")
	page.until(`document.querySelector('#queue .holder[data-who="bob"]')`, "bob holds")
	page.notReloaded()
}

func TestContendersAreBrokenFromThePage(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	g.hold("deploy", "ttl=5m&owner=alice")
	g.patiently("deploy", "ttl=5m&owner=bob")
	newForeign(t, addr, chroot).put("/lockkeeper/locks/deploy/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-", []byte("10.0.3.17"))
	g.patiently("deploy", "ttl=5m&owner=carol")
	page := openPage(t, g, "/locks/deploy")
	for _, c := range []struct{ row, says string }{
		{row("bob"), "It loses its place in line."},
		{"#queue .is-foreign", "Another program put it there."},
		{row("alice"), "It may go on working without knowing"},
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
	page.says("#history", "taken back: stuck")
	// One who is gone: the gateway says so, in the dialog.
	page.press(row("carol") + " [data-act=break]")
	eval[int](page, `(window.fetch = ((f) => (url, o) => f("/v1/locks/deploy/contenders/gone-lock-0000000099/break", o))(window.fetch), 1)`)
	page.expectOutage(true) // the browser complains of the 404
	page.press("#ask-break [data-confirm]")
	page.until(`document.querySelector("#ask-break [data-problem]").textContent.length > 20`, "it says what went wrong")
	page.notReloaded()
}
