package manager

import (
	"crypto/rand"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// A contender with this session's id that no request knows is shown by an event,
// and before it was read the observer moves to a server that lags: its tree lacks
// the contender, which is there nevertheless and comes back. It must not block the
// queue because it is taken for one whose deletion is known.
func TestAnUnknownContenderOfOursThatALaggingTreeLacksIsStillEnded(t *testing.T) {
	withHooks(t, func(t *testing.T, s *fakeStore, h *hookedStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		id := assert.Value(recipe.NewLeaseID(g.m.fleet.id, recipe.GatewayID(g.m.Info(t.Context()).GatewayID), rand.Reader))(t)
		synctest.Wait()
		past, pastZxid := s.state()
		h.hooks.Store(&hooks{get: func(string) error { return zk.ErrUnavailable }})
		name := recipe.Contender{LeaseID: id, Mode: recipe.Exclusive}
		_, paths := s.foreign(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/deploy/" + name.Prefix(),
			Data: []byte(`{"v":1,"ttl_ms":86400000}`)})
		synctest.Wait()
		g.w.disconnect()
		s.set(func() { g.w.connect(past, pastZxid) })
		synctest.Wait()
		h.hooks.Store(&hooks{})
		s.mu.Lock()
		s.announce(zk.NodeAdded, paths[0]) // the server catches up
		s.mu.Unlock()
		time.Sleep(time.Second)
		assert.Equal(t, len(s.names("/lockkeeper/locks/deploy")), 0, "contenders that no client can use")
		g.mustHold(deploy())
	})
}

// A lease that was taken over says so when it is shown again by a server that
// has caught up: when it began to hold nobody here saw.
func TestHowLongALeaseHoldsIsNotForgottenWhenATreeLacksItForAMoment(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		two := s.gateway(t)
		one.crash()
		time.Sleep(30 * time.Second)
		held := func() locks.Contender {
			t.Helper()
			lock, err := two.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"})
			assert.Must(t, err == nil && len(lock.Holders) == 1, "%+v %v", lock, err)
			return lock.Holders[0]
		}
		before := held()
		two.wantState(l, locks.Held, "")
		two.w.disconnect()
		s.set(func() {
			two.w.connect(map[string]*fakeNode{"/lockkeeper/locks/deploy": s.nodes["/lockkeeper/locks/deploy"]}, 1)
		})
		synctest.Wait()
		two.w.reconnect()
		if after := held(); after.HeldFor != before.HeldFor || after.HeldLonger != before.HeldLonger || !after.HeldLonger {
			t.Errorf("held for %v, longer %v; before %v, %v", after.HeldFor, after.HeldLonger, before.HeldFor, before.HeldLonger)
		}
	})
}

// A holder that came to hold while nobody watched may have held since then,
// also when the listing that shows it ends a lease of ours first.
func TestAHolderThatATreeReadShowsMayHaveHeldBefore(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		s.foreignContender()
		synctest.Wait()
		g.w.disconnect()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
		time.Sleep(time.Second)
		g.w.reconnect()
		lock, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"})
		assert.That(t, err == nil && len(lock.Holders) == 1 && lock.Holders[0].HeldLonger, "%+v %v", lock, err)
	})
}

// A queue that was forgotten, because the lock's directory was found to be gone
// before the replica heard of it, leaves the queue that took its place alone when
// the news comes.
func TestAForgottenQueueTakesNothingWithIt(t *testing.T) {
	s := newFakeStore(t)
	m := New(Options{Store: s, Root: "/lockkeeper", Clock: s.clock})
	assert.NoError(t, m.prepare(s.layout))
	m.Apply([]zk.Change{{Kind: zk.Synced}})
	root := &zk.WatchRoot{Path: "/lockkeeper/locks", Depth: 2}
	dir := &zk.Dir{Path: "/lockkeeper/locks/deploy"}
	m.Apply([]zk.Change{{Kind: zk.DirAdded, Root: root, Dir: dir}})
	old := m.replica.Namespaces[locks.DefaultNamespace].Find("deploy")
	old.Exists = false // a create was told that there is no such directory
	m.replica.Forget(old)
	present := m.replica.Queue(m.replica.Namespaces[locks.DefaultNamespace], "deploy", 0)
	present.Leases++
	m.Apply([]zk.Change{{Kind: zk.DirRemoved, Root: root, Dir: dir}})
	q := m.replica.Namespaces[locks.DefaultNamespace].Find("deploy")
	assert.That(t, q == present, "the lock's queue is %p, want %p", q, present)
}

// state is a copy of the tree as it is, for a server that lags.
func (s *fakeStore) state() (map[string]*fakeNode, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copy(), s.zxid
}
