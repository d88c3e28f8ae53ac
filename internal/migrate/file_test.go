package migrate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/offlinetest"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

const testFleet = recipe.FleetID("abcdefgh")

// small is an archive that was never anywhere.
func small(t testing.TB) *Archive {
	a := &Archive{Header: Header{Format: format, Created: time.Unix(1_800_000_000, 0).UTC(), Root: "/lockkeeper", TokensBelow: 1000}}
	for _, n := range []struct{ path, data string }{
		{"/fence_base", "100"}, {"/keys", ""}, {"/namespaces", ""}, {"/promise_window", `{"window":"10s","largest":"10s"}`},
		{"/secret", `{"fleet_id":"abcdefgh","keys":[{"id":"aaaa","key":"AAAA"}]}`}, {"/version", `{"layout":1,"oldest_reader":1}`},
		{"/keys/one", "<>&\u2028 \xff"}, {"/namespaces/default", `{"root":"/lockkeeper/locks","dialect":"native"}`},
	} {
		a.Nodes = append(a.Nodes, Node{n.path, []byte(n.data)})
	}
	for n := range 3 {
		id := recipe.LeaseID(recipe.Tag + string(testFleet) + "aaaaaaaaaaaaa" + strings.Repeat(string(rune('a'+n)), 16)) // the same in every process that fuzzes
		a.Contenders = append(a.Contenders, made(t, "lock", recipe.Contender{LeaseID: id, Number: int32(n)}, int64(10+n)))
	}
	return a
}

// made is a contender with that number and czxid; its lease is new unless given.
func made(t rapid.TB, lock string, c recipe.Contender, czxid int64) Contender {
	if c.LeaseID == "" {
		c.LeaseID = offlinetest.NewLease(t, testFleet)
	}
	return Contender{NS: "default", Lock: lock, Name: c.Format(), Data: []byte(`{"v":1}`), Czxid: czxid, Ctime: 1_800_000_000_000}
}

func written(t testing.TB, a *Archive) string {
	t.Helper()
	var b bytes.Buffer
	assert.NoError(t, Write(&b, a))
	return b.String()
}

func TestAFileIsReadAsItWasWritten(t *testing.T) {
	a := small(t)
	diff := cmp.Diff(a, throughFile(t, a))
	assert.That(t, diff == "", "-written +read:\n%s", diff)
	if file := written(t, a); !strings.Contains(file, `"data":"{\"window\":\"10s\",\"largest\":\"10s\"}"`) || strings.Contains(file, `\u003c`) {
		t.Errorf("not made for readers:\n%s", file)
	}
}

func TestAFileThatWasCutOffIsRefusedWhereverItWas(t *testing.T) {
	file := written(t, small(t))
	for n := range len(file) {
		_, err := Read(strings.NewReader(file[:n]))
		offlinetest.WantKind(t, err, KindDamaged)
	}
	_, err := Read(strings.NewReader(file[:len(file)/2]))
	offlinetest.WantKind(t, err, KindDamaged, "cut off after line", "export again")
	_, err = Read(strings.NewReader(""))
	offlinetest.WantKind(t, err, KindDamaged, "nothing in it")
}

func TestAFileThatWasChangedIsRefusedWhereverItWas(t *testing.T) {
	file := written(t, small(t))
	for n := range len(file) {
		for _, with := range []byte{file[n] ^ 1, '\n', 0} {
			changed := file[:n] + string(rune(with)) + file[n+1:]
			if changed == file || strings.TrimRight(changed, " \n\x00") == strings.TrimRight(file, "\n") {
				continue
			}
			if a, err := Read(strings.NewReader(changed)); err == nil && written(t, a) != file {
				t.Fatalf("byte %d (%q) as %q was taken:\n%s", n, file[n], with, changed)
			}
		}
	}
	_, err := Read(strings.NewReader(strings.Replace(file, `"tokens_below":1000`, `"tokens_below":2000`, 1)))
	offlinetest.WantKind(t, err, KindDamaged, "been changed", "checksum")
}

