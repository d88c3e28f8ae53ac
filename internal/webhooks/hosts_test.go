package webhooks

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// sending is a Transport by one function.
type sending func(ctx context.Context, to *Subscription, m *Message) Attempt

func (s sending) Send(ctx context.Context, to *Subscription, m *Message) Attempt {
	return s(ctx, to, m)
}

// hang is an attempt that is not answered.
func hang(ctx context.Context) Attempt {
	select {
	case <-time.After(attemptTimeout):
	case <-ctx.Done():
	}
	return Attempt{At: time.Now(), Result: Failed, Error: "no answer"}
}

// tries are the attempts so far, of which there may be more at any time.
func (r *receivers) tries() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// notice is the entry of a lease that has only a notify_url.
func notice(order int, url string) *Entry {
	e := entry(order, "a")
	e.Subscriptions, e.Notices[0].To = []string{url}, []int{0}
	return e
}

func TestHostsThatHangTakeNoPlaceFromSubscriptionsAndEachHostHasItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told [3]time.Time
		var most, now atomic.Int32
		c := NewCourier(CourierOptions{Keeper: &keeper{}, Random: func(int64) int64 { return 0 }, Transport: sending(func(ctx context.Context, to *Subscription, m *Message) Attempt {
			switch {
			case strings.HasPrefix(to.ID, idPrefix):
				told[0] = time.Now()
			case strings.HasPrefix(to.URL, "https://well"):
				told[1] = time.Now()
			case strings.HasPrefix(to.URL, "https://late"):
				told[2] = time.Now()
			default:
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer now.Add(-1)
				return hang(ctx)
			}
			return Attempt{At: time.Now(), Status: 200, Result: Delivered}
		})})
		defer c.Close()
		s := subscription("well")
		c.Subscriptions([]*Subscription{s})
		const hosts = 500
		for i := range hosts {
			c.Add(notice(i, fmt.Sprintf("https://h%d.example.com/", i)))
		}
		synctest.Wait()
		began := time.Now()
		c.Add(notice(hosts, "https://well.example.com/"))
		c.Add(entry(hosts+1, "a", s))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.That(t, !told[0].IsZero(), "a subscription waits for hosts that do not answer")
		assert.Equal(t, most.Load(), hostsAtOnce, "attempts at once toward hosts")
		time.Sleep(hosts/hostsAtOnce*attemptTimeout + 2*attemptTimeout)
		synctest.Wait()
		assert.That(t, !told[1].IsZero(), "a host that answers has had no turn")
		c.Add(notice(hosts+2, "https://late.example.com/"))
		time.Sleep(2 * hosts / hostsAtOnce * attemptTimeout)
		synctest.Wait()
		assert.That(t, !told[2].IsZero(), "no turn, after %v", time.Since(began))
		c.mu.Lock()
		for id, r := range c.receivers {
			if isNotify(id) && len(r.attempts) > 0 {
				t.Errorf("%d attempts are remembered that no request can ask for", len(r.attempts))
				break
			}
		}
		c.mu.Unlock()
	})
}

func TestABusyHostLeavesPlacesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, _ := newBench(t, ok)
		r.took = time.Second
		order := 0
		for host := range hostsAtOnce {
			for lease := range 20 {
				order++
				c.Add(notice(order, fmt.Sprintf("https://busy%d.example.com/%d", host, lease)))
			}
		}
		c.Add(notice(order+1, "https://other.example.com/"))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.That(t, len(r.delivered("https://other.example.com/")) == 1, "who has one message waits for those who have very many")
		time.Sleep(time.Minute)
		synctest.Wait()
		c.mu.Lock()
		if r.tries() != order+1 || len(c.receivers) != 0 || c.hosts.sending != 0 || len(c.hosts.queue) != 0 {
			t.Errorf("%d messages were sent of %d; left: %d hosts, %d places, %d in line", r.tries(), order+1, len(c.receivers), c.hosts.sending, len(c.hosts.queue))
		}
		c.mu.Unlock()
	})
}

