package manager

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// A contender with this session's id that no request knows is shown by an event, and before it was read the observer
// moves to a server that lags: its tree lacks the contender, which is there nevertheless and comes back. It must not
// block the queue because it is taken for one whose deletion is known.
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
// has caught up: no gateway here saw when it began to hold.
func TestHowLongALeaseHoldsIsNotForgottenWhenATreeLacksItForAMoment(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		first := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		waiting := one.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: locks.WaitForever})
		synctest.Wait()
		one.mustRelease(first)
		synctest.Wait()
		assert.Must(t, waiting.finished(), "it waits")
		l := waiting.lease
		two := s.gateway(t)
		one.crash() // before it has written when it granted the lease
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

// A holder that came to hold while no gateway watched may have held since then,
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

// A queue that was forgotten, because the lock's directory was found to be gone before the replica heard of it, leaves
// the queue that took its place alone when the news comes.
func TestAForgottenQueueTakesNothingWithIt(t *testing.T) {
	s := newFakeStore(t)
	m := anyone{New(Options{Store: s, Root: "/lockkeeper", Clock: s.clock})}
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

// A waiting lease has been taken over, and its record has not been read: the longest TTL is assumed. A poll is not
// answered that the place is kept for so long: the record may say less, and the clock goes by that as soon as it is read.
func TestNoPlaceIsPromisedForLongerThanTheRecordOfAnAdoptedLeaseSays(t *testing.T) {
	const ttl = 4 * time.Second
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		l := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: ttl, Async: true})
		one.crash()
		h := s.hooked()
		h.failReads(l.Znode)
		two := h.gateway(t)
		time.Sleep(11 * time.Second) // taken over
		asked := time.Now()
		if v, err := two.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Token: l.Token}); err == nil {
			t.Errorf("%v is promised of a lease whose TTL is %v and whose record was not read", v.ExpiresIn, ttl)
		} else {
			wantCode(t, err, locks.CodeUnavailable)
		}
		took := time.Since(asked)
		assert.That(t, took <= settleWithin+time.Second, "answered after %v", took)
		time.AfterFunc(200*time.Millisecond, func() { h.hooks.Store(&hooks{}) })
		v, err := two.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Token: l.Token}) // is answered when it has been read
		assert.Must(t, err == nil && v.State == locks.Waiting && v.TTL == ttl && v.ExpiresIn > 0 && v.ExpiresIn <= ttl, "%+v, %v", v, err)
		pass(v.ExpiresIn - 10*time.Millisecond)
		two.wantState(l, locks.Waiting, "")
	})
}

// A lease has ended and its place stays for its lock delay, which only its record tells, and its gateway is gone. An administrator
// frees the place at a gateway that has not read the record: no event says that the lease was revoked, for it had ended before.
func TestAPlaceThatIsFreedUnreadEndsNoLeaseASecondTime(t *testing.T) {
	for name, c := range map[string]struct {
		byName bool
		group  bool
	}{
		"by the lease":     {},
		"by the contender": {byName: true},
		"a group":          {group: true},
	} {
		t.Run(name, in(withOutbox, func(t *testing.T, s *fakeStore, one *gate) {
			h := s.hooked()
			two := h.gateway(t)
			req := delaying("")
			if c.group {
				req.Lock, req.Group = "", []locks.Want{{Lock: "deploy"}, {Lock: "other"}}
			}
			l := one.mustHold(req)
			if c.group {
				l.Znode = l.Locks[0].Znode
			}
			time.Sleep(10*time.Second + 100*time.Millisecond)
			one.wantState(l, locks.Ended, locks.ReasonExpired)
			one.crash()
			s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/outbox/" + l.ID, Version: -1}) // it has been told
			end := locks.BreakRequest{ID: l.ID, Reason: "enough"}
			if c.byName {
				end = locks.BreakRequest{Lock: "deploy", Name: base(l.Znode), Reason: "enough"}
			}
			assert.NoError(t, two.m.Break(t.Context(), end))
			assert.Equal(t, two.lockState("deploy").State, locks.LockFree)
			assert.Equal(t, two.countOf(events.LeaseRevoked, l), 0, "events tell that it was taken back")
			if list := two.notedFor(l); len(list) > 0 {
				t.Errorf("its end is noted once more: %+v", list[0])
			}
			names := s.outbox()
			assert.That(t, len(names) <= 0, "in the outbox: %v", names)
			_, err := two.heartbeat(l)
			assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonExpired, "its client is told")
		}))
	}
}

