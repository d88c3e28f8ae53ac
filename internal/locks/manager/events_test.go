package manager

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// tells lists the events of those types as words.
func (g *gate) tells(types ...events.Type) []string {
	synctest.Wait()
	var words []string
	for _, e := range g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(types...)}, ring) {
		word := e.Type.String()
		if e.Reason != "" {
			word += " " + e.Reason
		}
		words = append(words, word)
	}
	return words
}

var leaseTypes = []events.Type{events.LeaseQueued, events.LeaseGranted, events.LeaseReleased, events.LeaseExpired,
	events.LeaseCancelled, events.LeaseUnclaimed, events.LeaseRemoved}

func wantWords(t *testing.T, got []string, want ...string) {
	t.Helper()
	assert.That(t, slices.Equal(got, want), "told\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
}

func TestEachEndIsToldWithItsReason(t *testing.T) {
	for _, test := range []struct {
		end  func(g *gate)
		want []string
	}{
		{func(g *gate) { g.mustRelease(g.mustHold(deploy())) }, []string{"lease.queued", "lease.granted", "lease.released released"}},
		{func(g *gate) { g.mustHold(deploy()); time.Sleep(time.Hour) }, []string{"lease.queued", "lease.granted", "lease.expired expired"}},
		{func(g *gate) {
			l := g.mustHold(deploy())
			g.s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
		}, []string{"lease.queued", "lease.granted", "lease.removed removed"}},
		{func(g *gate) {
			holder := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
			_, err := g.acquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: time.Second})
			wantCode(g.t, err, locks.CodeWaitElapsed)
			g.mustRelease(g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true}))
			unclaimed := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Second, Async: true})
			g.mustRelease(holder)
			_ = unclaimed
			time.Sleep(10 * time.Second)
		}, []string{"lease.queued", "lease.granted", "lease.queued", "lease.cancelled wait_elapsed", "lease.queued",
			"lease.cancelled cancelled", "lease.queued", "lease.released released", "lease.granted", "lease.unclaimed unclaimed"}},
	} {
		t.Run(test.want[len(test.want)-1], in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			test.end(g)
			wantWords(t, g.tells(leaseTypes...), test.want...)
		}))
	}
}

func TestAnEventSaysWhoseLeaseItIs(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: "me"})
		g.mustRelease(l)
		list := g.hub.Recent(events.Filter{Rules: access.Everything()}, ring)
		gateway := g.m.Info(t.Context()).GatewayID
		for _, e := range list[len(list)-3:] {
			token := l.FencingToken
			if e.Type == events.LeaseQueued {
				token = 0
			}
			if e.LeaseID != l.ID || e.NS != locks.DefaultNamespace || e.Lock != "deploy" || e.Owner != "me" || e.Mode != "exclusive" ||
				e.Gateway != gateway || e.Path() != l.Znode || e.FencingToken != token || e.Foreign {
				t.Errorf("%v: %+v", e.Type, e)
			}
		}
	})
}

func TestAnotherGatewayAndAnotherProgramAreToldOf(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: "me"})
		foreign := s.foreignContender()
		one.mustRelease(l)
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: foreign, Version: -1})
		wantWords(t, one.tells(leaseTypes...), "lease.queued", "lease.granted", "lease.queued", "lease.released released", "lease.granted", "lease.removed removed")
		wantWords(t, two.tells(leaseTypes...), "lease.queued", "lease.granted", "lease.queued", "lease.removed unknown", "lease.granted", "lease.removed removed")
		for _, e := range two.hub.Recent(events.Filter{Rules: access.Everything()}, ring) {
			switch {
			case e.Lock == "":
			case e.Path() == foreign && (!e.Foreign || e.Program != "curator" || e.LeaseID != ""):
				t.Errorf("%v of a foreign contender: %+v", e.Type, e)
			case e.Path() == l.Znode && (e.Foreign || e.LeaseID != l.ID || e.Gateway != one.m.Info(t.Context()).GatewayID):
				t.Errorf("%v of the other gateway's lease: %+v", e.Type, e)
			}
		}
	})
}

