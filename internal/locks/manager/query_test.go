package manager

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
)

// listed is a manager whose replica is fed by hand.
type listed struct {
	m    anyone
	root *zk.WatchRoot
	dirs map[string]*zk.Dir
}

func newListed(t testing.TB) *listed {
	s := newFakeStore(t)
	m := anyone{New(Options{Store: s, Root: "/lockkeeper", Clock: s.clock})}
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

// Locks come and go while a list of several pieces is read: whatever matches all the time is in it, once and in order.
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

// dry asks what an acquire would find, and checks that nothing came of it.
func (g *gate) dry(req locks.AcquireRequest) (*locks.DryRun, error) {
	g.t.Helper()
	synctest.Wait()
	req.DryRun = true
	written, leases := g.s.written(), len(g.leases())
	res, err := g.m.Acquire(g.t.Context(), req)
	assert.That(g.t, g.s.written() == written, "a dry run writes")
	assert.That(g.t, len(g.leases()) == leases && res.Lease.ID == "" && res.Lease.Token == "", "a dry run makes a lease: %+v", res.Lease)
	return res.DryRun, err
}

func (g *gate) wantDry(req locks.AcquireRequest, state locks.State, queue int, holders ...string) {
	g.t.Helper()
	found, err := g.dry(req)
	assert.Must(g.t, err == nil && found != nil, "%+v: %v", req, err)
	var ids []string
	for _, c := range found.Holders {
		ids = append(ids, c.LeaseID)
	}
	assert.Must(g.t, found.State == state && found.QueueLength == queue && len(ids) == len(holders),
		"%+v: %+v, want %s, %d, %v", req, found, state, queue, holders)
	for i := range ids {
		assert.That(g.t, ids[i] == holders[i], "in the way: %v, want %v", ids, holders)
	}
}

func TestADryRunTellsWhatAnAcquireWouldFind(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, g, two *gate) {
		g.wantDry(deploy(), locks.Held, 0)
		names := s.names("/lockkeeper/locks")
		assert.That(t, len(names) == 0, "locks: %v", names)
		assert.Equal(t, g.m.replica.Namespaces[locks.DefaultNamespace].Queues.Len(), 0, "queues are kept")
		a := g.mustHold(locks.AcquireRequest{Lock: "deploy", Owner: "a", TTL: time.Hour, Mode: locks.Shared})
		g.wantDry(locks.AcquireRequest{Lock: "deploy", Mode: locks.Shared}, locks.Held, 0)
		g.wantDry(locks.AcquireRequest{Lock: "deploy"}, locks.Waiting, 0, a.ID)
		g.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
		two.wantDry(locks.AcquireRequest{Lock: "deploy", Mode: locks.Shared}, locks.Waiting, 1, a.ID) // behind a writer who waits
		if found, _ := two.dry(locks.AcquireRequest{Lock: "deploy"}); found.Holders[0].Owner != "a" || found.Holders[0].FencingToken != a.FencingToken {
			t.Errorf("the other gateway's holder: %+v", found.Holders[0])
		}
		b := g.mustHold(locks.AcquireRequest{Lock: "other", TTL: time.Hour})
		g.wantDry(locks.AcquireRequest{Group: []locks.Want{{Lock: "free"}, {Lock: "other"}}}, locks.Waiting, 0, b.ID)
		g.wantDry(locks.AcquireRequest{Group: []locks.Want{{Lock: "other"}, {Lock: "deploy"}}}, locks.Waiting, 1, b.ID, a.ID)
		g.wantDry(locks.AcquireRequest{Group: []locks.Want{{Lock: "free"}, {Lock: "free2"}}}, locks.Held, 0)
	})
}

func TestADryRunOfASemaphoreCountsItsPermits(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.wantDry(dryRun(permits(3, 3)), locks.Held, 0)
		left := s.names("/lockkeeper/settings")
		assert.That(t, len(left) == 0, "settings: %v", left)
		a := g.mustHold(permits(2, 3))
		g.wantDry(dryRun(permits(1, 0)), locks.Held, 0)
		g.wantDry(dryRun(permits(2, 3)), locks.Waiting, 0, a.ID)
	})
}

// dryRun is the request as a dry run needs it: it neither waits nor comes back.
func dryRun(r locks.AcquireRequest) locks.AcquireRequest { r.Async = false; return r }

