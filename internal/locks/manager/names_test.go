package manager

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
	zklayout "lockkeeper/internal/zk/layout"
)

// oddDirs are directories that other programs have made, and the names of their locks.
var oddDirs = map[string]string{
	"my lock ü":                "my%20lock%20%C3%BC",
	"100%":                     "100%25",
	"my%20lock":                "my%2520lock",
	".hidden":                  "%2Ehidden",
	"a,b":                      "a%2Cb",
	strings.Repeat("long", 60): strings.Repeat("long", 60),
}

// A lock that no request could make here is seen and ended here like every other.
func TestALockWithAnyNameIsShownAndEnded(t *testing.T) {
	for dir, name := range oddDirs {
		t.Run(name[:min(len(name), 20)], in(scene, func(t *testing.T, s *fakeStore) {
			path := "/lockkeeper/locks/" + dir
			s.foreign(zk.Op{Kind: zk.OpCreate, Path: path})
			s.foreign(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: path + "/" + foreignNames["curator"]}) // before it starts
			g := s.gateway(t)
			s.foreignSeen(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: path + "/" + foreignNames["kazoo"]})
			calls := []string{name}
			if !strings.Contains(dir, "%") {
				calls = append(calls, dir)
			}
			var v locks.Lock
			for _, called := range calls {
				var err error
				if v, err = g.m.Lock(t.Context(), locks.LockRequest{Lock: called, Consistent: true}); err != nil || v.Name != name || v.State != locks.LockHeld || len(v.Holders) != 1 || len(v.Waiters) != 1 {
					t.Fatalf("called %q: %+v, %v", called, v, err)
				}
			}
			page, err := g.m.Locks(t.Context(), locks.LockFilter{Prefix: name[:1]})
			assert.That(t, err == nil && len(page.Items) == 1 && page.Items[0].Name == name, "listed: %+v, %v", page, err)
			e := g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LeaseQueued), Lock: name}, 9)
			assert.That(t, len(e) == 1 && e[0].Lock == name, "told: %+v", e)
			changed := make(chan locks.Lock, 1)
			go func() {
				v, _ := g.m.Lock(t.Context(), locks.LockRequest{Lock: name, Since: v.Rev, Wait: time.Minute})
				changed <- v
			}()
			synctest.Wait()
			for _, mode := range []locks.Mode{locks.Exclusive, locks.Shared, locks.Semaphore} {
				_, err = g.acquire(locks.AcquireRequest{Lock: name, Mode: mode, Limit: map[locks.Mode]int{locks.Semaphore: 1}[mode]})
				assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, "lock", "refused")
			}
			_, err = g.m.Configure(t.Context(), locks.SettingsRequest{Lock: name, Limit: 3})
			assert.Equal(t, wantCode(t, err, locks.CodeInvalid).Field, "lock", "settings")
			_, err = g.m.Revoke(t.Context(), locks.RevokeRequest{Lock: name, Reason: "please"})
			assert.Nil(t, err, "revoked")
			assert.Nil(t, g.m.Break(t.Context(), locks.BreakRequest{Lock: name, Name: base(v.Holders[0].Znode), Reason: "stuck"}),
				"broken")
			synctest.Wait()
			after := <-changed
			assert.That(t, after.Name == name && after.Rev != v.Rev, "the watch saw %+v", after)
			if e := wantCode(t, g.m.Remove(t.Context(), locks.Anonymous, "", name), locks.CodeLockInUse); len(e.Holders) != 1 {
				t.Errorf("%+v", e)
			}
			foreign := true
			reaped, err := g.m.Reap(t.Context(), locks.ReapRequest{Lock: name, OlderThan: 0, Foreign: &foreign, Reason: "old"})
			assert.That(t, err == nil && len(reaped.Reaped) == 1, "reaped: %+v, %v", reaped, err)
			s.foreignSeen(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: path + "/" + foreignNames["go-zk"]})
			a, err := g.m.Destroy(t.Context(), locks.DestroyRequest{Lock: calls[len(calls)-1], Reason: "over"})
			assert.That(t, err == nil && a.Ended == 1, "destroyed: %+v, %v", a, err)
			synctest.Wait()
			assert.That(t, !slices.Contains(s.names("/lockkeeper/locks"), dir), "the directory is left")
			e = g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LockDestroyed), Lock: name}, 9)
			assert.That(t, len(e) == 1, "told: %+v", e)
		}))
	}
}

