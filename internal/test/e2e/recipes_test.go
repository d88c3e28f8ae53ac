package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// post sends a request that must be answered as expected, and decodes the answer.
func post[T any](g *gateway, method, path string, status int, code string, options ...apitest.Option) (v T) {
	g.t.Helper()
	a, err := g.Send(g.t.Context(), method, path, options...)
	expect(g.t, a, err, status, code)
	if len(a.Body) > 0 && code == "" {
		if err := json.Unmarshal(a.Body, &v); err != nil {
			g.t.Fatalf("%v\n%s", err, a.Body)
		}
	}
	return v
}

func TestAScrapeTellsTheModes(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	g.hold("book", "ttl=1m&mode=shared")
	g.queue("book", "ttl=1m")
	post[api.Lease](g, "POST", "/v1/leases?locks=x,y&ttl=1m", 201, "")
	a, err := g.Send(t.Context(), http.MethodGet, "/metrics")
	expect(t, a, err, http.StatusOK, "")
	for _, line := range []string{
		`lockkeeper_leases{mode="shared",state="held"} 1`, `lockkeeper_leases{mode="exclusive",state="waiting"} 1`,
		`lockkeeper_leases{mode="several",state="held"} 1`, `lockkeeper_leases{mode="semaphore",state="held"} 0`,
	} {
		assert.That(t, strings.Contains(string(a.Body), line+"\n"), "the metrics lack %s", line)
	}
}