func TestAFileWithLinesTooFewTooManyOrElsewhereIsRefused(t *testing.T) {
	file := written(t, small(t))
	lines := strings.SplitAfter(strings.TrimSuffix(file, "\n"), "\n")
	lines[len(lines)-1] += "\n"
	join := func(parts ...[]string) string {
		var b strings.Builder
		for _, p := range parts {
			b.WriteString(strings.Join(p, ""))
		}
		return b.String()
	}
	for n := 1; n < len(lines); n++ {
		for _, changed := range []string{
			join(lines[:n], lines[n+1:]),
			join(lines[:n], lines[n-1:]),
			join(lines[:n-1], lines[n:n+1], lines[n-1:n], lines[n+1:]),
		} {
			_, err := Read(strings.NewReader(changed))
			offlinetest.WantKind(t, err, KindDamaged)
		}
	}
	_, err := Read(strings.NewReader(file + "{}\n"))
	offlinetest.WantKind(t, err, KindDamaged, "behind its end")
	_, err = Read(strings.NewReader(lines[0] + strings.Repeat("x", maxLine+100<<10)))
	offlinetest.WantKind(t, err, KindDamaged, "line 2")
}

func TestWhatIsNoExportOrALaterOneIsRefusedByName(t *testing.T) {
	for _, file := range []string{"hello\n", "{}\n", `{"v":1}` + "\n", "\x00\x01\n"} {
		_, err := Read(strings.NewReader(file))
		offlinetest.WantKind(t, err, KindDamaged, "no export of Lockkeeper")
	}
	_, err := Read(strings.NewReader(`{"lockkeeper_export":2,"what":"ever"}` + "\n"))
	offlinetest.WantKind(t, err, KindTooNew, "format 2", "later")
}

// An edited file can have a right checksum. What no import could make sense of
// is refused all the same, before anything is written.
func TestWhatMakesNoSenseIsRefusedAlsoWithARightChecksum(t *testing.T) {
	ours := func(c recipe.Contender) Contender { return made(t, "lock", c, 50) }
	for name, change := range map[string]func(a *Archive){
		"no secret":           func(a *Archive) { a.Nodes[4].Path = "/sekret" },
		"an unreadable one":   func(a *Archive) { a.Nodes[4].Data = []byte("x") },
		"another fleet":       func(a *Archive) { a.Nodes[4].Data = []byte(`{"fleet_id":"hgfedcba","keys":[{"id":"a","key":"AAAA"}]}`) },
		"no version":          func(a *Archive) { a.Nodes[5].Path = "/verzion" },
		"no fence base":       func(a *Archive) { a.Nodes[0].Data = []byte("x") },
		"tokens below it":     func(a *Archive) { a.TokensBelow = 100 },
		"a czxid above them":  func(a *Archive) { a.Contenders[0].Czxid = 1000 },
		"no czxid":            func(a *Archive) { a.Contenders[0].Czxid = 0 },
		"a node twice":        func(a *Archive) { a.Nodes = append(a.Nodes, a.Nodes[1]) },
		"an orphan":           func(a *Archive) { a.Nodes = append(a.Nodes, Node{Path: "/x/y"}) },
		"a path with dots":    func(a *Archive) { a.Nodes = append(a.Nodes, Node{Path: "/keys/.."}) },
		"a registration":      func(a *Archive) { a.Nodes = append(a.Nodes, Node{Path: "/gateways"}) },
		"a lock's node":       func(a *Archive) { a.Nodes = append(a.Nodes, Node{Path: "/locks"}) },
		"an import's node":    func(a *Archive) { a.Nodes = append(a.Nodes, Node{Path: "/import"}) },
		"an odd namespace":    func(a *Archive) { a.Nodes[7].Data = []byte(`{"root":"locks"}`) },
		"keys as lock root":   func(a *Archive) { a.Nodes[7].Data = []byte(`{"root":"/lockkeeper/keys"}`) },
		"an unknown one":      func(a *Archive) { a.Contenders[0].NS = "x" },
		"a lock with a slash": func(a *Archive) { a.Contenders[0].Lock = "a/b" },
		"a lock of dots":      func(a *Archive) { a.Contenders[0].Lock = ".." },
		"a contender twice":   func(a *Archive) { a.Contenders = append(a.Contenders, a.Contenders[0]) },
		"a foreign contender": func(a *Archive) { a.Contenders[0].Name = "_c_1-lock-0000000000" },
		"an ephemeral one": func(a *Archive) {
			a.Contenders = append(a.Contenders, ours(recipe.Contender{Number: 9, Ephemeral: true}))
		},
		"a late first czxid": func(a *Archive) {
			a.Contenders = append(a.Contenders, ours(recipe.Contender{Number: 9, FirstCzxid: 51}))
		},
	} {
		a := small(t)
		change(a)
		_, err := Read(strings.NewReader(written(t, a)))
		if err == nil {
			t.Errorf("%s: taken", name)
			continue
		}
		offlinetest.WantKind(t, err, KindDamaged)
	}
	a := small(t)
	a.Contenders[0].Czxid = 12 // after the one behind it
	a.Contenders[2].Czxid = 10
	_, err := Read(strings.NewReader(written(t, a)))
	offlinetest.WantKind(t, err, KindNotMovable, "no order", "lock lock")
	a = small(t)
	a.TokensBelow = maxTokens + 1
	_, err = Read(strings.NewReader(written(t, a)))
	offlinetest.WantKind(t, err, KindNotMovable)
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(written(f, small(f))))
	f.Add([]byte(`{"lockkeeper_export":1,"created":"2026-11-21T00:00:00Z","root":"/","tokens_below":1}` + "\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		// Let it get past the checksum: that is how the rest is reached.
		lines := bytes.SplitAfter(file, []byte("\n"))
		if len(lines) > 2 {
			body := bytes.Join(lines[:len(lines)-2], nil)
			sum := sha256.Sum256(body)
			file = fmt.Appendf(body, `{"end":true,"records":%d,"sha256":%q}`+"\n", len(lines)-2, hex.EncodeToString(sum[:]))
		}
		a, err := Read(bytes.NewReader(file))
		if err != nil {
			return
		}
		again, err := Read(strings.NewReader(written(t, a)))
		if err != nil || !cmp.Equal(a, again) {
			t.Errorf("%v, written and read again it is different: %s", err, cmp.Diff(a, again))
		}
	})
}