// Pages go by directories, filters by names as a client sees or types them.
func TestLocksWithAnyNameAreListedInPagesAndFound(t *testing.T) {
	l := newListed(t)
	for dir := range oddDirs {
		l.set(dir, locks.LockHeld)
	}
	for _, dir := range []string{"my", "my-lock", "zz"} {
		l.set(dir, locks.LockHeld)
	}
	got := l.all(t, locks.LockFilter{Limit: 2})
	assert.That(t, len(got) == len(oddDirs)+3, "%q", got)
	for _, c := range []struct {
		f    locks.LockFilter
		want []string
	}{
		{locks.LockFilter{Prefix: "my"}, []string{"my", "my%20lock%20%C3%BC", "my%2520lock", "my-lock"}},
		{locks.LockFilter{Prefix: "my lock"}, []string{"my%20lock%20%C3%BC"}},
		{locks.LockFilter{Prefix: "my%20l"}, []string{"my%20lock%20%C3%BC"}},
		{locks.LockFilter{Prefix: "my%2"}, []string{"my%20lock%20%C3%BC", "my%2520lock"}},
		{locks.LockFilter{Prefix: "my%25"}, []string{"my%2520lock"}},
		{locks.LockFilter{Prefix: ".h"}, []string{"%2Ehidden"}},
		{locks.LockFilter{Prefix: "%2Eh"}, []string{"%2Ehidden"}},
		{locks.LockFilter{Contains: "ü"}, []string{"my%20lock%20%C3%BC"}},
		{locks.LockFilter{Contains: "%20lock"}, []string{"my%20lock%20%C3%BC", "my%2520lock"}},
		{locks.LockFilter{Contains: "0%"}, []string{"100%25", "my%20lock%20%C3%BC"}},
	} {
		c.f.Limit = 1
		assert.Slices(t, l.all(t, c.f), c.want, "%+v", c.f)
	}
}

// What was named before it came to be is the same lock afterwards.
func TestALockWithAnyNameIsWatchedBeforeItIsThere(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		seen := make(chan locks.Lock, 1)
		v, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "my lock"})
		assert.Must(t, err == nil && v.State == locks.LockFree && v.Name == "my%20lock", "%+v, %v", v, err)
		go func() {
			v, _ := g.m.Lock(t.Context(), locks.LockRequest{Lock: "my%20lock", Since: v.Rev, Wait: time.Minute})
			seen <- v
		}()
		synctest.Wait()
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/my lock"})
		s.foreign(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/my lock/" + foreignNames["kazoo"]})
		if v := <-seen; v.Name != "my%20lock" || v.State == "" {
			t.Errorf("%+v", v)
		}
	})
}

// withKeys replaces the fleet's keys; gateways that start afterwards read these.
func (s *fakeStore) withKeys(keys ...string) {
	layout := *s.layout
	secret := *layout.Secret
	secret.Keys = nil
	for _, key := range keys {
		secret.Keys = append(secret.Keys, zklayout.TokenKey{ID: key[:2], Key: []byte(key)})
	}
	secret.NameKey = []byte(keys[len(keys)-1]) // as zk reads it from a secret without one
	layout.Secret = &secret
	s.layout = &layout
}

// guesses are the names that a client of ZooKeeper can compute for a guessed Idempotency-Key of a lock in the default namespace.
func guesses(lock, key string) []string {
	var list []string
	for _, in := range []string{
		fmt.Sprintf("9:anonymous7:default%d:%s%d:%s", len(lock), lock, len(key), key), // every part with its length
		key, lock + key, lock + "/" + key, "default/" + lock + "/" + key,
	} {
		sum := sha256.Sum256([]byte(in))
		list = append(list, hex.EncodeToString(sum[:]), hex.EncodeToString(sum[:20]))
	}
	return list
}

// Every client of ZooKeeper can list the names of keys' nodes, and a client's key stands for its lease's token.
func TestAGuessedKeyCannotBeTriedOnTheNamesInZooKeeper(t *testing.T) {
	const guessable = "nightly-2026-11-22"
	named := map[string][]string{}
	for _, fleet := range []string{"secret of one fleet", "key of another one"} {
		scene(t, func(t *testing.T, s *fakeStore) {
			s.withKeys(fleet)
			g := s.gateway(t)
			g.mustHold(locks.AcquireRequest{NS: locks.DefaultNamespace, Lock: "nightly", TTL: time.Minute, Owner: "worker-7", IdempotencyKey: guessable})
			named[fleet] = s.names("/lockkeeper/keys")
			for _, name := range named[fleet] {
				assert.That(t, !slices.Contains(guesses("nightly", guessable), name), "%s is the hash of the key", name)
			}
		})
	}
	for fleet, names := range named {
		assert.That(t, len(names) == 1 && len(names[0]) == 40, "%s: %q", fleet, names)
	}
	assert.That(t, !slices.Equal(named["secret of one fleet"], named["key of another one"]), "two fleets name the same key %q", named)
}

