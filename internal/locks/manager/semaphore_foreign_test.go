package manager

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

const semaphoreName = "/lockkeeper/locks/deploy/_c_12345678-1234-1234-1234-123456789abc-lease-"

// Attack 24: Curator's SemaphoreV2 counts every child of its directory. Whoever of ours
// waits there blocks the one that it waits for.
func TestAttack24NoLeaseJoinsAnotherProgramsSemaphore(t *testing.T) {
	for name, req := range map[string]locks.AcquireRequest{
		"try":       {},
		"wait":      {Wait: locks.WaitForever},
		"async":     {Async: true},
		"shared":    {Mode: locks.Shared, Wait: time.Minute},
		"semaphore": {Mode: locks.Semaphore, Limit: 3, Wait: time.Minute},
		"keyed":     {IdempotencyKey: "abcdefghijklmnop", Wait: time.Minute},
		"group":     {Group: []locks.Want{{Lock: "other"}, {Lock: "deploy"}}, Wait: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
				g.mustRelease(g.mustHold(deploy()))
				_, paths := s.foreignSeen(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: semaphoreName})
				writes := len(s.writes)
				if req.TTL = time.Minute; req.Group == nil {
					req.Lock = "deploy"
				}
				_, err := g.acquire(req)
				e := wantCode(t, err, locks.CodeForeignSemaphore)
				assert.That(t, len(e.Holders) == 1 && e.Holders[0].Foreign != nil && strings.Contains(e.Detail, "semaphore"), "%+v", e)
				for _, w := range s.writes[writes:] {
					for _, op := range w.Ops {
						assert.That(t, !strings.HasPrefix(op.Path, "/lockkeeper/locks/deploy/"), "written: %+v", op)
					}
				}
				v, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"})
				if err != nil || v.State != locks.LockHeld || len(v.Holders) != 1 || v.Holders[0].Mode != locks.Semaphore || v.Holders[0].Foreign.Kind != "semaphore" {
					t.Errorf("%+v, %v", v, err)
				}
				s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: paths[0], Version: -1})
				req.Wait, req.Async = 0, false
				g.mustHold(req)
			})
		})
	}
}

// The semaphore's holder comes while our create is on its way.
func TestWhoHasJoinedAnotherProgramsSemaphoreUnawaresLeavesIt(t *testing.T) {
	for _, async := range []bool{false, true} {
		withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
			g.mustRelease(g.mustHold(deploy()))
			var once atomic.Bool
			s.beforeWrites(func(w *zk.Write) {
				if w.Ops[len(w.Ops)-1].Kind == zk.OpCreate && !once.Swap(true) {
					s.tx([]zk.Op{{Kind: zk.OpCreate, Sequential: true, Path: semaphoreName}})
				}
			})
			req := locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Async: async}
			if !async {
				req.Wait = time.Hour
			}
			_, err := g.acquire(req)
			wantCode(t, err, locks.CodeForeignSemaphore)
			synctest.Wait()
			names := s.names("/lockkeeper/locks/deploy")
			assert.That(t, len(names) == 1, "left are %v", names)
		})
	}
}

// A repeat finds the lease that it made before, as ever.
func TestARepeatFindsItsLeaseBesideAnotherProgramsSemaphore(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(keyed())
		s.foreignSeen(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/deploy/_c_12345678-1234-1234-1234-123456789abc-lease-"})
		again := one.mustHold(keyed())
		assert.That(t, again.ID == l.ID, "%s, not %s", again.ID, l.ID)
		_, err := two.acquire(keyed())
		wantCode(t, err, locks.CodeNotOwner)
	})
}
