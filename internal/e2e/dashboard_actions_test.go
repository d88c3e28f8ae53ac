package e2e

import (
	"fmt"
	"testing"

	"lockkeeper/internal/httpapi/api"
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
