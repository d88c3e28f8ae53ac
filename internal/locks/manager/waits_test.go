package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// want is an acquire of a lock by an owner: a ticket.
func ticket(owner, lock string) locks.AcquireRequest {
	return locks.AcquireRequest{Lock: lock, Owner: owner, TTL: time.Minute, Async: true}
}

func failing(r locks.AcquireRequest) locks.AcquireRequest {
	r.Deadlock = locks.DeadlockFail
	return r
}

// crosswise has two owners hold a lock each and wait for the other's, at the gateways given for them.
func crosswise(a, b *gate) {
	a.mustHold(ticket("ann", "one"))
	b.mustHold(ticket("bob", "two"))
	a.mustAcquire(ticket("ann", "two"))
	b.mustAcquire(ticket("bob", "one"))
}

func (g *gate) graph(req locks.GraphRequest) locks.WaitGraph {
	g.t.Helper()
	req.Principal = named(req.Principal)
	return assert.Value(g.m.Graph(g.t.Context(), req))(g.t, "graph")
}

// cyclesIn are the cycles in one line each.
func cyclesIn(v locks.WaitGraph) (list []string) {
	for _, c := range v.Cycles {
		s := ""
		for i, w := range c.Waits {
			s += fmt.Sprintf("%s -%s-> ", w.From, w.Lock)
			if i == c.Youngest {
				s += "(youngest) "
			}
		}
		list = append(list, fmt.Sprintf("%s%v", s, c.Certain))
	}
	return list
}

const annAndBob = "owner:ann -two-> owner:bob -one-> (youngest) true"

func TestTheGraphShowsWhoWaitsForWhomAtEachGateway(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		crosswise(one, two)
		for _, g := range []*gate{one, two} {
			v := g.graph(locks.GraphRequest{})
			assert.That(t, slices.Equal(cyclesIn(v), []string{annAndBob}), "cycles %q", cyclesIn(v))
			assert.That(t, len(v.Waits) == 2 && len(v.Parties) == 2 && !v.Truncated && v.Unread == 0, "%+v", v)
			for _, w := range v.Waits {
				assert.That(t, w.Waiter.Position == 1 && w.Blocker.Position == 0 && w.Waiter.LeaseID != "" && w.Waiter.LeaseID != w.Blocker.LeaseID, "%+v", w)
			}
			assert.That(t, v.Parties[0].Owner == "ann" && v.Parties[0].Stuck, "%+v", v.Parties)
		}
		assert.That(t, one.graph(locks.GraphRequest{}).Cycles[0].ID == two.graph(locks.GraphRequest{}).Cycles[0].ID, "the cycle has two ids")
	})
}

func TestTheGraphIsFiltered(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		crosswise(g, g)
		g.mustHold(ticket("cyd", "three"))
		g.mustAcquire(ticket("dan", "three"))
		g.mustAcquire(ticket("eve", "three"))
		for _, c := range []struct {
			req           locks.GraphRequest
			waits, cycles int
			truncated     bool
		}{
			{locks.GraphRequest{}, 5, 1, false}, // eve waits for cyd, and behind dan
			{locks.GraphRequest{Cycles: true}, 2, 1, false},
			{locks.GraphRequest{Lock: "three"}, 3, 0, false},
			{locks.GraphRequest{Lock: "one"}, 2, 1, false}, // the whole cycle
			{locks.GraphRequest{Owner: "dan"}, 2, 0, false},
			{locks.GraphRequest{Owner: "nobody"}, 0, 0, false},
			{locks.GraphRequest{Limit: 1}, 1, 0, true},
			{locks.GraphRequest{Limit: 3}, 3, 1, true},
		} {
			v := g.graph(c.req)
			assert.That(t, len(v.Waits) == c.waits && len(v.Cycles) == c.cycles && v.Truncated == c.truncated, "%+v: %d waits, %d cycles, %v", c.req, len(v.Waits), len(v.Cycles), v.Truncated)
		}
		for _, c := range []struct {
			req   locks.GraphRequest
			field string
		}{{locks.GraphRequest{Limit: -1}, "limit"}, {locks.GraphRequest{Limit: locks.MaxEdges + 1}, "limit"}, {locks.GraphRequest{Lock: "/"}, "lock"},
			{locks.GraphRequest{NS: "?"}, "ns"}, {locks.GraphRequest{Owner: "\x00"}, "owner"}} {
			c.req.Principal = locks.Anonymous
			_, err := g.m.Graph(t.Context(), c.req)
			assert.That(t, wantCode(t, err, locks.CodeInvalid).Field == c.field, "%+v: %v", c.req, err)
		}
	})
}

