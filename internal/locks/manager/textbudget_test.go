package manager

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// largest is the most that an answer of the manager may have as JSON: its text, and a quarter for what frames it.
const largest = maxText + maxText/4

// fits demands that an answer is not larger than it may be.
func fits(t *testing.T, what string, answer any) {
	t.Helper()
	encoded := assert.Value(json.Marshal(answer))(t)
	assert.That(t, len(encoded) <= 2*largest, "%s has %d bytes", what, len(encoded))
}

// crowd has so many shared leases hold a lock, each with all the metadata that it may have.
func (g *gate) crowd(lock string, n int) (ids []string) {
	g.t.Helper()
	for range n {
		ids = append(ids, g.mustHold(locks.AcquireRequest{Lock: lock, TTL: locks.MaxTTL, Mode: locks.Shared, Metadata: strings.Repeat("m", locks.MaxMetadata)}).ID)
	}
	slices.Sort(ids)
	return ids
}

func TestAListOfLocksIsBoundedByItsText(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		var group []locks.Want
		for i := range locks.MaxGroup {
			group = append(group, locks.Want{Lock: fmt.Sprintf("g%02d", i), Mode: locks.Shared})
		}
		const leases = 30
		for range leases {
			g.mustHold(locks.AcquireRequest{TTL: locks.MaxTTL, Group: group, Metadata: strings.Repeat("m", locks.MaxMetadata)})
		}
		var names []string
		for cursor, pages := "", 0; ; pages++ {
			page := assert.Value(g.m.Locks(t.Context(), locks.LockFilter{Limit: locks.MaxPage, Cursor: cursor}))(t)
			fits(t, "a page of locks", page)
			for i := range page.Items {
				l := &page.Items[i]
				names = append(names, l.Name)
				assert.Must(t, len(l.Holders) == maxHolders && l.HolderCount == leases,
					"%s shows %d holders of %d", l.Name, len(l.Holders), l.HolderCount)
			}
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
		assert.That(t, len(names) == locks.MaxGroup && slices.IsSorted(names) && len(slices.Compact(names)) == locks.MaxGroup,
			"the pages have %d locks: %q", len(names), names)
	})
}

func TestAListOfLeasesIsBoundedByItsText(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		want := g.crowd("deploy", 600)
		var ids []string
		for cursor := ""; ; {
			page := assert.Value(g.m.Leases(t.Context(), locks.LeaseFilter{Limit: locks.MaxPage, Cursor: cursor}))(t)
			fits(t, "a page of leases", page)
			for i := range page.Items {
				ids = append(ids, page.Items[i].ID)
			}
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
		assert.That(t, slices.Equal(ids, want), "the pages have %d leases of %d", len(ids), len(want))
	})
}

// walk reads all pages of a lock's queue.
func (g *gate) walk(lock string, limit int) (holders, waiters []string, pages int) {
	g.t.Helper()
	for cursor := ""; ; {
		l := assert.Value(g.m.Lock(g.t.Context(), locks.LockRequest{Lock: lock, Limit: limit, Cursor: cursor}))(g.t)
		fits(g.t, "a page of a queue", l)
		assert.Must(g.t, len(l.Holders) <= limit && len(l.Waiters) <= limit,
			"a page of %d shows %d holders and %d waiters", limit, len(l.Holders), len(l.Waiters))
		for i := range l.Holders {
			holders = append(holders, l.Holders[i].LeaseID)
		}
		for i := range l.Waiters {
			waiters = append(waiters, l.Waiters[i].LeaseID)
			assert.Must(g.t, l.Waiters[i].Position == len(waiters), "the position of waiter %d is %d", len(waiters), l.Waiters[i].Position)
		}
		pages++
		if cursor = l.NextCursor; cursor == "" {
			return holders, waiters, pages
		}
	}
}

func TestAQueueIsBoundedByItsTextAndItsPagesHaveAllHoldersAndWaiters(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		want := g.crowd("deploy", 600)
		var line []string
		for range 5 {
			line = append(line, g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true}).ID)
		}
		for _, limit := range []int{7, 600, locks.MaxPage} {
			holders, waiters, pages := g.walk("deploy", limit)
			slices.Sort(holders)
			if !slices.Equal(holders, want) || !slices.Equal(waiters, line) || pages < 5 {
				t.Errorf("with limit=%d: %d holders of %d and %d waiters of %d on %d pages", limit, len(holders), len(want), len(waiters), len(line), pages)
			}
		}
		l, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy", Limit: 2})
		assert.That(t, err == nil && l.HolderCount == len(want) && l.QueueLength == len(line) && l.State == locks.LockHeld,
			"a page of 2 counts %d holders and %d waiters: %v", l.HolderCount, l.QueueLength, err)
	})
}

func TestHoldersThatFitOnAPageAreOnEachPage(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.crowd("deploy", 2)
		for range 5 {
			g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		}
		if holders, waiters, pages := g.walk("deploy", 2); len(holders) != 6 || len(waiters) != 5 || pages != 3 {
			t.Errorf("%d holders and %d waiters on %d pages", len(holders), len(waiters), pages)
		}
	})
}

func TestAnswersWithoutPagesLeaveMetadataOut(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		want := g.crowd("deploy", 600)
		whole := func(what string, list []locks.Contender) {
			t.Helper()
			fits(t, what, list)
			if n := len(list); n != len(want) || list[0].Metadata == "" || list[n-1].Metadata != "" || list[n-1].LeaseID == "" || list[n-1].Znode == "" {
				t.Errorf("%s tells of %d holders of %d", what, n, len(want))
			}
		}
		whole("a revocation", g.mustRevoke("maintenance", 0).Asked)
		withdrawn := assert.Value(g.m.Withdraw(t.Context(), locks.WithdrawRequest{Lock: "deploy"}))(t)
		whole("a withdrawal", withdrawn.Withdrawn)
		whole("a dry reap", g.mustReap(locks.ReapRequest{Lock: "deploy", DryRun: true}).Reaped)
		l, err := g.m.Configure(t.Context(), locks.SettingsRequest{Lock: "deploy", Limit: 2})
		assert.That(t, err == nil && len(l.Holders) == maxHolders && l.HolderCount == len(want),
			"the answer to new settings shows %d holders of %d: %v", len(l.Holders), l.HolderCount, err)
		whole("a reap", g.mustReap(locks.ReapRequest{Lock: "deploy"}).Reaped)
	})
}