// A gateway that has read the newer key and one that has not yet must find each other's nodes.
func TestAKeyThatIsAddedToTheFleetChangesNoName(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.withKeys("k1 of the fleet")
		one := s.gateway(t)
		first := one.mustHold(keyed())
		s.withKeys("k2 of the fleet", "k1 of the fleet")
		two := s.gateway(t)
		again, err := two.acquire(keyed())
		wantCode(t, err, locks.CodeNotOwner)
		names := s.names("/lockkeeper/locks/deploy")
		assert.That(t, len(names) == 1, "the repeat queued again: %v, %+v", names, again)
		again = one.mustAcquire(keyed())
		assert.That(t, again.ID == first.ID, "the repeat is %s, the first was %s", again.ID, first.ID)
	})
}

// After the fleet's keys were replaced no client's key leads to an older node; its lease does.
func TestTheNodeOfAKeyIsSweptAfterTheFleetsKeysWereReplaced(t *testing.T) {
	for name, c := range map[string]struct{ release bool }{"its lease ends afterwards": {}, "its lease had ended": {release: true}} {
		t.Run(name, in(scene, func(t *testing.T, s *fakeStore) {
			s.withKeys("k1 of the fleet")
			one := s.gateway(t)
			l := one.mustHold(keyed())
			old := s.names("/lockkeeper/keys")
			if c.release {
				one.mustRelease(l)
			}
			one.crash()
			time.Sleep(time.Minute)
			s.withKeys("k9 of the fleet")
			s.gateway(t)
			time.Sleep(10 * time.Minute)
			if names := s.names("/lockkeeper/keys"); !c.release && !slices.Equal(names, old) {
				t.Errorf("keys %q while the lease lives, want %q", names, old)
			}
			time.Sleep(2 * time.Hour)
			if names := s.names("/lockkeeper/keys"); len(names) != 0 {
				t.Errorf("left behind: %q", names)
			}
			if names := s.names("/lockkeeper/locks"); len(names) != 0 {
				t.Errorf("left behind: %q", names)
			}
		}))
	}
}

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
		token := locks.Lease{ID: string(later), Token: old.m.fleet.ring.Tokens().Make(later)}
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

// A program that writes into a queue can give its contender the name of a lease that stands elsewhere. The contender is
// shown as another program's, its fencing token is its own, and what is done to it is not done to the lease.
func TestAContenderWithACopiedLeaseIDIsNotTheLease(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Owner: "me", Metadata: "mine"})
		const other = "/lockkeeper/locks/other"
		prefix := strings.TrimRight(path.Base(l.Znode), "0123456789")
		_, paths := s.foreignSeen(zk.Op{Kind: zk.OpCreate, Path: other}, zk.Op{Kind: zk.OpCreate, Path: other + "/" + prefix, Sequential: true, Data: []byte("theirs")})
		time.Sleep(time.Second)
		look := func(lock string) locks.Contender {
			v, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: lock})
			assert.Must(t, err == nil && len(v.Holders) == 1, "%s: %+v, %v", lock, v, err)
			assert.That(t, v.State == locks.LockHeld, "%s is %s", lock, v.State)
			return v.Holders[0]
		}
		c := look("other")
		if c.LeaseID != "" || c.Owner != "" || c.Metadata != "" || c.ExpiresIn != 0 || c.Foreign == nil || c.Foreign.Kind != locks.KindCopiedID || string(c.Foreign.Data) != "theirs" {
			t.Errorf("the copy is shown as %+v, %+v", c, c.Foreign)
		}
		assert.That(t, c.FencingToken != l.FencingToken && c.FencingToken != 0,
			"the copy has the fencing token %d, the lease %d", c.FencingToken, l.FencingToken)
		if own := look("deploy"); own.LeaseID != l.ID || own.Owner != "me" || own.Foreign != nil || own.FencingToken != l.FencingToken {
			t.Errorf("the lease is shown as %+v", own)
		}
		f, err := g.m.Fence(t.Context(), locks.FenceRequest{Lock: "other", Token: l.FencingToken})
		assert.That(t, err == nil && !f.Current, "the lease's fencing token in the copy's lock: %+v, %v", f, err)
		_, err = g.m.Revoke(t.Context(), locks.RevokeRequest{Lock: "other", Reason: "leave", ForceAfter: time.Second})
		assert.That(t, strings.Contains(wantCode(t, err, locks.CodeNothingToAsk).Detail, "break ends it"), "revoked: %v", err)
		time.Sleep(5 * time.Second)
		assert.Equal(t, g.asked(l), locks.Revocation{}, "the lease was asked")
		assert.Nil(t, g.m.Break(t.Context(), locks.BreakRequest{Lock: "other", Name: path.Base(paths[1])}), "breaking the copy")
		synctest.Wait()
		names := s.names(other)
		assert.That(t, len(names) == 0, "the copy stands: %q", names)
		g.wantState(l, locks.Held, "")
	})
}
