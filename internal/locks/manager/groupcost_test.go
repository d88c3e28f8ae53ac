package manager

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// What leases of several locks cost a gateway: questions whether one holds in a queue, and places of the bound.

const groupWidth = 64

// sharedGroup asks for the same 64 locks, shared, and the locks of more besides.
func sharedGroup(more ...locks.Want) locks.AcquireRequest {
	req := locks.AcquireRequest{TTL: time.Hour, Async: true}
	for i := range groupWidth - len(more) {
		req.Group = append(req.Group, locks.Want{Lock: fmt.Sprintf("wide-%02d", i), Mode: locks.Shared})
	}
	req.Group = append(req.Group, more...)
	return req
}

// questions is how often f had a gateway ask whether a lease holds in a queue.
func (g *gate) questions(f func()) int {
	g.t.Helper()
	synctest.Wait()
	asked := func() (n uint64) {
		g.m.mu.Lock()
		defer g.m.mu.Unlock()
		for _, space := range g.m.replica.Namespaces {
			n += space.Asked
		}
		return n
	}
	before := asked()
	f()
	synctest.Wait()
	return int(asked() - before)
}

// wantAtMost demands that something takes at most so many questions for each contender.
func wantAtMost(t *testing.T, what string, asked, contenders, each int) {
	t.Helper()
	t.Logf("%s: %d questions for %d contenders", what, asked, contenders)
	assert.That(t, asked <= each*contenders, "%s takes %d questions for %d contenders: at most %d for each", what, asked, contenders, each)
}

func TestTheCostOfAdoptingGroupsGrowsWithTheirContendersAlone(t *testing.T) {
	testkit.NotShort(t, "80 groups")
	for _, groups := range []int{20, 80} {
		t.Run(fmt.Sprint(groups), in(withGateway, func(t *testing.T, s *fakeStore, one *gate) {
			var leases []locks.Lease
			for range groups {
				leases = append(leases, one.mustHold(sharedGroup()))
			}
			two := s.gateway(t)
			asked := two.questions(func() {
				one.crash()
				time.Sleep(time.Minute)
			})
			for _, l := range leases {
				two.wantState(l, locks.Held, "")
			}
			wantAtMost(t, "the takeover", asked, groups*groupWidth, 8)
			two.checkCounts()
		}))
	}
}

func TestGroupsThatWaitAreAskedOnceForAnEvent(t *testing.T) {
	const groups = 30
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		holder := one.mustHold(alone_("last"))
		for range groups {
			one.mustAcquire(sharedGroup(locks.Want{Lock: "last"}))
		}
		var reader locks.Lease
		took := func() {
			reader = one.mustHold(locks.AcquireRequest{Lock: "wide-00", Mode: locks.Shared, TTL: time.Hour})
		}
		// The one that runs them, and one that does not: each looks at all of them after each event.
		asked := two.questions(func() { wantAtMost(t, "an event, at their gateway", one.questions(took), groups, 6) })
		wantAtMost(t, "an event, at another gateway", asked, groups, 6)
		asked = two.questions(func() {
			for range 2 {
				assert.Value(two.m.Locks(t.Context(), locks.LockFilter{Limit: locks.MaxPage}))(t)
			}
		})
		wantAtMost(t, "two lists", asked, groups*groupWidth, 6)
		one.mustRelease(reader)
		one.mustRelease(holder)
	})
}

func TestAViewAsksOnceForEachLeaseOfSeveralLocks(t *testing.T) {
	const groups = 30
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for range groups {
			g.mustHold(sharedGroup())
		}
		asked := g.questions(func() {
			l, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "wide-00", Limit: locks.MaxPage})
			assert.Must(t, err == nil && len(l.Holders) == groups && l.State == locks.LockHeld, "%+v %v", l, err)
		})
		wantAtMost(t, "a view", asked, groups*groupWidth, 2)
	})
}

func TestALeaseOfSeveralLocksCountsOnceForEachOfThem(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.limits = quota.Limits{quota.Leases: 100}
		g := s.gateway(t)
		first := g.mustHold(sharedGroup())
		g.wantUsed(quota.Leases, groupWidth)
		g.wantRefused(locks.CodeTooManyWaiters, sharedGroup())
		dry := sharedGroup()
		dry.Async, dry.DryRun = false, true
		g.wantRefused(locks.CodeTooManyWaiters, dry)
		delayed := g.mustHold(locks.AcquireRequest{TTL: time.Hour, LockDelay: time.Minute, LockDelayOn: locks.DelayAlways, Group: []locks.Want{{Lock: "x"}, {Lock: "y"}, {Lock: "z"}}})
		for i := range 100 - groupWidth - 3 {
			g.mustHold(onLock(fmt.Sprint("one-", i)))
		}
		g.wantUsed(quota.Leases, 100)
		g.wantRefused(locks.CodeTooManyWaiters, onLock("new"))
		g.mustRelease(delayed)
		g.wantUsed(quota.Leases, 100)
		time.Sleep(2 * time.Minute)
		g.wantUsed(quota.Leases, 97)
		g.mustRelease(first)
		g.wantUsed(quota.Leases, 97-groupWidth)
	})
}

func TestALeaseOfSeveralNamesCountsOnceForEachOfThem(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.limits = quota.Limits{quota.Leases: 5}
		s.dialects()
		g := s.gateway(t)
		g.mustHold(locks.AcquireRequest{NS: "all", Lock: "a", TTL: time.Hour})
		g.wantUsed(quota.Leases, 3)
		g.wantRefused(locks.CodeTooManyWaiters, locks.AcquireRequest{NS: "all", Lock: "b", TTL: time.Hour})
		g.mustHold(onLock("c"))
	})
}
