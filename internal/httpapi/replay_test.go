package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// asSeen are the ways in which a captured request is sent again. A seal covers neither Host nor Origin, and both are the guard's.
func asSeen(request []byte) map[string][]byte {
	host := regexp.MustCompile(`(?m)^Host: .*\r$`)
	return map[string][]byte{
		"as it was":     request,
		"from evil web": host.ReplaceAll(request, []byte("Host: evil.example\r\nOrigin: http://evil.example\r")),
	}
}

func refused(t *testing.T, g *gateway, what string, request []byte) {
	t.Helper()
	for how, request := range asSeen(request) {
		status, body := testkit.SendRaw(t, g.address(), request)
		assert.That(t, status == 403 && strings.Contains(body, "fleet_seal_refused"), "%s, %s: answered %d %s", what, how, status, body)
	}
	calls := g.asked()
	assert.That(t, len(calls) == 0, "%s: the manager was asked %q", what, calls)
}

// later has another gateway send more requests than are remembered: the captured one is as old as it can become.
func later(t *testing.T, owner *gateway, captured []byte) {
	t.Helper()
	r, err := http.NewRequest("GET", owner.url+"/v1/info", nil)
	assert.NoError(t, err)
	keys, err := fleet.NewKeys(secretOf("secret")())
	assert.NoError(t, err)
	sender := regexp.MustCompile(`sender=(\S+)`).FindSubmatch(captured)
	keys.Close(&fleet.Seal{From: "asked", To: "owner", Sender: string(sender[1]), Number: 1 << 40}, r, nil)
	response, err := http.DefaultTransport.RoundTrip(r)
	assert.NoError(t, err)
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	assert.Must(t, response.StatusCode == 200, "the latest request is answered %d", response.StatusCode)
}

func TestACapturedRequestIsGoodForNothing(t *testing.T) {
	asked, _ := member(t, "asked", "secret")
	owner, _ := member(t, "owner", "secret")
	tap := testkit.Tap(t, owner.address())
	asked.sendsTo("owner", tap.Addr())
	for _, o := range calls() {
		a := asked.send(t, o.method, o.path, o.options...)
		assert.Must(t, a.Status/100 == 2, "%s: answered %d %s", o.name, a.Status, a.Body)
	}
	asked.beats(t, "a", "b")
	captured := tap.Requests(fleet.Header)
	assert.Must(t, len(captured) == len(calls())+1, "%d requests were captured", len(captured))
	owner.asked()
	for _, request := range captured {
		what, _, _ := strings.Cut(string(request), "\r\n")
		refused(t, owner, what+", at once", request)
	}
	later(t, owner, captured[0])
	for _, request := range captured {
		what, _, _ := strings.Cut(string(request), "\r\n")
		refused(t, owner, what+", later", request)
	}
}

