package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/assert"
)

// deaf makes an open page hear of nothing any more.
func (b *tab) deaf() {
	b.t.Helper()
	eval[int](b, `(document.querySelector("#live").remove(), 1)`)
}

// heard says whether a push comes to the page before the click, or the page hears of nothing.
var heard = map[string]bool{"with the push": true, "without it": false}

func TestAnotherHolderIsNotAskedInThePlaceOfTheOneThatWasShown(t *testing.T) {
	t.Parallel()
	for name, push := range heard {
		for _, force := range []string{"", "1s"} {
			t.Run(fmt.Sprintf("%s, force %q", name, force), func(t *testing.T) {
				g := onShared(t)
				alice := g.hold("deploy", "ttl=5m&owner=alice")
				bob := g.patiently("deploy", "ttl=5m&owner=bob")
				page := openPage(t, g, "/locks/deploy")
				page.until(`document.querySelector("#queue .holder[data-who=alice]")`, "alice holds")
				if !push {
					page.deaf()
				}
				page.press("[data-act=revoke]")
				page.says("#ask-revoke", "Will ask:", "Ask alice")
				page.fill("#ask-revoke [name=force_after]", force)
				page.fill("#ask-revoke [name=reason]", "stuck")
				g.letGo(alice.Token)
				g.beatUntil(bob.Token, api.StateHeld)
				if !push {
					page.expectOutage(true) // the browser complains of the 409
					page.press("#ask-revoke [data-confirm]")
				}
				page.says("#ask-revoke", "alice no longer holds the lock. bob holds it now.", "Ask bob instead…")
				assert.That(t, !eval[bool](page, `!document.querySelector("#ask-revoke [data-confirm]").disabled`), "the button is armed")
				page.resize(phone, "dark")
				page.shot("revoke-holder-changed-" + fmt.Sprint(push))
				beat := g.beat(bob.Token, api.StateHeld)
				assert.Must(t, beat.RevokeRequested == nil, "bob is asked: %+v", beat.RevokeRequested)
				page.press("#ask-revoke [data-begin]")
				page.press("#ask-revoke [data-confirm]")
				page.says("#done", "Asked bob to release.")
				if beat := g.beat(bob.Token, api.StateHeld); beat.RevokeRequested == nil || beat.RevokeRequested.ForceInMS != nil {
					t.Errorf("bob is told %+v", beat.RevokeRequested)
				}
			})
		}
	}
}

func TestAReapFromThePageEndsNoOtherContender(t *testing.T) {
	t.Parallel()
	for name, push := range heard {
		t.Run(name, func(t *testing.T) {
			g := onShared(t)
			alice := g.hold("deploy", "ttl=5m&owner=alice")
			g.patiently("deploy", "ttl=5m&owner=ci-1")
			page := openPage(t, g, "/locks/deploy")
			page.until(`document.querySelectorAll("#queue .waiter").length === 1`, "ci-1 waits")
			if !push {
				page.deaf()
			}
			preview := func() {
				page.press("[data-act=reap]")
				page.fill("#ask-reap [name=state]", "waiting")
				page.press("#ask-reap [data-preview]")
				page.says("#ask-reap", "Will remove 1 contender.", "Remove 1 contender")
			}
			preview()
			later := []api.Lease{g.patiently("deploy", "ttl=5m&owner=ci-2"), g.patiently("deploy", "ttl=5m&owner=ci-3")}
			if push {
				page.until(`document.querySelectorAll("#queue .waiter").length === 3`, "the others wait")
			}
			page.fill("#ask-reap [name=reason]", "stuck")
			page.press("#ask-reap [data-confirm]")
			page.says("#done", "Removed 1 contender.")
			g.awaitLock(patience, "deploy", 1, 2)
			for _, l := range later {
				g.beat(l.Token, api.StateWaiting)
			}
			g.letGo(later[1].Token)
			// The waiter that was shown holds by now.
			preview()
			g.letGo(alice.Token)
			g.beatUntil(later[0].Token, api.StateHeld)
			last := g.patiently("deploy", "ttl=5m&owner=ci-4")
			page.expectOutage(true) // the browser complains of the 409
			page.fill("#ask-reap [name=reason]", "stuck")
			page.press("#ask-reap [data-confirm]")
			page.says("#ask-reap", "The queue has changed since, and nothing was removed.", "ci-4")
			g.beat(later[0].Token, api.StateHeld)
			g.beat(last.Token, api.StateWaiting)
		})
	}
}