// A caller that may not read one of the locks sees neither its waits nor the cycle through it, and no owners of other callers.
func TestTheGraphShowsNothingOfLocksThatTheCallerMayNotRead(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustHold(ticket("ann", "shop:1"))
		g.mustHold(ticket("secret-owner", "secret"))
		g.mustAcquire(ticket("ann", "secret"))
		g.mustAcquire(ticket("secret-owner", "shop:1"))
		g.mustAcquire(ticket("hidden", "secret"))
		p := locks.Principal{Name: "reader", Rules: assert.Value(access.New(access.Grant{NS: "default", Locks: "shop:*", Verbs: []access.Verb{access.Read}}))(t)}
		v := g.graph(locks.GraphRequest{Principal: p})
		assert.That(t, len(v.Waits) == 1 && v.Waits[0].Lock == "shop:1" && len(v.Cycles) == 0 && len(v.Parties) == 2 && !v.Parties[0].Stuck, "%+v", v)
		assert.That(t, !strings.Contains(fmt.Sprintf("%+v", v), "hidden"), "%+v", v)
		for _, req := range []locks.GraphRequest{{Lock: "secret"}, {NS: "other"}} {
			req.Principal = p
			_, err := g.m.Graph(t.Context(), req)
			wantCode(t, err, locks.CodeForbidden)
		}
		assert.That(t, len(g.graph(locks.GraphRequest{}).Cycles) == 1, "no cycle")
	})
}

// What has no name of its own is no party with others: two programs at one address do not wait for themselves.
// Each answer copies what stands in the queues, so many at once would take memory without a bound.
func TestOneRequestAtATimeIsShownTheGraph(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.m.deadlocks.showing <- struct{}{} // as another request that is shown it
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := g.m.Graph(ctx, locks.GraphRequest{Principal: locks.Anonymous})
			failed <- err
		}()
		synctest.Wait()
		assert.Must(t, len(failed) == 0, "it does not wait for the other request")
		cancel()
		wantCode(t, <-failed, locks.CodeCancelled)
		<-g.m.deadlocks.showing
		_, err := g.m.Graph(t.Context(), locks.GraphRequest{Principal: locks.Anonymous})
		assert.Nil(t, err)
		assert.Equal(t, len(g.m.deadlocks.showing), 0, "it makes room for the next one")
	})
}

func TestAnAddressIsNoParty(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for _, owner := range []string{"10.0.0.7", "fe80::1", "uid:1000", ""} {
			lock := "of-" + strings.ReplaceAll(owner, "::", "-")
			g.mustHold(ticket(owner, lock))
			g.mustAcquire(ticket(owner, lock))
			v := g.graph(locks.GraphRequest{Lock: lock})
			assert.That(t, len(v.Waits) == 1 && len(v.Cycles) == 0 && v.Parties[0].Kind == locks.PartyLease, "%q: %+v", owner, v)
		}
		g.mustHold(ticket("ann", "own"))
		g.mustAcquire(ticket("ann", "own"))
		assert.That(t, slices.Equal(cyclesIn(g.graph(locks.GraphRequest{Lock: "own"})), []string{"owner:ann -own-> (youngest) true"}), "%q", cyclesIn(g.graph(locks.GraphRequest{Lock: "own"})))
	})
}

// One session of another program is one party: a client of Curator that holds one lock and waits for another.
func TestAnotherProgramsSessionIsAParty(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		const name = "/_c_12345678-1234-1234-1234-123456789abc-lock-"
		g.mustHold(ticket("ann", "one"))
		g.mustRelease(g.mustHold(deploy()))
		s.foreignSeen(zk.Op{Kind: zk.OpCreate, Sequential: true, Ephemeral: true, Path: "/lockkeeper/locks/deploy" + name, Data: []byte("10.0.0.7")})
		g.mustAcquire(ticket("ann", "deploy"))
		s.foreignSeen(zk.Op{Kind: zk.OpCreate, Sequential: true, Ephemeral: true, Path: "/lockkeeper/locks/one" + name, Data: []byte("10.0.0.7")})
		v := g.graph(locks.GraphRequest{})
		assert.That(t, len(v.Cycles) == 1 && v.Cycles[0].Certain && v.Parties[1].Kind == locks.PartySession && v.Parties[1].Program == "curator" && v.Parties[1].Label == "10.0.0.7", "%+v", v)
	})
}

