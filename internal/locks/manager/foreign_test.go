package manager

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

func TestWhatIsKnownOfAnotherProgramsContender(t *testing.T) {
	const curator, hex32 = "_c_12345678-1234-1234-1234-123456789abc-", "0123456789abcdef0123456789abcdef"
	for _, test := range []struct {
		prefix, data  string
		program, kind string
		says          string
	}{
		{curator + "lock-", "10.0.0.7", "curator", "mutex", "10.0.0.7"},
		{curator + "lock-", "fe80::1", "curator", "mutex", "fe80::1"},
		{curator + "lock-", "node-3", "curator", "mutex", "participant node-3"},
		{curator + "lock-", "", "curator", "mutex", ""},
		{curator + "__WRIT__", "10.0.0.7", "curator", "write lock", "10.0.0.7"},
		{curator + "__READ__", "__REVOKE__", "curator", "read lock", ""},
		{curator + "latch-", "10.0.0.7", "curator", "leader latch", "participant 10.0.0.7"},
		{curator + "lease-", "10.0.0.7", "curator", "semaphore", "10.0.0.7"},
		{curator + "else-", "10.0.0.7", "curator", "", "10.0.0.7"},
		{"_c_" + hex32 + "-lock-", "", "go-zookeeper", "lock", ""},
		{hex32 + "__lock__", "my-worker", "kazoo", "lock", "my-worker"},
		{hex32 + "__rlock__", "", "kazoo", "read lock", ""},
		{"x-72057594037927936-", "\x12\x34", "zookeeper-writelock", "lock", ""},
		{"x--72057594037927936-", "\x12\x34", "zookeeper-writelock", "lock", ""},
		{"read-", "PBUF\x28\x01\x20\x01", "hbase", "read lock", ""},
		{"write-", "PBUF\x2a\x06create\x30\x80\x80\x80\x80\x10", "hbase", "write lock", "for create"},
		{"write-", "gibberish", "hbase", "write lock", ""},
		{"write-else-", "PBUF\x2a\x06create", "", "", ""},
		{"host-", "10.0.0.7", "", "", ""},
		{curator + "lock-", "\xff\xfe", "curator", "mutex", ""},
	} {
		t.Run(test.prefix+" "+test.data, in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			g.mustRelease(g.mustHold(deploy()))
			s.foreignSeen(zk.Op{Kind: zk.OpCreate, Sequential: true, Ephemeral: true, Path: "/lockkeeper/locks/deploy/" + test.prefix, Data: []byte(test.data)})
			time.Sleep(90 * time.Second)
			v, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"})
			assert.Must(t, err == nil && len(v.Holders) == 1, "%+v, %v", v, err)
			c := v.Holders[0]
			if f := c.Foreign; f.Program != test.program || f.Kind != test.kind || f.Decoded.String() != test.says || f.Session != 1 || string(f.Data) != test.data {
				t.Errorf("%+v, says %q", f, f.Decoded)
			}
			assert.That(t, c.AgeKnown && c.Age >= 89*time.Second && c.Age <= 91*time.Second, "age %v", c.Age)
		}))
	}
}

const semaphoreName = "/lockkeeper/locks/deploy/_c_12345678-1234-1234-1234-123456789abc-lease-"

// Attack 24: Curator's SemaphoreV2 counts every child of its directory. A lease that waits there blocks the contender
// that it waits for.
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
		t.Run(name, in(withGateway, func(t *testing.T, s *fakeStore, g *gate) {
			g.mustRelease(g.mustHold(deploy()))
			_, paths := s.foreignSeen(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: semaphoreName})
			writes := s.committed()
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
		}))
	}
}

