package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// receiver is where webhooks are delivered to.
type receiver struct {
	*httptest.Server
	mu        sync.Mutex
	refuses   func() bool                // nil: never
	messages  map[string]map[string]bool // webhook-ids by lease
	delivered int                        // with duplicates
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{messages: map[string]map[string]bool{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var m struct {
			Data struct {
				LeaseID string `json:"lease_id"`
			} `json:"data"`
		}
		if err == nil {
			err = json.Unmarshal(body, &m)
		}
		if err != nil {
			return // cut off: its gateway was killed
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.refuses != nil && r.refuses() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		ids := r.messages[m.Data.LeaseID]
		if ids == nil {
			ids = map[string]bool{}
			r.messages[m.Data.LeaseID] = ids
		}
		ids[req.Header.Get("Webhook-Id")] = true
		r.delivered++
	}))
	t.Cleanup(r.Close)
	return r
}

// missing is a lease whose end was not delivered, and how many there are.
func (r *receiver) missing(ended []string) (one string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ended {
		if r.messages[id] == nil {
			one, n = id, n+1
		}
	}
	return one, n
}

// worker takes and releases locks until it is stopped, at any gateway that answers.
type worker struct {
	gates   []*gateway
	name    string
	lock    int
	ended   []string // leases of which it was told that they are released
	refused int
}

func (w *worker) gate() *gateway { return w.gates[rand.IntN(len(w.gates))] }

func (w *worker) work(ctx context.Context) {
	for ctx.Err() == nil {
		lease, a, err := w.gate().Acquire(ctx, fmt.Sprint(w.name, "-", w.lock), apitest.Query("ttl=10m&owner="+w.name))
		switch {
		case err != nil || a.Status == http.StatusServiceUnavailable:
			w.refused++
			w.lock++ // it may hold all the same, and no client has its token
			pause(ctx, 20*time.Millisecond)
			continue
		case a.Status != http.StatusCreated:
			w.lock++
			continue
		}
		w.release(context.WithoutCancel(ctx), lease)
	}
}

// release repeats until it is known that the lease has ended.
func (w *worker) release(ctx context.Context, lease api.Lease) {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for within.Err() == nil {
		a, err := w.gate().Release(within, lease.Token)
		if err == nil && (a.Status == http.StatusNoContent || a.Status == http.StatusGone) {
			w.ended = append(w.ended, lease.LeaseID)
			return
		}
		w.refused++
		pause(within, 20*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Promise 7. Each gateway is killed again and again, at moments that nothing chooses.
func TestEveryReleaseIsToldThoughItsGatewayIsKilledRightAfterIt(t *testing.T) {
	for _, gateways := range []int{1, 3} {
		t.Run(fmt.Sprint("gateways=", gateways), func(t *testing.T) {
			t.Parallel()
			workers, kills, least, within := 12, 6, 2000, 2*time.Minute
			if os.Getenv("LOCKKEEPER_FULL") != "" {
				workers, kills, least, within = 24, 100, 50_000, 15*time.Minute
			}
			addr, chroot := zkreal.SharedT(t)
			to := newReceiver(t)
			var gates []*gateway
			for range gateways {
				gates = append(gates, startGateway(t, addr+chroot, "--webhook-allow-private", "--session-timeout=1s", "--promise-window=2s", "--log-level=warn"))
			}
			a, err := gates[0].Send(t.Context(), http.MethodPost, "/v1/webhooks", apitest.JSON(fmt.Sprintf(`{"url": %q, "locks": "told-*"}`, to.URL)))
			expect(t, a, err, http.StatusCreated, "")

			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var all sync.WaitGroup
			var crew []*worker
			for i := range workers {
				w := &worker{gates: gates, name: fmt.Sprint("told-", i)}
				crew = append(crew, w)
				all.Go(func() { w.work(ctx) })
			}
			for range kills {
				elapse(t, time.Duration(300+rand.IntN(900))*time.Millisecond)
				g := gates[rand.IntN(len(gates))]
				g.kill()
				g.restart()
			}
			eventually(t, within, func() error {
				to.mu.Lock()
				defer to.mu.Unlock()
				if n := len(to.messages); n < least {
					return fmt.Errorf("%d of %d", n, least)
				}
				return nil
			}, "enough releases")
			stop()
			all.Wait()

			var ended []string
			refused := 0
			for _, w := range crew {
				ended, refused = append(ended, w.ended...), refused+w.refused
			}
			eventually(t, patience, func() error {
				if one, n := to.missing(ended); n > 0 {
					return fmt.Errorf("%d of %d, %s for one", n, len(ended), one)
				}
				return nil
			}, "every release is told")
			z := newForeign(t, addr, chroot)
			eventually(t, patience, func() error {
				if left := z.children("/lockkeeper/outbox"); len(left) > 0 {
					return fmt.Errorf("%d entries are left, %s for one", len(left), left[0])
				}
				return nil
			}, "the outbox is empty")
			to.mu.Lock()
			defer to.mu.Unlock()
			for lease, ids := range to.messages {
				assert.That(t, len(ids) == 1, "%s is told under %d ids: %v", lease, len(ids), ids)
			}
			t.Logf("%d releases, %d messages, %d of them duplicates, %d requests without success, %d kills", len(ended), to.delivered, to.delivered-len(to.messages), refused, kills)
		})
	}
}
