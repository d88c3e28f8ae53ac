package locks

import (
	"testing"
	"testing/synctest"
	"time"
)

// dry asks what an acquire would find, and checks that nothing came of it.
func (g *gate) dry(req AcquireRequest) (*DryRun, error) {
	g.t.Helper()
	synctest.Wait()
	req.DryRun = true
	written, leases := g.s.written(), len(g.leases())
	res, err := g.m.Acquire(g.t.Context(), req)
	if n := g.s.written(); n != written {
		g.t.Errorf("a dry run writes")
	}
	if n := len(g.leases()); n != leases || res.Lease.ID != "" || res.Lease.Token != "" {
		g.t.Errorf("a dry run makes a lease: %+v", res.Lease)
	}
	return res.DryRun, err
}

func (g *gate) wantDry(req AcquireRequest, state State, queue int, holders ...string) {
	g.t.Helper()
	found, err := g.dry(req)
	if err != nil || found == nil {
		g.t.Fatalf("%+v: %v", req, err)
	}
	var ids []string
	for _, c := range found.Holders {
		ids = append(ids, c.LeaseID)
	}
	if found.State != state || found.QueueLength != queue || len(ids) != len(holders) {
		g.t.Fatalf("%+v: %+v, want %s, %d, %v", req, found, state, queue, holders)
	}
	for i := range ids {
		if ids[i] != holders[i] {
			g.t.Errorf("in the way: %v, want %v", ids, holders)
		}
	}
}

func TestADryRunTellsWhatAnAcquireWouldFind(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g, two := s.gateway(t), s.gateway(t)
		g.wantDry(deploy(), Held, 0)
		if names := s.names("/lockkeeper/locks"); len(names) != 0 {
			t.Errorf("locks: %v", names)
		}
		if n := g.m.spaces[DefaultNamespace].queues.Len(); n != 0 {
			t.Errorf("%d queues are kept", n)
		}
		a := g.mustHold(AcquireRequest{Lock: "deploy", Owner: "a", TTL: time.Hour, Mode: Shared})
		g.wantDry(AcquireRequest{Lock: "deploy", Mode: Shared}, Held, 0)
		g.wantDry(AcquireRequest{Lock: "deploy"}, Waiting, 0, a.ID)
		g.mustAcquire(AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		synctest.Wait()
		two.wantDry(AcquireRequest{Lock: "deploy", Mode: Shared}, Waiting, 1, a.ID) // behind a writer who waits
		if found, _ := two.dry(AcquireRequest{Lock: "deploy"}); found.Holders[0].Owner != "a" || found.Holders[0].FencingToken != a.FencingToken {
			t.Errorf("the other gateway's holder: %+v", found.Holders[0])
		}
		b := g.mustHold(AcquireRequest{Lock: "other", TTL: time.Hour})
		g.wantDry(AcquireRequest{Group: []Want{{Lock: "free"}, {Lock: "other"}}}, Waiting, 0, b.ID)
		g.wantDry(AcquireRequest{Group: []Want{{Lock: "other"}, {Lock: "deploy"}}}, Waiting, 1, b.ID, a.ID)
		g.wantDry(AcquireRequest{Group: []Want{{Lock: "free"}, {Lock: "free2"}}}, Held, 0)
		checkAll(t, s, g, two)
	})
}

func TestADryRunOfASemaphoreCountsItsPermits(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		g.wantDry(permits(3, 3).dryRun(), Held, 0)
		if left := s.names("/lockkeeper/settings"); len(left) != 0 {
			t.Errorf("settings: %v", left)
		}
		a := g.mustHold(permits(2, 3))
		g.wantDry(permits(1, 0).dryRun(), Held, 0)
		g.wantDry(permits(2, 3).dryRun(), Waiting, 0, a.ID)
	})
}

// dryRun is the request as a dry run needs it: it neither waits nor comes back.
func (r AcquireRequest) dryRun() AcquireRequest { r.Async = false; return r }

// What an acquire would be refused for, a dry run is.
func TestADryRunIsRefusedWhatAnAcquireIsRefused(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		g.mustConfigure(3)
		for field, req := range map[string]AcquireRequest{
			"lock":          {Lock: "a/b"},
			"ttl":           {Lock: "deploy", TTL: time.Millisecond},
			"ns":            {Lock: "deploy", NS: "elsewhere"},
			"permits":       permits(4, 0),
			"limit":         {Lock: "new", Mode: Semaphore},
			"locks[1].lock": {Group: []Want{{Lock: "a"}, {Lock: "a"}}},
			"wait":          {Lock: "deploy", Wait: -1},
			"owner":         {Lock: "deploy", Owner: "a\nb"},
		} {
			_, err := g.dry(req)
			_, want := g.acquire(req)
			if err == nil || want == nil || err.Error() != want.Error() {
				t.Errorf("%+v: %v, an acquire %v", req, err, want)
			} else if e := err.(*Error); e.Field != field {
				t.Errorf("%+v: field %q, want %q", req, e.Field, field)
			}
		}
		_, err := g.dry(permits(1, 4))
		if e := wantCode(t, err, CodeSettingsDiffer); e.Limit != 3 {
			t.Errorf("%+v", e)
		}
		s.mu.Lock()
		s.away = true
		s.mu.Unlock()
		time.Sleep(fakeWindow + time.Second)
		_, err = g.dry(deploy())
		wantCode(t, err, CodeUnavailable)
	})
}

// A dry run says nothing of a key's own lease: it is another request.
func TestADryRunDoesNotReplay(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		req := AcquireRequest{Lock: "deploy", TTL: time.Hour, IdempotencyKey: "abcdefghijklmnop"}
		a := g.mustHold(req)
		g.wantDry(req, Waiting, 0, a.ID)
		req.Lock = "free"
		g.wantDry(req, Held, 0)
		if again := g.mustHold(req); again.ID == a.ID {
			t.Error("the key was taken by a dry run")
		}
	})
}
