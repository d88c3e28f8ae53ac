package manager

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/orders"
	"lockkeeper/internal/test/assert"
)

// pagesOf are the names on all pages of a list, with so many on each.
func (g *gate) pagesOf(f locks.LockFilter, limit int) (names []string) {
	g.t.Helper()
	f.Limit = limit
	for range 1000 {
		page, err := g.m.Locks(g.t.Context(), f)
		assert.Must(g.t, err == nil && len(page.Items) <= limit, "%+v: %v, %d items", f, err, len(page.Items))
		for i := range page.Items {
			names = append(names, page.Items[i].Name)
		}
		if f.Cursor = page.NextCursor; f.Cursor == "" {
			return names
		}
	}
	g.t.Fatalf("%+v has no end", f)
	return nil
}

// naive is what a list must show, found out by looking at each lock.
func (g *gate) naive(f locks.LockFilter) (names []string) {
	g.t.Helper()
	type row struct {
		name   string
		number int64
		has    bool
	}
	var rows []row
	all, err := g.m.Locks(g.t.Context(), locks.LockFilter{Limit: locks.MaxPage})
	assert.NoError(g.t, err)
	for _, item := range all.Items {
		lock, err := g.m.Lock(g.t.Context(), locks.LockRequest{Lock: item.Name, Limit: locks.MaxPage})
		assert.NoError(g.t, err)
		here := slices.Concat(lock.Holders, lock.Waiters)
		ofLease := slices.ContainsFunc(here, func(c locks.Contender) bool {
			return c.LeaseID != "" && (f.Owner == "" || c.Owner == f.Owner) && (f.Host == "" || strings.HasSuffix(c.Owner, "@"+f.Host))
		})
		if (f.Owner != "" || f.Host != "") && !ofLease || f.Mode != "" && !slices.ContainsFunc(here, func(c locks.Contender) bool { return c.Mode == f.Mode }) {
			continue
		}
		if f.State != "" && lock.State != f.State || !strings.Contains(lock.Name, f.Contains) || !strings.HasPrefix(lock.Name, f.Prefix) {
			continue
		}
		r := row{name: lock.Name}
		switch f.Sort {
		case locks.SortWaiters:
			r.number, r.has = int64(lock.QueueLength), lock.QueueLength > 0
		case locks.SortHeld:
			for _, c := range lock.Holders {
				if c.HeldFor > 0 {
					r.number, r.has = max(r.number, c.HeldFor.Milliseconds()), true
				}
			}
		case locks.SortWait:
			if len(lock.Waiters) > 0 {
				r.number, r.has = lock.Waiters[0].Age.Milliseconds(), true
			}
		}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		if a.has != b.has {
			return map[bool]int{true: -1, false: 1}[a.has]
		}
		return cmp.Compare(b.number, a.number)
	})
	for _, r := range rows {
		names = append(names, r.name)
	}
	return names
}

// filters are what a random history is asked for.
func filters(random *rand.Rand) locks.LockFilter {
	return locks.LockFilter{
		Sort:     []locks.LockSort{"", locks.SortWaiters, locks.SortHeld, locks.SortWait}[random.IntN(4)],
		Owner:    []string{"", "", "ann@one", "bob@two", "cy"}[random.IntN(5)],
		Host:     []string{"", "", "one", "two", "none"}[random.IntN(5)],
		Mode:     []locks.Mode{"", "", locks.Exclusive, locks.Shared, locks.Semaphore}[random.IntN(5)],
		State:    []locks.LockState{"", "", locks.LockHeld}[random.IntN(3)],
		Contains: []string{"", "1"}[random.IntN(2)],
		Prefix:   []string{"", "l1", "s"}[random.IntN(3)],
	}
}

