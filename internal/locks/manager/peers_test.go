package manager

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// peerListener is how one gateway of a test hears another one.
type peerListener struct{ stalled atomic.Bool }

// hears has a gateway follow another one; what that one tells takes so long.
func (g *gate) hears(from *gate, delay time.Duration) *peerListener {
	synctest.Wait() // the registration is seen
	e, ctx, id := &peerListener{}, g.t.Context(), from.id()
	g.m.Following(id, true)
	go func() {
		for since := ""; ; {
			lines, at, more := from.m.News(since)
			switch {
			case len(lines) > 0:
				for time.Sleep(delay); e.stalled.Load() && ctx.Err() == nil; {
					time.Sleep(10 * time.Millisecond)
				}
				g.m.Receive(id, lines)
				since = at
			case more == nil:
				g.m.Following(id, false)
				return
			default:
				select {
				case <-more:
				case <-ctx.Done():
					return
				}
				since = at
			}
		}
	}()
	synctest.Wait()
	return e
}

// talk has gateways follow each other.
func talk(gates ...*gate) {
	for i, g := range gates {
		for j, other := range gates {
			if i != j {
				g.hears(other, time.Duration(i+1)*time.Millisecond)
			}
		}
	}
}

var endTypes = []events.Type{events.LeaseReleased, events.LeaseExpired, events.LeaseCancelled, events.LeaseUnclaimed, events.LeaseRemoved, events.LeaseRevoked}

// story is what a gateway has told of a lock's leases.
func (g *gate) story(lock string) (words []string) {
	synctest.Wait()
	for _, e := range g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(append(leaseTypes, events.LeaseRevoked, events.LockDestroyed)...)}, ring) {
		if e.Lock == lock {
			word := fmt.Sprintf("%v %s %s %s %s", e.Type, e.LeaseID, e.Mode, e.Reason, e.Detail)
			if e.By != "" {
				word += " by " + e.By
			}
			words = append(words, word)
		}
	}
	return words
}

// reasons are the ends that a gateway has told of a lock.
func (g *gate) reasons(lock string) (words []string) {
	synctest.Wait()
	for _, e := range g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(endTypes...)}, ring) {
		if e.Lock == lock {
			words = append(words, strings.TrimSpace(e.Reason+" "+e.Detail))
		}
	}
	return words
}