// A shared lease that was shown waiting holds by now, because the exclusive one before it has left.
func TestAReapOfHoldersAndWaitersEndsNoWaiterThatHoldsByNow(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	reader := g.hold("deploy", "ttl=5m&mode=shared&owner=reader-1")
	writer := g.patiently("deploy", "ttl=5m&owner=writer")
	behind := g.patiently("deploy", "ttl=5m&mode=shared&owner=reader-2")
	page := openPage(t, g, "/locks/deploy")
	page.until(`document.querySelectorAll("#queue .waiter").length === 2`, "the two wait")
	page.press("[data-act=reap]")
	page.fill("#ask-reap [name=mode]", "shared")
	page.press("#ask-reap [data-preview]")
	page.says("#ask-reap", "Will remove 2 contenders.", "Remove 2 contenders")
	g.letGo(writer.Token)
	g.beatUntil(behind.Token, api.StateHeld)
	page.expectOutage(true) // the browser complains of the 409
	page.fill("#ask-reap [name=reason]", "stuck")
	page.press("#ask-reap [data-confirm]")
	page.says("#ask-reap", "The queue has changed since, and nothing was removed.", "Will remove 2 contenders.")
	g.beat(reader.Token, api.StateHeld)
	g.beat(behind.Token, api.StateHeld)

	// Both kinds as they were shown are ended, and the result adds them up.
	page.press("#ask-reap [data-close]")
	writer = g.patiently("deploy", "ttl=5m&owner=writer")
	g.patiently("deploy", "ttl=5m&mode=shared&owner=reader-3")
	page.press("[data-act=reap]")
	page.fill("#ask-reap [name=mode]", "shared")
	page.press("#ask-reap [data-preview]")
	page.says("#ask-reap", "Will remove 3 contenders.", "Remove 3 contenders")
	page.fill("#ask-reap [name=reason]", "stuck")
	page.press("#ask-reap [data-confirm]")
	page.says("#done", "Removed 3 contenders.")
	g.beatUntil(writer.Token, api.StateHeld)
	g.awaitLock(patience, "deploy", 1, 0)
}

func TestABreakFromThePageEndsNoOtherContender(t *testing.T) {
	t.Parallel()
	for name, push := range heard {
		t.Run(name, func(t *testing.T) {
			g := onShared(t)
			alice := g.hold("deploy", "ttl=5m&owner=alice")
			bob := g.patiently("deploy", "ttl=5m&owner=bob")
			page := openPage(t, g, "/locks/deploy")
			page.until(`document.querySelector("#queue .holder[data-who=alice]")`, "alice holds")
			if !push {
				page.deaf()
			}
			page.press(row("alice") + " [data-act=break]")
			page.says("#ask-break", "Break alice")
			g.letGo(alice.Token)
			g.beatUntil(bob.Token, api.StateHeld)
			if push {
				page.says("#ask-break", "It is not on this page any more")
			} else {
				page.expectOutage(true) // the browser complains of the 410
				page.fill("#ask-break [name=reason]", "stuck")
				page.press("#ask-break [data-confirm]")
				page.until(`document.querySelector("#ask-break [data-problem]").textContent.length > 20`, "it says what went wrong")
			}
			g.beat(bob.Token, api.StateHeld)
		})
	}
}

func TestADestructionFromThePageShowsNewcomersFirst(t *testing.T) {
	t.Parallel()
	for name, push := range heard {
		t.Run(name, func(t *testing.T) {
			g := onShared(t)
			alice := g.hold("deploy", "ttl=5m&owner=alice")
			page := openPage(t, g, "/locks/deploy")
			page.until(`document.querySelector("#queue .holder[data-who=alice]")`, "alice holds")
			if !push {
				page.deaf()
			}
			page.press("[data-act=destroy]")
			page.says("#ask-destroy", "Ends 1 contender.", "alice")
			page.fill("#ask-destroy [name=typed]", "deploy")
			bob := g.patiently("deploy", "ttl=5m&owner=bob")
			if push {
				page.says("#ask-destroy", "The queue has changed since this list was read.")
			}
			page.fill("#ask-destroy [name=reason]", "stuck")
			page.expectOutage(true) // the browser complains of the 409
			page.press("#ask-destroy [data-confirm]")
			page.says("#ask-destroy", "New contenders came since, so the lock was not destroyed.", "Ends 2 contenders.", "bob")
			page.expectOutage(false)
			page.resize(desktop, "light")
			page.shot("destroy-newcomers-" + fmt.Sprint(push))
			g.beat(alice.Token, api.StateHeld)
			g.beat(bob.Token, api.StateWaiting)
			page.fill("#ask-destroy [name=reason]", "stuck")
			page.press("#ask-destroy [data-confirm]")
			page.says("#done", "The lock was destroyed: 2 contenders ended.")
		})
	}
}