// The gateway has a new session, or another one is at the address of the one that is gone.
func TestARequestForAnotherGatewayIsNotActedUpon(t *testing.T) {
	asked, _ := member(t, "asked", "secret")
	owner, ownerLog := member(t, "owner", "secret")
	tap := testkit.Tap(t, owner.address())
	asked.sendsTo("owner", tap.Addr())
	asked.expect(t, 204, "", "DELETE", "/v1/leases/self", apitest.Token(someToken))
	captured := tap.Requests("DELETE")[0]
	// Sent in a loop it does not fill the log: it is counted like what the guard refuses.
	const loop = 20
	owner.id = "another"
	before := len(ownerLog.lines())
	for range loop {
		testkit.SendRaw(t, owner.address(), captured)
	}
	until(t, "all of them are logged", func() bool { return len(ownerLog.lines())-before >= loop })
	warned := 0
	for _, line := range ownerLog.lines()[before:] {
		if !strings.Contains(line, "level=DEBUG") {
			warned++
		}
	}
	assert.That(t, warned == 1, "%d lines above debug tell of %d requests; want the one that sums up", warned, loop)
	if text := string(owner.send(t, "GET", "/metrics").Body); !strings.Contains(text, fmt.Sprintf(`lockkeeper_http_refused_total{code="owned_by_other_gateway"} %d`, loop)) {
		t.Error("the requests are not counted")
	}
	for _, id := range []string{"another", ""} {
		owner.asked()
		owner.id = id
		status, body := testkit.SendRaw(t, owner.address(), captured)
		assert.That(t, status == 503 && strings.Contains(body, `"code":"owned_by_other_gateway"`), "%q: answered %d %s", id, status, body)
		calls := owner.asked()
		assert.That(t, len(calls) == 0, "%q: the manager was asked %q", id, calls)
		if a := asked.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken)); a.Status != 503 || a.Code() != "owned_by_other_gateway" || a.Header.Get("Retry-After") != "1" {
			t.Errorf("%q: the client is told %d %s", id, a.Status, a.Body)
		}
	}
	// The sender looks up again who runs the lease: the same process under its new id.
	owner.id = "owner-again"
	asked.route = func(string) (locks.Route, bool) {
		return locks.Route{Gateway: "owner-again", Address: tap.Addr(), Lease: someID, Zxid: 43}, true
	}
	for _, o := range calls() {
		a := asked.send(t, o.method, o.path, o.options...)
		assert.That(t, a.Status/100 == 2, "%s after a new session: answered %d %s", o.name, a.Status, a.Body)
	}
}

func TestASenderThatIsNotRegisteredIsRefusedUntilItIs(t *testing.T) {
	asked, owner := pair(t)
	unknown := true
	owner.stranger = func(gateway string) bool { return unknown && gateway == "asked" }
	a := asked.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken))
	assert.That(t, a.Code() == "outcome_unknown", "a stranger: answered %d %s", a.Status, a.Body)
	calls := owner.asked()
	assert.That(t, fmt.Sprint(calls) == "[arrive  1]", "it was asked %q", calls)
	// It was registered a moment ago, and the replica is behind.
	owner.arrive = func(_ context.Context, lease string, zxid int64) error {
		if lease == "" && zxid == 1 {
			unknown = false
		}
		return nil
	}
	asked.expect(t, 204, "", "DELETE", "/v1/leases/self", apitest.Token(someToken))
	// A gateway that is cut off from ZooKeeper still sends on what it is asked.
	unknown = true
	asked.expect(t, 204, "", "DELETE", "/v1/leases/self", apitest.Token(someToken))
}

func TestACapturedReplayOfAWebhookIsRefused(t *testing.T) {
	r, on := receiver(t), newShelf()
	one, _ := hooked(t, "one", on)
	two, second := hooked(t, "two", on)
	tap := testkit.Tap(t, two.address())
	one.peers = []locks.Peer{{Gateway: "one", Self: true, Registered: true}, {Gateway: "two", Registered: true, Address: tap.Addr()}}
	made := read[api.Webhook](t, one.send(t, "POST", "/v1/webhooks?url="+r.url))
	second.Refresh()
	until(t, "the other gateway knows it", func() bool { _, err := second.Get(made.ID); return err == nil })
	paths := []string{"/v1/webhooks", "/v1/webhooks/" + made.ID + "/attempts", "/v1/webhooks/" + made.ID + "/dead-letters"}
	for _, path := range paths {
		one.send(t, "GET", path)
	}
	a := one.send(t, "POST", "/v1/webhooks/"+made.ID+"/replay")
	assert.Must(t, a.Status == 200 && !bytes.Contains(a.Body, []byte("unreached")), "answered %d %s", a.Status, a.Body)
	captured := tap.Requests("/v1/webhooks")
	assert.Must(t, len(captured) >= len(paths)+1, "%d were captured", len(captured))
	for _, request := range captured {
		what, _, _ := strings.Cut(string(request), "\r\n")
		refused(t, two, what, request)
	}
	two.id = "two-again"
	for _, request := range captured {
		if status, body := testkit.SendRaw(t, two.address(), request); status != 503 || !strings.Contains(body, "owned_by_other_gateway") {
			t.Errorf("after a new session: answered %d %s", status, body)
		}
	}
}
