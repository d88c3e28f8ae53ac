package webhooks

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// full is a service whose outbox has room for so many entries, and what it has reported as dropped.
func full(t *testing.T, room int) (b *bench, sub *Subscription, told func() []int) {
	t.Helper()
	var (
		mu   sync.Mutex
		list []int
	)
	b = newFleetOf(t, 1, func(o *Options) {
		o.MaxEntries, o.Dropped = room, func(_ string, n int, _ string) { mu.Lock(); defer mu.Unlock(); list = append(list, n) }
	})
	sub = b.subscribe(t, 0, "")
	return b, sub, func() []int { mu.Lock(); defer mu.Unlock(); return slices.Clone(list) }
}

// ends are so many ends, all of which are done, with an entry or without.
func (b *bench) ends(t *testing.T, prefix string, n int) {
	t.Helper()
	for i := range n {
		b.end(t, 0, fmt.Sprint(prefix, i), "lock-"+fmt.Sprint(prefix, i))
	}
}

func TestWhatFindsNoRoomInTheOutboxIsCountedAndTheRestIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, sub, told := full(t, 4)
		b.receivers.mu.Lock()
		b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed, Status: 503} }
		b.receivers.mu.Unlock()
		b.ends(t, "early-", 3)
		b.ends(t, "late-", 2)
		assert.Slices(t, b.left(), []string{"early-0", "early-1", "early-2"}, "outbox")
		o := b.services[0].Outbox()
		assert.That(t, o.Entries == 3 && o.Limit == 4 && o.Dropped == 2 && !o.LastDropped.IsZero(), "%+v", o)
		b.receivers.mu.Lock()
		b.answer = ok
		b.receivers.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.delivered(sub.ID); len(got) != 3 || len(b.left()) != 0 {
			t.Errorf("delivered %q, left %q", got, b.left())
		}
		b.ends(t, "then-", 2)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.delivered(sub.ID); len(got) != 5 || b.services[0].Outbox().Dropped != 2 || !slices.Equal(told(), []int{2}) {
			t.Errorf("below the bound again: delivered %q, told of %v", got, told())
		}
	})
}

func TestDroppedEndsAreReportedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, told := full(t, 1)
		b.receivers.mu.Lock()
		b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed, Status: 503} }
		b.receivers.mu.Unlock()
		b.ends(t, "early-", 1)
		began := time.Now()
		for i := range 90 {
			b.ends(t, fmt.Sprint("late-", i, "-"), 10)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		got := told()
		assert.That(t, len(got) == 2 && time.Since(began) <= 2*reportDropsEvery && got[0] >= 10 && got[0] <= 60, "told of %v", got)
		time.Sleep(2 * reportDropsEvery)
		synctest.Wait()
		sum := 0
		for _, n := range told() {
			sum += n
		}
		got = told()
		assert.That(t, len(got) == 3 && sum == 900 && b.services[0].Outbox().Dropped == 900, "told of %v, %d in all", got, sum)
	})
}

// Faults come in pairs: a transaction that failed, and one that failed and was done all the same.
func TestAnEndWithoutRoomIsCountedWhenItIsDoneOrMayBe(t *testing.T) {
	for name, c := range map[string]struct {
		outcome   zk.Outcome
		persisted bool
		dropped   int
	}{
		"done":                           {zk.Done, true, 1},
		"not done":                       {zk.NotDone, false, 0},
		"to be decided again":            {zk.Conflict, false, 0},
		"lost":                           {zk.Unknown, false, 1},
		"lost and done":                  {zk.Unknown, true, 1},
		"a contender that was not there": {zk.NotDone, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, _, _ := full(t, 1)
			b.took = time.Hour
			b.ends(t, "early-", 1)
			ops, entry, ready := b.services[0].Ending(false, func() *End {
				return &End{Entry: EntryOf("late"), Events: []Event{{Type: Released, NS: "default", Lock: "late", LeaseID: "late"}}}
			})
			assert.Must(t, ready && entry != nil && len(ops) == 1 && ops[0].Kind == zk.OpCheck, "%s: %v %v %v", name, ops, entry, ready)
			if c.persisted {
				b.Commit(t.Context(), ops)
			}
			b.services[0].Ended(entry, ops, zk.Result{Outcome: c.outcome, Culprit: -1, Err: zk.ErrNoNode})
			synctest.Wait()
			o := b.services[0].Outbox()
			assert.That(t, o.Dropped == c.dropped && o.Entries == 1, "%s: %+v", name, o)
		})
	}
}

func TestWhatAnotherHandEndsFindsNoRoomEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, told := full(t, 1)
		b.took = time.Hour
		b.ends(t, "early-", 1)
		b.services[0].Record(&End{Entry: ForeignEntry(7), Events: []Event{{Type: Removed, NS: "default", Lock: "theirs"}}})
		time.Sleep(countEvery + time.Second)
		synctest.Wait()
		if o := b.services[0].Outbox(); o.Dropped != 1 || len(b.left()) != 1 || !slices.Equal(told(), []int{1}) {
			t.Errorf("%+v, left %q, told of %v", o, b.left(), told())
		}
	})
}