func wantSameStory(t *testing.T, lock string, gates ...*gate) {
	t.Helper()
	want := gates[0].story(lock)
	assert.That(t, len(want) != 0, "nothing was told of %s", lock)
	for i, g := range gates[1:] {
		if got := g.story(lock); !slices.Equal(got, want) {
			t.Errorf("gateway %d tells of %s\n\t%s\nthe first one\n\t%s", i+2, lock, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
		}
	}
}

func fleetScene(t *testing.T, f func(t *testing.T, s *fakeStore)) {
	t.Helper()
	scene(t, func(t *testing.T, s *fakeStore) {
		s.peerReports = true
		f(t, s)
	})
}

// withPeers is a fleetScene with two gateways.
func withPeers(t *testing.T, f func(t *testing.T, s *fakeStore, one, two *gate)) {
	t.Helper()
	fleetScene(t, func(t *testing.T, s *fakeStore) { f(t, s, s.gateway(t), s.gateway(t)) })
}

// The next holder may have any name that ZooKeeper takes. The reason why the lease before it ended is reported all the same.
func TestALongNameOfTheNextHolderHidesNoEnd(t *testing.T) {
	fleetScene(t, func(t *testing.T, s *fakeStore) {
		one := s.gateway(t)
		l := one.mustHold(deploy())
		s.foreignSeen(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy/" + strings.Repeat("x", 2*reports.MaxName) + "-lock-", Sequential: true})
		one.mustRelease(l)
		time.Sleep(time.Second)
		p := one.mustPostmortem(l)
		assert.Must(t, p.Next != nil, "at its own gateway there is no next holder: %+v", p)
		late := s.gateway(t)
		late.hears(one, time.Millisecond)
		time.Sleep(time.Second)
		p = late.mustPostmortem(l)
		assert.That(t, p.Reason == locks.ReasonReleased && p.TTL != 0, "another gateway says %+v", p)
	})
}

func (g *gate) id() string {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	return g.m.port.Session().ID()
}

func TestALeaseOfAnotherGatewayIsRefusedWithTheWayToItsOwner(t *testing.T) {
	ask := map[string]func(g *gate, l locks.Lease) error{
		"heartbeat": func(g *gate, l locks.Lease) error { _, err := g.heartbeat(l); return err },
		"bulk": func(g *gate, l locks.Lease) error {
			return g.m.Heartbeats(t.Context(), locks.Anonymous, []string{l.Token})[0].Err
		},
		"release": func(g *gate, l locks.Lease) error { return g.release(l) },
		"hold": func(g *gate, l locks.Lease) error {
			return g.m.ReleaseHold(t.Context(), locks.Anonymous, l.ID, l.Token, "a")
		},
		"look": func(g *gate, l locks.Lease) error {
			_, err := g.m.Lease(t.Context(), locks.LeaseRequest{ID: l.ID})
			return err
		},
		"update": func(g *gate, l locks.Lease) error {
			_, err := g.m.Update(t.Context(), locks.UpdateRequest{Token: l.Token, TTL: time.Hour})
			return err
		},
		"downgrade": func(g *gate, l locks.Lease) error {
			_, err := g.m.Downgrade(t.Context(), locks.Anonymous, l.ID, l.Token)
			return err
		},
		"postmortem": func(g *gate, l locks.Lease) error {
			_, err := g.m.Postmortem(t.Context(), locks.Anonymous, l.ID)
			return err
		},
		"repeat": func(g *gate, l locks.Lease) error { _, err := g.acquire(keyed()); return err },
	}
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		synctest.Wait()
		l := one.mustHold(keyed())
		for name, ask := range ask {
			e := wantCode(t, ask(two, l), locks.CodeNotOwner)
			if e.Owner == nil || e.Owner.Gateway != one.id() || e.Owner.Address != "gateway-1:8080" || e.Owner.Lease != l.ID || e.Owner.Zxid == 0 {
				t.Errorf("%s: the owner is %+v", name, e.Owner)
			}
		}
		route, ok := one.m.RouteOf(l.ID)
		assert.That(t, ok && route.Gateway == one.id(), "the owner does not know itself: %+v", route)
		for _, invented := range []string{"", "x", l.ID[:len(l.ID)-1]} {
			route, ok := two.m.RouteOf(invented)
			assert.That(t, !ok, "%q is routed to %+v", invented, route)
		}
		stranger := assert.Value(recipe.NewGatewayID(rand.Reader))(t)
		unused := assert.Value(recipe.NewLeaseID(two.m.fleet.id, stranger, rand.Reader))(t)
		route, ok = two.m.RouteOf(string(unused))
		assert.That(t, !ok, "a lease that was invented is routed to %+v", route)
	})
}

// The gateway that was asked knows of a takeover that the successor itself may
// not have seen yet: what it sends along must lie behind the succession's entry.
func TestTheWayToASuccessorLeadsBehindItsTakeover(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(keyed())
		third := s.gateway(t)
		// The third one writes nothing from here on, nor can it take over.
		one.crash()
		third.m.mu.Lock()
		third.m.life.draining = true
		written := third.m.port.Session().LastZxid()
		third.m.mu.Unlock()
		pass(11 * time.Second)
		third.m.mu.Lock()
		third.m.life.draining = false
		entered := third.m.members.SeenUpTo(recipe.LeaseID(l.ID).Gateway(), 0)
		third.m.mu.Unlock()
		two.wantState(l, locks.Held, "")
		route, ok := third.m.RouteOf(l.ID)
		assert.Must(t, ok && route.Gateway == two.id() && route.Address == "gateway-2:8080", "the route is %+v %v", route, ok)
		entry := s.node("/lockkeeper/succession/" + string(recipe.LeaseID(l.ID).Gateway()))
		if route.Zxid < entry.stat.Czxid || entered < entry.stat.Czxid {
			t.Errorf("the route's zxid is %d (the entry was read at %d, the session had %d), the entry's is %d", route.Zxid, entered, written, entry.stat.Czxid)
		}
	})
}

