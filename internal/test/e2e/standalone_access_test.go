package e2e

import (
	"errors"
	"net/http"
	"path"
	"testing"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// Every user of the machine can connect to a port on loopback. They may queue, and remove contenders, as
// in any ZooKeeper without ACLs. They get no token, and nothing by which gateways keep each other apart.
func TestAClientOfEmbeddedListenGetsNoSecretAndNoGuard(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	g := startStandalone(t, "--embedded-listen="+addr)
	key := apitest.Key("a-fresh-random-key-of-mine")
	lease := g.hold("deploy", "ttl=2m", key)
	f := newForeign(t, addr, "")
	refused := func(what string, err error) {
		t.Helper()
		assert.That(t, errors.Is(err, zk.ErrNoAuth), "%s: %v", what, err)
	}
	_, _, err := f.Get("/lockkeeper/secret")
	refused("reading the secret", err)
	keys := f.children("/lockkeeper/keys")
	assert.Must(t, len(keys) == 1, "keys: %q", keys)
	_, _, err = f.Get("/lockkeeper/keys/" + keys[0])
	refused("reading a key", err)
	for _, dir := range []string{"guards", "gateways", "keys"} {
		for _, name := range f.children("/lockkeeper/" + dir) {
			p := path.Join("/lockkeeper", dir, name)
			refused("deleting "+p, f.Delete(p, -1))
			_, err = f.Set(p, []byte("x"), -1)
			refused("writing "+p, err)
		}
		_, err = f.Create("/lockkeeper/"+dir+"/x", nil, 0, zk.WorldACL(zk.PermAll))
		refused("creating in "+dir, err)
	}
	for _, name := range []string{"version", "fence_base", "promise_window", "secret", "namespaces/default", "succession"} {
		p := "/lockkeeper/" + name
		_, err = f.Set(p, []byte("0"), -1)
		refused("writing "+p, err)
		refused("deleting "+p, f.Delete(p, -1))
		_, err = f.SetACL(p, zk.WorldACL(zk.PermAll), -1)
		refused("opening "+p, err)
	}
	// The gateway itself goes on, and so does the next one.
	g.kill()
	assert.Equal(t, g.backAtOnce(lease.Token).FencingToken, lease.FencingToken, "the heartbeat says")
	again, a, err := g.Acquire(t.Context(), "deploy", apitest.Query("ttl=2m"), key)
	expect(t, a, err, http.StatusOK, "")
	assert.That(t, again.LeaseID == lease.LeaseID, "the repeat was answered %s", a.Body)
}
