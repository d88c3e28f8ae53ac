package locks

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

const curator36, hex32 = "_c_12345678-1234-1234-1234-123456789abc-", "0123456789abcdef0123456789abcdef"

// prefixes are such names as the programs of each family make, without the number.
var prefixes = map[family]string{
	mutexFamily: curator36 + "lock-", rwWriteFamily: curator36 + "__WRIT__", rwReadFamily: curator36 + "__READ__",
	latchFamily: curator36 + "latch-", semaphoreFamily: curator36 + "lease-", goFamily: "_c_" + hex32 + "-lock-",
	kazooFamily: hex32 + "__lock__", kazooReadFamily: hex32 + "__rlock__", kazooNamedFamily: hex32 + "-lock-",
	hbaseWriteFamily: "write-", hbaseReadFamily: "read-", recipeFamily: "x-72057594037927936-",
}

func TestAFamilyIsToldByItsNames(t *testing.T) {
	for f := unknownFamily + 1; f < families; f++ {
		if got := familyOf(prefixes[f] + "0000000005"); prefixes[f] == "" || got != f {
			t.Errorf("%q is of the family %d, want %d", prefixes[f], got, f)
		}
	}
}

// company is a lock with these contenders, put into it one by one.
func lockWith(d *recipe.Naming, names ...string) *queue {
	q := &queue{space: newSpace("ns", "/locks", d), path: "/locks/deploy"}
	for i, name := range names {
		c, ok := d.Parse("fleetfle", name)
		if !ok {
			panic(name)
		}
		c.Number = int32(i)
		q.contenders.Insert(&c)
		q.meets(&c, 1)
	}
	return q
}

// A pair is safe only when each waits for the other, or when both read.
func TestProgramsThatDoNotWaitForEachOtherAreAHazard(t *testing.T) {
	for a := unknownFamily + 1; a < families; a++ {
		for b := a; b < families; b++ {
			one, two := prefixes[a]+"0000000005", prefixes[b]+"0000000006"
			safe := a == b || readers.has(a) && readers.has(b) || a.waitsFor(two) && b.waitsFor(one) && a != semaphoreFamily && b != semaphoreFamily
			list := lockWith(native(t), one, two).clashing()
			if safe != (list == 0) || list&(list-1) != 0 {
				t.Errorf("%s and %s: hazards %b, safe: %v", one, two, list, safe)
			}
		}
	}
}

// Only what may be another program's with the same names is a hazard beside that.
func TestLeasesThatAProgramIgnoresAreAHazardWhileBothAreThere(t *testing.T) {
	for _, name := range []string{"native", "curator-rw", "kazoo", "all", "custom exclusive={id}-W- shared={id}-R-"} {
		d, err := recipe.ParseNaming(name)
		if err != nil {
			t.Fatal(err)
		}
		for mode, shares := range map[recipe.Mode]bool{recipe.Exclusive: false, recipe.Shared: true} {
			ours := namesOf(d, mode)
			for f := unknownFamily + 1; f < families; f++ {
				theirs := prefixes[f] + "0000000009"
				want := ignoring(d, mode).has(f) || f == semaphoreFamily || f == kazooReadFamily && !shares
				q := lockOfOurs(d, ours, theirs)
				list := q.clashing()
				if want != (list != 0) || list&(list-1) != 0 {
					t.Errorf("%s, %v and %s: hazards %b, ignored: %v", d, mode, theirs, list, want)
				}
				for _, name := range ours {
					q.meets(q.contenders.Remove(name), -1)
				}
				if list := q.clashing(); list != 0 {
					t.Errorf("%s, %v and %s: hazards %b are left", d, mode, theirs, list)
				}
			}
		}
	}
}

// lockOfOurs has a lease in a queue, then another program's contender behind it, then the lease once more.
func lockOfOurs(d *recipe.Naming, ours []string, theirs string) *queue {
	q := &queue{space: newSpace("ns", "/locks", d), path: "/locks/deploy"}
	for _, name := range append(ours[:1:1], append([]string{theirs}, ours[1:]...)...) {
		fleet := recipe.FleetID(strings.Repeat("a", len("fleetfle")))
		c, ok := d.Parse(fleet, name)
		if !ok || c.Ours != (name != theirs) {
			panic(name)
		}
		q.contenders.Insert(&c)
		q.meets(&c, 1)
	}
	return q
}