func TestPeersAreTheRegisteredGatewaysThisOneFirst(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		l := one.mustHold(keyed())
		dead := one.id()
		one.crash()
		two, three := s.gateway(t), s.gateway(t)
		pass(11 * time.Second)
		heir, other := two, three
		if route, ok := two.m.RouteOf(l.ID); !ok {
			t.Fatal("no gateway has taken over")
		} else if route.Gateway == three.id() {
			heir, other = three, two
		}
		for _, g := range []*gate{heir, other} {
			peers := g.m.Peers()
			assert.Must(t, len(peers) == 2 && peers[0].Self && !peers[1].Self && peers[0].Gateway == g.id(), "peers are %+v", peers)
			for _, p := range peers {
				assert.That(t, p.Version == "1.2.3" && p.Address != "" && p.Started.UnixMilli() == 1_700_000_000_000 && p.Registered,
					"a peer is %+v", p)
				if owns := p.Gateway == heir.id(); owns != (p.Leases == 1) || owns != (len(p.Succeeded) == 1 && p.Succeeded[0] == dead) {
					t.Errorf("a peer is %+v, and %s owns the lease of %s", p, heir.id(), dead)
				}
			}
		}
	})
}

// Where a gateway is to be found is asked again when the answer was lost.
func TestARegistrationWhoseReadingFailedIsReadAgain(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		hooked, asked := s.hooked(), atomic.Int32{}
		hooked.hooks.Store(&hooks{get: func(path string) error {
			if path == "/lockkeeper/gateways/"+one.id() && asked.Add(1) <= 3 {
				return zk.ErrUnavailable
			}
			return nil
		}})
		two := hooked.gateway(t)
		time.Sleep(5 * time.Second)
		if peers := two.m.Peers(); len(peers) != 2 || peers[1].Address != "gateway-1:8080" || asked.Load() != 4 {
			t.Errorf("asked %d times, peers are %+v", asked.Load(), peers)
		}
	})
}

// What a gateway says of itself to others: they know it once they have come as far as it says.
func TestAGatewayIsRegisteredFromItsOwnZxidOnUntilItsSessionEnds(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, one *gate) {
		two := s.gateway(t)
		synctest.Wait()
		id, zxid := two.m.Identity()
		assert.That(t, id == two.id() && zxid >= s.node("/lockkeeper/gateways/"+id).stat.Czxid, "it is %q from %d on", id, zxid)
		err := one.m.Reached(t.Context(), zxid)
		assert.That(t, err == nil && one.m.Registered(id) && one.m.Registered(one.id()), "it is not registered: %v", err)
		assert.That(t, !one.m.Registered("") && !one.m.Registered("mnopqrstuvwxy"), "an unknown gateway is registered")
		two.crash()
		pass(11 * time.Second)
		assert.That(t, !one.m.Registered(id), "it is registered although its session has ended")
		gone, _ := two.m.Identity()
		assert.That(t, gone == "", "without a session it is %q", gone)
	})
}

// The index of all contenders is kept only while lookups use it.
func TestTheIndexOfLeasesIsDroppedWhenItIsUnused(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		indexed := func() bool {
			two.m.mu.Lock()
			defer two.m.mu.Unlock()
			return two.m.replica.Kept()["indexed"] > 0
		}
		synctest.Wait()
		assert.That(t, !indexed(), "an index before the first lookup")
		two.mustBeatFor(l, locks.Held)
		later := one.mustHold(locks.AcquireRequest{Lock: "other", TTL: time.Hour})
		gone := one.mustHold(locks.AcquireRequest{Lock: "third", TTL: time.Hour})
		one.mustRelease(gone)
		two.mustBeatFor(later, locks.Held)
		_, err := two.beatFor(gone)
		assert.That(t, err != nil, "a lease that was released is heartbeaten")
		checkAll(t, s, one, two)
		time.Sleep(2 * queues.IndexLife)
		assert.That(t, !indexed(), "it is kept for ever")
		two.mustBeatFor(l, locks.Held)
	})
}

