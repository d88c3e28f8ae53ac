package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

func newGateway() *gateway {
	return &gateway{ttl: 30 * time.Second, frozen: make(chan struct{}), waited: new(int64), down: map[string]bool{}}
}

// hold runs work until its context ends, and tells for how long it ran.
func hold(ran *time.Duration) func(context.Context, *Lease) error {
	return func(ctx context.Context, _ *Lease) error {
		began := time.Now()
		<-ctx.Done()
		*ran = time.Since(began)
		return context.Cause(ctx)
	}
}

func TestWorkStopsAMarginBeforeTheTimeIsOverWhenNoGatewayAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		c := g.client(t)
		lease, err := c.Acquire(t.Context(), "x")
		assert.NoError(t, err)
		g.mu.Lock()
		g.down["one"] = true
		g.mu.Unlock()
		sent := time.Now()
		<-lease.Context().Done()
		// The heartbeat that was open when the gateway fell silent was never answered, so the time counts from the acquire.
		ran := time.Since(sent)
		if ran > 29*time.Second || ran < 28*time.Second {
			t.Errorf("the work was stopped after %v, not 1 s before the TTL of 30 s is over", ran)
		}
		assert.Equal(t, lostOf(t, lease.Err()).Reason, ReasonDeadline)
		assert.Equal(t, lease.Held(), false)
		lostOf(t, lease.Release(t.Context()))
	})
}

func TestALeaseGoesOnAtAnotherGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		c := g.client(t, "http://one", "http://two")
		lease, err := c.Acquire(t.Context(), "x")
		assert.NoError(t, err)
		g.mu.Lock()
		g.down["one"] = true
		g.mu.Unlock()
		time.Sleep(10 * time.Minute)
		assert.NoError(t, lease.Err())
		assert.Equal(t, lease.Held(), true)
		assert.NoError(t, lease.Release(t.Context()))
		assert.Equal(t, g.released, 1)
	})
}

func TestTheTimeCountsFromWhenTheRequestWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		g.slow = 3 * time.Second
		g.onBeat = func(int) { time.Sleep(4 * time.Second) } // each answer is slow
		c := g.client(t)
		lease, err := c.Acquire(t.Context(), "x")
		assert.NoError(t, err)
		assert.Equal(t, lease.Left(), 30*time.Second-3*time.Second-lease.margin)
		time.Sleep(10*time.Second + 4*time.Second + time.Millisecond) // the first heartbeat is answered
		synctest.Wait()
		if left := lease.Left(); left > 30*time.Second-14*time.Second-lease.margin {
			t.Errorf("%v are left, so the time was counted from the answer", left)
		}
		assert.NoError(t, lease.Release(t.Context()))
	})
}

func TestALeaseThatIsEndedStopsTheWorkAtOnce(t *testing.T) {
	for status, reason := range map[int]string{410: "revoked", 404: ReasonGone, 403: ReasonGone} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway()
			c := g.client(t)
			var ran time.Duration
			time.AfterFunc(5*time.Second, func() { g.end(status) })
			lost := lostOf(t, c.Do(t.Context(), "x", hold(&ran)))
			assert.Equal(t, lost.Reason, reason)
			assert.Equal(t, ran, 5*time.Second)
			assert.Equal(t, g.released, 0) // there is nothing to release
		})
	}
}

// misrouted is a proxy that knows no gateway for a while.
type misrouted struct {
	http.RoundTripper
	heartbeats, releases atomic.Int32 // that it answers by itself
}

func (m *misrouted) RoundTrip(r *http.Request) (*http.Response, error) {
	left := &m.releases
	if r.Method == "POST" && strings.HasSuffix(r.URL.Path, "/heartbeat") {
		left = &m.heartbeats
	} else if r.Method != "DELETE" {
		left = new(atomic.Int32)
	}
	if left.Add(-1) < 0 {
		return m.RoundTripper.RoundTrip(r)
	}
	return &http.Response{StatusCode: 404, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("default backend - 404"))}, nil
}

func TestWhatAProxyAnswersByItselfEndsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		c := g.client(t)
		proxy := &misrouted{RoundTripper: c.http.Transport}
		proxy.heartbeats.Store(5)
		c.http.Transport = proxy
		lease, err := c.Acquire(t.Context(), "x")
		assert.NoError(t, err)
		time.Sleep(time.Minute)
		assert.Equal(t, proxy.heartbeats.Load() <= 0, true)
		assert.NoError(t, lease.Err())
		assert.Equal(t, lease.Held(), true)
		proxy.releases.Store(3)
		assert.NoError(t, lease.Release(t.Context()))
		assert.Equal(t, g.released, 1)
		lease, err = c.Acquire(t.Context(), "x")
		assert.NoError(t, err)
		proxy.releases.Store(1000)
		err = lease.Release(t.Context())
		refusedWith(t, err, "could not be released")
		var lost *LeaseLost
		assert.Equal(t, errors.As(err, &lost), false)
	})
}

