package manager

import (
	"crypto/rand"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

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
		nobody := assert.Value(recipe.NewLeaseID(two.m.fleet.id, stranger, rand.Reader))(t)
		route, ok = two.m.RouteOf(string(nobody))
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
			t.Fatal("nobody has taken over")
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
		keys := other.m.FleetKeys()
		assert.That(t, len(keys) == len(s.layout.Keys), "%d keys", len(keys))
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
		assert.That(t, !one.m.Registered("") && !one.m.Registered("mnopqrstuvwxy"), "a stranger is registered")
		two.crash()
		pass(11 * time.Second)
		assert.That(t, !one.m.Registered(id), "it is registered although its session has ended")
		gone, _ := two.m.Identity()
		assert.That(t, gone == "", "without a session it is %q", gone)
	})
}
