package manager

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// joins is every way to ask for a lock that makes a contender in its queue.
var joins = map[string]locks.AcquireRequest{
	"try":       {},
	"wait":      {Wait: locks.WaitForever},
	"async":     {Async: true},
	"shared":    {Mode: locks.Shared, Wait: time.Minute},
	"semaphore": {Mode: locks.Semaphore, Limit: 3, Wait: time.Minute},
	"keyed":     {IdempotencyKey: "abcdefghijklmnop", Wait: time.Minute},
	"group":     {Group: []locks.Want{{Lock: "other"}, {Lock: "deploy"}}, Wait: time.Minute},
}

// refused wants every way to join a lock refused, and nothing written below it.
func (g *gate) refused(lock string, code locks.Code) (e *locks.Error) {
	g.t.Helper()
	g.s.mu.Lock()
	writes := len(g.s.writes)
	g.s.mu.Unlock()
	for name, req := range joins {
		if req.TTL = time.Minute; req.Group == nil {
			req.Lock = lock
		} else {
			req.Group = []locks.Want{{Lock: "other"}, {Lock: lock}}
		}
		_, err := g.acquire(req)
		e = wantCode(g.t, err, code)
		assert.That(g.t, e != nil, "%s: %v", name, err)
	}
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	for _, w := range g.s.writes[writes:] {
		for _, op := range w.Ops {
			assert.That(g.t, !strings.HasPrefix(op.Path+"/", "/lockkeeper/locks/"+lock+"/"), "written: %+v", op)
		}
	}
	return e
}

func (g *gate) listed(state locks.LockState) (names []string) {
	g.t.Helper()
	page := assert.Value(g.m.Locks(g.t.Context(), locks.LockFilter{State: state}))(g.t)
	for _, l := range page.Items {
		names = append(names, l.Name)
	}
	return names
}

// By bigdata's rule nobody joins a lock that is marked, and nobody is granted it.
func TestALockThatBigdataDestroysIsNeitherJoinedNorGranted(t *testing.T) {
	for _, ephemeral := range []bool{true, false} {
		for _, started := range []string{"before", "after"} {
			t.Run(fmt.Sprint(ephemeral, started), func(t *testing.T) {
				scene(t, func(t *testing.T, s *fakeStore) {
					const marker = plainPath + "_INVALID"
					var g *gate
					if started == "after" {
						g = s.gateway(t)
						g.mustRelease(g.mustHold(deploy()))
					}
					s.set(func() { s.by = "" })
					s.foreign(zk.Op{Kind: zk.OpCreate, Ephemeral: ephemeral, Path: marker})
					if started == "before" {
						g = s.gateway(t)
					}
					synctest.Wait()
					g.refused("deploy", locks.CodeLockInvalid)
					g.refused("deploy_INVALID", locks.CodeLockInvalid)
					if started == "before" {
						s.foreignSeen(zk.Op{Kind: zk.OpCreate, Path: plainPath})
						h := g.lock().Hazards
						assert.That(t, len(h) == 1 && h[0].Code == locks.HazardLockInvalid, "%+v", h)
					}
					time.Sleep(5 * time.Minute)
					e := g.refused("deploy", locks.CodeLockInvalid)
					assert.That(t, e.RetryAfter != 0 && strings.Contains(e.Detail, marker), "%+v", e)
					for _, state := range []locks.LockState{"", locks.LockHeld, locks.LockFree} {
						names := g.listed(state)
						assert.That(t, !slices.Contains(names, "deploy_INVALID"), "listed as %q: %v", state, names)
					}
					assert.That(t, s.node(marker).stat.Czxid != 0, "the marker was swept")
					s.gone(marker)
					time.Sleep(time.Second)
					g.mustHold(deploy())
				})
			})
		}
	}
}

