package manager

import (
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// dry asks what an acquire would find, and checks that nothing came of it.
func (g *gate) dry(req locks.AcquireRequest) (*locks.DryRun, error) {
	g.t.Helper()
	synctest.Wait()
	req.DryRun = true
	written, leases := g.s.written(), len(g.leases())
	res, err := g.m.Acquire(g.t.Context(), req)
	assert.That(g.t, g.s.written() == written, "a dry run writes")
	assert.That(g.t, len(g.leases()) == leases && res.Lease.ID == "" && res.Lease.Token == "", "a dry run makes a lease: %+v", res.Lease)
	return res.DryRun, err
}

func (g *gate) wantDry(req locks.AcquireRequest, state locks.State, queue int, holders ...string) {
	g.t.Helper()
	found, err := g.dry(req)
	assert.Must(g.t, err == nil && found != nil, "%+v: %v", req, err)
	var ids []string
	for _, c := range found.Holders {
		ids = append(ids, c.LeaseID)
	}
	assert.Must(g.t, found.State == state && found.QueueLength == queue && len(ids) == len(holders),
		"%+v: %+v, want %s, %d, %v", req, found, state, queue, holders)
	for i := range ids {
		assert.That(g.t, ids[i] == holders[i], "in the way: %v, want %v", ids, holders)
	}
}

func TestADryRunTellsWhatAnAcquireWouldFind(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, g, two *gate) {
		g.wantDry(deploy(), locks.Held, 0)
		names := s.names("/lockkeeper/locks")
		assert.That(t, len(names) == 0, "locks: %v", names)
		assert.Equal(t, g.m.replica.Namespaces[locks.DefaultNamespace].Queues.Len(), 0, "queues are kept")
		a := g.mustHold(locks.AcquireRequest{Lock: "deploy", Owner: "a", TTL: time.Hour, Mode: locks.Shared})
		g.wantDry(locks.AcquireRequest{Lock: "deploy", Mode: locks.Shared}, locks.Held, 0)
		g.wantDry(locks.AcquireRequest{Lock: "deploy"}, locks.Waiting, 0, a.ID)
		g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		two.wantDry(locks.AcquireRequest{Lock: "deploy", Mode: locks.Shared}, locks.Waiting, 1, a.ID) // behind a writer who waits
		if found, _ := two.dry(locks.AcquireRequest{Lock: "deploy"}); found.Holders[0].Owner != "a" || found.Holders[0].FencingToken != a.FencingToken {
			t.Errorf("the other gateway's holder: %+v", found.Holders[0])
		}
		b := g.mustHold(locks.AcquireRequest{Lock: "other", TTL: time.Hour})
		g.wantDry(locks.AcquireRequest{Group: []locks.Want{{Lock: "free"}, {Lock: "other"}}}, locks.Waiting, 0, b.ID)
		g.wantDry(locks.AcquireRequest{Group: []locks.Want{{Lock: "other"}, {Lock: "deploy"}}}, locks.Waiting, 1, b.ID, a.ID)
		g.wantDry(locks.AcquireRequest{Group: []locks.Want{{Lock: "free"}, {Lock: "free2"}}}, locks.Held, 0)
	})
}

func TestADryRunOfASemaphoreCountsItsPermits(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.wantDry(dryRun(permits(3, 3)), locks.Held, 0)
		left := s.names("/lockkeeper/settings")
		assert.That(t, len(left) == 0, "settings: %v", left)
		a := g.mustHold(permits(2, 3))
		g.wantDry(dryRun(permits(1, 0)), locks.Held, 0)
		g.wantDry(dryRun(permits(2, 3)), locks.Waiting, 0, a.ID)
	})
}

// dryRun is the request as a dry run needs it: it neither waits nor comes back.
func dryRun(r locks.AcquireRequest) locks.AcquireRequest { r.Async = false; return r }

// What an acquire would be refused for, a dry run is.
func TestADryRunIsRefusedWhatAnAcquireIsRefused(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustConfigure(3)
		for field, req := range map[string]locks.AcquireRequest{
			"lock":          {Lock: "a/b"},
			"ttl":           {Lock: "deploy", TTL: time.Millisecond},
			"ns":            {Lock: "deploy", NS: "elsewhere"},
			"permits":       permits(4, 0),
			"limit":         {Lock: "new", Mode: locks.Semaphore},
			"locks[1].lock": {Group: []locks.Want{{Lock: "a"}, {Lock: "a"}}},
			"wait":          {Lock: "deploy", Wait: -1},
			"owner":         {Lock: "deploy", Owner: "a\nb"},
		} {
			_, err := g.dry(req)
			_, want := g.acquire(req)
			if err == nil || want == nil || err.Error() != want.Error() {
				t.Errorf("%+v: %v, an acquire %v", req, err, want)
			} else if e := err.(*locks.Error); e.Field != field {
				t.Errorf("%+v: field %q, want %q", req, e.Field, field)
			}
		}
		_, err := g.dry(permits(1, 4))
		assert.Equal(t, wantCode(t, err, locks.CodeSettingsDiffer).Limit, 3)
		s.set(func() { s.away = true })
		time.Sleep(fakeWindow + time.Second)
		_, err = g.dry(deploy())
		wantCode(t, err, locks.CodeUnavailable)
	})
}

// A dry run says nothing of a key's own lease: it is another request.
func TestADryRunDoesNotReplay(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		req := locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, IdempotencyKey: "abcdefghijklmnop"}
		a := g.mustHold(req)
		g.wantDry(req, locks.Waiting, 0, a.ID)
		req.Lock = "free"
		g.wantDry(req, locks.Held, 0)
		assert.That(t, g.mustHold(req).ID != a.ID, "the key was taken by a dry run")
	})
}
