package manager

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

// prefix is what the names of a family's contenders have before the number.
func (f family) prefix() string { return strings.TrimSuffix(known[f].example, "0000000005") }

func TestAFamilyIsToldByItsNames(t *testing.T) {
	for f := unknownFamily + 1; f < families; f++ {
		if got := familyOf(known[f].example); got != f || f.prefix() == known[f].example {
			t.Errorf("%q is of the family %d, want %d", known[f].example, got, f)
		}
	}
}

// lockWith is a lock with these contenders, put into it one by one.
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

// readPage is what docs/interop.md has in its tables with that title of the first column: rows of cells without backquotes,
// the titles first.
func readPage(t *testing.T, title string) (rows [][]string) {
	page, err := os.ReadFile("../../../docs/interop.md")
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(strings.ReplaceAll(line, "`", "")), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if inside = len(cells) > 1 && (inside || cells[0] == title); inside && cells[0] != "---" {
			rows = append(rows, cells)
		}
	}
	if len(rows) < 9 {
		t.Fatalf("the tables %q of the page have %d rows", title, len(rows))
	}
	return rows
}

// The page says who does not wait for whom. A pair is safe only when each waits for the other, or when both read.
func TestProgramsThatDoNotWaitForEachOtherAreAHazard(t *testing.T) {
	ignores := map[string][]string{}
	for _, row := range readPage(t, "programs")[1:] {
		ignores[row[0]] = strings.Split(row[2], ", ")
	}
	if len(ignores) != int(families)-1 {
		t.Errorf("the page has %d programs, want %d", len(ignores), families-1)
	}
	says := func(a, b family) bool {
		list := ignores[known[a].id]
		if len(list) == 1 && list[0] == "all" {
			return a != b
		}
		return slices.Contains(list, known[b].id)
	}
	for a := unknownFamily + 1; a < families; a++ {
		for b := a; b < families; b++ {
			if a.ignores(b) != says(a, b) || b.ignores(a) != says(b, a) {
				t.Errorf("%s ignores %s: %v, the other way %v; the page says %v, %v", known[a].id, known[b].id, a.ignores(b), b.ignores(a), says(a, b), says(b, a))
			}
			q := lockWith(native(t), known[a].example, b.prefix()+"0000000006")
			var want []string
			if says(a, b) || says(b, a) {
				want = []string{string(locks.HazardIgnoreEachOther) + " " + known[a].id + " " + known[b].id}
			}
			if got := q.clashing(); !slices.Equal(got, want) {
				t.Errorf("%s and %s: %q, want %q", known[a].id, known[b].id, got, want)
			}
		}
	}
}

// clashing is what addClashes adds, each with its programs.
func (q *queue) clashing() (list []string) {
	for _, h := range q.addClashes(nil) {
		list = append(list, hazardKey(string(h.Code), h.Programs))
	}
	return list
}

// hazardKey tells a lock's hazards apart.
func hazardKey(code string, programs []string) string {
	return strings.Join(append([]string{code}, programs...), " ")
}

