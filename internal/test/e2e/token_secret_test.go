package e2e

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
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