// Also of a lease that was downgraded, and of one of several contenders.
func TestWhereLeasesAreIsKnownWhateverTheirContenders(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		plain := one.mustHold(locks.AcquireRequest{Lock: "plain", TTL: time.Hour})
		two.mustBeatFor(plain, locks.Held)
		lowered := one.mustHold(locks.AcquireRequest{Lock: "lowered", TTL: time.Hour})
		group := one.mustHold(locks.AcquireRequest{Group: []locks.Want{{Lock: "a"}, {Lock: "b"}}, TTL: time.Hour})
		assert.Value(one.downgrade(lowered))(t)
		synctest.Wait()
		checkAll(t, s, two)
		for _, l := range []locks.Lease{plain, lowered, group} {
			two.mustBeatFor(l, locks.Held)
		}
		for _, l := range []locks.Lease{plain, lowered, group} {
			one.mustRelease(l)
		}
		synctest.Wait()
		checkAll(t, s, two)
		two.m.mu.Lock()
		defer two.m.mu.Unlock()
		assert.Equal(t, two.m.replica.Kept()["indexed"], 0, "of leases that have ended")
	})
}

// A gateway starts and grants a lease; the replica of another one is behind, as it may be for a promise window, and has
// heard of neither. The client, or a proxy, turns to that one: it must not be told that its lease has ended.
func TestALeaseOfAGatewayThatTheReplicaHasNotHeardOfHasNotEnded(t *testing.T) {
	ask := map[string]func(g *gate, l locks.Lease) error{
		"heartbeat": func(g *gate, l locks.Lease) error { _, err := g.heartbeat(l); return err },
		"heartbeats": func(g *gate, l locks.Lease) error {
			if e := g.m.Heartbeats(g.t.Context(), locks.Anonymous, []string{l.Token})[0].Err; e != nil {
				return e
			}
			return nil
		},
		"release": func(g *gate, l locks.Lease) error { return g.release(l) },
		"look": func(g *gate, l locks.Lease) error {
			_, err := g.m.Lease(g.t.Context(), locks.LeaseRequest{ID: l.ID, Token: l.Token})
			return err
		},
		"repeat": func(g *gate, l locks.Lease) error { _, err := g.acquire(keyed()); return err },
	}
	for name, ask := range ask {
		t.Run(name, in(withGateway, func(t *testing.T, s *fakeStore, old *gate) {
			old.w.hold()
			young := s.gateway(t)
			l := young.mustHold(keyed())
			begun := time.Now()
			wantCode(t, ask(old, l), locks.CodeUnavailable)
			took := time.Since(begun)
			assert.That(t, took <= 2*time.Second, "answered after %v", took)
			go func() {
				time.Sleep(100 * time.Millisecond)
				old.w.releaseSoon()
			}()
			wantCode(t, ask(old, l), locks.CodeNotOwner)
			young.wantState(l, locks.Held, "")
		}))
	}
}

func keyed() locks.AcquireRequest {
	return locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, IdempotencyKey: "abcdefghijklmnop"}
}

// A token of a gateway that is long gone is still told that its lease has ended.
func TestALeaseOfAForgottenGatewayHasEnded(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, young *gate) {
		l := young.mustHold(deploy())
		young.mustRelease(l)
		young.crash()
		time.Sleep(time.Minute)
		g := s.gateway(t)
		_, err := g.heartbeat(l)
		assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonUnknown, "reason")
		assert.Nil(t, g.release(l), "a repeated release")
	})
}
