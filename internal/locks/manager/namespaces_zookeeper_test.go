package manager

import (
	"strings"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
)

// The programs that share a lock root may delete it when it is empty and create it
// again, and so may a namespace be read for the first time while it is not there.
func TestALockRootThatComesAndGoesIsFollowed(t *testing.T) {
	addr, chroot := zkreal.SharedT(t)
	running := onZooKeeper(t, addr, chroot)
	conn, events, err := gozk.Connect([]string{addr}, 10*time.Second, gozk.WithLogInfo(false))
	assert.NoError(t, err)
	t.Cleanup(conn.Close)
	go func() {
		for range events {
		}
	}()
	world := gozk.WorldACL(gozk.PermAll)
	do := func(_ any, err error) {
		t.Helper()
		assert.NoError(t, err)
	}
	add := func(path, data string, flags int32) string {
		t.Helper()
		made := assert.Value(conn.Create(chroot+path, []byte(data), flags, world))(t, "creating %s", path)
		return made
	}
	python := func() locks.NamespaceInfo {
		list, err := running.Namespaces(t.Context())
		if err != nil || len(list) < 2 {
			return locks.NamespaceInfo{}
		}
		return list[1]
	}

	// By hand, without a lock root.
	add("/lockkeeper/namespaces/python", `{"root":"/python","dialect":"kazoo"}`, 0)
	testkit.Eventually(t, 10*time.Second, func() bool { return python().Ready }, "the namespace is picked up")
	_, err = running.Acquire(t.Context(), locks.AcquireRequest{NS: "python", Lock: "deploy"})
	e := wantCode(t, err, locks.CodeUnavailable)
	assert.That(t, strings.Contains(e.Detail, "lock root"), "%v", e)

	for round := range 2 {
		add("/python", "", 0)
		add("/python/deploy", "", 0)
		contender := add("/python/deploy/0123456789abcdef0123456789abcdef__lock__", "", gozk.FlagEphemeral|gozk.FlagSequence)
		testkit.Eventually(t, 10*time.Second, func() bool { return python().Locks == 1 }, "its lock is seen, round %d", round)
		_, err = running.Acquire(t.Context(), locks.AcquireRequest{NS: "python", Lock: "deploy"})
		wantCode(t, err, locks.CodeHeldByOther)
		do(nil, conn.Delete(contender, -1))
		testkit.Eventually(t, 10*time.Second, func() bool { return python().Locks == 0 }, "and its end")
		res, err := running.Acquire(t.Context(), locks.AcquireRequest{NS: "python", Lock: "deploy"})
		assert.Must(t, err == nil && res.Lease.State == locks.Held, "%+v, %v", res, err)
		assert.NoError(t, running.Release(t.Context(), locks.Anonymous, res.Lease.ID, res.Lease.Token))
		do(nil, conn.Delete(chroot+"/python/deploy", -1))
		do(nil, conn.Delete(chroot+"/python", -1))
	}

	// A gateway whose configuration names it needs no new record, and leaves its root alone.
	other := onZooKeeper(t, addr, chroot, func(c *zk.Config) {
		c.Namespaces = map[string]zk.Namespace{"python": {Root: "/python", Dialect: "kazoo"}}
	})
	list, err := other.Namespaces(t.Context())
	assert.That(t, err == nil && len(list) == 2 && list[1].Ready && list[1].Root == "/python", "%+v, %v", list, err)
	there, _, err := conn.Exists(chroot + "/python")
	assert.That(t, err == nil && !there, "the lock root is there: %t, %v", there, err)
}