// What an acquire would be refused for, a dry run is.
func TestADryRunIsRefusedWhatAnAcquireIsRefused(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		g.mustConfigure(3)
		for field, req := range map[string]locks.AcquireRequest{
			"lock":          {Lock: "a/b"},
			"ttl":           {Lock: "deploy", TTL: time.Millisecond},
			"ns":            {Lock: "deploy", NS: "elsewhere"},
			"permits":       permits(4, 0),
			"limit":         {Lock: "new", Mode: locks.Semaphore},
			"locks[1].lock": {Group: []locks.Want{{Lock: "a"}, {Lock: "a"}}},
			"wait":          {Lock: "deploy", Wait: -1},
			"owner":         {Lock: "deploy", Owner: "a\nb"},
		} {
			_, err := g.dry(req)
			_, want := g.acquire(req)
			if err == nil || want == nil || err.Error() != want.Error() {
				t.Errorf("%+v: %v, an acquire %v", req, err, want)
			} else if e := err.(*locks.Error); e.Field != field {
				t.Errorf("%+v: field %q, want %q", req, e.Field, field)
			}
		}
		_, err := g.dry(permits(1, 4))
		assert.Equal(t, wantCode(t, err, locks.CodeSettingsDiffer).Limit, 3)
		s.set(func() { s.away = true })
		time.Sleep(fakeWindow + time.Second)
		_, err = g.dry(deploy())
		wantCode(t, err, locks.CodeUnavailable)
	})
}

// A dry run says nothing of a key's own lease: it is another request.
func TestADryRunDoesNotReplay(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		req := locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, IdempotencyKey: "abcdefghijklmnop"}
		a := g.mustHold(req)
		g.wantDry(req, locks.Waiting, 0, a.ID)
		req.Lock = "free"
		g.wantDry(req, locks.Held, 0)
		assert.That(t, g.mustHold(req).ID != a.ID, "the key was taken by a dry run")
	})
}

func (g *gate) postmortem(l locks.Lease) (locks.Postmortem, error) {
	return g.m.Postmortem(g.t.Context(), locks.Anonymous, l.ID)
}

func (g *gate) mustPostmortem(l locks.Lease) locks.Postmortem {
	g.t.Helper()
	p := assert.Value(g.postmortem(l))(g.t, "postmortem")
	return p
}

// about reports whether a span is what it should be, to a tenth of a second.
func about(is, want time.Duration) bool { return (is - want).Abs() < 100*time.Millisecond }

func TestAPostmortemTellsHowALeaseEndedAndTheNextHolder(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		first := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: 20 * time.Second, Owner: "one"})
		if p, err := g.postmortem(first); err == nil {
			t.Errorf("of a lease that lives: %+v", p)
		} else {
			wantCode(t, err, locks.CodeNotFound)
		}
		second := g.begin(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Owner: "two", Wait: locks.WaitForever})
		second.finished()
		time.Sleep(10 * time.Second)
		_, err := g.heartbeat(first)
		assert.NoError(t, err)
		time.Sleep(21 * time.Second)
		<-second.done
		time.Sleep(4 * time.Second)
		p := g.mustPostmortem(first)
		if p.LeaseID != first.ID || p.NS != "default" || p.Lock != "deploy" || p.Mode != locks.Exclusive || p.Owner != "one" || p.Reason != locks.ReasonExpired ||
			p.FencingToken != first.FencingToken || p.TTL != 20*time.Second {
			t.Errorf("%+v", p)
		}
		if !about(p.HeldFor, 30*time.Second) || !about(p.WaitedFor, 0) || !about(p.LastHeartbeat, 20*time.Second) || !about(p.EndedAgo, 5*time.Second) ||
			!about(time.Since(p.EndedAt), p.EndedAgo) || p.EndedAt.Location() != time.UTC {
			t.Errorf("held for %v after %v, heartbeat %v before the end, ended %v ago at %v", p.HeldFor, p.WaitedFor, p.LastHeartbeat, p.EndedAgo, p.EndedAt)
		}
		if p.Next == nil || p.Next.LeaseID != second.lease.ID || p.Next.Owner != "two" || p.Next.FencingToken != second.lease.FencingToken || !about(p.Next.After, 0) {
			t.Errorf("next %+v", p.Next)
		}
		g.mustRelease(second.lease)
		p = g.mustPostmortem(second.lease)
		if p.Reason != locks.ReasonReleased || !about(p.WaitedFor, 30*time.Second) || !about(p.HeldFor, 5*time.Second) || p.LastHeartbeat != 0 || p.Next != nil {
			t.Errorf("%+v", p)
		}
		time.Sleep(3 * time.Second)
		third := g.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Owner: "three"})
		p = g.mustPostmortem(second.lease)
		assert.That(t, p.Next != nil && p.Next.LeaseID == third.ID && about(p.Next.After, 3*time.Second), "next %+v", p.Next)
		assert.Equal(t, g.mustPostmortem(first).Next.LeaseID, second.lease.ID, "the next of the first has become")
		time.Sleep(endedLife + time.Minute)
		_, err = g.postmortem(first)
		wantCode(t, err, locks.CodeNotFound)
		_, err = g.m.Postmortem(t.Context(), locks.Anonymous, "nonsense")
		wantCode(t, err, locks.CodeNotFound)
	})
}

