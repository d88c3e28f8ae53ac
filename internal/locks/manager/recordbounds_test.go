package manager

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/paging"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/test/assert"
)

// hostile is a record of size bytes or more in every text that it has.
func hostile(size int) string {
	text := strings.Repeat("$ü", size/3+1)
	names := make([]string, 3*locks.MaxHolds)
	for i := range names {
		names[i] = fmt.Sprint(i, strings.Repeat("h", size/len(names)))
	}
	data, err := json.Marshal(map[string]any{"v": 1, "ttl_ms": 60000, "enqueued_ms": -5, "owner": text, "metadata": text, "holds": names,
		"released": names, "lock_delay_ms": int64(9300000000000), "lock_delay_on": text, "notify": "http://" + text,
		"revoke": map[string]any{"reason": text, "force_after_ms": int64(9300000000000)}, "later": text})
	if err != nil {
		panic(err)
	}
	return string(data)
}

func wantBounded(t testing.TB, what string, owner, metadata string, holds []string, r *locks.Revocation) {
	t.Helper()
	for name, c := range map[string]struct {
		text string
		most int
	}{"owner": {owner, locks.MaxOwner}, "metadata": {metadata, locks.MaxMetadata}} {
		assert.That(t, len(c.text) <= c.most && utf8.ValidString(c.text), "%s: %s has %d bytes", what, name, len(c.text))
	}
	assert.That(t, len(holds) <= locks.MaxHolds, "%s: %d holds", what, len(holds))
	for _, hold := range holds {
		assert.That(t, len(hold) <= locks.MaxHoldName, "%s: a hold's name has %d bytes", what, len(hold))
	}
	assert.That(t, r == nil || len(r.Reason) <= locks.MaxReasonText && r.ForceIn >= 0 && r.ForceIn <= locks.MaxForceAfter,
		"%s: %+v", what, r)
}

// Contenders that claim to be other gateways' leases, in this program's format.
func TestWhatAnswersSayOfOtherContendersIsBounded(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		const each = 20
		for range each {
			s.otherLease(t, "deploy", recipe.Exclusive, hostile(8<<10))
			s.otherLease(t, "deploy", recipe.Exclusive, hostile(200<<10))
			s.otherLease(t, "deploy", recipe.Exclusive, `{"v":1,"ttl_ms":1000,"closed":{"reason":"`+strings.Repeat("`", 100<<10)+`"}}`)
		}
		lock := assert.Value(g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy", Limit: locks.MaxPage}))(t)
		list := append(lock.Holders, lock.Waiters...)
		assert.Must(t, len(list) == 3*each, "%d contenders", len(list))
		told := 0
		for _, c := range list {
			wantBounded(t, c.Znode, c.Owner, c.Metadata, c.Holds, c.Revoke)
			assert.That(t, len(c.Reason) <= 32 && c.Foreign == nil, "a reason of %d bytes, foreign: %+v", len(c.Reason), c.Foreign)
			if len(c.Owner) > locks.MaxOwner-utf8.UTFMax {
				told++
			}
		}
		assert.That(t, told == each, "%d owners are told, cut; want %d", told, each)
	})
}