func TestTheFirstTreeReadIsNotToldAndALaterOnesDifferencesAre(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, old *gate) {
		l := old.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		foreign := s.foreignContender()
		g := s.gateway(t)
		tree := append(leaseTypes, events.NodeCreated, events.NodeDeleted, events.NodeChanged)
		for _, e := range g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(tree...)}, ring) {
			if strings.HasPrefix(e.Dir, "/lockkeeper/locks") {
				t.Errorf("told at the start: %v of %s", e.Type, e.Path())
			}
		}
		before := len(g.tells(tree...))
		g.w.disconnect()
		old.mustRelease(l)
		second := s.foreignContender()
		g.w.reconnect()
		wantWords(t, g.tells(tree...)[before:], "node.created", "lease.queued", "node.deleted", "lease.removed unknown", "lease.granted")
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: foreign, Version: -1}, zk.Op{Kind: zk.OpDelete, Path: second, Version: -1})
		wantWords(t, g.tells(tree...)[before+5:], "node.deleted", "lease.removed removed", "lease.granted", "node.deleted", "lease.removed removed")
	})
}

func TestATakeoverTellsNothingTwice(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		held := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		waiter := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true, IdempotencyKey: "abcdefghijklmnop"})
		one.crash()
		pass(25 * time.Second)
		assert.NoError(t, two.release(held))
		wantWords(t, two.tells(leaseTypes...), "lease.queued", "lease.granted", "lease.queued", "lease.released released", "lease.granted")
		last := two.hub.Recent(events.Filter{Rules: access.Everything()}, 1)[0]
		assert.That(t, last.LeaseID == waiter.ID && last.Gateway == two.m.Info(t.Context()).GatewayID, "%+v", last)
	})
}

func TestASessionThatEndsTellsNothingTwice(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		first := g.m.Info(t.Context()).GatewayID
		s.mu.Lock()
		session := s.sessions[first]
		s.mu.Unlock()
		session.expire()
		time.Sleep(15 * time.Second)
		g.mustRelease(l)
		// The session's end and its registration's come by two ways, in no order.
		wantWords(t, g.tells(leaseTypes...), "lease.queued", "lease.granted", "lease.released released")
		wantWords(t, g.tells(events.GatewayJoined, events.GatewayLeft), "gateway.joined", "gateway.left", "gateway.joined")
		wantWords(t, g.tells(events.ZooKeeperConnected, events.ZooKeeperSuspended, events.ZooKeeperExpired),
			"zookeeper.connected", "zookeeper.expired", "zookeeper.connected")
	})
}

func TestALostConnectionIsToldWithinATickAndADrainIsNoExpiry(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		s.set(func() { s.away = true })
		time.Sleep(clockTick + time.Millisecond)
		connection := []events.Type{events.ZooKeeperConnected, events.ZooKeeperSuspended, events.ZooKeeperExpired}
		wantWords(t, g.tells(connection...), "zookeeper.connected", "zookeeper.suspended")
		s.set(func() { s.away = false })
		time.Sleep(clockTick + time.Millisecond)
		assert.NoError(t, g.m.Drain(t.Context()))
		time.Sleep(time.Minute)
		wantWords(t, g.tells(connection...), "zookeeper.connected", "zookeeper.suspended", "zookeeper.connected")
	})
}