func TestWhoStandsFirstInALockThatBigdataDestroysIsNotGrantedIt(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		const marker = plainPath + "_INVALID"
		g := s.gateway(t)
		g.mustRelease(g.mustHold(deploy()))
		_, paths := s.foreignSeen(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: plainPath + "/lock"})
		req := deploy()
		req.Wait = locks.WaitForever
		waits := g.begin(req)
		synctest.Wait()
		s.plain(marker, "")
		synctest.Wait()
		h := g.lock().Hazards
		assert.That(t, len(h) == 1 && h[0].Code == locks.HazardLockInvalid, "%+v", h)
		s.gone(paths[0])
		time.Sleep(20 * time.Second)
		assert.Must(t, !waits.finished(), "%+v, %v", waits.lease, waits.err)
		s.gone(marker)
		assert.Must(t, waits.finished() && waits.err == nil, "%+v, %v", waits.lease, waits.err)
		h = g.lock().Hazards
		assert.That(t, len(h) == 0, "%+v", h)
	})
}

// A lock of ours may be called like a marker.
func TestALockOfOursIsNoMarker(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		l := g.mustHold(locks.AcquireRequest{Lock: "deploy_INVALID", TTL: time.Minute})
		g.mustRelease(g.mustHold(deploy()))
		g.mustRelease(l)
		g.mustRelease(g.mustHold(deploy()))
		two := s.gateway(t)
		two.mustRelease(two.mustHold(deploy()))
		two.mustRelease(two.mustHold(locks.AcquireRequest{Lock: "deploy_INVALID", TTL: time.Minute}))
	})
}

// Kazoo's Semaphore counts every child of its directory. Its leases have no numbers, and one name in a
// hundred looks as if it had one.
func TestNoLeaseJoinsKazoosSemaphore(t *testing.T) {
	leases := []string{"0123456789abcdef0123456789abcdef", "0123456789abcdef0123451234567890", "0123456789abcdef012345ffffffffff"}
	for _, started := range []string{"before", "after"} {
		t.Run(started, func(t *testing.T) {
			scene(t, func(t *testing.T, s *fakeStore) {
				var g *gate
				if started == "after" {
					g = s.gateway(t)
				}
				s.foreign(zk.Op{Kind: zk.OpCreate, Path: plainPath})
				s.foreign(zk.Op{Kind: zk.OpSetData, Path: plainPath, Data: []byte("3"), Version: -1})
				s.foreign(zk.Op{Kind: zk.OpCreate, Path: plainPath + "-__lock__"})
				s.foreign(zk.Op{Kind: zk.OpCreate, Path: plainPath + "-__lock__/0123456789abcdef0123456789abcdef__lock__", Sequential: true})
				if started == "before" {
					g = s.gateway(t)
				}
				time.Sleep(time.Second)
				g.refused("deploy", locks.CodeForeignSemaphore) // there is no lease
				for _, name := range leases {
					s.foreign(zk.Op{Kind: zk.OpCreate, Path: plainPath + "/" + name, Data: []byte("worker")})
				}
				synctest.Wait()
				e := g.refused("deploy", locks.CodeForeignSemaphore)
				assert.That(t, len(e.Holders) == len(leases), "%+v", e)
				v := g.lock()
				assert.Must(t, v.State == locks.LockHeld && len(v.Holders) == len(leases) && v.QueueLength == 0 && len(v.Hazards) == 0,
					"%+v", v)
				for _, h := range v.Holders {
					if f := h.Foreign; f.Program != "kazoo" || f.Kind != "semaphore" || f.Decoded.Identifier != "worker" ||
						h.Mode != locks.Semaphore || h.Permits != 1 || h.Limit != 3 {
						t.Errorf("%+v %+v", h, f)
					}
				}
				assert.Slices(t, g.listed(""), []string{"deploy"}, "listed")
				for _, name := range leases {
					s.gone(plainPath + "/" + name)
				}
				time.Sleep(5 * time.Minute)
				assert.That(t, s.node(plainPath).stat.Czxid != 0, "the semaphore's directory was swept: Kazoo makes it only once")
				assert.Equal(t, g.lock().State, locks.LockFree)
			})
		})
	}
}

// Whose data is something else is an idle lock.
func TestADataNodeIsAnIdleLock(t *testing.T) {
	for _, data := range []string{"hello", "0", "-3", " 3", "3.5", "99999999999", strings.Repeat("3", 200)} {
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			s.foreign(zk.Op{Kind: zk.OpCreate, Path: plainPath, Data: []byte(data)})
			time.Sleep(time.Second)
			g.w.disconnect()
			g.w.reconnect()
			time.Sleep(time.Second)
			g.mustHold(deploy())
		})
	}
}