func TestDoTellsThatTheLeaseWasLostAlsoWhenTheWorkDidNotNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		c := g.client(t)
		failed := errors.New("disk full")
		err := c.Do(t.Context(), "x", func(context.Context, *Lease) error {
			g.end(410)
			time.Sleep(time.Second)
			return failed
		})
		assert.Equal(t, lostOf(t, err).Reason, "revoked")
		assert.Equal(t, errors.Is(err, failed), true)
	})
}

func TestTheLockIsReleasedOnEveryPath(t *testing.T) {
	works := map[string]func(context.Context, *Lease) error{
		"success": func(context.Context, *Lease) error { return nil },
		"error":   func(context.Context, *Lease) error { return errors.New("no") },
		"panic":   func(context.Context, *Lease) error { panic("no") },
	}
	for name, work := range works {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway()
			c := g.client(t)
			func() {
				defer func() { _ = recover() }()
				_ = c.Do(t.Context(), "x", work)
			}()
			assert.Equal(t, g.released, 1, name)
		})
	}
}

func TestHeartbeatsNeedNoOtherCredentialThanTheLeaseToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		c := g.client(t)
		lease, err := c.Acquire(t.Context(), "x")
		assert.NoError(t, err)
		time.Sleep(time.Minute)
		assert.NoError(t, lease.Release(t.Context()))
		for i, h := range g.headers {
			acquires := g.requests[i] == "POST one /v1/locks/x/leases"
			assert.Equal(t, h.Get("Authorization") != "", acquires, g.requests[i])
			assert.Equal(t, h.Get("Lease-Token") != "", !acquires, g.requests[i])
		}
	})
}

func TestAHeartbeatFollowsEveryThirdOfTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		c := g.client(t)
		lease, err := c.Acquire(t.Context(), "x")
		assert.NoError(t, err)
		time.Sleep(time.Minute)
		assert.NoError(t, lease.Release(t.Context()))
		if g.beats < 6 || g.beats > 7 {
			t.Errorf("%d heartbeats in two TTLs, not 6 or 7", g.beats)
		}
	})
}

// A heartbeat that is held confirms the lease from when it was sent. Two of them together must be shorter than the time before a
// long margin.
func TestALeaseWithALongMarginIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, margin := range []time.Duration{5 * time.Second, 11 * time.Second, 14900 * time.Millisecond} {
			g := newGateway()
			lease, err := g.client(t).Acquire(t.Context(), "x", Margin(margin))
			assert.NoError(t, err)
			time.Sleep(5 * time.Minute)
			assert.Must(t, lease.Held(), "with a margin of %v: %v", margin, lease.Err())
			assert.NoError(t, lease.Release(t.Context()))
		}
	})
}

func TestTheHolderIsToldOnceThatItIsAskedToRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		c := g.client(t)
		c.http.Transport = revoking{c.http.Transport}
		asked := make(chan string, 10)
		lease, err := c.Acquire(t.Context(), "x", OnRevoke(func(r Revocation) { asked <- r.Reason }))
		assert.NoError(t, err)
		time.Sleep(time.Minute)
		assert.NoError(t, lease.Release(t.Context()))
		assert.Equal(t, len(asked), 1)
		assert.Equal(t, <-asked, "deploy")
	})
}

func TestAHolderThatIsAskedMayReleaseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		c := g.client(t)
		c.http.Transport = revoking{c.http.Transport}
		leases, released := make(chan *Lease, 1), make(chan error, 1)
		lease, err := c.Acquire(t.Context(), "x", OnRevoke(func(Revocation) { released <- (<-leases).Release(t.Context()) }))
		assert.NoError(t, err)
		leases <- lease
		assert.NoError(t, <-released)
	})
}

func TestAMarginMustLeaveTimeForWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		_, err := g.client(t).Acquire(t.Context(), "x", Margin(15*time.Second))
		refusedWith(t, err, "less than half of the TTL")
		assert.Equal(t, len(g.keys), 0, "acquires")
		g.ttl = 10 * time.Second // what the caller's roles give
		_, err = g.client(t).Acquire(t.Context(), "x", Margin(5*time.Second))
		refusedWith(t, err, "less than half of the TTL")
		assert.Equal(t, g.released, 1)
	})
}
