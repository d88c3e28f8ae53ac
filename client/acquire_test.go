package client

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// revoking answers each heartbeat as one of a lease whose holder is asked to release it.
type revoking struct{ http.RoundTripper }

func (rt revoking) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := rt.RoundTripper.RoundTrip(r)
	if err != nil || r.Method != "POST" || r.URL.Path != "/v1/leases/self/heartbeat" {
		return resp, err
	}
	return answer(200, map[string]any{"state": "held", "ttl_ms": 30000, "revoke_requested": map[string]any{"reason": "deploy", "by": "token:ops", "force_in_ms": 60000}})
}

func TestAGrantOfTheQueueIsConfirmedByAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		g.queued = 3
		var places []int
		lease, err := g.client(t).Acquire(t.Context(), "x", OnQueued(func(p int) { places = append(places, p) }))
		assert.NoError(t, err)
		assert.Slices(t, places, []int{3, 2, 1})
		assert.Equal(t, lease.Fence(), uint64(7))
		if g.beats == 0 {
			t.Error("no heartbeat began the TTL anew")
		}
		assert.NoError(t, lease.Release(t.Context()))
	})
}

// A repeat of an acquire whose answer was lost has no waited_ms: its TTL began before it.
func TestAGrantWhoseTimeBeganEarlierIsConfirmedByAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		g.waited = nil
		g.status = 410
		_, err := g.client(t).Acquire(t.Context(), "x", Wait(time.Second))
		var none *NotAcquired
		assert.Equal(t, errors.As(err, &none), true, err)
		if g.beats == 0 {
			t.Error("the lease was taken for held without a heartbeat")
		}
	})
}

func TestTheEndOfTheWaitGivesThePlaceUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		g.queued = 1000
		c := g.client(t)
		_, err := c.Acquire(t.Context(), "x", Wait(2*time.Second))
		var none *NotAcquired
		assert.Equal(t, errors.As(err, &none), true, err)
		assert.Equal(t, none.Holders[0].Owner, "other")
		assert.Equal(t, none.QueueLength, 3)
		assert.Equal(t, g.released, 1)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Acquire(ctx, "x")
		assert.Equal(t, errors.Is(err, context.DeadlineExceeded), true, err)
		assert.Equal(t, g.released, 2)
	})
}

// The gateway has taken the acquire, and its answer does not come before the caller gives up.
func TestWhatAnUnheardAcquireTookIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		g.slow = time.Second
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := g.client(t).Acquire(ctx, "x")
		assert.Equal(t, errors.Is(err, context.DeadlineExceeded), true, err)
		assert.Equal(t, g.released, 1)
		assert.Equal(t, len(g.keys) == 2 && g.keys[0] == g.keys[1], true, g.keys)
	})
}

func TestOneAcquireHasOneIdempotencyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		g.down["one"] = true
		c := g.client(t, "http://one", "http://two")
		for range 2 {
			lease, err := c.Acquire(t.Context(), "x")
			assert.NoError(t, err)
			assert.NoError(t, lease.Release(t.Context()))
		}
		assert.Equal(t, len(g.keys), 2)
		if g.keys[0] == g.keys[1] || g.keys[0] == "" {
			t.Errorf("keys of two acquires: %q", g.keys)
		}
		assert.Equal(t, g.headers[0].Get("Idempotency-Key"), g.keys[0]) // the request that got no answer
	})
}

func TestATryEndsWhenNoGatewayCanAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		g.down["one"] = true
		began := time.Now()
		_, err := g.client(t).TryAcquire(t.Context(), "x")
		assert.Equal(t, err != nil, true)
		assert.That(t, time.Since(began) <= tryWithin+leaveWithin, "the try took %v", time.Since(began))
	})
}

func TestALeaderThatLosesItsLeaseIsACandidateAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		terms := 0
		err := g.client(t).Elect(t.Context(), "x", func(ctx context.Context, _ *Lease) error {
			if terms++; terms == 1 {
				g.end(410)
				<-ctx.Done()
				g.mu.Lock()
				g.status, g.frozen = 0, make(chan struct{})
				g.mu.Unlock()
			}
			return nil
		})
		assert.NoError(t, err)
		assert.Equal(t, terms, 2)
	})
}

// What lead says of another lease is no news of this client's term.
func TestALeaderThatLosesAnotherLeaseLeadsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero, terms := int64(0), 0
		g := &gateway{ttl: 30 * time.Second, waited: &zero, frozen: make(chan struct{})}
		other := &LeaseLost{LeaseID: "of another lock", Reason: "revoked"}
		err := g.client(t).Elect(t.Context(), "x", func(context.Context, *Lease) error {
			if terms++; terms > 1 {
				return nil
			}
			return other
		})
		assert.That(t, errors.Is(err, other) && terms == 1, "%d terms, then %v", terms, err)
	})
}

func TestALockerTellsThatItsLockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		told := make(chan error, 1)
		k := g.client(t).Locker("x", func(err error) { told <- err })
		for range 2 {
			k.Lock()
			time.Sleep(time.Second)
			k.Unlock()
		}
		k.Lock()
		g.end(410)
		lostOf(t, <-told)
		k.Unlock()
	})
}

func TestAConfigThatCannotWorkIsRefused(t *testing.T) {
	for text, config := range map[string]Config{
		"URLs is empty":    {},
		"must be like":     {URLs: []string{"localhost:8080"}},
		"must have no":     {URLs: []string{"http://me:secret@localhost:8080"}},
		"leave one out":    {URLs: []string{"http://localhost"}, Token: "a", TokenFile: "b"},
		"cannot be read":   {URLs: []string{"http://a b"}},
		"no URL of a gate": {URLs: []string{"ftp://localhost"}},
	} {
		_, err := New(config)
		refusedWith(t, err, text)
	}
}
