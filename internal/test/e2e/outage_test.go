package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
)

// outage is longer than the TTLs, the session timeout and the promise window here.
const outage = 7 * time.Second

// ZooKeeper goes away in each of the ways that look different to a client, and comes back.
func TestInAnOutageRequestsAreRefusedQuicklyAndAfterItEverythingIsStillHeld(t *testing.T) {
	t.Parallel()
	type weather struct{ addr, chroot, direct string }
	for name, fault := range map[string]func(t *testing.T) (w weather, away, back func()){
		"the network is cut": func(t *testing.T) (weather, func(), func()) {
			addr, chroot := zkreal.SharedT(t)
			p := netfault.NewT(t, addr)
			return weather{p.Addr(), chroot, addr}, p.Cut, p.Heal
		},
		"the network is silent": func(t *testing.T) (weather, func(), func()) {
			addr, chroot := zkreal.SharedT(t)
			p := netfault.NewT(t, addr)
			return weather{p.Addr(), chroot, addr}, p.Stall, p.Heal
		},
		"the server is killed": func(t *testing.T) (weather, func(), func()) {
			s := zkreal.StartT(t, zkreal.WithoutFsync())
			return weather{s.Addr(), "", s.Addr()}, s.Kill, func() { s.RestartT(t) }
		},
		"the server is frozen": func(t *testing.T) (weather, func(), func()) {
			s := zkreal.StartT(t, zkreal.WithoutFsync())
			t.Cleanup(s.Thaw)
			return weather{s.Addr(), "", s.Addr()}, s.Freeze, s.Thaw
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, away, back := fault(t)
			g := startGateway(t, w.addr+w.chroot)
			held := g.hold("held", "ttl=5s&owner=me")
			waiting := g.queue("held", "ttl=5s&owner=you")
			mayGo := g.hold("released", "ttl=1m")
			pulses := []*pulse{g.keepAlive(held.Token), g.keepAlive(waiting.Token)}
			pulses[0].awaitBeat(t, patience)
			pulses[1].awaitBeat(t, patience)

			away()
			began := time.Now()
			var took []time.Duration
			for round := 0; time.Since(began) < outage; round++ {
				took = append(took, g.refusesAcquire(fmt.Sprint("during-", round), apitest.Key("a-fresh-random-key-"+strconv.Itoa(round))))
				if round%2 == 1 {
					took = append(took, g.refusesRelease(mayGo.Token))
				}
				assert.Nil(t, g.status(http.MethodGet, "/healthz", http.StatusOK), "healthz")
				assert.Nil(t, g.status(http.MethodGet, "/readyz", http.StatusOK), "readyz, in an outage that every gateway has")
			}
			slices.Sort(took)
			t.Logf("%d refusals, median %v, slowest %v", len(took), took[len(took)/2], took[len(took)-1])
			assert.That(t, took[len(took)/2] <= required(1500*time.Millisecond) && took[len(took)-1] <= required(4*time.Second),
				"refusals took %v", took)
			for _, at := range pulses[0].attempts() {
				// Longer than the window after the last commit nothing may be confirmed. When the client hears of it is the
				// machine's affair; what it sent later cannot have been confirmed before.
				assert.That(t, at.status != http.StatusOK || at.sent.Sub(began) <= promiseWindow || !at.answered.Before(began.Add(outage)),
					"a heartbeat that was sent %v into the outage was confirmed", at.sent.Sub(began))
			}

			back()
			for _, p := range pulses {
				p.awaitBeat(t, patience)
				p.mustNotHaveLost(t)
			}
			g.unchanged(held, waiting)
			// The release either happened or it did not; repeating it settles that.
			eventually(t, patience, func() error {
				a, err := g.Release(t.Context(), mayGo.Token)
				return answeredWith(a, err, http.StatusNoContent)
			}, "the release is repeated")
			g.settles(newForeign(t, w.direct, w.chroot), held, waiting)
		})
	}
}

// refusesAcquire sends an acquire that must be refused with 503, and tells how long that took.
func (g *gateway) refusesAcquire(lock string, options ...apitest.Option) time.Duration {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	began := time.Now()
	_, a, err := g.Acquire(ctx, lock, append(options, apitest.Query("ttl=1m"))...)
	return g.refused(a, err, began)
}

func (g *gateway) refusesRelease(token string) time.Duration {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	began := time.Now()
	a, err := g.Release(ctx, token)
	return g.refused(a, err, began)
}

func (g *gateway) refused(a *apitest.Answer, err error, began time.Time) time.Duration {
	g.t.Helper()
	took := time.Since(began)
	assert.That(g.t, err == nil && a.Status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") != "",
		"in the outage: %v, %+v", err, a)
	return took
}

// settles repeats every acquire of the outage with its key: each lock is then held once, by the lease of that key, and
// nothing was queued twice.
func (g *gateway) settles(f *foreign, held, waiting api.Lease) {
	t := g.t
	t.Helper()
	for _, lock := range f.children("/lockkeeper/locks") {
		switch lock {
		case "held":
			names := f.children("/lockkeeper/locks/held")
			assert.That(t, len(names) == 2, "the queue of %s and %s is %v", held.LeaseID, waiting.LeaseID, names)
		case "released":
			names := f.children("/lockkeeper/locks/released")
			assert.That(t, len(names) == 0, "not released: %v", names)
		default:
			key := apitest.Key("a-fresh-random-key-" + lock[len("during-"):])
			eventually(t, patience, func() error {
				_, a, err := g.Acquire(t.Context(), lock, apitest.Query("ttl=1m"), key)
				return answeredWith(a, err, http.StatusOK, http.StatusCreated)
			}, "the acquire of %s is repeated", lock)
			names := f.children("/lockkeeper/locks/" + lock)
			assert.That(t, len(names) == 1, "%s was queued %d times: %v", lock, len(names), names)
		}
	}
}
