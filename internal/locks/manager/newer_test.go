package manager

import (
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// fromLater puts a contender under a name that a later release might write.
func (s *fakeStore) fromLater(lock string, id string) (name string) {
	_, paths := s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/" + lock + "/read-v2." + id + ".x7-lock-", Sequential: true,
		Data: []byte(`{"v":2,"ttl_ms":1000}`)})
	return paths[0][strings.LastIndexByte(paths[0], '/')+1:]
}

// Half the fleet is upgraded. What the later release enqueues is respected by the earlier one as
// exclusive, whatever it is, and shown; its clock is none of the earlier one's business, also
// when that one takes over the gateway that it came from.
func TestANameOfALaterReleaseIsRespectedShownAndNeverClocked(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, upgraded, old *gate) {
		first := upgraded.mustHold(deploy())
		later := recipe.LeaseID(string(first.ID)[:len(first.ID)-3] + "777")
		name := s.fromLater("deploy", string(later))
		upgraded.mustRelease(first)
		time.Sleep(time.Second)

		shared := deploy()
		shared.Mode = locks.Shared
		if _, err := old.acquire(shared); err == nil {
			t.Fatal("a reader was let in beside it: what is not understood excludes")
		} else {
			wantCode(t, err, locks.CodeHeldByOther)
		}
		look := func() locks.Lock {
			t.Helper()
			q := assert.Value(old.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy", Limit: 10}))(t)
			return q
		}
		if q := look(); len(q.Holders) != 1 || !strings.HasSuffix(q.Holders[0].Znode, name) || q.State != locks.LockHeld || q.Holders[0].Foreign != nil {
			t.Errorf("shown is %+v", q)
		}
		token := locks.Lease{ID: string(later), Token: old.m.fleet.tokens.Make(later)}
		wait := deploy()
		wait.Wait = locks.WaitForever
		waiter := old.begin(wait)

		upgraded.crash()
		time.Sleep(5 * time.Minute)
		old.m.mu.Lock()
		owned := old.m.members.Owns(later.Gateway())
		old.m.mu.Unlock()
		assert.That(t, owned, "the gateway that died has no successor")
		if _, err := old.heartbeat(token); err == nil {
			t.Error("a lease that is not understood was heartbeaten")
		} else if e := wantCode(t, err, locks.CodeUnavailable); !strings.Contains(e.Detail, "upgrade") {
			t.Errorf("told: %s", e.Detail)
		}
		wantCode(t, old.release(token), locks.CodeUnavailable)
		_, err := old.m.Lease(t.Context(), locks.LeaseRequest{ID: string(later), Token: token.Token})
		wantCode(t, err, locks.CodeUnavailable)
		time.Sleep(time.Hour)
		names := s.names("/lockkeeper/locks/deploy")
		assert.That(t, len(names) == 2 && !waiter.finished(), "after an hour the queue is %v", names)

		// An administrator can end it.
		assert.NoError(t, old.m.Break(t.Context(), locks.BreakRequest{NS: locks.DefaultNamespace, Lock: "deploy", Name: name}))
		time.Sleep(time.Second)
		assert.That(t, waiter.finished(), "the next one in line was not let in")
		_, err = old.heartbeat(token)
		wantCode(t, err, locks.CodeEnded)
	})
}

// The key of such a lease stays as long as the lease does, or a repeat of its acquire would queue twice.
func TestTheKeyOfALeaseOfALaterReleaseStaysWithIt(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, upgraded, old *gate) {
		first := upgraded.mustHold(keyed())
		later := string(first.ID)[:len(first.ID)-3] + "777"
		s.fromLater("deploy", later)
		key := "/lockkeeper/keys/" + s.names("/lockkeeper/keys")[0]
		upgraded.crash()
		s.foreign(zk.Op{Kind: zk.OpSetData, Path: key, Version: -1, // as if the later release had made it
			Data: []byte(strings.ReplaceAll(string(s.node(key).data), string(first.ID), later))})
		time.Sleep(2 * time.Hour)
		if names := s.names("/lockkeeper/keys"); len(names) != 1 {
			t.Errorf("keys: %v", names)
		}
		_, err := old.acquire(keyed())
		wantCode(t, err, locks.CodeUnavailable)
		if names := s.names("/lockkeeper/locks/deploy"); len(names) != 1 {
			t.Errorf("the repeat queued again: %v", names)
		}
	})
}