func planned(t rapid.TB, a *Archive, root string, limit int) (*content, []step) {
	c := assert.Value(a.understand(root))(t)
	steps := assert.Value(c.plan(root, nil, func(op *zk.Op) int { return len(op.Path) + len(op.Data) }, limit))(t)
	return c, steps
}

// Queues of any shape, with batches that several leases share, groups of locks, and numbers that wrap around.
func TestAPlanKeepsEveryOrderAndEveryTokenApart(t *testing.T) {
	base := small(t)
	rapid.Check(t, func(t *rapid.T) {
		a := *base
		a.Nodes, a.Contenders, a.TokensBelow = slices.Clone(base.Nodes), nil, 1<<40
		start := rapid.SampledFrom([]int32{0, 7, math.MaxInt32 - 3, math.MinInt32}).Draw(t, "start")
		next := map[string]int32{}
		czxid := int64(0)
		for range rapid.IntRange(1, 40).Draw(t, "transactions") {
			czxid += int64(rapid.IntRange(1, 3).Draw(t, "gap"))
			locks := rapid.SliceOfNDistinct(rapid.IntRange(0, 5), 1, 4, rapid.ID[int]).Draw(t, "locks")
			var ids [6]recipe.LeaseID // of which some are over several locks
			var locksOf, slots [6]uint8
			for n := range ids {
				ids[n] = offlinetest.NewLease(t, testFleet)
			}
			by := make([]int, len(locks))
			for n := range by {
				by[n] = rapid.IntRange(0, 5).Draw(t, "lease")
				locksOf[by[n]]++
			}
			downgraded := rapid.IntRange(0, 20).Draw(t, "downgraded")
			for n, l := range locks {
				lock := fmt.Sprint("lock-", l)
				slots[by[n]]++
				c := recipe.Contender{LeaseID: ids[by[n]], Number: start + next[lock], Group: slots[by[n]], Groups: locksOf[by[n]]}
				c.Mode = recipe.Mode(rapid.IntRange(0, 1).Draw(t, "mode"))
				if by[n] == downgraded {
					c.Mode, c.FirstCzxid = recipe.Shared, czxid
					a.Contenders = append(a.Contenders, made(t, lock, c, czxid+500))
				} else {
					a.Contenders = append(a.Contenders, made(t, lock, c, czxid))
				}
				next[lock]++
			}
		}
		limit := rapid.IntRange(700, 4000).Draw(t, "limit")
		c, steps := planned(t, &a, "/other", limit)

		order := map[string][]string{} // of the plan, by lock
		all := 0
		for n, s := range steps {
			size, in := 0, map[string]string{}
			for _, op := range s.ops {
				size += len(op.Path) + len(op.Data)
				if !op.Sequential {
					continue
				}
				all++
				dir, name := op.Path[:lastSlash(op.Path)], op.Path[lastSlash(op.Path)+1:]
				parsed, ok := recipe.Parse(testFleet, name+"0000000001")
				assert.Must(t, ok && !parsed.Unknown && parsed.FirstCzxid == 0, "step %d creates %s", n, op.Path)
				if other := in[dir]; other != "" && other != string(parsed.LeaseID) {
					t.Fatalf("step %d creates two leases of %s, which get one token", n, dir)
				}
				in[dir] = string(parsed.LeaseID)
				order[dir] = append(order[dir], string(parsed.LeaseID))
			}
			assert.Must(t, size <= limit, "step %d has %d bytes, the limit is %d", n, size, limit)
		}
		assert.Must(t, all == len(a.Contenders), "%d contenders are created, %d were exported", all, len(a.Contenders))
		for lock := range next {
			var want []recipe.Contender
			for i := range c.contenders {
				if c.contenders[i].Lock == lock {
					want = append(want, c.contenders[i].parsed)
				}
			}
			slices.SortFunc(want, func(a, b recipe.Contender) int { return recipe.Compare(a.Number, a.Name, b.Number, b.Name) })
			for i, id := range order["/other/locks/"+lock] {
				assert.Must(t, string(want[i].LeaseID) == id, "%s: place %d is %s's, not %s's", lock, i, id, want[i].LeaseID)
			}
		}
		// A group of locks is created whole: no other can get between.
		at := map[string]int{}
		for n, s := range steps {
			for _, op := range s.ops {
				if op.Sequential {
					id := op.Path[strings.Index(op.Path, "v1.")+3:][:recipe.LeaseIDLen]
					before, ok := at[id]
					assert.Must(t, !ok || before == n, "the lease %s is created in steps %d and %d", id, before, n)
					at[id] = n
				}
			}
		}
	})
}