// The create is done, the contender is deleted by another program before the
// observer comes to it, and the lease has ended when its created event arrives.
func TestAContenderThatTheReplicaShowsTooLateIsNotToldOf(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		before := len(g.tells(leaseTypes...))
		var id recipe.LeaseID
		g.m.mu.Lock()
		l, err := (&acquisition{m: g.m.Manager, wants: []locks.Want{{NS: locks.DefaultNamespace, Lock: "deploy"}}, req: locks.AcquireRequest{Lock: "deploy", TTL: time.Minute}}).newLease()
		assert.NoError(t, err)
		id = l.id()
		l.finish(g.m.Manager, locks.ReasonRemoved, g.m.clock.Now().Boot())
		g.m.unlock()
		name := recipe.Contender{LeaseID: id, Mode: recipe.Exclusive}
		_, paths := s.foreignSeen(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/deploy/" + name.Prefix()})
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: paths[0], Version: -1})
		told := g.tells(leaseTypes...)[before:]
		assert.That(t, len(told) <= 0, "told %v", told)
	})
}

// An adopted lease that was released before it was read, and a listing that
// lacks it: its end is told before the grant that it makes possible.
func TestALeaseThatAListingLacksWhileItEndsIsToldBeforeTheNextGrant(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		next := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: locks.WaitForever})
		time.Sleep(10 * time.Millisecond)
		g.w.disconnect()
		s.set(func() { s.loseReply = writeTo(l.Znode) })
		go func() { _ = g.release(l) }()
		time.Sleep(10 * time.Millisecond)
		g.w.reconnect()
		time.Sleep(10 * time.Millisecond)
		assert.Must(t, next.finished() && next.err == nil, "the next is not granted %v", next.err)
		wantWords(t, g.tells(leaseTypes...), "lease.queued", "lease.granted", "lease.queued", "lease.released released", "lease.granted")
	})
}

func TestHoldersShowSinceWhenTheyHold(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		foreign := s.foreignContender()
		time.Sleep(time.Minute)
		later := s.gateway(t)
		shows := func(g *gate, held time.Duration, longer bool, ttl time.Duration) {
			t.Helper()
			lock, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"})
			assert.Must(t, err == nil && len(lock.Holders) == 1, "%+v %v", lock, err)
			if h := lock.Holders[0]; h.HeldFor.Round(time.Second) != held || h.HeldLonger != longer || h.Clock != ttl {
				t.Errorf("held for %v, longer %v, ttl %v; want %v, %v, %v", h.HeldFor, h.HeldLonger, h.Clock, held, longer, ttl)
			}
		}
		shows(g, time.Minute, false, time.Hour)
		shows(later, time.Minute, false, 0) // as the record says
		g.mustRelease(l)
		time.Sleep(30 * time.Second)
		shows(g, 30*time.Second, false, 0)
		shows(later, 30*time.Second, false, 0)
		s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: foreign, Version: -1})
		mine := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		newest := s.gateway(t)
		g.crash()
		time.Sleep(40 * time.Second)
		for _, other := range []*gate{later, newest} {
			if v, err := other.m.Lease(t.Context(), locks.LeaseRequest{ID: mine.ID}); err == nil && v.State == locks.Held {
				shows(other, 40*time.Second, false, time.Hour)
			} else {
				shows(other, 40*time.Second, false, 0)
			}
		}
	})
}

func TestTheOldestWaiterIsTheOneThatCameFirst(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		holder := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		var waiters []*pending
		for range 3 {
			waiters = append(waiters, g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Wait: locks.WaitForever}))
			time.Sleep(time.Minute)
		}
		for i, want := range []time.Duration{3 * time.Minute, 2 * time.Minute, time.Minute, 0} {
			info := g.m.Info(t.Context())
			if info.OldestWaiter.Round(time.Second) != want || info.Locks != 1 || info.Contenders != 4-i || info.Leases[locks.Waiting] != 3-i || info.Leases[locks.Held] != 1 {
				t.Errorf("%d: %+v", i, info)
			}
			if i < 3 {
				g.mustRelease(holder)
				<-waiters[i].done
				holder = waiters[i].lease
				checkAll(t, s, g)
			}
		}
		g.mustRelease(holder)
		if info := g.m.Info(t.Context()); info.Locks != 0 || info.Contenders != 0 || fmt.Sprint(info.Leases) != fmt.Sprint(map[locks.State]int{locks.Waiting: 0, locks.Held: 0}) {
			t.Errorf("%+v", info)
		}
	})
}