func TestAForceIsWithdrawnFromThePage(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	alice := g.hold("deploy", "ttl=5m&owner=alice")
	page := openPage(t, g, "/locks/deploy")
	page.press("[data-act=revoke]")
	page.fill("#ask-revoke [name=reason]", "the database moves to another machine tonight")
	page.fill("#ask-revoke [name=force_after]", "10m")
	page.press("#ask-revoke [data-confirm]")
	page.says(row("alice"), "ends in", "Withdraw")
	page.eachLook(func(look string) { page.shot("take-back-" + look) })
	page.press("#queue [data-withdraw]")
	page.says("#done", "Withdrawn: alice is not asked to release any more.")
	page.until(`!document.querySelector("#queue .asked")`, "the row says so")
	page.says("#history", "revoke withdrawn")
	beat := g.beat(alice.Token, api.StateHeld)
	assert.That(t, beat.RevokeRequested == nil, "alice is told %+v", beat.RevokeRequested)
}

func TestAskingAnotherProgramIsNotOffered(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	g.letGo(g.hold("deploy", "ttl=5m").Token)
	g.foreign(t).put("/lockkeeper/locks/deploy/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-", []byte("10.0.3.17"))
	page := openPage(t, g, "/locks/deploy")
	page.says("#lock-head", "Only other programs hold it. They cannot be asked to release it: break them.")
	if !eval[bool](page, `document.querySelector("#act-revoke").disabled && Boolean(document.querySelector("#queue .holder [data-act=break]"))`) {
		t.Error("asking is offered, or breaking is not")
	}
	page.eachLook(func(look string) { page.shot("no-lease-to-ask-" + look) })
	a, err := g.Send(t.Context(), "POST", "/v1/locks/deploy/revoke")
	expect(t, a, err, 409, "nothing_to_ask")
}

// swallow completes the handshake of a socket with the gateway and keeps what the gateway sends.
func swallow(t *testing.T, g *gateway, w http.ResponseWriter, r *http.Request) {
	behind, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(g.url(), "http://"))
	if err != nil {
		t.Error(err)
		return
	}
	defer behind.Close()
	front, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer front.Close()
	if err := r.Write(behind); err != nil {
		t.Error(err)
		return
	}
	reader := bufio.NewReader(behind)
	answer, err := http.ReadResponse(reader, r)
	if err != nil {
		t.Error(err)
		return
	}
	if err := answer.Write(front); err != nil {
		return // the page has gone
	}
	go func() {
		_, _ = io.Copy(behind, front) // ends with the page's end of it
		_ = behind.Close()
	}()
	_, _ = io.Copy(io.Discard, reader)
}

// A middlebox that buffers lets the handshake through, and nothing after it.
func TestASocketThatBringsNothingIsNotCalledLive(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	proxy := through(t, g, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Upgrade") == "" {
			return false
		}
		swallow(t, g, w, r)
		return true
	})
	b := openBrowser(t, proxy.URL)
	b.resize(desktop, "light")
	b.expectOutage(true) // sockets that the page gives up are complained of
	b.visit(proxy.URL + "/")
	eval[int](b, `(window.states = new Set(), new MutationObserver(() => window.states.add(document.querySelector("#link").dataset.link)).observe(document.querySelector("#link"), {attributes: true}), 1)`)
	b.untilLink("polling")
	g.hold("deploy", "ttl=1m&owner=alice")
	b.until(`document.querySelector("#locks").innerText.includes("alice")`, "a poll brings the change")
	// For longer than the page waits for a socket that has opened.
	b.until(`performance.now() > 12000`, "the page has opened more sockets than one")
	states := eval[string](b, `[...window.states].join(" ")`)
	assert.That(t, !strings.Contains(states, "live"), "the page was called %s", states)
	b.deaf()
}