func TestParentsAreCreatedBeforeTheirChildren(t *testing.T) {
	a := small(t)
	a.Nodes = append(a.Nodes, Node{"/namespaces/deep", []byte(`{"root":"/lockkeeper/x/y/z","dialect":"native"}`)})
	a.Contenders = append(a.Contenders, made(t, "lock", recipe.Contender{Number: 3}, 20))
	a.Contenders[3].NS = "deep"
	_, steps := planned(t, a, "/r", 1<<20)
	made := map[string]bool{"/r": true}
	for _, s := range steps {
		for _, op := range s.ops {
			parent := op.Path[:lastSlash(op.Path)]
			assert.That(t, made[parent], "%s is created before %s", op.Path, parent)
			assert.That(t, !made[op.Path], "%s is created twice", op.Path)
			made[op.Path] = true
		}
	}
	assert.That(t, made["/r/x/y/z/lock"] && !made["/r/version"], "created: %v", made)
}

func TestAnArchiveThatNoTransactionCanHoldIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	a := small(t)
	a.Contenders[1].Data = make([]byte, layout.MaxTransaction)
	cfg := server(t)
	_, err := Import(offlinetest.Context(t), cfg, a, ImportOptions{})
	offlinetest.WantKind(t, err, KindNotMovable, "bytes")
	names := tree(t, offlinetest.Open(t, cfg), zk.DefaultRoot)
	assert.That(t, len(names) == 0, "written: %v", names)
}
