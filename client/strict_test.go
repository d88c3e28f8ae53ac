package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// between is what stands between a client and its gateways: it answers by itself, or passes the request on when it returns nil.
type between struct {
	http.RoundTripper
	answers func(r *http.Request) (*http.Response, error)
}

func (b between) RoundTrip(r *http.Request) (*http.Response, error) {
	if resp, err := b.answers(r); resp != nil || err != nil {
		return resp, err
	}
	return b.RoundTripper.RoundTrip(r)
}

func page(status int, text string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Location": {"https://login.example.com/"}}, Body: io.NopCloser(strings.NewReader(text))}
}

func TestWhatIsNoAnswerOfAGatewayLeadsToTheNextOne(t *testing.T) {
	for _, status := range []int{200, 302, 403, 404, 410, 502} {
		for _, text := range []string{"<html>", "{}", `{"state":"held"}`, ""} {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway()
				c := g.client(t, "http://one", "http://two")
				c.http.Transport = between{g, func(r *http.Request) (*http.Response, error) {
					if r.URL.Host == "one" {
						return page(status, text), nil
					}
					return nil, nil
				}}
				lease, err := c.Acquire(t.Context(), "x", Wait(time.Minute))
				assert.NoError(t, err, "%d %s", status, text)
				time.Sleep(time.Minute)
				assert.NoError(t, lease.Err(), "%d %s", status, text)
				c.next.Store(0) // the release meets it, too
				assert.NoError(t, lease.Release(t.Context()), "%d %s", status, text)
				assert.Equal(t, g.released, 1, "%d %s", status, text)
			})
		}
	}
}

func TestARequestOfAPersonIsNotRepeatedWhereEachAddressHasAPageOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		c := g.client(t, "http://one", "http://two")
		asked := 0
		c.http.Transport = between{g, func(*http.Request) (*http.Response, error) {
			asked++
			return page(404, "<html>"), nil
		}}
		began := time.Now()
		refusedWith(t, c.Call(t.Context(), Request{Path: "/v1/locks"}, nil), "404")
		assert.That(t, asked == 2 && time.Since(began) < time.Second, "asked %d times in %v", asked, time.Since(began))
	})
}

func TestTheEndOfAHeldHeartbeatByItsClientMovesNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		c := g.client(t, "http://one", "http://two")
		lease, err := c.Acquire(t.Context(), "x")
		assert.NoError(t, err)
		time.Sleep(time.Second)
		assert.NoError(t, lease.Release(t.Context()))
		assert.Equal(t, g.requests[len(g.requests)-1], "DELETE one /v1/leases/self")
	})
}

func TestOnceHeldHasSaidNoTheCallReportsTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		c := g.client(t)
		var skipped time.Duration // how far the clock is ahead of the timers, as after a sleep of the machine
		c.now = func() time.Duration { return time.Since(origin) + skipped }
		err := c.Do(t.Context(), "x", func(_ context.Context, lease *Lease) error {
			synctest.Wait()
			skipped = 29 * time.Second
			assert.Equal(t, lease.Held(), false)
			skipped = 0
			assert.Equal(t, lease.Held(), false, "a lease that is lost comes back")
			return nil
		})
		assert.Equal(t, lostOf(t, err).Reason, ReasonDeadline)
	})
}

// The machine slept while the work ran. The work returned before a timer fired, so only a gateway knows whether it held.
func TestWorkThatReturnsLateHeldIfAGatewaySaysSo(t *testing.T) {
	for answered, reason := range map[string]string{"two": "", "": ReasonDeadline} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway()
			c := g.client(t, "http://one", "http://two")
			var skipped time.Duration
			c.now = func() time.Duration { return time.Since(origin) + skipped }
			err := c.Do(t.Context(), "x", func(context.Context, *Lease) error {
				synctest.Wait()
				skipped = 29 * time.Second
				g.mu.Lock()
				g.down["one"], g.down["two"] = true, answered != "two"
				g.mu.Unlock()
				return nil
			})
			if reason == "" {
				assert.NoError(t, err)
			} else {
				assert.Equal(t, lostOf(t, err).Reason, reason)
			}
		})
	}
}

