package migrate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

func planned(t rapid.TB, a *Archive, root string, limit int) (*content, []step) {
	c := assert.Value(a.understand(root))(t)
	steps := assert.Value(c.plan(root, nil, func(op *zk.Op) int { return len(op.Path) + len(op.Data) }, limit))(t)
	return c, steps
}

// Queues of any shape, with batches that several leases share, groups of locks, and
// numbers that wrap around.
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
				ids[n] = newLease(t, testFleet)
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
	_, err := Import(testContext(t), cfg, a, ImportOptions{})
	wantKind(t, err, KindNotMovable, "bytes")
	names := tree(t, openOffline(t, cfg), zk.DefaultRoot)
	assert.That(t, len(names) == 0, "written: %v", names)
}
