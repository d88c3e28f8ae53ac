package e2e

import (
	"net/http"
	"testing"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/authtest"
)

// Package authtest holds each route against each kind of caller, with gateways that it puts together itself. This is about the
// gateway as it is shipped: no route and no listener of it lets a request in that authtest knows to be refused.
func TestNoRouteOfAGatewayWithRulesIsOpenByMistake(t *testing.T) {
	t.Parallel()
	metrics, apart := freeAddr(t), freeAddr(t)
	g := newStandalone(t, "--auth-file="+rulesFile(t, "roles: {}\n"), "--metrics-listen="+metrics, "--fleet-listen="+apart, "--compat=fleetlock,terraform")
	g.start()
	g.awaitReady()
	made := g.token("ops")
	routes := authtest.Unasked()
	assert.Must(t, len(routes) > 50, "%d routes", len(routes))
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	wrong := bearer("lkt_00000000_0000000000000000000000000000000000000000000_000000")
	for _, r := range routes {
		status := func(at string, options ...apitest.Option) int {
			request := assert.Value(http.NewRequestWithContext(t.Context(), r.Method, "http://"+at+r.Path, nil))(t)
			for _, option := range options {
				option(request)
			}
			answer := assert.Value(transport.RoundTrip(request))(t)
			defer answer.Body.Close()
			return answer.StatusCode
		}
		assert.Equal(t, status(g.listen), r.Status, "%s %s without a credential", r.Method, r.Path)
		want := http.StatusUnauthorized
		if r.Open {
			want = r.Status
		}
		assert.Equal(t, status(g.listen, wrong), want, "%s %s with a wrong one", r.Method, r.Path)
		// The address for gateways lets in gateways alone, and that for metrics has nothing else.
		assert.Equal(t, status(apart, bearer(made)), http.StatusForbidden, "%s %s at --fleet-listen", r.Method, r.Path)
		want = http.StatusNotFound
		if r.Path == "/metrics" {
			want = http.StatusOK
		}
		assert.Equal(t, status(metrics), want, "%s %s at --metrics-listen", r.Method, r.Path)
	}
}
