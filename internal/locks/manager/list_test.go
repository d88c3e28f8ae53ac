package manager

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// listed is a manager whose replica is fed by hand.
type listed struct {
	m    *Manager
	root *zk.WatchRoot
	dirs map[string]*zk.Dir
}

func newListed(t testing.TB) *listed {
	s := newFakeStore(t)
	m := New(Options{Store: s, Root: "/lockkeeper", Clock: s.clock})
	assert.NoError(t, m.prepare(s.layout))
	m.Apply([]zk.Change{{Kind: zk.Synced}})
	return &listed{m: m, root: &zk.WatchRoot{Path: "/lockkeeper/locks", Depth: 2}, dirs: map[string]*zk.Dir{}}
}

const listedContender = "_c_0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0-lock-0000000000"

// set makes a lock free (its directory is there), held, or gone.
func (l *listed) set(name string, state locks.LockState) {
	d := l.dirs[name]
	var changes []zk.Change
	if d == nil && state != "" {
		d = &zk.Dir{Path: "/lockkeeper/locks/" + name}
		l.dirs[name] = d
		changes = append(changes, zk.Change{Kind: zk.DirAdded, Root: l.root, Dir: d})
	}
	switch {
	case d == nil:
		return
	case state == locks.LockHeld:
		changes = append(changes, zk.Change{Kind: zk.NodeAdded, Root: l.root, Dir: d, Node: listedContender})
	default:
		changes = append(changes, zk.Change{Kind: zk.NodeRemoved, Root: l.root, Dir: d, Node: listedContender})
	}
	if state == "" {
		changes = append(changes, zk.Change{Kind: zk.DirRemoved, Root: l.root, Dir: d})
		delete(l.dirs, name)
	}
	l.m.Apply(changes)
}

// all reads every page.
func (l *listed) all(t assert.T, f locks.LockFilter) []string {
	var names []string
	for {
		page := assert.Value(l.m.Locks(context.Background(), f))(t, "%+v", f)
		for _, lock := range page.Items {
			names = append(names, lock.Name)
		}
		if f.Cursor = page.NextCursor; f.Cursor == "" {
			return names
		}
		assert.Must(t, len(page.Items) == f.Limit, "%+v: a page of %d with more to come", f, len(page.Items))
	}
}

func matches(f locks.LockFilter, name string, state locks.LockState) bool {
	if f.State == "" && state != locks.LockHeld || f.State != "" && state != f.State {
		return false
	}
	return strings.HasPrefix(name, f.Prefix) && strings.Contains(name, f.Contains)
}

func TestAListIsWhatItsFiltersSay(t *testing.T) {
	tb := t
	rapid.Check(t, func(t *rapid.T) {
		l := newListed(tb)
		model := map[string]locks.LockState{}
		for range rapid.IntRange(0, 60).Draw(t, "changes") {
			name := rapid.StringMatching(`[abA][abA.]{0,3}`).Draw(t, "name")
			state := rapid.SampledFrom([]locks.LockState{locks.LockHeld, locks.LockFree, ""}).Draw(t, "state")
			l.set(name, state)
			model[name] = state
		}
		f := locks.LockFilter{
			Prefix:   rapid.StringMatching(`[abA]{0,2}`).Draw(t, "prefix"),
			Contains: rapid.StringMatching(`[abA.]{0,2}`).Draw(t, "contains"),
			State:    rapid.SampledFrom([]locks.LockState{"", locks.LockHeld, locks.LockFree}).Draw(t, "by state"),
			Limit:    rapid.IntRange(1, 5).Draw(t, "limit"),
		}
		var want []string
		for name, state := range model {
			if state != "" && matches(f, name, state) {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		assert.MustSlices(t, l.all(t, f), want, "%+v", f)
	})
}

// Locks come and go while a list of several pieces is read: whatever matches
// all the time is in it, once and in order.
func TestAListMissesNothingThatStaysWhileOthersComeAndGo(t *testing.T) {
	const count = 3 * scanChunk
	l := newListed(t)
	var want []string
	name := func(i int) string { return fmt.Sprintf("lock-%06d", i) }
	for i := range count {
		switch {
		case i%1000 == 7:
			l.set(name(i)+"-match", locks.LockHeld)
			want = append(want, name(i)+"-match")
		case i%3 == 0:
			l.set(name(i), locks.LockHeld)
		case i%3 == 1:
			l.set(name(i), locks.LockFree)
		}
	}
	done := make(chan struct{})
	var churn sync.WaitGroup
	churn.Go(func() {
		rng := rand.New(rand.NewPCG(1, 2))
		for {
			select {
			case <-done:
				return
			default:
				l.set(name(rng.IntN(count)), []locks.LockState{locks.LockHeld, locks.LockFree, ""}[rng.IntN(3)])
			}
		}
	})
	for _, f := range []locks.LockFilter{{Contains: "-match", Limit: 5}, {Contains: "match", State: locks.LockHeld, Limit: 1000}, {Prefix: "lock-", Contains: "7-m", Limit: 1}} {
		assert.Slices(t, l.all(t, f), want, "%+v", f)
	}
	held := l.all(t, locks.LockFilter{State: locks.LockHeld, Limit: 1000})
	assert.That(t, slices.IsSorted(held) && len(slices.Compact(slices.Clone(held))) == len(held),
		"the list is out of order, or repeats itself")
	for _, name := range want {
		_, found := slices.BinarySearch(held, name)
		assert.That(t, found, "%s is missing", name)
	}
	close(done)
	churn.Wait()
}

func TestALongListEndsWithItsRequest(t *testing.T) {
	l := newListed(t)
	for i := range scanChunk + 1 {
		l.set(fmt.Sprint("lock-", i), locks.LockHeld)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.m.Locks(ctx, locks.LockFilter{Contains: "nothing"})
	wantCode(t, err, locks.CodeCancelled)
}

// What a page that filters 100,000 locks costs, and what it makes an acquire wait.
func BenchmarkAListThatFiltersManyLocks(b *testing.B) {
	l := newListed(b)
	for i := range 100_000 {
		l.set(fmt.Sprintf("lock-%06d", i), locks.LockHeld)
	}
	for _, f := range []locks.LockFilter{{}, {Contains: "no such lock"}, {State: locks.LockQueued}} {
		b.Run(fmt.Sprintf("contains=%q,state=%q", f.Contains, f.State), func(b *testing.B) {
			for b.Loop() {
				if _, err := l.m.Locks(context.Background(), f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