// The semaphore's holder comes while our create is on its way.
func TestALeaseThatHasJoinedAnotherProgramsSemaphoreUnawaresLeavesIt(t *testing.T) {
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
	writes := g.s.committed()
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

// By bigdata's rule no program joins a lock that is marked, and none is granted it.
func TestALockThatBigdataDestroysIsNeitherJoinedNorGranted(t *testing.T) {
	for _, ephemeral := range []bool{true, false} {
		for _, started := range []string{"before", "after"} {
			t.Run(fmt.Sprint(ephemeral, started), in(scene, func(t *testing.T, s *fakeStore) {
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
			}))
		}
	}
}

func TestTheFirstContenderOfALockThatBigdataDestroysIsNotGrantedIt(t *testing.T) {
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
		t.Run(started, in(scene, func(t *testing.T, s *fakeStore) {
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
		}))
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

// The names of Kazoo's Lock and of Curator's mutex, without the number.
const (
	kazooPrefix   = "0123456789abcdef0123456789abcdef__lock__"
	curatorPrefix = "_c_12345678-1234-1234-1234-123456789abc-lock-"
)

// hazardKey tells a lock's hazards apart.
func hazardKey(code string, programs []string) string {
	return strings.Join(append([]string{code}, programs...), " ")
}

// A hazard is told when it appears and when it is over, each once, whatever else happens in the queue.
func TestAHazardIsToldOnceAndCountedWhileItLasts(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		hazards := func(step string, want ...string) {
			t.Helper()
			pass(100 * time.Millisecond)
			v := assert.Value(g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"}))(t)
			var got []string
			codes := map[locks.HazardCode]bool{}
			for _, h := range v.Hazards {
				got = append(got, hazardKey(string(h.Code), h.Programs))
				codes[h.Code] = true
			}
			slices.Sort(got)
			slices.Sort(want)
			info := g.m.Info(t.Context())
			for code, n := range info.Hazards {
				assert.That(t, n <= 1 && n == 1 == codes[code], "%s: %s is counted %d times", step, code, n)
			}
			assert.That(t, slices.Equal(got, want) && len(info.Hazards) == locks.NumHazards && info.HazardousLocks == min(len(want), 1),
				"%s: %q in %d locks, want %q", step, got, info.HazardousLocks, want)
			checkAll(t, s, g)
		}
		create := func(prefix string) string {
			_, paths := s.foreign(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/deploy/" + prefix})
			return paths[0]
		}
		remove := func(path string) { s.foreign(zk.Op{Kind: zk.OpDelete, Path: path, Version: -1}) }
		g.mustRelease(g.mustHold(deploy()))
		hazards("no program")
		const ignored, pair = "program_ignores_leases kazoo-lock", "programs_ignore_each_other curator-mutex kazoo-lock"
		kazoo := create(kazooPrefix)
		hazards("one program")
		ours := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: locks.MaxTTL, Wait: locks.WaitForever})
		hazards("with ours", ignored)
		second, mutex := create(kazooPrefix), create(curatorPrefix)
		hazards("two programs", ignored, pair)
		remove(second)
		hazards("one less of the same", ignored, pair)
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy/stray"})
		hazards("a stray", ignored, pair, "stray_child")
		remove(kazoo)
		hazards("the program has left", "stray_child")
		remove(mutex)
		time.Sleep(100 * time.Millisecond)
		<-ours.done
		g.mustRelease(ours.lease)
		remove("/lockkeeper/locks/deploy/stray")
		hazards("all is well")
		far := "/lockkeeper/locks/deploy/write-"
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: far + "1500000000"}, zk.Op{Kind: zk.OpCreate, Path: far + "-1500000000"}, zk.Op{Kind: zk.OpCreate, Path: far + "0000000001"})
		hazards("no order", "disordered")
		remove(far + "1500000000")
		hazards("order")
		remove(far + "-1500000000")
		remove(far + "0000000001")
		var told []string
		for _, e := range g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LockHazard, events.LockHazardCleared)}, ring) {
			if e.Lock != "deploy" || e.NS != "default" || (e.Detail != "") != (e.Type == events.LockHazard) || e.Path() != "/lockkeeper/locks/deploy" {
				t.Errorf("%+v", e)
			}
			told = append(told, strings.TrimPrefix(e.Type.String(), "lock.")+" "+hazardKey(e.Hazard.Code, e.Hazard.Programs))
		}
		wantWords(t, told, "hazard "+ignored, "hazard "+pair, "hazard stray_child",
			"hazard_cleared "+pair, "hazard_cleared "+ignored, "hazard_cleared stray_child",
			"hazard disordered", "hazard_cleared disordered")
	})
}

// What the first reading of the tree finds is the state: it is counted, and not told.
func TestAHazardThatWasThereBeforeIsCountedAndNotTold(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy"}, zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy/stray"})
		g := s.gateway(t)
		assert.Equal(t, g.m.Info(t.Context()).Hazards[locks.HazardStrayChild], 1, "strays")
		wantWords(t, g.tells(events.LockHazard))
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/locks/deploy/stray", Version: -1})
		wantWords(t, g.tells(events.LockHazard, events.LockHazardCleared), "lock.hazard_cleared")
	})
}

// A contender in the place of a lock: the lock root is itself a lock.
func TestAContenderInALockRootIsAHazard(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for _, prefix := range interop.Prefixes() {
			_, paths := s.foreignSeen(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/" + prefix})
			assert.Equal(t, g.m.Info(t.Context()).Hazards[locks.HazardMisplaced], 1, "%s", prefix)
			s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: paths[0], Version: -1})
		}
		s.foreignSeen(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/job-0000000001"})
		assert.Equal(t, g.m.Info(t.Context()).HazardousLocks, 0)
	})
}

// A list of locks with hazards has unused locks too.
func TestLocksWithHazardsAreListed(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		for _, lock := range []string{"odd", "used"} {
			s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/" + lock}, zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/" + lock + "/stray"})
		}
		g.mustHold(locks.AcquireRequest{Lock: "used"})
		g.mustHold(locks.AcquireRequest{Lock: "well"})
		for want, f := range map[string]locks.LockFilter{"odd used": {Hazardous: true}, "used": {Hazardous: true, State: locks.LockHeld}, "odd": {Hazardous: true, Contains: "d", Prefix: "o"}} {
			page, err := g.m.Locks(t.Context(), f)
			var got []string
			for _, l := range page.Items {
				got = append(got, l.Name)
			}
			assert.That(t, err == nil && strings.Join(got, " ") == want, "%+v: %q, %v", f, got, err)
		}
		list, err := g.m.Namespaces(t.Context(), locks.Anonymous)
		assert.That(t, err == nil && list[0].Hazardous == 2, "%+v, %v", list, err)
	})
}
