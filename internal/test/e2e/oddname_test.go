package e2e

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// Another program's lock may be called as it likes: it is listed, told, shown on its page and ended like every other, and
// no client can take it here.
func TestALockThatAnotherProgramCalledAsItLikedIsShownAndEnded(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	theirs := newForeign(t, addr, chroot)
	told := follow(t, g, func() (*apitest.Stream, *apitest.Answer, error) {
		return g.Events(t.Context(), apitest.Query("lock=my%2520lock*"))
	})
	const dir, name = "/lockkeeper/locks/my lock ü", "my%20lock%20%C3%BC"
	if _, err := theirs.Create(chroot+dir, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	theirs.put(dir+"/_c_6f1c2a0e-9d4b-4c7f-8a35-2f6f0c9d1b77-lock-", []byte("10.0.3.17"))
	e := nextOf(t, told, "lease.granted")
	assert.That(t, e.Lock == name && strings.HasPrefix(e.Znode, dir), "told: %s", e.JSON)
	list, a, err := g.Locks(t.Context())
	assert.Must(t, err == nil && len(list.Items) == 1 && list.Items[0].Lock == name, "listed: %v %s", err, a.Body)
	for _, path := range []string{url.PathEscape(name), "my%20lock%20%C3%BC"} {
		a, err := g.Send(t.Context(), "GET", "/v1/locks/"+path)
		if err != nil || a.Status != http.StatusOK || !strings.Contains(string(a.Body), `"lock":"`+name+`"`) || !strings.Contains(string(a.Body), "10.0.3.17") {
			t.Errorf("%s: %v %d %s", path, err, a.Status, a.Body)
		}
		a, err = g.Send(t.Context(), "POST", "/v1/locks/"+path+"/leases?ttl=10s")
		expect(t, a, err, http.StatusUnprocessableEntity, "invalid_field")
		assert.That(t, a.Problem.Field == "lock" && strings.Contains(a.Problem.Detail, "allowed are"), "refused: %s", a.Body)
	}
	for path, says := range map[string][]string{
		"/":                                 {`href="/locks/my%2520lock%2520%25C3%25BC"`, name},
		"/locks/my%2520lock%2520%25C3%25BC": {name, "10.0.3.17", "/v1/locks/my%2520lock%2520%25C3%25BC/contenders/"},
		"/locks/my%20lock%20%C3%BC":         {name, "10.0.3.17"},
	} {
		res := assert.Value(http.Get(g.url() + path))(t)
		page, err := io.ReadAll(res.Body)
		res.Body.Close()
		assert.NoError(t, err)
		body := string(page)
		for _, s := range says {
			assert.That(t, res.StatusCode == http.StatusOK && strings.Contains(body, s), "%s: %d, and lacks %s", path, res.StatusCode, s)
		}
	}
	contender := theirs.children(dir)[0]
	a, err = g.Send(t.Context(), "POST", "/v1/locks/"+url.PathEscape(name)+"/contenders/"+contender+"/break", apitest.JSON(`{"reason":"stuck"}`))
	expect(t, a, err, http.StatusNoContent, "")
	nextOf(t, told, "lease.revoked")
	left := theirs.children(dir)
	assert.That(t, len(left) <= 0, "left: %q", left)
	a, err = g.Send(t.Context(), "DELETE", "/v1/locks/"+url.PathEscape(name))
	expect(t, a, err, http.StatusNoContent, "")
	left = theirs.children("/lockkeeper/locks")
	assert.That(t, len(left) <= 0, "left: %q", left)
	// Names that are no text cannot be.
	for _, bad := range []string{"a\xff", "\U0001F512", "a\x01"} {
		_, err := theirs.Create(chroot+"/lockkeeper/locks/"+bad, nil, 0, zk.WorldACL(zk.PermAll))
		assert.That(t, err != nil, "ZooKeeper has a node %q", bad)
	}
}
