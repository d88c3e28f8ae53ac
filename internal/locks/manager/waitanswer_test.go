package manager

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/assert"
)

func (g *gate) waits(p locks.Principal) locks.Waits {
	g.t.Helper()
	return assert.Value(g.m.Waits(g.t.Context(), named(p)))(g.t, "waits")
}

// linesOf are the waits of a graph, in order.
func linesOf(v locks.WaitGraph) (lines []string) {
	for _, w := range v.Waits {
		line := fmt.Sprintf("%s -%s-> %s", w.From, w.Lock, w.To)
		if w.Blocker.Position > 0 {
			line += " (ahead)"
		}
		lines = append(lines, line)
	}
	return lines
}

func TestWhatAContenderWaitsForIsFollowedToThoseThatGoOn(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		one.mustHold(ticket("cron", "orders"))
		bob := two.mustHold(ticket("bob", "web"))
		one.mustAcquire(ticket("bob", "orders"))
		one.mustAcquire(ticket("eve", "web"))
		job := two.mustAcquire(ticket("my-job", "web"))
		one.mustHold(ticket("ann", "other"))
		one.mustAcquire(ticket("dan", "other"))
		want := []string{"owner:bob -orders-> owner:cron", "owner:my-job -web-> owner:bob"}
		time.Sleep(5 * time.Second) // both have learned the owners of each other's
		for _, g := range []*gate{one, two} {
			w := g.waits(locks.Principal{})
			v := w.Ahead("default", "web", job.ID, 100)
			assert.That(t, v.Of == "owner:my-job" && slices.Equal(linesOf(v), want) && len(v.Parties) == 3 && !v.Truncated, "%q, %+v", linesOf(v), v.Parties)
			v = w.Ahead("default", "web", bob.ID, 100)
			assert.That(t, slices.Equal(linesOf(v), want[:1]), "of the holder: %q", linesOf(v))
			v = w.Ahead("default", "web", job.ID, 1)
			assert.That(t, len(v.Waits) == 1 && v.Truncated, "one wait is asked for: %+v", v)
			for _, none := range []locks.WaitGraph{w.Ahead("default", "web", "no-such", 9), w.Ahead("default", "web", "", 9), w.Ahead("default", "none", job.ID, 9), w.Ahead("x", "web", job.ID, 9)} {
				assert.That(t, len(none.Waits) == 0, "%+v", none)
			}
		}
	})
}

func TestACircleOfThreeIsFollowedOnce(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		var last locks.Lease
		owners := []string{"alice", "bob", "joerg"}
		for _, owner := range owners {
			g.mustHold(ticket(owner, "of-"+owner))
		}
		for i, owner := range owners {
			last = g.mustAcquire(ticket(owner, "of-"+owners[(i+1)%3]))
		}
		behind := g.mustAcquire(ticket("zoe", "of-bob"))
		w := g.waits(locks.Principal{})
		all := w.Answer(&locks.GraphRequest{Cycles: true, Limit: locks.MaxEdges})
		assert.That(t, len(all.Cycles) == 1 && all.Cycles[0].Certain && len(all.Cycles[0].Waits) == 3 && !all.Truncated, "%+v", all)
		v := w.Ahead("default", "of-alice", last.ID, 100)
		assert.That(t, len(v.Waits) == 3 && !v.Truncated, "%q", linesOf(v))
		// Behind alice, who waits for bob: zoe waits for what alice waits for.
		v = w.Ahead("default", "of-bob", behind.ID, 100)
		assert.That(t, len(v.Waits) == 4 && v.Parties[3].Owner == "zoe" && v.Parties[3].Stuck, "%q, %+v", linesOf(v), v.Parties)
	})
}

func TestWhoMayNotReadALockSeesNoWaitInIt(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		crosswise(g, g)
		w := g.waits(locks.Principal{Name: "reader", Rules: assert.Value(access.New(access.Grant{NS: "default", Locks: "one", Verbs: []access.Verb{access.Read}}))(t)})
		all := w.Answer(&locks.GraphRequest{Limit: locks.MaxEdges})
		assert.That(t, len(all.Cycles) == 0 && len(all.Waits) == 1, "%+v", all)
		for _, lock := range []string{"one", "two"} {
			view := assert.Value(g.m.Lock(g.t.Context(), locks.LockRequest{Principal: named(locks.Principal{}), Lock: lock}))(t)
			v := w.Ahead("default", lock, view.Waiters[0].LeaseID, 100)
			assert.Equal(t, len(v.Waits), map[string]int{"one": 1, "two": 0}[lock], "waits shown of %s: %q", lock, linesOf(v))
		}
	})
}

func TestAPageAroundAContenderHasIt(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		held := g.mustHold(ticket("holder", "deploy"))
		var tickets []locks.Lease
		for i := range 10 {
			tickets = append(tickets, g.mustAcquire(ticket(fmt.Sprint("waiter-", i), "deploy")))
		}
		page := func(around string) locks.Lock {
			return assert.Value(g.m.Lock(t.Context(), locks.LockRequest{Principal: named(locks.Principal{}), Lock: "deploy", Limit: 4, Around: around}))(t)
		}
		for i, l := range tickets {
			for _, name := range []string{l.ID, l.Znode[len("/lockkeeper/locks/deploy/"):]} {
				v := page(name)
				assert.Must(t, len(v.Waiters) > i%4, "page of %d waiters", len(v.Waiters))
				assert.That(t, v.Waiters[i%4].LeaseID == l.ID && v.Waiters[0].Position == i/4*4+1 && len(v.Holders) == 1, "%+v", v.Waiters)
			}
		}
		for _, name := range []string{held.ID, "no-such", ""} {
			v := page(name)
			assert.That(t, v.Waiters[0].Position == 1 && v.Holders[0].LeaseID == held.ID, "%q: %+v", name, v)
		}
		for range 9 {
			r := ticket("", "pool")
			r.Mode, r.Limit, r.Permits = locks.Semaphore, 20, 1
			tickets = append(tickets, g.mustAcquire(r))
		}
		last := tickets[len(tickets)-1]
		v := assert.Value(g.m.Lock(t.Context(), locks.LockRequest{Principal: named(locks.Principal{}), Lock: "pool", Limit: 4, Around: last.ID}))(t)
		assert.That(t, len(v.Holders) == 1 && v.Holders[0].LeaseID == last.ID, "%+v", v.Holders)
	})
}
