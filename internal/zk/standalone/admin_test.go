package standalone

import (
	"errors"
	"fmt"
	"testing"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// The first start finds the ACLs of a fresh server, the others what a client of an earlier release left.
func TestNoClientFromOutsideClosesZooKeepersOwnNodes(t *testing.T) {
	testkit.NoLeaks(t)
	d := newPlatter()
	evil := gozk.DigestACL(gozk.PermAll, "evil", "x")
	own := []string{"/", "/zookeeper", "/zookeeper/quota"}
	for i, left := range [][]gozk.ACL{world, evil, world} {
		p := start(t, d, "127.0.0.1:0")
		ours, theirs := p.client(t), client(t, p.Addr().String(), tcp)
		for _, path := range own {
			_, err := theirs.SetACL(path, evil, -1)
			assert.That(t, errors.Is(err, gozk.ErrNoAuth), "setACL on %s by a client from outside: %v, want NoAuth", path, err)
		}
		create(t, theirs, fmt.Sprintf("/app-%d", i), 0)
		for _, path := range own {
			assert.Value(ours.SetACL(path, left, -1))(t)
		}
		ours.Close()
		theirs.Close()
		p.stop(t)
	}
}