// A ticket's record is written over in this program's format.
func TestALeaseWhoseRecordIsWrittenOverWithALargeOneGoesOn(t *testing.T) {
	for _, size := range []int{8 << 10, 900 << 10} {
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Owner: "me", Metadata: "build 7"})
			s.overwrite(l.Znode, hostile(size))
			synctest.Wait()
			time.Sleep(time.Second)
			v := g.look(l)
			wantBounded(t, "the lease", v.Owner, v.Metadata, v.Holds, v.Revoke)
			assert.That(t, v.LockDelay >= 0 && v.LockDelay <= locks.MaxLockDelay && len(v.LockDelayOn) <= 16,
				"lock delay %v on %d bytes", v.LockDelay, len(v.LockDelayOn))
			metadata := "build 8"
			v, err := g.m.Update(t.Context(), locks.UpdateRequest{ID: l.ID, Token: l.Token, Principal: locks.Anonymous, Metadata: &metadata})
			assert.Must(t, err == nil && v.Metadata == metadata, "updated: %v, %v", v.Metadata, err)
			synctest.Wait()
			data := s.node(l.Znode).data
			assert.That(t, len(data) <= record.MaxData, "its record has %d bytes", len(data))
			r, ok := record.Parse(s.node(l.Znode).data)
			assert.That(t, ok && (size <= record.MaxData || r.Owner == "me"), "its record is %+v", r)
			g.m.mu.Lock()
			used, most := g.m.leases.quota.Used(quota.MetadataBytes), int64(locks.MaxOwner+locks.MaxMetadata+locks.MaxNotifyURL+locks.MaxHolds*locks.MaxHoldName)
			g.m.mu.Unlock()
			assert.That(t, used <= most, "%d bytes are counted, of %d that the API accepts", used, most)
			g.mustRelease(l)
		})
	}
}

// A gateway that does not run the lease writes no record that its owner would not read.
func TestNoOtherGatewayMakesARecordLargerThanItsOwnerReads(t *testing.T) {
	data := []byte(`{"v":1,"ttl_ms":1000,"later":"` + strings.Repeat("<", record.MaxData/2) + `"}`)
	_, ok := record.Parse(data)
	assert.Must(t, ok, "it is no record")
	_, _, refused := beatenRecord(data, true)
	assert.That(t, refused != nil && refused.Code == locks.CodeUnavailable, "a beat was counted up: %v", refused)
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustRelease(g.mustHold(deploy()))
		path := s.otherLease(t, "deploy", recipe.Exclusive, string(data))
		_, err := g.m.Revoke(t.Context(), locks.RevokeRequest{Lock: "deploy", NS: locks.DefaultNamespace, Reason: "why"})
		wantCode(t, err, locks.CodeNothingToAsk)
		got := s.node(path).data
		assert.That(t, len(got) == len(data), "its record has %d bytes", len(got))
	})
}

func TestTheMembersOfALaterReleaseAreBounded(t *testing.T) {
	for size, kept := range map[int]bool{1 << 10: true, record.MaxMore: false} {
		var l lease
		l.learnMore([]byte(`{"v":1,"ttl_ms":1000,"later":"` + strings.Repeat("x", size) + `"}`))
		assert.Equal(t, l.rareFields != nil && l.rareFields.more != nil, kept, "%d bytes: kept", size)
		l.learnMore([]byte(`{"v":1,"ttl_ms":1000,"later":[` + strings.Repeat(" ", record.MaxMore) + `]}`))
		assert.That(t, l.rareFields == nil || len(l.rareFields.more) <= 0, "spaces are kept")
	}
}

// The largest record that requests can make is read back as it was written, with room for a later release.
func TestTheLargestRecordOfTheAPIIsRead(t *testing.T) {
	text := func(n int) string { return strings.Repeat("<", n) } // six bytes each in JSON
	r := record.Record{Version: record.Version, Owner: text(locks.MaxOwner), Metadata: text(locks.MaxMetadata), TTL: locks.MaxTTL.Milliseconds(), Enqueued: math.MaxInt64,
		LockDelay: locks.MaxLockDelay.Milliseconds(), LockDelayOn: locks.DelayOnExpiry, Notify: text(locks.MaxNotifyURL), Beats: math.MaxInt64, Told: true,
		Revoke: &record.Revocation{Reason: text(locks.MaxReasonText), Force: locks.MaxForceAfter.Milliseconds()}, RevokeRound: math.MaxInt64,
		Closed: &record.Closed{Reason: locks.ReasonGatewayLeft, At: math.MaxInt64}}
	r.Holds = append(r.Holds, record.Unnamed)
	for i := range locks.MaxHolds {
		name := fmt.Sprintf("%s%02d", text(locks.MaxHoldName-2), i)
		if i%2 == 0 {
			r.Holds = append(r.Holds, name)
		} else {
			r.Released = append(r.Released, name)
		}
	}
	data := r.Encode()
	assert.That(t, len(data) <= 64<<10 && len(data)+record.MaxMore <= record.MaxData, "it has %d bytes", len(data))
	got, ok := record.Parse(data)
	assert.That(t, ok && reflect.DeepEqual(got, r), "read back is %v %+v", ok, got)
}