// The page's table is what was seen of the programs themselves; the rules here come to the same.
func TestWhoIgnoresWhichLeasesIsWhatThePageSays(t *testing.T) {
	page, err := os.ReadFile("../../docs/interop.md")
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]family{"curator-mutex": mutexFamily, "curator-leader": mutexFamily, "curator-write": rwWriteFamily, "curator-read": rwReadFamily,
		"kazoo-lock": kazooFamily, "kazoo-election": kazooFamily, "kazoo-lock-extra": kazooFamily, "kazoo-write": kazooFamily, "kazoo-lock-named": kazooNamedFamily,
		"kazoo-read": kazooReadFamily, "go-zookeeper": goFamily, "zookeeper-writelock": recipeFamily, "hbase-write": hbaseWriteFamily, "hbase-read": hbaseReadFamily}
	var columns []string
	ignored := map[string]familySet{} // by column; a family ignores what one of its kinds does
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		switch {
		case cells[0] == "client":
			columns = cells
		case columns != nil && of[cells[0]] != unknownFamily:
			for i := 2; i < len(cells); i++ {
				if cells[i] == "no" {
					ignored[columns[i]] |= setOf(of[cells[0]])
				} else if _, ok := ignored[columns[i]]; !ok {
					ignored[columns[i]] = 0
				}
			}
			delete(of, cells[0])
		}
	}
	if len(of) > 0 || len(ignored) < 8 {
		t.Fatalf("no rows for %v, %d columns", of, len(ignored))
	}
	for column, want := range ignored {
		name, shared := strings.CutSuffix(column, ", shared")
		mode := recipe.Exclusive
		if shared {
			mode = recipe.Shared
		}
		d, err := recipe.ParseNaming(name)
		if err != nil {
			continue
		}
		if got := ignoring(d, mode) &^ setOf(latchFamily); got != want {
			t.Errorf("%s: ignored by %b, the page says %b", column, got, want)
		}
	}
}

