package e2e

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// The last part of a lease's token is its secret. Nothing that others can read has it, and no refusal repeats it, wherever
// a client has put it by mistake.
func TestATokenIsShownToItsClientAlone(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	told := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) {
		return g.Socket(t.Context(), apitest.Query("type=*"))
	})
	held := g.hold("deploy", "ttl=1m&owner=me&hold=a")
	waiting := g.queue("deploy", "ttl=1m&owner=them")
	ended := g.hold("other", "ttl=1m")
	a, err := g.Release(t.Context(), ended.Token)
	assert.Must(t, err == nil && a.Status == http.StatusNoContent, "%v %+v", err, a)
	leases := []api.Lease{held, waiting, ended}
	var secrets []string
	for _, l := range leases {
		secret := l.Token[strings.LastIndexByte(l.Token, '.')+1:]
		assert.Must(t, len(secret) >= 16, "the token %s has no secret", l.Token)
		secrets = append(secrets, secret)
	}
	never := func(what, text string) {
		t.Helper()
		for _, secret := range secrets {
			assert.That(t, !strings.Contains(text, secret), "%s has a token: %.400s", what, text)
		}
	}
	paths := []string{"/v1/locks", "/v1/locks?contains=de", "/v1/locks/deploy", "/v1/locks/deploy?format=text", "/v1/locks/deploy/fence", "/v1/leases", "/v1/leases?owner=me",
		"/v1/info", "/v1/gateways", "/v1/namespaces", "/v1/webhooks", "/metrics", "/openapi.yaml", "/", "/?q=deploy", "/locks/deploy", "/locks/deploy?tab=zookeeper",
		"/gateways", "/namespaces", "/webhooks", "/ui/fragments?page=overview", "/ui/fragments?page=lock&lock=deploy"}
	for _, l := range leases {
		paths = append(paths, "/v1/leases/"+l.LeaseID, "/v1/leases/"+l.LeaseID+"/postmortem")
		// By mistake:
		paths = append(paths, "/v1/leases/"+l.Token, "/v1/locks/"+l.Token, "/v1/locks?token="+l.Token, "/v1/leases?lease_id="+l.Token, "/v1/"+l.Token,
			"/v1/locks/deploy/fence?token="+url.QueryEscape(l.Token), "/"+l.Token, "/v1/webhooks/"+l.Token)
	}
	for _, path := range paths {
		body, header := g.get(path)
		assert.That(t, len(body) != 0, "%s is empty", path)
		never(path, body+header)
	}
	for range 4 { // queued and granted, and what follows
		never("an event", (<-told).JSON)
	}
	never("the log", g.log.String())
}

// get is any page or answer, as it comes.
func (g *gateway) get(path string) (body, header string) {
	g.t.Helper()
	a := assert.Value(http.Get(g.url() + path))(g.t)
	defer a.Body.Close()
	var text, head strings.Builder
	assert.Value(io.Copy(&text, a.Body))(g.t)
	_ = a.Header.Write(&head)
	return text.String(), head.String()
}

// tapped is a fleet of two. What the second gateway sends to the first goes through a proxy that keeps it.
func tapped(t *testing.T, zk string, flags ...string) (one, two *gateway, tap *testkit.Wiretap) {
	t.Helper()
	one = newGateway(t, zk, flags...)
	tap = testkit.Tap(t, one.listen)
	one.flags = append(one.flags, "--advertise="+tap.Addr())
	one.start()
	one.awaitServing()
	two = startGateway(t, zk, flags...)
	acquainted(t, one, two)
	return one, two, tap
}

// sentAgain sends a captured request to a gateway as it was, and as a page of another origin might have it sent.
func sentAgain(t *testing.T, to *gateway, request []byte, status int, code string) {
	t.Helper()
	disguised := regexp.MustCompile(`(?m)^Host: .*\r$`).ReplaceAll(request, []byte("Host: evil.example\r\nOrigin: http://evil.example\r"))
	for _, bytes := range [][]byte{request, disguised} {
		got, body := testkit.SendRaw(t, to.listen, bytes)
		assert.That(t, got == status && strings.Contains(body, `"code":"`+code+`"`), "%.60q: answered %d %s", bytes, got, body)
	}
}