// Random histories: pages of any size have what a look at each lock finds, in its order. Orders are dropped now and then.
func TestSortedListsAreWhatALookAtEachLockFinds(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			random := rand.New(rand.NewPCG(seed, 7))
			var mine []locks.Lease
			for step := range 150 {
				time.Sleep(time.Duration(1+random.IntN(5)) * time.Second)
				if len(mine) > 0 && random.IntN(3) == 0 {
					i := random.IntN(len(mine))
					_ = g.release(mine[i])
					mine = slices.Delete(mine, i, i+1)
				} else {
					lock := fmt.Sprint("l", random.IntN(25))
					req := locks.AcquireRequest{Lock: lock, TTL: time.Hour, Async: true, Owner: []string{"ann@one", "bob@two", "cy", "x@y@one"}[random.IntN(4)]}
					switch random.IntN(4) {
					case 0:
						req.Mode = locks.Shared
					case 1:
						req.Lock, req.Mode, req.Limit = "s"+lock, locks.Semaphore, 2
					}
					if l, err := g.acquire(req); err == nil {
						mine = append(mine, l)
						_, _ = g.heartbeat(l)
					}
				}
				synctest.Wait()
				if step%5 != 0 {
					continue
				}
				f := filters(random)
				want := g.naive(f)
				for _, limit := range []int{1, 3, 100} {
					got := g.pagesOf(f, limit)
					assert.Must(t, slices.Equal(got, want), "step %d, %+v, %d on a page:\n%v\nand not\n%v", step, f, limit, got, want)
				}
				if random.IntN(10) == 0 {
					time.Sleep(orders.Life + 2*time.Second)
					for _, l := range mine {
						_, _ = g.heartbeat(l)
					}
					for s := range g.m.replica.All {
						assert.That(t, s.Changed() == 0, "%d changes are kept that no list asks for", s.Changed())
					}
					assert.Equal(t, len(g.m.lists), 0, "orders that no list asks for")
				}
			}
		}))
	}
}

// What another gateway runs is found by its owner once its record has been read, and before by what that gateway says.
func TestAListByOwnerTakesInWhatOtherGatewaysSay(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		for _, lock := range []string{"a", "b", "c", "d"} {
			g := map[bool]*gate{true: one, false: two}[lock < "c"]
			g.mustHold(locks.AcquireRequest{Lock: lock, TTL: time.Hour, Owner: "ann@one"})
			pass(time.Minute)
		}
		owned := locks.LockFilter{Owner: "ann@one"}
		assert.That(t, slices.Equal(two.pagesOf(owned, 1), []string{"c", "d"}), "%v", two.pagesOf(owned, 1))
		owned.Elsewhere = &locks.Elsewhere{Names: []string{"a", "b", "gone"}}
		for _, sort := range []locks.LockSort{"", locks.SortHeld, locks.SortWaiters} {
			owned.Sort = sort
			for _, limit := range []int{1, 3, 4} {
				assert.That(t, slices.Equal(two.pagesOf(owned, limit), []string{"a", "b", "c", "d"}), "sort %q: %v", sort, two.pagesOf(owned, limit))
			}
		}
		owned.Sort, owned.Elsewhere.To = "", "b" // the other gateway has more behind this one
		page, err := two.m.Locks(t.Context(), owned)
		assert.That(t, err == nil && len(page.Items) == 2 && page.Items[1].Name == "b" && page.NextCursor != "", "%+v %v", page, err)
		owned.Elsewhere, owned.Cursor = nil, page.NextCursor
		assert.That(t, slices.Equal(two.pagesOf(owned, 100), []string{"c", "d"}), "%v", two.pagesOf(owned, 100))
		_, err = two.m.Lock(t.Context(), locks.LockRequest{Lock: "a"}) // reads the record
		assert.NoError(t, err)
		assert.That(t, slices.Equal(two.pagesOf(locks.LockFilter{Host: "one"}, 100), []string{"a", "c", "d"}), "%v", two.pagesOf(locks.LockFilter{Host: "one"}, 100))
	})
}

// A list by names asks for no order, and a gateway whose lists are not sorted keeps none.
func TestNoOrderIsKeptThatNoListAsksFor(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustHold(locks.AcquireRequest{Lock: "a", TTL: time.Hour})
		g.pagesOf(locks.LockFilter{Contains: "a"}, 10)
		assert.Equal(t, len(g.m.lists), 0)
		g.pagesOf(locks.LockFilter{Sort: locks.SortHeld}, 10)
		assert.Equal(t, len(g.m.lists), 1)
	})
}