// Each kind of hazard is in the page, and what the page has is one.
func TestThePageHasEveryHazard(t *testing.T) {
	page, err := os.ReadFile("../../docs/interop.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, h := range Hazards() {
		if codes[string(h.Code)] || h.Detail == "" {
			t.Errorf("%q is there twice, or says nothing", h.Code)
		}
		codes[string(h.Code)] = true
	}
	if len(codes) != hazardKinds {
		t.Errorf("%d kinds, not %d", len(codes), hazardKinds)
	}
	_, table, _ := strings.Cut(string(page), "| code |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]bool{}
	for line := range strings.Lines(table) {
		if code, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` |"); ok {
			rows[code] = true
		}
	}
	if !maps.Equal(rows, codes) {
		t.Errorf("the page has\n%q\nthe kinds are\n%q", slices.Sorted(maps.Keys(rows)), slices.Sorted(maps.Keys(codes)))
	}
}

// A hazard is told when it appears and when it is over, each once, whatever else happens in the queue.
func TestAHazardIsToldOnceAndCountedWhileItLasts(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		hazards := func(step string, want ...HazardCode) {
			t.Helper()
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			v, err := g.m.Lock(t.Context(), LockRequest{Lock: "deploy"})
			if err != nil {
				t.Fatal(err)
			}
			var got []HazardCode
			for _, h := range v.Hazards {
				got = append(got, h.Code)
			}
			slices.Sort(got)
			slices.Sort(want)
			info := g.m.Info(t.Context())
			sum := 0
			for code, n := range info.Hazards {
				sum += n
				if n > 0 && !slices.Contains(want, code) {
					t.Errorf("%s: %s is counted", step, code)
				}
			}
			if !slices.Equal(got, want) || sum != len(want) || info.HazardousLocks != min(len(want), 1) {
				t.Errorf("%s: %q in %d locks, %d in all; want %q", step, got, info.HazardousLocks, sum, want)
			}
			checkAll(t, s, g)
		}
		create := func(prefix string) string {
			_, paths := s.foreign(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/deploy/" + prefix})
			return paths[0]
		}
		remove := func(path string) { s.foreign(zk.Op{Kind: zk.OpDelete, Path: path, Version: -1}) }
		g.mustRelease(g.mustHold(deploy()))
		hazards("nobody")
		kazoo := create(prefixes[kazooFamily])
		hazards("one program")
		ours := g.begin(AcquireRequest{Lock: "deploy", TTL: MaxTTL, Wait: WaitForever})
		hazards("with ours", "leases_ignored_by_kazoo")
		second, mutex := create(prefixes[kazooFamily]), create(prefixes[mutexFamily])
		hazards("two programs", "leases_ignored_by_kazoo", "curator_beside_kazoo")
		remove(second)
		hazards("one less of the same", "leases_ignored_by_kazoo", "curator_beside_kazoo")
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy/stray"})
		hazards("a stray", "leases_ignored_by_kazoo", "curator_beside_kazoo", "stray_child")
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
		hazards("no order", "numbers_without_order")
		remove(far + "1500000000")
		hazards("order")
		remove(far + "-1500000000")
		remove(far + "0000000001")
		var told []string
		for _, e := range g.hub.Recent(events.Filter{Types: events.Types(events.LockHazard, events.LockHazardCleared)}, ring) {
			if e.Lock != "deploy" || e.NS != "default" || (e.Detail != "") != (e.Type == events.LockHazard) || e.Path() != "/lockkeeper/locks/deploy" {
				t.Errorf("%+v", e)
			}
			told = append(told, strings.TrimPrefix(e.Type.String(), "lock.")+" "+e.Code)
		}
		wantWords(t, told, "hazard leases_ignored_by_kazoo", "hazard curator_beside_kazoo", "hazard stray_child",
			"hazard_cleared curator_beside_kazoo", "hazard_cleared leases_ignored_by_kazoo", "hazard_cleared stray_child",
			"hazard numbers_without_order", "hazard_cleared numbers_without_order")
		synctest.Wait()
		g.m.mu.Lock()
		defer g.m.mu.Unlock()
		if q := g.m.spaces["default"].find("deploy"); q.remarks != nil {
			t.Errorf("remarks are left: %+v", q.remarks)
		}
	})
}

// What the first reading of the tree finds is the state: it is counted, and not told.
func TestAHazardThatWasThereBeforeIsCountedAndNotTold(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy"}, zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy/stray"})
		g := s.gateway(t)
		if n := g.m.Info(t.Context()).Hazards[strayChild]; n != 1 {
			t.Errorf("%d strays", n)
		}
		wantWords(t, g.tells(events.LockHazard))
		s.foreign(zk.Op{Kind: zk.OpDelete, Path: "/lockkeeper/locks/deploy/stray", Version: -1})
		wantWords(t, g.tells(events.LockHazard, events.LockHazardCleared), "lock.hazard_cleared")
	})
}

// A contender in the place of a lock: the lock root is itself a lock.
func TestAContenderInALockRootIsAHazard(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		for f, prefix := range prefixes {
			_, paths := s.foreign(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/" + prefix})
			synctest.Wait()
			if n := g.m.Info(t.Context()).Hazards[misplaced]; n != 1 {
				t.Errorf("%d: %s: %d", f, prefix, n)
			}
			s.foreign(zk.Op{Kind: zk.OpDelete, Path: paths[0], Version: -1})
			synctest.Wait()
		}
		s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/job-0000000001"})
		synctest.Wait()
		if info := g.m.Info(t.Context()); info.HazardousLocks != 0 {
			t.Errorf("%v", info.Hazards)
		}
	})
}

func native(t *testing.T) *recipe.Naming {
	n, err := recipe.ParseNaming("native")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A list of locks with hazards has them whether anybody uses them or not.
func TestLocksWithHazardsAreListed(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		for _, lock := range []string{"odd", "used"} {
			s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/" + lock}, zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/" + lock + "/stray"})
		}
		g.mustHold(AcquireRequest{Lock: "used"})
		g.mustHold(AcquireRequest{Lock: "well"})
		for want, f := range map[string]LockFilter{"odd used": {Hazardous: true}, "used": {Hazardous: true, State: LockHeld}, "odd": {Hazardous: true, Contains: "d", Prefix: "o"}} {
			page, err := g.m.Locks(t.Context(), f)
			var got []string
			for _, l := range page.Items {
				got = append(got, l.Name)
			}
			if err != nil || strings.Join(got, " ") != want {
				t.Errorf("%+v: %q, %v", f, got, err)
			}
		}
		if list, err := g.m.Namespaces(t.Context()); err != nil || list[0].Hazardous != 2 {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
