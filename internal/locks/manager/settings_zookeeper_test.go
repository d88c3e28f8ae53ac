package manager

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// Settings, and what is said of tokens, with two gateways on a real ZooKeeper.
func TestSettingsOnARealZooKeeper(t *testing.T) {
	addr, chroot := zkreal.SharedT(t)
	testkit.NoLeaks(t)
	gates := []*Manager{onZooKeeper(t, addr, chroot), onZooKeeper(t, addr, chroot)}
	ctx := t.Context()

	// Eight ask at once, with two different limits: one limit is agreed upon, and
	// all who gave that one are in.
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		leases  []locks.Lease
		refused int
	)
	for i := range 8 {
		wg.Go(func() {
			res, err := gates[i%2].Acquire(ctx, locks.AcquireRequest{Lock: "pool", Mode: locks.Semaphore, Limit: 4 + i%2, TTL: time.Minute, Async: true})
			mu.Lock()
			defer mu.Unlock()
			var e *locks.Error
			switch {
			case err == nil:
				leases = append(leases, res.Lease)
			case errors.As(err, &e) && e.Code == locks.CodeSettingsDiffer && e.Limit != 4+i%2:
				refused++
			default:
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	assert.Must(t, len(leases) == 4 && refused == 4, "%d leases, %d refused", len(leases), refused)
	limit := leases[0].Limit
	for i, l := range leases {
		testkit.Eventually(t, 10*time.Second, func() bool {
			v, err := gates[(i+1)%2].Fence(ctx, locks.FenceRequest{Lock: "pool", Token: heldToken(t, gates, l.ID)})
			return err == nil && v.Current && gates[(i+1)%2].StillValid(v.Term)
		}, "each holder's token is current on the other gateway")
	}
	if lock, err := gates[1].Configure(ctx, locks.SettingsRequest{Lock: "pool", Limit: 9}); err != nil || lock.Limit != 9 || lock.LimitAgreed || len(lock.Holders) != 4 {
		t.Fatalf("%+v %v", lock, err)
	}
	testkit.Eventually(t, 10*time.Second, func() bool {
		lock, err := gates[0].Lock(ctx, locks.LockRequest{Lock: "pool"})
		return err == nil && lock.Limit == 9
	}, "the other gateway sees the new limit: until then it has the old one, and the lock is only held")
	_, err := gates[0].Acquire(ctx, locks.AcquireRequest{Lock: "pool", Mode: locks.Semaphore, Limit: limit, TTL: time.Minute})
	assert.Equal(t, wantCode(t, err, locks.CodeSettingsDiffer).Limit, 9)
	res, err := gates[0].Acquire(ctx, locks.AcquireRequest{Lock: "pool", Mode: locks.Semaphore, Permits: 5, TTL: time.Minute})
	assert.Must(t, err == nil && res.Lease.State == locks.Held && res.Lease.Limit == 9, "%+v %v", res.Lease, err)
	wantCode(t, gates[1].Remove(ctx, locks.Anonymous, "", "pool"), locks.CodeLockInUse)
	for _, l := range append(leases, res.Lease) {
		var err error
		for _, m := range gates {
			if err = m.Release(ctx, locks.Anonymous, l.ID, m.fleet.tokens.Make(recipe.LeaseID(l.ID))); err == nil {
				break
			}
		}
		assert.NoError(t, err)
	}
	assert.NoError(t, gates[1].Remove(ctx, locks.Anonymous, "", "pool"))
	for _, m := range gates {
		lock, err := m.Lock(ctx, locks.LockRequest{Lock: "pool", Consistent: true})
		assert.That(t, err == nil && lock.Limit == 0 && lock.State == locks.LockFree, "%+v %v", lock, err)
	}
	if _, err := gates[0].Acquire(ctx, locks.AcquireRequest{Lock: "pool", Mode: locks.Semaphore, Limit: 1, TTL: time.Minute}); err != nil {
		t.Error(fmt.Errorf("after its removal: %w", err))
	}
}

// heldToken is the fencing token of a lease that one of the gateways runs, once it holds.
func heldToken(t *testing.T, gates []*Manager, id string) int64 {
	t.Helper()
	for _, m := range gates {
		if v, err := m.Lease(t.Context(), locks.LeaseRequest{ID: id}); err == nil && v.State == locks.Held {
			return v.FencingToken
		}
	}
	return 1
}
