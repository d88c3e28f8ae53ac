package state

import (
	"fmt"
	"slices"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

func TestASessionsNodesGoInOneTransaction(t *testing.T) {
	r := newRig(t)
	c, w := r.client(1), r.client(2)
	c.create("/p", 0)
	for i := range 5 {
		c.create(fmt.Sprintf("/p/e%d", i), wire.FlagEphemeral)
	}
	w.create("/p/mine", wire.FlagEphemeral)
	w.addWatch("/p", wire.WatchRecursive)
	before := r.s.LastZxid()
	txn := r.s.CloseSession(77, 1)
	r.log(txn)
	assert.That(t, txn.Zxid == before+1 && len(txn.Ops) == 6 && txn.Ops[5].Kind == TxnCloseSession && txn.Session == 1 && txn.Time == 77,
		"%+v", txn)
	got := w.took()
	assert.That(t, len(got) == 5, "events %q", got)
	assert.Slices(t, w.childrenOf("/p"), []string{"mine"}, "left")
	assert.Equal(t, w.stat("/p").Pzxid, txn.Zxid)
	assert.That(t, !r.s.HasSession(1) && r.s.CloseSession(78, 1) == nil, "the session is still there")
	check(t, r.s)
}

func TestSessionsAreListedByID(t *testing.T) {
	s := New(Config{})
	for _, id := range []int64{5, -3, 9} {
		s.OpenSession(1, id, int32(1000*id))
	}
	var ids []int64
	for id, timeout := range s.Sessions() {
		assert.That(t, timeout == int32(1000*id), "session %d has the timeout %d", id, timeout)
		ids = append(ids, id)
	}
	assert.That(t, slices.Equal(ids, []int64{-3, 5, 9}), "%v", ids)
}

func TestAContainerGoesWhenItsLastChildHasGone(t *testing.T) {
	c := newRig(t).client(1)
	c.addWatch("/", wire.WatchRecursive)
	c.must(wire.OpCreateContainer, creation("/c", wire.FlagContainer))
	c.must(wire.OpCreateContainer, creation("/c/d", wire.FlagContainer))
	c.create("/c/d/x", 0)
	c.must(wire.OpCreateContainer, creation("/unused", wire.FlagContainer))
	c.took()
	if txns := c.s.Reap(c.now); len(txns) != 0 {
		t.Fatalf("too soon: %+v", txns[0])
	}
	c.delete("/c/d/x")
	c.took()
	for _, path := range []string{"/c/d", "/c"} { // the outer one has to wait for the next time
		txns := c.s.Reap(c.now)
		c.log(txns...)
		assert.Must(t, len(txns) == 1 && txns[0].Ops[0].Path == path && txns[0].Session == 0, "%+v", txns)
		c.expect("deleted " + path)
	}
	assert.That(t, len(c.s.Reap(1<<50)) == 0 && c.s.tree.find("/unused") != nil, "a container that never had a child may stay")
	check(t, c.s)
}

func TestANodeGoesWhenItsTimeToLiveIsOver(t *testing.T) {
	c := newRig(t).client(1)
	start := c.now
	c.must(wire.OpCreateTTL, &wire.CreateTTLRequest{CreateRequest: *creation("/t", wire.FlagPersistentTTL), TTL: 1000})
	c.must(wire.OpCreateTTL, &wire.CreateTTLRequest{CreateRequest: *creation("/u", wire.FlagPersistentSequentialTTL), TTL: 1000})
	c.now = start + 500
	c.set("/t", "begins anew")
	c.create("/u0000000002", 0)
	reap := func(at int64) (paths []string) {
		txns := c.s.Reap(at)
		c.log(txns...)
		for _, txn := range txns {
			paths = append(paths, txn.Ops[0].Path)
		}
		return paths
	}
	for _, step := range []struct {
		at   int64
		want []string
	}{{start + 1000, nil}, {start + 1001, []string{"/u0000000001"}}, {start + 1500, nil}, {start + 1501, []string{"/t"}}, {1 << 50, nil}} {
		assert.Slices(t, reap(step.at), step.want, "after %d ms", step.at-start)
	}
	c.must(wire.OpCreateTTL, &wire.CreateTTLRequest{CreateRequest: *creation("/t", wire.FlagPersistentTTL), TTL: 1})
	c.create("/t/child", 0)
	assert.That(t, reap(1<<50) == nil, "went with a child")
}

func TestOneReapIsBounded(t *testing.T) {
	c := newRig(t).client(1)
	for i := range maxReaped + 10 {
		path := fmt.Sprintf("/c%d", i)
		c.must(wire.OpCreateContainer, creation(path, wire.FlagContainer))
		c.s.tree.find(path).cversion = 1
	}
	for _, want := range []int{maxReaped, 10, 0} {
		assert.Equal(t, len(c.s.Reap(c.now)), want)
	}
}
