package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/assert"
)

// Tasks of an on-call night that have no test of their own elsewhere: who blocks a lock (a), asking and forcing its holder (c), and the
// request for a shell of what a dialog does (l). The others: b in dashboard_waits_test.go, d in dashboard_owners_test.go, e in
// dashboard_past_test.go, f, g, i and k in dashboard_activity_test.go, h and j in dashboard_actions_test.go.
func TestWhoBlocksALockIsFoundAndAskedInThreeClicks(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	alice := g.hold("deploy:web", "ttl=5m&owner=alice@ci-1")
	g.patiently("deploy:web", "ttl=5m&owner=bob@ci-2")
	page := clicks{tab: openPage(t, g, "/")}
	// a. The overview itself says who holds it, for how long, and how many wait.
	page.until(`/alice@ci-1[\s\S]*\b1\b/.test(document.querySelector('#locks a[href="/locks/deploy:web"]').closest("tr").innerText)`, "holder and waiters")
	page.until(`document.querySelector('#locks a[href="/locks/deploy:web"]').closest("tr").querySelector("time[data-since]")`, "since when")
	assert.Equal(t, page.n, 0, "clicks of task a")

	// c. Ask, and force after a while.
	page.goes(`#locks a[href="/locks/deploy:web"]`, "/locks/deploy:web")
	page.click("#lock-head [data-act=revoke]")
	page.says("#ask-revoke", "Will ask:", "alice@ci-1")
	page.fill("#ask-revoke [name=reason]", "prod is down")
	page.fill("#ask-revoke [name=force_after]", "1h")

	// l. The dialog shows what it will send; the same line in a shell does the same.
	page.until(`document.querySelector("#ask-revoke [data-curl]").textContent.includes("prod is down")`, "the request of the dialog")
	line := eval[string](page.tab, `document.querySelector("#ask-revoke [data-curl]").textContent`)
	assert.That(t, strings.HasPrefix(line, "curl ") && strings.Contains(line, alice.LeaseID), "%s", line)
	out, err := exec.Command("sh", "-c", line).CombinedOutput()
	assert.That(t, err == nil && strings.Contains(string(out), alice.LeaseID), "%s: %s, %v", line, out, err)
	if beat := g.beat(alice.Token, api.StateHeld); beat.RevokeRequested == nil || beat.RevokeRequested.Reason != "prod is down" {
		t.Errorf("after the line was run the heartbeat tells %+v", beat.RevokeRequested)
	}

	page.fill("#ask-revoke [name=force_after]", "1s")
	page.click("#ask-revoke [data-confirm]")
	page.until(fmt.Sprintf(`document.querySelector(%s)`, quoted(`#queue .holder[data-who="bob@ci-2"]`)), "bob holds")
	assert.That(t, page.n <= 3, "%d clicks", page.n)
	page.notReloaded()
}