func TestARequestThatWasCapturedBetweenGatewaysIsGoodForNothing(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	one, two, tap := tapped(t, addr+chroot, "--webhook-allow=127.0.0.1")

	key := apitest.Key("a-fresh-random-key-0002")
	lease := one.hold("pay", "ttl=1m", key)
	_, a, err := two.Acquire(t.Context(), "pay", apitest.Query("ttl=1m"), key)
	expect(t, a, err, http.StatusOK, "")
	two.beat(lease.Token, api.StateHeld)
	a, err = two.Send(t.Context(), http.MethodPost, "/v1/webhooks?url="+receiver.URL)
	expect(t, a, err, http.StatusCreated, "")
	hook := regexp.MustCompile(`"id":"([^"]+)"`).FindSubmatch(a.Body)
	replay := "/v1/webhooks/" + string(hook[1]) + "/replay"
	eventually(t, patience, func() error { return one.status(http.MethodPost, replay, http.StatusOK) }, "the first knows the webhook")
	a, err = two.Send(t.Context(), http.MethodPost, replay)
	expect(t, a, err, http.StatusOK, "")
	assert.Must(t, !bytes.Contains(a.Body, []byte("unreached")), "a replay: %s", a.Body)
	a, err = two.Send(t.Context(), http.MethodDelete, "/v1/leases/self", apitest.Token(lease.Token))
	expect(t, a, err, http.StatusNoContent, "")

	for _, part := range []string{"POST /v1/locks/pay/leases", "POST /v1/leases/self/heartbeat", "DELETE /v1/leases/self", "POST " + replay, "GET " + fleet.StreamPath} {
		testkit.Eventually(t, patience, func() bool { return len(tap.Requests(part)) > 0 }, "%s is captured", part)
	}
	captured := tap.Requests(fleet.Header)
	for _, request := range captured {
		sentAgain(t, one, request, http.StatusForbidden, "fleet_seal_refused")
		sentAgain(t, two, request, http.StatusServiceUnavailable, "owned_by_other_gateway")
	}

	// What a long time does: the key is swept, and no gateway remembers anything. It is one at the same address.
	f := newForeign(t, addr, chroot)
	one.terminate()
	keys := f.children("/lockkeeper/keys")
	assert.That(t, len(keys) == 1, "keys: %q", keys)
	for _, key := range keys {
		assert.NoError(t, f.Delete(chroot+"/lockkeeper/keys/"+key, -1))
	}
	one.restart()
	one.awaitServing()
	for _, request := range captured {
		sentAgain(t, one, request, http.StatusServiceUnavailable, "owned_by_other_gateway")
	}
	two.awaitLock(patience, "pay", 0, 0)
	names := f.children("/lockkeeper/locks/pay")
	assert.That(t, len(names) == 0, "a lease was made: %q", names)

	// Nothing of that keeps the gateways from each other.
	acquainted(t, one, two)
	again := one.hold("pay", "ttl=1m")
	two.beat(again.Token, api.StateHeld)
	one.letGo(again.Token)
}

func TestGatewaysHaveAListenerOfTheirOwn(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	one, apart := newGateway(t, addr+chroot), freeAddr(t)
	one.flags = append(one.flags, "--fleet-listen="+apart)
	one.start()
	one.awaitServing()
	two := startGateway(t, addr+chroot, "--fleet-listen=127.0.0.1:0")
	acquainted(t, one, two)
	if list := one.look("/v1/gateways"); !strings.Contains(list, `"address":"`+apart+`"`) || strings.Contains(list, one.listen) || strings.Contains(list, two.listen) {
		t.Errorf("the gateways are at %s", list)
	}
	lease := one.hold("deploy", "ttl=1m")
	two.beat(lease.Token, api.StateHeld)
	two.letGo(lease.Token)
	two.awaitLock(patience, "deploy", 0, 0)
	lease = two.hold("deploy", "ttl=1m")
	one.beat(lease.Token, api.StateHeld)
	one.letGo(lease.Token)

	atFleet := apitest.New(t, "http://"+apart)
	for _, path := range []string{"/readyz", "/healthz", "/v1/info", "/", "/metrics", fleet.StreamPath} {
		a, err := atFleet.Send(t.Context(), http.MethodGet, path)
		expect(t, a, err, http.StatusForbidden, "fleet_seal_refused")
	}
	a, err := one.Send(t.Context(), http.MethodGet, "/v1/info", apitest.Header(fleet.Header, "2"))
	expect(t, a, err, http.StatusForbidden, "fleet_seal_refused")
	a, err = one.Send(t.Context(), http.MethodGet, fleet.StreamPath)
	expect(t, a, err, http.StatusNotFound, "route_not_found")
}

// To nginx' clients there is nothing of what gateways send each other, and a seal that comes that way is none.
func TestThroughNginxNoSealPasses(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	one, two, tap := tapped(t, addr+chroot)
	front := behindNginx(t, one, two)
	lease := one.hold("deploy", "ttl=1m")
	two.beat(lease.Token, api.StateHeld)

	a, err := front.Send(t.Context(), http.MethodGet, "/v1/info", apitest.Header(fleet.Header, "2 key=k1"))
	expect(t, a, err, http.StatusOK, "")
	beat := tap.Requests("POST /v1/leases/self/heartbeat")[0]
	if status, body := testkit.SendRaw(t, front.listen, beat); status != http.StatusOK || !strings.Contains(body, `"state":"held"`) {
		t.Errorf("with the lease's token, a client's heartbeat: answered %d %s", status, body)
	}
	beat = regexp.MustCompile(`(?m)^Host: .*\r$`).ReplaceAll(beat, []byte("Host: evil.example\r"))
	status, body := testkit.SendRaw(t, front.listen, beat)
	assert.That(t, status == http.StatusMisdirectedRequest, "for another host: answered %d %s", status, body)
	testkit.Eventually(t, patience, func() bool { return len(tap.Requests("GET "+fleet.StreamPath)) > 0 }, "a stream is captured")
	stream := tap.Requests("GET " + fleet.StreamPath)[0]
	for _, path := range []string{fleet.StreamPath, "/internal/", "/internal/v1/x", "//internal/v1/ends", "/%69nternal/v1/ends", "/x/../internal/v1/ends"} {
		request := bytes.Replace(stream, []byte(fleet.StreamPath), []byte(path), 1)
		status, body := testkit.SendRaw(t, front.listen, request)
		assert.That(t, status == http.StatusNotFound && strings.Contains(body, "nginx"), "%s: answered %d %s", path, status, body)
	}
	one.letGo(lease.Token)
}