// Whatever numbers a record has, every time that follows from them is one that the API has.
func TestEveryTimeOfARecordIsWithinItsBounds(t *testing.T) {
	number := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{0, -1, 1, math.MaxInt64, math.MinInt64, 9300000000000, -9300000000000,
		math.MaxInt64 / int64(time.Millisecond), math.MaxInt64/int64(time.Millisecond) + 1}))
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string) int64 { return number.Draw(t, name) }
		ttl, delay, force := n("ttl"), n("delay"), n("force")
		r, ok := record.Parse(fmt.Appendf(nil, `{"v":1,"ttl_ms":%d,"enqueued_ms":%d,"lock_delay_ms":%d,"lock_delay_on":"always","beats":%d,
			"revoke_round":%d,"revoke":{"force_after_ms":%d},"closed":{"reason":"new","at_ms":%d}}`,
			ttl, n("enqueued"), delay, n("beats"), n("round"), force, n("at")))
		assert.Must(t, ok == (ttl > 0), "ttl %d: a record %v", ttl, ok)
		if !ok {
			return
		}
		if r.LeaseTTL() < locks.MinTTL || r.LeaseTTL() > locks.MaxTTL || ttl >= locks.MaxTTL.Milliseconds() && r.LeaseTTL() != locks.MaxTTL {
			t.Errorf("ttl_ms %d is %v", ttl, r.LeaseTTL())
		}
		d := time.Duration(r.LockDelay) * time.Millisecond
		assert.That(t, d >= 0 && d <= locks.MaxLockDelay && (delay <= 0 || d != 0), "lock_delay_ms %d is %v", delay, d)
		v := r.Revoke.View()
		assert.That(t, v.ForceIn >= 0 && v.ForceIn <= locks.MaxForceAfter && v.Forced == (force > 0), "force_after_ms %d is %+v", force, v)
		assert.That(t, r.EndedFor() == locks.ReasonUnknown, "it ended for %q", r.EndedFor())
		now := time.Now().UnixMilli()
		l := lease{enqueued: record.EnqueuedAt(r.Enqueued, now)}
		age, known := l.age(time.Duration(now) * time.Millisecond)
		assert.That(t, known && age >= 0 && age <= record.LongestHeld, "enqueued_ms %d is an age of %v, %v", r.Enqueued, age, known)
	})
}

// What a held lease was promised stands though its record says that it is for ever.
func TestAnEndlessTTLIsTheLongest(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		one.crash()
		s.overwrite(l.Znode, `{"v":1,"ttl_ms":9223372036854775807,"lock_delay_ms":9300000000000,"lock_delay_on":"always"}`)
		time.Sleep(time.Hour)
		v := two.look(l)
		assert.That(t, v.State == locks.Held && v.TTL == locks.MaxTTL && v.LockDelay == locks.MaxLockDelay,
			"%s, ttl %v, lock delay %v", v.State, v.TTL, v.LockDelay)
		h := two.lock().Holders
		assert.That(t, len(h) == 1 && h[0].AgeKnown && h[0].Age >= time.Hour && h[0].Age <= 2*time.Hour, "its holder: %+v", h)
	})
}

func TestAnAgeThatIsNotKnownIsLeftOut(t *testing.T) {
	var l lease
	age, known := l.age(1795370668651 * time.Millisecond)
	assert.That(t, !known && age == 0, "%v, known: %v", age, known)
}

// largest is the most that an answer of the manager may have as JSON: its text, and a quarter for what frames it.
const largest = int(paging.MaxText + paging.MaxText/4)

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