// Only what may be another program's with the same names is a hazard beside that.
func TestLeasesThatAProgramIgnoresAreAHazardWhileBothAreThere(t *testing.T) {
	for _, name := range []string{"native", "curator-rw", "kazoo", "all", "custom exclusive={id}-W- shared={id}-R-"} {
		d, err := recipe.ParseNaming(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []recipe.Mode{recipe.Exclusive, recipe.Shared} {
			ours := namesOf(d, mode)
			for f := unknownFamily + 1; f < families; f++ {
				theirs := f.prefix() + "0000000009"
				var want []string
				switch {
				case f == semaphoreFamily:
					want = []string{"foreign_semaphore semaphore"}
				case ignoring(d, mode).has(f):
					want = []string{"program_ignores_leases " + known[f].id}
				}
				q := lockOfOurs(d, ours, theirs)
				if list := q.clashing(); !slices.Equal(list, want) {
					t.Errorf("%s, %v and %s: hazards %q, want %q", d, mode, theirs, list, want)
				}
				for _, name := range ours {
					q.meets(q.contenders.Remove(name), -1)
				}
				if list := q.clashing(); list != nil {
					t.Errorf("%s, %v and %s: hazards %q are left", d, mode, theirs, list)
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
	of := map[string]family{"curator-mutex": mutexFamily, "curator-leader": mutexFamily, "curator-write": rwWriteFamily, "curator-read": rwReadFamily,
		"kazoo-lock": kazooFamily, "kazoo-election": kazooFamily, "kazoo-lock-extra": kazooFamily, "kazoo-write": kazooFamily, "kazoo-lock-named": kazooNamedFamily,
		"kazoo-read": kazooReadFamily, "go-zookeeper": goFamily, "zookeeper-writelock": recipeFamily, "hbase-write": hbaseWriteFamily, "hbase-read": hbaseReadFamily}
	var columns []string
	ignored := map[string]familySet{} // by column; a family ignores what one of its kinds does
	for _, cells := range readPage(t, "client") {
		switch {
		case cells[0] == "client":
			columns = cells
		case of[cells[0]] != unknownFamily:
			for i := 2; i < len(cells); i++ {
				ignored[columns[i]] |= 0 // a column in which all exclude each other is one, too
				if cells[i] == "no" || cells[i] == "deadlocks" {
					ignored[columns[i]] |= setOf(of[cells[0]])
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
		if got := ignoring(d, mode) &^ setOf(latchFamily, semaphoreFamily); got != want {
			t.Errorf("%s: ignored by %b, the page says %b", column, got, want)
		}
	}
}

// Each code is in the page, in the order of the codes.
func TestThePageHasEveryHazard(t *testing.T) {
	var codes, page []string
	for _, code := range locks.HazardCodes() {
		codes = append(codes, string(code))
	}
	for _, row := range readPage(t, "code")[1:] {
		page = append(page, row[0])
	}
	if !slices.Equal(page, codes) {
		t.Errorf("the page has\n%q\nthe codes are\n%q", page, codes)
	}
}

// A hazard's code and programs, and what they ignore, tell it apart. Each says something.
func TestEveryHazardIsInTheCatalogueOnce(t *testing.T) {
	seen := map[string]bool{}
	for place, e := range catalogue {
		key := fmt.Sprint(hazardKey(string(e.Code), e.Programs), e.beside)
		if seen[key] || e.Detail == "" || hazardOrder[e.code] != e.Code || e.Programs == nil && e.code != place {
			t.Errorf("%d: %+v", place, e)
		}
		seen[key] = true
	}
}

// Where a program waits for exclusive leases and not for shared ones, the hazard says so; with both there it stays that one.
func TestAProgramThatIgnoresSharedLeasesAloneIsSuchAHazard(t *testing.T) {
	d, err := recipe.ParseNaming("custom exclusive={id}-lock- shared={id}-R-")
	if err != nil {
		t.Fatal(err)
	}
	for _, ours := range [][]string{namesOf(d, recipe.Shared), append(namesOf(d, recipe.Shared), namesOf(d, recipe.Exclusive)...)} {
		q := lockOfOurs(d, ours, mutexFamily.prefix()+"0000000009")
		if list := q.addClashes(nil); len(list) != 1 || list[0].Code != locks.HazardIgnoresLeases || !strings.Contains(list[0].Detail, "does not wait for shared leases") {
			t.Errorf("%q: %+v", ours, list)
		}
	}
}

// A hazard is told when it appears and when it is over, each once, whatever else happens in the queue.
func TestAHazardIsToldOnceAndCountedWhileItLasts(t *testing.T) {
	scene(t, func(t *testing.T, s *fakeStore) {
		g := s.gateway(t)
		hazards := func(step string, want ...string) {
			t.Helper()
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			v, err := g.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"})
			if err != nil {
				t.Fatal(err)
			}
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
				if n > 1 || n == 1 != codes[code] {
					t.Errorf("%s: %s is counted %d times", step, code, n)
				}
			}
			if !slices.Equal(got, want) || len(info.Hazards) != locks.NumHazards || info.HazardousLocks != min(len(want), 1) {
				t.Errorf("%s: %q in %d locks, want %q", step, got, info.HazardousLocks, want)
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
		const ignored, pair = "program_ignores_leases kazoo-lock", "programs_ignore_each_other curator-mutex kazoo-lock"
		kazoo := create(kazooFamily.prefix())
		hazards("one program")
		ours := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: locks.MaxTTL, Wait: locks.WaitForever})
		hazards("with ours", ignored)
		second, mutex := create(kazooFamily.prefix()), create(mutexFamily.prefix())
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
		if n := g.m.Info(t.Context()).Hazards[locks.HazardStrayChild]; n != 1 {
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
		for f := unknownFamily + 1; f < families; f++ {
			prefix := f.prefix()
			_, paths := s.foreign(zk.Op{Kind: zk.OpCreate, Sequential: true, Path: "/lockkeeper/locks/" + prefix})
			synctest.Wait()
			if n := g.m.Info(t.Context()).Hazards[locks.HazardMisplaced]; n != 1 {
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
		g.mustHold(locks.AcquireRequest{Lock: "used"})
		g.mustHold(locks.AcquireRequest{Lock: "well"})
		for want, f := range map[string]locks.LockFilter{"odd used": {Hazardous: true}, "used": {Hazardous: true, State: locks.LockHeld}, "odd": {Hazardous: true, Contains: "d", Prefix: "o"}} {
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
