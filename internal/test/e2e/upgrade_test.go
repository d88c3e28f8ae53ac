package e2e

import (
	"net/http"
	"strings"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// A later release has been here. What it says in the layout's record decides whether this one may go on beside it.
func TestALayoutOfALaterReleaseSaysWhichReleasesMayStillUseIt(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	held := g.hold("deploy", "ttl=1m")
	f := newForeign(t, addr, chroot)
	record := func(data string) {
		t.Helper()
		assert.Value(f.Set(chroot+"/lockkeeper/version", []byte(data), -1))(t)
	}
	record(`{"layout":7,"oldest_reader":1,"of_a_later_release":true}`)
	g.terminate()
	g.restart()
	g.beatUntil(held.Token, api.StateHeld)
	data, _, err := f.Get(chroot + "/lockkeeper/version")
	assert.That(t, err == nil && strings.Contains(string(data), `"layout":7`), "the record was written back: %s, %v", data, err)

	record(`{"layout":8,"oldest_reader":2}`)
	g.beatUntil(held.Token, api.StateHeld) // one that runs goes on; raising it needs the others stopped before
	for _, command := range []string{"", "sweep", "export"} {
		args := []string{"--zk=" + addr + chroot, "--listen=" + freeAddr(t)}
		if command != "" {
			args = []string{command, args[0]}
		}
		code, out := exitCode(t, args...)
		if code != 78 || !strings.Contains(out, "layout 8") || !strings.Contains(out, "hint: run the release that the other gateways run") {
			t.Errorf("%q: exit %d\n%s", command, code, out)
		}
	}
}

// A contender whose name a later release has written is respected as an exclusive one and shown.
func TestAContenderOfALaterReleaseIsWaitedForAndShown(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	f := g.foreign(t)
	lease := g.hold("deploy", "ttl=1m")
	later := lease.LeaseID[:len(lease.LeaseID)-3] + "777"
	f.put("/lockkeeper/locks/deploy/read-v2."+later+".x7-lock-", []byte(`{"v":2,"ttl_ms":1000}`))
	g.letGo(lease.Token)
	_, a, err := g.Acquire(t.Context(), "deploy", apitest.Query("ttl=1m&mode=shared"))
	expect(t, a, err, http.StatusConflict, "held_by_other")
	waiting := g.acquiring(t.Context(), "deploy", "ttl=1m&wait=1m&mode=shared")
	q := g.awaitLock(patience, "deploy", 1, 1)
	h := q.Holders[0]
	assert.That(t, strings.Contains(h.Znode, later) && h.LeaseID == later && h.Foreign == nil, "the holder is shown as %+v", h)
	a, err = g.Send(t.Context(), http.MethodPost, "/v1/locks/deploy/contenders/"+q.Holders[0].Znode[strings.LastIndexByte(q.Holders[0].Znode, '/')+1:]+"/break")
	expect(t, a, err, http.StatusNoContent, "")
	waiting.granted(patience)
}