// One host may be many people's.
func TestWhatAHostAnswersAtOneAddressHoldsUpNoOther(t *testing.T) {
	for name, answer := range map[string]Attempt{
		"asks for time":         {Result: Failed, Status: 503, Error: "503", RetryAfter: maxRetryAfter},
		"does not know it":      {Result: Failed, Status: 404, Error: "404"},
		"wants nothing more":    {Result: Gone, Status: 410, Error: "410"},
		"asks for time, by 429": {Result: Failed, Status: 429, Error: "429", RetryAfter: time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, r, _ := newBench(t, func(to *Subscription, _ *Message, _ int) Attempt {
				if strings.HasSuffix(to.URL, "/well") {
					return Attempt{Status: 200}
				}
				return answer
			})
			for i := range 3 * pauseAfter {
				c.Add(notice(i, fmt.Sprintf("https://shared.example.com/%d", i)))
			}
			time.Sleep(time.Second)
			synctest.Wait()
			first := r.tries()
			c.Add(notice(100, "https://shared.example.com/well"))
			time.Sleep(time.Second)
			synctest.Wait()
			assert.That(t, len(r.delivered("https://shared.example.com/well")) == 1, "%s: another address of the host waits", name)
			time.Sleep(30 * time.Minute)
			synctest.Wait()
			again := r.tries() - 1 - first
			assert.That(t, answer.RetryAfter <= 0 || again == 0, "%s: it was tried %d times sooner than it asked for", name, again)
		})
	}
}

func TestAHostThatDoesNotAnswerIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(time.Hour)
		c, r, _ := newBench(t, func(*Subscription, *Message, int) Attempt {
			if time.Now().Before(back) {
				return Attempt{Result: Failed, Error: "connection refused"}
			}
			return Attempt{Status: 200}
		})
		const leases = 200
		for i := range leases {
			c.Add(notice(i, fmt.Sprintf("https://down.example.com/%d", i)))
		}
		time.Sleep(time.Until(back) - time.Second)
		synctest.Wait()
		n := r.tries()
		assert.That(t, n <= 30, "%d tries in an hour of a host that is down", n)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		waiting, _ := c.Load()
		assert.That(t, waiting == 0, "%d wait though it is back", waiting)
	})
}

func TestWhatIsLoggedOfANotifyURLIsItsHost(t *testing.T) {
	for url, want := range map[string]string{
		"https://me:hunter2@Hooks.example.com:8443/hunter2?key=hunter2": "https://hooks.example.com:8443",
		"https://[broken/hunter2?key=hunter2":                           "no address",
	} {
		synctest.Test(t, func(t *testing.T) {
			c, _, k := newBench(t, func(*Subscription, *Message, int) Attempt { return Attempt{Result: Gone, Status: 410, Error: "410"} })
			c.Add(notice(1, url))
			synctest.Wait()
			time.Sleep(time.Second)
			k.mu.Lock()
			defer k.mu.Unlock()
			assert.That(t, len(k.givenUp) == 1 && k.givenUp[0] == Released+" "+want+" 410", "%q", k.givenUp)
		})
	}
}

func TestFewConnectionsAreKeptHoweverManyHostsThereAre(t *testing.T) {
	var open atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}
	server.Start()
	defer server.Close()
	s := newSender(t, everywhere(t))
	transport := assert.Value(s.transport(""))(t)
	transport.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) { // every name is the server's
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	const hosts = 2 * idleInAll
	for i := range hosts {
		to := &Subscription{URL: fmt.Sprintf("http://h%d.example.com/", i), Secrets: []Secret{NewSecret()}}
		assert.MustEqual(t, s.Send(t.Context(), to, testMessage()).Result, Delivered, "attempt")
	}
	for deadline := time.Now().Add(30 * time.Second); open.Load() > idleInAll; time.Sleep(time.Millisecond) {
		assert.Must(t, !time.Now().After(deadline), "%d connections are kept after %d messages", open.Load(), hosts)
	}
}