func TestALossNamesTheAdministrator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		c := g.client(t)
		err := c.Do(t.Context(), "x", func(ctx context.Context, _ *Lease) error {
			g.end(410)
			<-ctx.Done()
			return nil
		})
		lost := lostOf(t, err)
		assert.Equal(t, lost.By, "token:ops")
		refusedWith(t, lost, "revoked by token:ops")

		g.mu.Lock()
		g.status, g.frozen = 0, make(chan struct{})
		g.mu.Unlock()
		c = g.client(t) // its transport is chosen before a heartbeat uses it
		c.http.Transport = between{g, func(r *http.Request) (*http.Response, error) {
			if r.Method == "DELETE" {
				return problem(410)
			}
			return nil, nil
		}}
		lease, err := c.Acquire(t.Context(), "x")
		assert.NoError(t, err)
		assert.Equal(t, lostOf(t, lease.Release(t.Context())).By, "token:ops")
	})
}

func TestAHolderIsToldWhoAsksAndWhenForceComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newGateway().client(t)
		c.http.Transport = revoking{c.http.Transport}
		asked := make(chan Revocation, 1)
		lease, err := c.Acquire(t.Context(), "x", OnRevoke(func(r Revocation) { asked <- r }))
		assert.NoError(t, err)
		assert.Equal(t, <-asked, Revocation{Reason: "deploy", By: "token:ops", ForceIn: time.Minute})
		assert.NoError(t, lease.Release(t.Context()))
	})
}

// What refuses to hold a heartbeat is asked as often as one that holds it.
func TestAGatewayThatHoldsNoHeartbeatIsNotFloodedWithThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		c := g.client(t)
		refused := 0
		c.http.Transport = between{g, func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("wait") == "" || r.Method != "POST" {
				return nil, nil
			}
			refused++
			return answer(422, map[string]any{"status": 422, "code": "invalid_field", "field": "wait"})
		}}
		lease, err := c.Acquire(t.Context(), "x")
		assert.NoError(t, err)
		time.Sleep(10 * time.Minute)
		synctest.Wait() // for what counts
		assert.NoError(t, lease.Err())
		assert.That(t, refused <= 61 && g.beats <= 61, "%d were refused and %d answered in 20 TTLs", refused, g.beats)
		assert.NoError(t, lease.Release(t.Context()))
	})
}

func TestAGrantThatNoGatewayConfirmsIsNotWaitedForLongerThanItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		g.waited = nil // its time began before the answer
		c := g.client(t)
		c.http.Transport = between{g, func(r *http.Request) (*http.Response, error) {
			if len(g.keys) == 0 {
				return nil, nil
			}
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		}}
		began := time.Now()
		_, err := c.TryAcquire(t.Context(), "x")
		refusedWith(t, err, errPlaceLost.Error()) // that others hold the lock, no gateway says
		assert.That(t, time.Since(began) <= g.ttl+3*leaveWithin, "the try took %v", time.Since(began))
	})
}

// The answer that granted the lock was lost, and the lease has expired before the repeat comes through.
func TestALeaseThatEndedBeforeItsClientKnewOfItIsAcquiredAnew(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway()
			c := g.client(t)
			var keys []string
			c.http.Transport = between{g, func(r *http.Request) (*http.Response, error) {
				if key := r.Header.Get("Idempotency-Key"); key != "" && len(keys) < 2 {
					if keys = append(keys, key); len(keys) == 1 {
						return nil, io.ErrUnexpectedEOF
					}
					return problem(410)
				}
				return nil, nil
			}}
			lease, err := c.Acquire(t.Context(), "x", Wait(wait))
			assert.NoError(t, err)
			assert.That(t, keys[0] == keys[1] && g.keys[0] != keys[0], "keys %q, then %q", keys, g.keys)
			assert.NoError(t, lease.Release(t.Context()))
		})
	}
}

// The answer comes too late for the wait. What it would have said is asked for when the place is given up.
func TestAWaitThatIsShorterThanAnAnswerIsARefusalAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		g.queued, g.slow = 2, 50*time.Millisecond
		_, err := g.client(t).Acquire(t.Context(), "x", Wait(20*time.Millisecond))
		var none *NotAcquired
		assert.Equal(t, errors.As(err, &none), true, "%v", err)
		assert.Equal(t, g.released, 1)
	})
}

func TestAWaitInWhichNoGatewayAnswersIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway()
		g.down["one"] = true
		_, err := g.client(t).Acquire(t.Context(), "x", Wait(5*time.Second))
		var none *NotAcquired
		assert.Equal(t, err != nil && !errors.As(err, &none), true, "%v", err)
	})
}