// deadlockEvents are the events of deadlocks, in their order.
func (g *gate) deadlockEvents() (list []string) {
	for _, e := range g.told() {
		if e.Type == events.DeadlockDetected || e.Type == events.DeadlockCleared {
			list = append(list, fmt.Sprintf("%s %s %s", e.Type, e.Lock, e.Owner))
		}
	}
	return list
}

func TestADeadlockIsToldOfAtEachGatewayUntilItIsOver(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		crosswise(one, two)
		three := one.mustHold(ticket("cyd", "three"))
		one.mustAcquire(ticket("cyd", "three")) // waits for itself: shown in the graph alone
		one.mustAcquire(ticket("dan", "three"))
		pass(5 * time.Second)
		want := []string{"deadlock.detected two ann", "deadlock.detected one bob"}
		for _, g := range []*gate{one, two} {
			assert.That(t, slices.Equal(g.deadlockEvents(), want), "told %q", g.deadlockEvents())
			assert.That(t, g.m.Info(t.Context()).Deadlocks == 1, "%d deadlocks", g.m.Info(t.Context()).Deadlocks)
		}
		one.mustRelease(three)
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: one.graph(locks.GraphRequest{Cycles: true}).Cycles[0].Waits[0].Waiter.Znode, Version: -1})
		pass(3 * time.Second)
		want = append(want, "deadlock.cleared two ann", "deadlock.cleared one bob")
		for _, g := range []*gate{one, two} {
			assert.That(t, slices.Equal(g.deadlockEvents(), want) && g.m.Info(t.Context()).Deadlocks == 0, "told %q", g.deadlockEvents())
		}
	})
}

// A change of the owner closes a cycle, too.
func TestADeadlockIsFoundAfterAChangeOfTheOwner(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		one.mustHold(ticket("ann", "one"))
		held := two.mustHold(ticket("someone", "two"))
		one.mustAcquire(ticket("ann", "two"))
		two.mustAcquire(ticket("bob", "one"))
		pass(5 * time.Second)
		assert.That(t, len(one.deadlockEvents()) == 0, "told %q", one.deadlockEvents())
		owner := "bob"
		_, err := two.m.Update(t.Context(), locks.UpdateRequest{ID: held.ID, Token: held.Token, Owner: &owner})
		assert.NoError(t, err, "update")
		pass(5 * time.Second)
		assert.That(t, len(one.deadlockEvents()) == 2 && len(two.deadlockEvents()) == 2, "told %q and %q", one.deadlockEvents(), two.deadlockEvents())
	})
}

func TestAnAcquireThatWouldCloseACycleIsRefused(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		one.mustHold(ticket("ann", "one"))
		bob := two.mustHold(ticket("bob", "two"))
		wait := one.mustAcquire(failing(ticket("ann", "two")))
		before := len(s.names("/lockkeeper/locks/one"))
		for _, req := range []locks.AcquireRequest{failing(ticket("bob", "one")), failing(locks.AcquireRequest{Lock: "one", Owner: "bob", TTL: time.Minute, Wait: locks.WaitForever})} {
			_, err := two.acquire(req)
			e := wantCode(t, err, locks.CodeWouldDeadlock)
			assert.That(t, e.Cycle != nil && len(e.Cycle.Waits) == 2 && e.Cycle.Certain && e.Cycle.Waits[e.Cycle.Youngest].From == "owner:bob", "%+v", e.Cycle)
		}
		assert.That(t, len(s.names("/lockkeeper/locks/one")) == before, "a contender was created")
		pass(5 * time.Second)
		one.wantState(wait, locks.Waiting, "") // the older wait goes on
		// One that takes no part waits.
		assert.That(t, two.mustAcquire(failing(ticket("cyd", "one"))).State == locks.Waiting, "cyd is refused")
		two.mustRelease(bob)
		one.wantState(wait, locks.Held, "")
	})
}

