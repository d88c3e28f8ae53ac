package disk

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/zk/embedded"
)

// TestAServerGoesOnWhereItsStoreEnds runs real servers over one store, with snapshots all the time and without.
func TestAServerGoesOnWhereItsStoreEnds(t *testing.T) {
	for name, options := range map[string][]embeddedtest.Option{
		"log":       nil,
		"snapshots": {embeddedtest.SnapshotsAlways()},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			const lives, each = 4, 25
			snapshot := int64(0)
			for life := range lives {
				store := assert.Value(Open(Config{Dir: dir}))(t)
				storage := func(c *embedded.Config) { c.Storage = store }
				server := assert.Value(embeddedtest.Start(append([]embeddedtest.Option{embeddedtest.With(storage)}, options...)...))(t)
				live(t, server.Addr(), life*each, each)
				server.Close()
				snapshot = store.progress.Whole.Zxid
				assert.That(t, name != "log" || snapshot == 0, "a snapshot was not due")
				assert.NoError(t, store.Close())
			}
			assert.That(t, name != "snapshots" || snapshot != 0, "no snapshot became whole")
			_, err := Verify(filepath.Join(dir, FileName))
			assert.Nil(t, err)
		})
	}
}

// live is a client that finds the nodes of the lives before, and makes some more.
func live(t *testing.T, addr string, before, more int) {
	t.Helper()
	conn, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogInfo(false))
	assert.NoError(t, err)
	defer conn.Close()
	if before == 0 {
		assert.Value(conn.Create("/n", nil, 0, zk.WorldACL(zk.PermAll)))(t)
	}
	names, _, err := conn.Children("/n")
	assert.Must(t, err == nil && len(names) == before, "%d nodes are there, of %d: %v", len(names), before, err)
	var last int64
	for i := range before + more {
		path := fmt.Sprintf("/n/c-%010d", i)
		if i >= before {
			made, err := conn.Create("/n/c-", []byte(path), zk.FlagSequence, zk.WorldACL(zk.PermAll))
			assert.Must(t, err == nil && made == path, "%v %v", made, err)
		}
		data, stat, err := conn.Get(path)
		assert.Must(t, err == nil && string(data) == path && stat.Czxid > last,
			"%s is %q, made by %#x after %#x: %v", path, data, stat.Czxid, last, err)
		last = stat.Czxid
	}
}