func TestTheNextHolderMayBeAnotherProgramOrAnotherGatewaysClient(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		first := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute})
		zxid, paths := s.foreign(zk.Op{Kind: zk.OpCreate, Path: "/lockkeeper/locks/deploy/_c_0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0-lock-", Sequential: true})
		synctest.Wait()
		third := two.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Owner: "elsewhere", Async: true})
		one.mustRelease(first)
		p := one.mustPostmortem(first)
		assert.That(t, p.Next != nil && p.Next.LeaseID == "" && p.Next.FencingToken == zxid, "next %+v", p.Next)
		fourth := one.mustAcquire(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Async: true})
		s.foreignSeen(zk.Op{Kind: zk.OpDelete, Path: paths[0], Version: -1})
		_, err := two.heartbeat(third)
		assert.NoError(t, err)
		two.mustRelease(third)
		one.wantState(fourth, locks.Held, "")
		p = two.mustPostmortem(third)
		assert.That(t, p.Next != nil && p.Next.LeaseID == fourth.ID && p.Next.FencingToken != 0, "next %+v", p.Next)
		_, err = one.postmortem(third)
		wantCode(t, err, locks.CodeNotOwner) // its own gateway knows better
	})
}

// A gateway that did not run a lease has seen it go, and says so when the one that did is there no more.
func TestAPostmortemByAWitnessSaysWhatWasSeen(t *testing.T) {
	withGateways(t, func(t *testing.T, s *fakeStore, one, two *gate) {
		l := one.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Owner: "me"})
		if _, err := two.m.Lock(t.Context(), locks.LockRequest{Lock: "deploy"}); err != nil { // a client reads the lock
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		one.mustRelease(l)
		next := two.mustHold(locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
		one.crash()
		time.Sleep(15 * time.Second)
		p := two.mustPostmortem(l)
		if p.Reason != locks.ReasonUnknown || p.Owner != "me" || p.TTL != time.Minute || p.FencingToken != l.FencingToken || !about(p.HeldFor, 10*time.Second) ||
			!about(p.EndedAgo, 15*time.Second) || p.Next == nil || p.Next.LeaseID != next.ID {
			t.Errorf("%+v, next %+v", p, p.Next)
		}
		_, err := two.heartbeat(l)
		assert.Equal(t, wantCode(t, err, locks.CodeEnded).Reason, locks.ReasonUnknown)
	})
}

func TestALeaseThatNeverHeldHasNoNextHolder(t *testing.T) {
	withGateway(t, func(t *testing.T, s *fakeStore, g *gate) {
		first := g.mustHold(deploy())
		ticket := g.mustAcquire(locks.AcquireRequest{Lock: "deploy", Async: true})
		time.Sleep(7 * time.Second)
		g.mustRelease(ticket)
		g.mustRelease(first)
		g.mustHold(deploy())
		p := g.mustPostmortem(ticket)
		if p.Reason != locks.ReasonCancelled || p.HeldFor != 0 || !about(p.WaitedFor, 7*time.Second) || p.Next != nil || p.FencingToken != 0 {
			t.Errorf("%+v", p)
		}
	})
}

// What an entry of an ended lease takes is stated in events.go.
func TestAnEndedLeaseTakesLittleMemory(t *testing.T) {
	const entries, stated = 20_000, 360
	var h postmortem.Log
	before := live()
	for i := range entries {
		id := recipe.LeaseID(strings.Repeat("x", recipe.LeaseIDLen-6) + fmt.Sprintf("%06d", i))
		h.Add(id, postmortem.End{NS: "default", Lock: strings.Clone(fmt.Sprintf("many-%06d", i)), Held: 1})
	}
	after := live()
	runtime.KeepAlive(&h)
	if per := (after - before) / entries; per > stated {
		t.Errorf("%d bytes, more than %d", per, stated)
	} else {
		t.Logf("%d bytes", per)
	}
}
