package clientsuite

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// live is a call at a fleet, for tests in which all goes well but for one thing.
func live(t testing.TB, d *Driver, f *fleet, change func(*Lock), locks ...Wanted) *scene {
	s := newScene(t, d, 0)
	s.start(func(l *Lock) { l.URL, l.Token, l.Locks, l.TTL = f.urls(), "", locks, 10_000 }, change)
	return s
}

func nothing(*Lock) {}

// A lease that an administrator breaks; sharing, counting, several locks; the death of a gateway.
func TestEachClientWorksWithALiveFleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	type pair struct{ d, other *Driver }
	drivers := make(map[string]pair)
	for _, l := range languages {
		argv := l.make(t, t.TempDir())
		drivers[l.name] = pair{driverT(t, argv), driverT(t, argv)}
	}
	each := func(name string, play func(t *testing.T, lock string, d, other *Driver)) {
		t.Run(name, func(t *testing.T) {
			for _, l := range languages {
				t.Run(l.name, func(t *testing.T) {
					t.Parallel()
					play(t, name+"-"+l.name, drivers[l.name].d, drivers[l.name].other)
				})
			}
		})
	}
	tryIt := func(l *Lock) { l.Wait = new(int64) }

	each("broken", func(t *testing.T, lock string, d, other *Driver) { broken(t, f, lock, d, other) })
	t.Run("broken/lockctl", func(t *testing.T) {
		argv := lockctl[0].make(t, t.TempDir())
		broken(t, f, "broken-lockctl", driverT(t, argv), drivers["go"].other)
	})
	each("exclusive", func(t *testing.T, lock string, d, other *Driver) {
		one := live(t, d, f, func(l *Lock) { l.Owner = "the-first" }, Wanted{Lock: lock})
		started := one.event("started")
		e := live(t, other, f, tryIt, Wanted{Lock: lock}).failed("NotAcquired")
		assert.That(t, len(e.Holders) == 1 && e.Holders[0] == Holder{"the-first", started.LeaseID, started.Fence}, "the holders are %v", e.Holders)
		two := live(t, other, f, nothing, Wanted{Lock: lock})
		two.event("queued")
		end(t, one)
		assert.That(t, two.event("started").Fence > started.Fence, "the fencing tokens must rise")
		end(t, two)
	})
	each("shared", func(t *testing.T, lock string, d, other *Driver) {
		shared := Wanted{Lock: lock, Mode: "shared"}
		one, two := live(t, d, f, nothing, shared), live(t, other, f, nothing, shared)
		one.event("started")
		two.event("started")
		live(t, other, f, tryIt, Wanted{Lock: lock}).failed("NotAcquired")
		end(t, one, two)
	})
	each("semaphore", func(t *testing.T, lock string, d, other *Driver) {
		permits := func(n int) Wanted { return Wanted{Lock: lock, Mode: "semaphore", Permits: n, Limit: 3} }
		one, two := live(t, d, f, nothing, permits(2)), live(t, other, f, nothing, permits(1))
		one.event("started")
		two.event("started")
		live(t, d, f, tryIt, permits(1)).failed("NotAcquired")
		end(t, one, two)
	})
	each("several", func(t *testing.T, lock string, d, other *Driver) {
		a, b := Wanted{Lock: lock + "-a"}, Wanted{Lock: lock + "-b"}
		both := live(t, d, f, nothing, a, b)
		both.event("started")
		live(t, other, f, tryIt, b).failed("NotAcquired")
		behind := live(t, other, f, nothing, b, a)
		behind.event("queued")
		end(t, both)
		behind.event("started")
		end(t, behind)
	})

	// The gateway that all of them talk to dies: held leases go on, waiters keep their places.
	holding, waiting := make(map[string]*scene), make(map[string]*scene)
	for name, p := range drivers {
		long := func(l *Lock) { l.TTL = 20_000 }
		holding[name] = live(t, p.d, f, long, Wanted{Lock: "crash-" + name})
		holding[name].event("started")
		waiting[name] = live(t, p.other, f, long, Wanted{Lock: "crash-" + name})
		waiting[name].event("queued")
	}
	f.gateways[0].kill()
	testkit.EventuallyNil(t, time.Minute, f.gateways[1].serves, "the other gateway serves")
	for name, s := range holding {
		t.Run("goes-on/"+name, func(t *testing.T) {
			s.t, waiting[name].t = t, t
			testkit.EventuallyNil(t, 30*time.Second, func() error {
				_, err := request(http.MethodGet, "http://"+f.gateways[1].listen+"/v1/leases/"+s.event("started").LeaseID)
				return err
			}, "the other gateway knows the lease")
			assert.Equal(t, len(s.call.Events), 0, "events of the holder")
			s.call.finish()
			s.done()
			assert.That(t, waiting[name].event("started").Fence > s.event("started").Fence, "the fencing tokens must rise")
			waiting[name].call.finish()
			waiting[name].done()
		})
	}
}

// broken has an administrator break leases of one driver, for which another one waits.
func broken(t *testing.T, f *fleet, lock string, d, other *Driver) {
	var took []time.Duration
	for range 3 {
		s := live(t, d, f, func(l *Lock) { l.Metadata = "plain" }, Wanted{Lock: lock})
		id := s.event("started").LeaseID
		next := live(t, other, f, nothing, Wanted{Lock: lock})
		next.event("queued")
		began := time.Now()
		_, err := request(http.MethodPost, "http://"+f.gateways[1].listen+"/v1/leases/"+id+"/break?reason=maintenance")
		assert.NoError(t, err)
		took = append(took, s.event("stopped").At.Sub(began))
		if e := s.failed("LeaseLost"); e.Reason != "" { // lockctl tells its exit code alone
			assert.Equal(t, e.Reason, "revoked")
			assert.Equal(t, e.By, "127.0.0.1")
			assert.Equal(t, e.LeaseID, id)
		} else {
			assert.Equal(t, lock, "broken-lockctl")
		}
		assert.That(t, next.event("started").Fence > s.event("started").Fence, "the fencing tokens must rise")
		end(t, next)
	}
	t.Logf("the work stopped %v after the break was asked for", took)
	assert.That(t, slices.Min(took) <= 500*time.Millisecond && slices.Max(took) <= 500*time.Millisecond+patience, "the work stopped after %v", took)
}

func end(t *testing.T, all ...*scene) {
	t.Helper()
	for _, s := range all {
		s.call.finish()
		s.done()
	}
}
