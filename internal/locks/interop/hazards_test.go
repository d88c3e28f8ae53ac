package interop

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
)

func TestAFamilyIsToldByItsNames(t *testing.T) {
	for f := unknownFamily + 1; f < families; f++ {
		if got := familyOf(known[f].example); got != f || f.prefix() == known[f].example {
			t.Errorf("%q is of the family %d, want %d", known[f].example, got, f)
		}
	}
}

// queue is a lock's queue and the presence of other programs in it.
type queue struct {
	contenders recipe.Queue
	presence   Presence
	ignoring   Ignoring
}

func (q *queue) insert(c *recipe.Contender) { q.contenders.Insert(c); q.count(c, 1) }

func (q *queue) count(c *recipe.Contender, by int32) {
	if c.Ours {
		q.presence.CountLease(c, by)
	} else {
		q.presence.CountForeign(c, by, q.contenders.All())
	}
}

func (q *queue) addHazards() []*Hazard { return q.presence.AddHazards(nil, q.ignoring) }

// lockWith is a lock with these contenders, put into it one by one.
func lockWith(d *recipe.Naming, names ...string) *queue {
	q := &queue{ignoring: IgnoringOf(d)}
	for i, name := range names {
		c, ok := d.Parse("fleetfle", name)
		if !ok {
			panic(name)
		}
		c.Number = int32(i)
		q.insert(&c)
	}
	return q
}

// readPage is what docs/operate/interop.md has in its tables with that title of the first column: rows of cells without backquotes,
// the titles first.
func readPage(t *testing.T, title string) (rows [][]string) {
	page := assert.Value(os.ReadFile("../../../docs/operate/interop.md"))(t)
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
	assert.Must(t, len(rows) >= 9, "the tables %q of the page have %d rows", title, len(rows))
	return rows
}

// The page lists the pairs of programs that do not wait for each other. A pair is safe only when each waits for the other, or when both read.
func TestProgramsThatDoNotWaitForEachOtherAreAHazard(t *testing.T) {
	ignores := map[string][]string{}
	for _, row := range readPage(t, "programs")[1:] {
		ignores[row[0]] = strings.Split(row[2], ", ")
	}
	assert.That(t, len(ignores) == int(families)-1, "the page has %d programs, want %d", len(ignores), families-1)
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

// clashing is what AddHazards adds, each with its programs.
func (q *queue) clashing() (list []string) {
	for _, h := range q.addHazards() {
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
		d := assert.Value(recipe.ParseNaming(name))(t)
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
				assert.Slices(t, q.clashing(), want, "%s, %v and %s: hazards", d, mode, theirs)
				for _, name := range ours {
					q.count(q.contenders.Remove(name), -1)
				}
				list := q.clashing()
				assert.That(t, list == nil, "%s, %v and %s: hazards %q are left", d, mode, theirs, list)
			}
		}
	}
}

// lockOfOurs has a lease in a queue, then another program's contender behind it, then the lease once more.
func lockOfOurs(d *recipe.Naming, ours []string, theirs string) *queue {
	q := &queue{ignoring: IgnoringOf(d)}
	for _, name := range append(ours[:1:1], append([]string{theirs}, ours[1:]...)...) {
		fleet := recipe.FleetID(strings.Repeat("a", len("fleetfle")))
		c, ok := d.Parse(fleet, name)
		if !ok || c.Ours != (name != theirs) {
			panic(name)
		}
		q.insert(&c)
	}
	return q
}

// The page's table is what was seen of the programs themselves; the rules here come to the same.
func TestWhichProgramsIgnoreWhichLeasesIsWhatThePageSays(t *testing.T) {
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
	assert.Must(t, len(of) <= 0 && len(ignored) >= 8, "no rows for %v, %d columns", of, len(ignored))
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
		got := ignoring(d, mode) &^ setOf(latchFamily, semaphoreFamily)
		assert.That(t, got == want, "%s: ignored by %b, the page says %b", column, got, want)
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
	assert.That(t, slices.Equal(page, codes), "the page has\n%q\nthe codes are\n%q", page, codes)
}

// A hazard's code and programs, and what they ignore, tell it apart. Each says something.
func TestEveryHazardIsInTheCatalogueOnce(t *testing.T) {
	seen := map[string]bool{}
	for place, e := range catalogue {
		key := fmt.Sprint(hazardKey(string(e.Code), e.Programs), e.beside)
		assert.That(t, !seen[key] && e.Detail != "" && hazardOrder[e.code] == e.Code && (e.Programs != nil || e.code == place),
			"%d: %+v", place, e)
		seen[key] = true
	}
}

// Where a program waits for exclusive leases and not for shared ones, the hazard says so; with both there it stays that one.
func TestAProgramThatIgnoresSharedLeasesAloneIsSuchAHazard(t *testing.T) {
	d := assert.Value(recipe.ParseNaming("custom exclusive={id}-lock- shared={id}-R-"))(t)
	for _, ours := range [][]string{namesOf(d, recipe.Shared), append(namesOf(d, recipe.Shared), namesOf(d, recipe.Exclusive)...)} {
		q := lockOfOurs(d, ours, mutexFamily.prefix()+"0000000009")
		if list := q.addHazards(); len(list) != 1 || list[0].Code != locks.HazardIgnoresLeases || !strings.Contains(list[0].Detail, "does not wait for shared leases") {
			t.Errorf("%q: %+v", ours, list)
		}
	}
}

func native(t *testing.T) *recipe.Naming {
	n := assert.Value(recipe.ParseNaming("native"))(t)
	return n
}
