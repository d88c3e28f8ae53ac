package e2e

import (
	"net/http"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
)

// The address of metrics is guarded and bounded as the main one is.
func TestTheAddressOfMetricsHasTheMainOnesGuards(t *testing.T) {
	t.Parallel()
	at := freeAddr(t)
	g := onShared(t, "--metrics-listen="+at)
	for _, c := range []struct {
		path, host, header, value string
		status                    int
	}{
		{"/metrics", "", "", "", http.StatusOK},
		{"/metrics", "evil.example", "", "", http.StatusMisdirectedRequest},
		{"/metrics", "0.0.0.0", "", "", http.StatusMisdirectedRequest},
		{"/metrics", "", "Origin", "http://evil.example", http.StatusForbidden},
		{"/metrics", "", "X-Large", strings.Repeat("a", 24<<10), http.StatusRequestHeaderFieldsTooLarge},
		{"/v1/locks", "", "", "", http.StatusNotFound},
		{"/", "", "", "", http.StatusNotFound},
	} {
		r := assert.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+c.path, nil))(t)
		r.Host = c.host
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		a := assert.Value(http.DefaultTransport.RoundTrip(r))(t)
		a.Body.Close()
		assert.That(t, a.StatusCode == c.status, "%s of host %q with %s: %d, want %d", c.path, c.host, c.header, a.StatusCode, c.status)
	}
	assert.Nil(t, g.status(http.MethodGet, "/metrics", http.StatusNotFound), "the main address has metrics, too")
}
