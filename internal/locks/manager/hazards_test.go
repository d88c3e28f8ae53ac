package manager

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

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
		for _, e := range g.hub.Recent(events.Filter{Types: events.Types(events.LockHazard, events.LockHazardCleared)}, ring) {
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
		list, err := g.m.Namespaces(t.Context())
		assert.That(t, err == nil && list[0].Hazardous == 2, "%+v, %v", list, err)
	})
}