// A gateway that is gone left a lease which its successor has adopted and not read; then another program deletes it
// while no gateway watches. No event names it and no read of it succeeds: the listing that lacks it is the only evidence.
func TestAnAdoptedLeaseThatWasNeverReadEndsWhenAListingLacksIt(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		h := s.hooked()
		one, two := s.gateway(t), h.gateway(t)
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		foreign := s.foreignContender()
		h.failReads(l.Znode)
		one.crash()
		time.Sleep(25 * time.Second)
		_, err := two.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID})
		wantCode(t, err, locks.CodeUnavailable) // it has adopted it, and not read
		two.w.disconnect()
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: l.Znode, Version: -1})
		h.hooks.Store(&hooks{})
		two.w.reconnect()
		two.wantState(l, locks.Ended, locks.ReasonRemoved)
		wantWords(t, two.tells(leaseTypes...), "lease.queued", "lease.granted", "lease.queued", "lease.removed removed", "lease.granted")
		assert.Equal(t, two.hub.Recent(events.Filter{Rules: access.Everything()}, 1)[0].Path(), foreign, "granted to")
	})
}

// A waiter's turn comes while its gateway has no session, and another gateway
// is quicker to take it over: the former one tells the grant nevertheless.
func TestAWaiterWhoseTurnComesBetweenTwoSessionsIsToldAsGranted(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		holder := two.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		waiter := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true, IdempotencyKey: "abcdefghijklmnop"})
		one.session().expire()
		two.mustRelease(holder)
		time.Sleep(10 * time.Second)
		two.wantState(waiter, locks.Held, "")
		for _, g := range []*gate{one, two} {
			wantWords(t, g.tells(leaseTypes...)[:5], "lease.queued", "lease.granted", "lease.queued",
				map[bool]string{true: "lease.removed unknown", false: "lease.released released"}[g == one], "lease.granted")
		}
	})
}

func TestAForeignContenderThatFindsTheLockFreeIsGrantedAtOnce(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		before := len(g.tells(leaseTypes...))
		s.foreignContender()
		wantWords(t, g.tells(leaseTypes...)[before:], "lease.queued", "lease.granted")
		s.foreignContender()
		wantWords(t, g.tells(leaseTypes...)[before:], "lease.queued", "lease.granted", "lease.queued")
	})
}

// All are gone when the observer is back. None has held but the first, in
// whatever order the listing's differences come.
func TestAContenderThatIsGoneWithTheOneBeforeIsNotToldToHold(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		gone := []string{g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour}).Znode}
		for i := range 8 {
			_, paths := g.s.foreign(zk.Op{Kind: zk.OpCreate, Path: fmt.Sprintf("/lockkeeper/locks/deploy/%d-lock-", i), Sequential: true})
			gone = append(gone, paths[0])
		}
		g.w.disconnect()
		for _, path := range gone {
			g.s.foreign(zk.Op{Kind: zk.OpDelete, Path: path, Version: -1})
		}
		g.w.reconnect()
		time.Sleep(5 * time.Second)
		wantWords(t, g.tells(events.LeaseGranted), "lease.granted")
	})
}

// The watch is set before the tree is read, so an event may tell of a contender
// when the one before it has not been read yet.
func TestAContenderSeenWhileTheTreeIsReadIsNotToldToHoldBeforeItIs(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		contender := func() string {
			_, paths := g.s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy/x-lock-", Sequential: true})
			return paths[0]
		}
		g.w.disconnect()
		first, second := contender(), contender()
		g.w.insert(func() { g.w.event(zk.NodeAdded, second) })
		g.w.reconnect()
		var held []string
		for _, e := range g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LeaseGranted)}, ring) {
			if e.Foreign {
				held = append(held, e.Path())
			}
		}
		assert.That(t, slices.Equal(held, []string{first}), "told to hold: %v, want %s", held, first)
	})
}