func TestAnOwnerThatWouldWaitForItselfIsRefused(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustHold(ticket("ann", "one"))
		_, err := g.acquire(failing(ticket("ann", "one")))
		e := wantCode(t, err, locks.CodeWouldDeadlock)
		assert.That(t, e.Cycle != nil && len(e.Cycle.Waits) == 1, "%+v", e.Cycle)
		_, err = g.acquire(failing(locks.AcquireRequest{Lock: "one", Owner: "ann", TTL: time.Minute})) // a try waits for nothing
		wantCode(t, err, locks.CodeHeldByOther)
		for _, owner := range []string{"", "10.0.0.7"} {
			_, err = g.acquire(failing(ticket(owner, "two")))
			assert.That(t, wantCode(t, err, locks.CodeInvalid).Field == "owner", "%v", err)
		}
		bad := ticket("ann", "two")
		bad.Deadlock = "maybe"
		_, err = g.acquire(bad)
		assert.That(t, wantCode(t, err, locks.CodeInvalid).Field == "deadlock", "%v", err)
	})
}

// Two acquires at two gateways that do not see each other before their creates: the later contender ends.
func TestOfTwoAcquiresThatRaceTheYoungerEnds(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		one.mustHold(ticket("ann", "one"))
		two.mustHold(ticket("bob", "two"))
		a := one.begin(failing(locks.AcquireRequest{Lock: "two", Owner: "ann", TTL: time.Minute, Wait: locks.WaitForever}))
		b := two.begin(failing(locks.AcquireRequest{Lock: "one", Owner: "bob", TTL: time.Minute, Wait: locks.WaitForever}))
		pass(3 * time.Second)
		assert.Must(t, a.finished() != b.finished(), "ended: %v and %v", a.finished(), b.finished())
		ended := a
		if b.finished() {
			ended = b
		}
		e := wantCode(t, ended.err, locks.CodeWouldDeadlock)
		assert.That(t, e.Cycle != nil && len(e.Cycle.Waits) == 2, "%+v", e)
		assert.That(t, len(one.deadlockEvents()) == 0 && len(two.deadlockEvents()) == 0, "told %q, %q", one.deadlockEvents(), two.deadlockEvents())
		a.stop()
		b.stop()
		synctest.Wait()
	})
}

// The wait that closes the cycle does not ask for it: then the one that does ends.
func TestAWaitEndsThoughAnotherOneClosesTheCycle(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		one.mustHold(ticket("ann", "one"))
		two.mustHold(ticket("bob", "two"))
		wait := one.mustAcquire(failing(ticket("ann", "two")))
		other := two.mustAcquire(ticket("bob", "one"))
		pass(5 * time.Second)
		one.wantState(wait, locks.Ended, locks.ReasonWouldDeadlock)
		two.wantState(other, locks.Waiting, "")
		assert.That(t, len(two.deadlockEvents()) == 0, "told %q", two.deadlockEvents())
	})
}

// The gateway that runs the wait dies: its successor knows from the record that it ends in a deadlock.
func TestASuccessorEndsAWaitInADeadlock(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		req := ticket("ann", "one")
		req.TTL = time.Hour
		one.mustHold(req)
		wait := one.mustAcquire(failing(ticket("ann", "three")))
		assert.That(t, wait.State == locks.Held, "it waits")
		req.Owner, req.Lock = "bob", "two"
		two.mustHold(req)
		wait = one.mustAcquire(failing(ticket("ann", "two")))
		one.crash()
		pass(20 * time.Second) // taken over
		two.mustAcquire(ticket("bob", "one"))
		pass(3 * time.Second)
		two.wantState(wait, locks.Ended, locks.ReasonWouldDeadlock)
	})
}

func TestARepeatAfterADeadlockIsRefusedAgain(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustHold(ticket("ann", "one"))
		g.mustHold(ticket("bob", "two"))
		req := failing(locks.AcquireRequest{Lock: "two", Owner: "ann", TTL: time.Minute, Wait: locks.WaitForever, IdempotencyKey: "0123456789abcdef0123"})
		a := g.begin(req)
		synctest.Wait()
		g.mustAcquire(ticket("bob", "one"))
		pass(3 * time.Second)
		assert.Must(t, a.finished(), "it waits")
		wantCode(t, a.err, locks.CodeWouldDeadlock)
		_, err := g.acquire(req)
		wantCode(t, err, locks.CodeWouldDeadlock)
	})
}