// Attack 46: a request is sent on to a gateway that has taken its owner over and
// has not seen it yet. It waits until its replica has come there, and then knows the lease.
func TestASuccessorThatHasNotSeenItsTakeoverIsWaitedFor(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(keyed())
		two, third := s.gateway(t), s.gateway(t)
		third.m.Leave()
		third.m.mu.Lock()
		third.m.life.draining = true // it takes over no gateway
		third.m.mu.Unlock()
		dead := string(recipe.LeaseID(l.ID).Gateway())
		s.mu.Lock()
		s.deleted = func(string) {
			if s.nodes["/lockkeeper/succession/"+dead] != nil {
				two.w.held = true // its stream stands still right before the takeover
			}
		}
		s.mu.Unlock()
		one.crash()
		time.Sleep(11 * time.Second)
		route, ok := third.m.RouteOf(l.ID)
		assert.Must(t, ok && route.Gateway == two.id(), "the third knows %+v %v", route, ok)
		_, err := two.heartbeat(l)
		wantCode(t, err, locks.CodeUnavailable)
		for range 2 {
			begun := time.Now()
			wantCode(t, two.m.Arrive(within(t, time.Second), l.ID, route.Zxid), locks.CodeNotOwner)
			assert.Equal(t, time.Since(begun), time.Second, "it was waited for")
		}
		arrived := make(chan error, 1)
		go func() { arrived <- two.m.Arrive(within(t, time.Second), l.ID, route.Zxid) }()
		time.Sleep(500 * time.Millisecond)
		two.w.release()
		assert.NoError(t, <-arrived, "it did not arrive")
		synctest.Wait()
		_, err = two.heartbeat(l)
		assert.Nil(t, err, "heartbeat")
		// A gateway that does not run it never comes to.
		begun := time.Now()
		wantCode(t, third.m.Arrive(within(t, time.Second), l.ID, route.Zxid), locks.CodeNotOwner)
		assert.Equal(t, time.Since(begun), time.Second, "another one was waited for")
	})
}

// Arriving needs no more than a look where the lease is at home, and an id that was
// made up arrives nowhere but at the gateway that it names.
func TestArriving(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(keyed())
		invented := l.ID[:len(l.ID)-1] + "q"
		if l.ID == invented {
			invented = l.ID[:len(l.ID)-1] + "a"
		}
		for _, id := range []string{l.ID, invented} {
			assert.Nil(t, one.m.Arrive(t.Context(), id, s.zxidNow()), "%s at its owner", id)
			wantCode(t, two.m.Arrive(within(t, time.Second), id, s.zxidNow()), locks.CodeNotOwner)
		}
		late := one.m.Arrive(within(t, time.Second), l.ID, s.zxidNow()+1000)
		wantCode(t, late, locks.CodeNotOwner)
		var e *locks.Error
		assert.That(t, !errors.As(late, &e) || e.RetryAfter == 0, "after the wait there is a Retry-After: %v", late)
		// If the request cannot even wait, it is not to be repeated at once.
		begins := &Manager{fleet: fleet{ready: make(chan struct{})}}
		err := begins.Arrive(within(t, time.Second), l.ID, 1)
		assert.That(t, errors.As(err, &e) && e.Code == locks.CodeNotOwner && e.RetryAfter != 0, "at one that begins: %+v", err)
		wantCode(t, one.m.Arrive(t.Context(), "x", 0), locks.CodeNotFound)
		one.mustRelease(l)
		assert.Nil(t, one.m.Arrive(t.Context(), l.ID, s.zxidNow()), "after its end")
		assert.Equal(t, s.children("/lockkeeper/succession"), 0, "succession entries")
	})
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// A look without the token waits for the record, too: before, neither owner nor TTL is known, nor that the lease holds.
func TestAnAdoptedLeaseIsNotShownBeforeItsRecordHasBeenRead(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second, Owner: "me"})
		one.crash()
		h := s.hooked()
		h.failReads(l.Znode)
		two := h.gateway(t)
		time.Sleep(11 * time.Second) // taken over
		asked := time.Now()
		_, err := two.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID})
		wantCode(t, err, locks.CodeUnavailable)
		took := time.Since(asked)
		assert.That(t, took <= settleWithin+time.Second, "answered after %v", took)
		time.AfterFunc(200*time.Millisecond, func() { h.hooks.Store(&hooks{}) })
		v := two.look(l) // is answered when it has been read
		assert.That(t, v.State == locks.Held && v.TTL == l.TTL && v.Owner == "me" && v.FencingToken == l.FencingToken, "%+v", v)
	})
}

// What was shown while the replica was not current may be from before a gap. The changes that close the gap make the gateway
// trusted again, and do not make such an answer valid.
func TestAnAnswerFromBeforeAGapIsNotValidAfterIt(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(deploy())
		for _, token := range []string{l.Token, ""} {
			look := func() locks.Lease {
				return assert.Value(g.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID, Token: token}))(t, "look")
			}
			assert.That(t, g.m.StillValid(look().Term), "the gateway is trusted, and does not vouch for its answer")
			g.w.disconnect()
			before := look()
			g.w.reconnect()
			assert.That(t, g.m.Trusted() && !g.m.StillValid(before.Term), "valid: %+v", before)
		}
	})
}
