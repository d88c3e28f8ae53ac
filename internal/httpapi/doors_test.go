package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

func TestWithTwoListenersClientsAndGatewaysHaveOneEach(t *testing.T) {
	owner, _ := member(t, "owner", "secret", func(o *Options) { o.News = (&gazette{more: make(chan struct{})}).since })
	doors := map[string]http.Handler{"public": owner.server.Public(), "fleet": owner.server.FleetOnly()}
	at := map[string]*httptest.Server{}
	for name, door := range doors {
		at[name] = httptest.NewServer(door)
		defer at[name].Close()
	}
	asked, _ := member(t, "asked", "secret")
	address := func(door string) string { return strings.TrimPrefix(at[door].URL, "http://") }

	for path, want := range map[string]int{"/v1/info": 200, "/healthz": 200, "/readyz": 200, "/v1/leases/" + someID: 200, fleet.StreamPath: 404, "/internal/": 404, "/nothing": 404} {
		if a, err := apitest.New(t, at["public"].URL).Send(t.Context(), "GET", path); err != nil || a.Status != want {
			t.Errorf("public, %s: %v %+v", path, err, a)
		}
		owner.asked()
		if a, err := apitest.New(t, at["fleet"].URL).Send(t.Context(), "GET", path); err != nil || a.Status != 403 || a.Code() != "fleet_seal_refused" {
			t.Errorf("fleet, %s: %v %+v", path, err, a)
		}
		calls := owner.asked()
		assert.That(t, len(calls) == 0, "fleet, %s: the manager was asked %q", path, calls)
	}
	// A page in a browser gets no further there.
	status, body := testkit.SendRaw(t, address("fleet"), []byte("POST /v1/locks/a/leases HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nContent-Length: 0\r\n\r\n"))
	assert.That(t, status == 403 && strings.Contains(body, "fleet_seal_refused"), "a page: answered %d %s", status, body)

	asked.sendsTo("owner", address("fleet"))
	for _, o := range calls() {
		a := asked.send(t, o.method, o.path, o.options...)
		assert.That(t, a.Status/100 == 2, "%s at the fleet's listener: answered %d %s", o.name, a.Status, a.Body)
	}
	owner.asked()
	tap := testkit.Tap(t, address("public"))
	asked.sendsTo("owner", tap.Addr())
	for _, o := range calls() {
		asked.expect(t, 503, "", o.method, o.path, o.options...)
	}
	for _, request := range tap.Requests(fleet.Header) {
		if status, body := testkit.SendRaw(t, address("public"), request); status != 403 || !strings.Contains(body, "fleet_seal_refused") {
			t.Errorf("a request with a seal: answered %d %s", status, body)
		}
		// It was not acted upon there, so its number is as new as it was.
		if status, body := testkit.SendRaw(t, address("fleet"), request); status/100 != 2 {
			t.Errorf("the same at the fleet's listener: answered %d %s", status, body)
		}
	}
}
