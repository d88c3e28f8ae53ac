package manager

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/test/assert"
)

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
