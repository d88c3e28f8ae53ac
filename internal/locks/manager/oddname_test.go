package manager

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
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

// A lock that nobody could make here is seen and ended here like every other.
func TestALockWithAnyNameIsShownAndEnded(t *testing.T) {
	for dir, name := range oddDirs {
		t.Run(name[:min(len(name), 20)], func(t *testing.T) {
			scene(t, func(t *testing.T, s *fakeStore) {
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
				e := g.hub.Recent(events.Filter{Types: events.Types(events.LeaseQueued), Lock: name}, 9)
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
				assert.That(t, after.Name == name && after.Rev != v.Rev, "who watched saw %+v", after)
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
				e = g.hub.Recent(events.Filter{Types: events.Types(events.LockDestroyed), Lock: name}, 9)
				assert.That(t, len(e) == 1, "told: %+v", e)
			})
		})
	}
}

// Pages go by directories, filters by what somebody sees or types.
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
