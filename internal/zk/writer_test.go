package zk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
)

// stuck is a session whose transactions are stopped on the way there, so that
// what is submitted afterwards is collected.
func stuck(t *testing.T) (s *Session, p *probe, proxy *netfault.Proxy) {
	direct, through, proxy := faulty(t)
	layout := openLayout(t, direct)
	p = newProbe(t, direct)
	s = openSession(t, through, layout, 1)
	proxy.StallRequests()
	return s, p, proxy
}

func TestALoneWriteGoesAtOnceAndConcurrentOnesShareTransactions(t *testing.T) {
	direct, through, proxy := faulty(t)
	layout := openLayout(t, direct)
	p := newProbe(t, direct)
	const locks = 100
	for i := range locks {
		locksDir(t, p, fmt.Sprint(i))
	}
	s := openSession(t, through, layout, 1)
	counter := proxy.CountOps()
	create := func(i int) *Write {
		dir := fmt.Sprintf("%s/locks/%d", DefaultRoot, i)
		return &Write{Queue: dir, Ops: []Op{{Kind: OpCreate, Path: dir + "/write-", Sequential: true}}}
	}
	lone := mustBeDone(t, await(t, submit(t, s, create(0))))
	mustBeDone(t, write(t, s, Op{Kind: OpDelete, Path: lone.Paths[0]}))
	if c := counter.Take(); c[netfault.OpMulti] != 2 || c.Reads() != 0 {
		t.Errorf("a lone acquire and release took %v, want two transactions and no read", c)
	}
	// While some are under way the rest is collected.
	proxy.SetDelay(netfault.Replies, 20*time.Millisecond)
	var running sync.WaitGroup
	for i := range locks {
		running.Go(func() {
			made := attempt(s, create(i))
			if made.Outcome != Done {
				t.Errorf("create: %+v", made)
				return
			}
			if r := attempt(s, &Write{Ops: []Op{{Kind: OpDelete, Path: made.Paths[0]}}}); r.Outcome != Done {
				t.Errorf("delete: %+v", r)
			}
		})
	}
	running.Wait()
	if c := counter.Take(); c[netfault.OpMulti] > locks/4 || c.Reads() != 0 {
		t.Errorf("%d concurrent acquires and releases took %v, want far fewer transactions and no read", locks, c)
	}
}

func TestWritesOfOneQueueNeverShareAZxid(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := locksDir(t, p, "hot")
	const contenders = 40
	var results []<-chan Result
	for i := range contenders {
		results = append(results, submit(t, s, &Write{Queue: dir,
			Ops: []Op{{Kind: OpCreate, Path: fmt.Sprintf("%s/write-%d-", dir, i), Sequential: true}}}))
	}
	proxy.Heal()
	zxids := make(map[int64]bool)
	for _, result := range results {
		r := mustBeDone(t, await(t, result))
		zxids[r.Zxid] = true
		if stat := p.stat(r.Paths[0]); stat == nil || stat.Czxid != r.Zxid {
			t.Errorf("%s has czxid %+v, the guard said %#x", r.Paths[0], stat, r.Zxid)
		}
	}
	if len(zxids) != contenders {
		t.Errorf("%d contenders of one queue have %d zxids", contenders, len(zxids))
	}
}

func TestAWriteOfSeveralQueuesGivesEachOfItsContendersOneZxidThatIsNobodyElses(t *testing.T) {
	s, p, proxy := stuck(t)
	dirs := []string{locksDir(t, p, "a"), locksDir(t, p, "b"), locksDir(t, p, "c")}
	var results []<-chan Result
	for i := range 30 {
		w := &Write{Queue: dirs[i%3]}
		if i%2 == 0 { // two locks, the names in either order
			w.More = []string{dirs[(i+1+i/6%2)%3]}
		}
		for dir := range queues(w) {
			w.Ops = append(w.Ops, Op{Kind: OpCreate, Path: fmt.Sprintf("%s/write-%d-", dir, i), Sequential: true})
		}
		results = append(results, submit(t, s, w))
	}
	proxy.Heal()
	for _, result := range results {
		r := mustBeDone(t, await(t, result))
		for _, path := range r.Paths {
			if stat := p.stat(path); stat == nil || stat.Czxid != r.Zxid {
				t.Errorf("%s has czxid %+v, the guard said %#x", path, stat, r.Zxid)
			}
		}
	}
	for _, dir := range dirs {
		zxids := make(map[int64]string)
		for _, name := range p.children(dir) {
			czxid := p.stat(dir + "/" + name).Czxid
			if other, twice := zxids[czxid]; twice {
				t.Errorf("%s and %s of %s have one czxid", name, other, dir)
			}
			zxids[czxid] = name
		}
	}
}

func TestTheGuardsMzxidIsTheCzxidOfWhatWasCreated(t *testing.T) {
	cfg := configAt(zkreal.SharedRealT(t)) // all fencing tokens rest on this
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	p := newProbe(t, cfg)
	dir := locksDir(t, p, "l")
	for range 3 { // also after the directory was made anew
		r := mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: dir + "/write-", Sequential: true}))
		if czxid, mzxid := p.stat(r.Paths[0]).Czxid, p.stat(s.guard).Mzxid; czxid != r.Zxid || mzxid != r.Zxid {
			t.Errorf("czxid %#x, the guard's mzxid %#x, the answer's %#x", czxid, mzxid, r.Zxid)
		}
		p.delete(r.Paths[0])
		p.delete(dir)
		p.create(dir, "")
	}
}

func TestABadWriteAmongManyIsDroppedAlone(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := locksDir(t, p, "l")
	p.create(dir+"/taken", "")
	counter := proxy.CountOps()
	const writes, bad = 100, 5
	var results []<-chan Result
	for i := range writes {
		path := fmt.Sprintf("%s/n%d", dir, i)
		if i%(writes/bad) == 7 {
			path = dir + "/taken"
		}
		results = append(results, submit(t, s, &Write{Ops: []Op{{Kind: OpCreate, Path: path}}}))
	}
	proxy.Heal()
	for i, result := range results {
		r := await(t, result)
		if i%(writes/bad) == 7 {
			if r.Outcome != NotDone || !errors.Is(r.Err, ErrNodeExists) || r.Culprit != 0 {
				t.Errorf("the bad one: %+v", r)
			}
		} else if r.Outcome != Done {
			t.Errorf("a good one: %+v", r)
		}
	}
	// 2k+1 for the batches with bad ones; up to depth further batches.
	if n := multis(counter); n > 2*bad+1+depth+1 {
		t.Errorf("%d bad ones cost %d transactions", bad, n)
	}
}

func TestKBadOnesCostLogarithmicallyManyRounds(t *testing.T) {
	for _, bad := range []int{0, 1, 2, 7, 64, 128} {
		items := make([]*item, 128)
		isBad := make(map[*item]bool)
		for i := range items {
			items[i] = &item{write: &Write{Ops: []Op{{Kind: OpDelete, Path: "/x"}}}}
			if i*bad/128 != (i+1)*bad/128 {
				isBad[items[i]] = true
			}
		}
		rounds, transactions, done := 0, 0, 0
		for generation := []*batch{{items: items}}; len(generation) > 0; rounds++ {
			var next []*batch
			for _, b := range generation {
				transactions++
				culprit := -1
				for i, it := range b.items {
					if isBad[it] {
						culprit = i
						break
					}
				}
				if culprit < 0 {
					done += len(b.items)
					continue
				}
				f := blame(b.items, culprit, ErrNoNode)
				if f.dropped != b.items[culprit] || len(f.rest) != len(b.items)-1 {
					t.Fatalf("blame of %d: %+v", culprit, f)
				}
				next = append(next, again(f.rest, b.fails+1)...)
			}
			generation = next
		}
		if done != 128-bad || rounds > 9 || transactions > 2*bad+1 {
			t.Errorf("%d bad of 128: %d done, %d rounds, %d transactions; want %d, at most 9, at most %d",
				bad, done, rounds, transactions, 128-bad, 2*bad+1)
		}
	}
}

func TestAFailedCheckSendsAllWhoDependOnItBackAndNobodyElse(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := locksDir(t, p, "l")
	settings := DefaultRoot + "/settings"
	check := Op{Kind: OpCheck, Path: settings, Version: 3} // it is at 0
	var dependent, others []<-chan Result
	for i := range 5 {
		w := &Write{Ops: []Op{{Kind: OpCreate, Path: fmt.Sprintf("%s/d%d", dir, i)}}}
		if i%2 == 0 {
			w.Ops = append([]Op{check}, w.Ops...)
		} else {
			w.Ops = append(w.Ops, check)
		}
		dependent = append(dependent, submit(t, s, w))
		others = append(others,
			submit(t, s, &Write{Ops: []Op{{Kind: OpCheck, Path: settings, Version: 0}, {Kind: OpCreate, Path: fmt.Sprintf("%s/o%d", dir, i)}}}))
	}
	counter := proxy.CountOps()
	proxy.Heal()
	for _, result := range dependent {
		if r := await(t, result); r.Outcome != Redecide || !errors.Is(r.Err, ErrBadVersion) {
			t.Errorf("depends on the failed check: %+v, want Redecide", r)
		}
	}
	for _, result := range others {
		mustBeDone(t, await(t, result))
	}
	if got := p.children(dir); len(got) != 5 {
		t.Errorf("%v is there", got)
	}
	// The first three go by themselves, the others share one transaction, which
	// fails once for all of the dependents.
	if n := multis(counter); n > depth+2+1 {
		t.Errorf("it took %d transactions", n)
	}
}

func TestAnAloneWriteTravelsAlone(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := locksDir(t, p, "l")
	var crowded atomic.Int32
	proxy.Observe(func(f netfault.Frame) netfault.Action {
		if f.Dir == netfault.Requests && about("alone")(f) && bytes.Contains(f.Raw, []byte("/other")) {
			crowded.Add(1)
		}
		return netfault.Forward
	})
	var results []<-chan Result
	for i := range 30 {
		w := &Write{Ops: []Op{{Kind: OpCreate, Path: fmt.Sprintf("%s/other%d", dir, i)}}}
		if i%3 == 0 {
			w = &Write{Alone: true, Ops: []Op{{Kind: OpCreate, Path: fmt.Sprintf("%s/alone%d", dir, i)}}}
		}
		results = append(results, submit(t, s, w))
	}
	proxy.Heal()
	for _, result := range results {
		mustBeDone(t, await(t, result))
	}
	if crowded.Load() != 0 {
		t.Errorf("%d transactions carried others beside one that is to be alone", crowded.Load())
	}
}

func TestDeletesStandBehindCreatesInATransaction(t *testing.T) {
	var q queue
	q.push(&item{write: &Write{Ops: []Op{{Kind: OpDelete, Path: "/a"}}}, onlyDeletes: true})
	q.push(&item{write: &Write{Ops: []Op{{Kind: OpCreate, Path: "/b"}}}})
	q.push(&item{write: &Write{Ops: []Op{{Kind: OpDelete, Path: "/c"}}}, onlyDeletes: true})
	q.push(&item{write: &Write{Ops: []Op{{Kind: OpSetData, Path: "/d"}, {Kind: OpDelete, Path: "/e"}}}})
	var order []string
	for _, it := range q.take(maxBatchOps, maxTransaction) {
		for _, op := range it.write.Ops {
			order = append(order, op.Path)
		}
	}
	if got := strings.Join(order, " "); got != "/b /d /e /a /c" {
		t.Errorf("order %s", got)
	}
}

// Watchers see the operations one by one: from the head on, each of the others
// would seem to hold for a moment.
func TestAQueueIsDeletedFromItsTailOn(t *testing.T) {
	var q queue
	for _, path := range []string{"/locks/b/x-0000000003", "/locks/a/z-0000000009", "/locks/b/y-0000000001", "/locks/a/x-0000000010", "/locks/b/z-0000000002"} {
		q.push(&item{write: &Write{Ops: []Op{{Kind: OpDelete, Path: path}}}, onlyDeletes: true})
	}
	var order []string
	for _, it := range q.take(maxBatchOps, maxTransaction) {
		order = append(order, it.write.Ops[0].Path)
	}
	if got := strings.Join(order, " "); got != "/locks/a/x-0000000010 /locks/a/z-0000000009 /locks/b/x-0000000003 /locks/b/z-0000000002 /locks/b/y-0000000001" {
		t.Errorf("order %s", got)
	}
}

func TestTransactionsAndTheQueueAreBounded(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := locksDir(t, p, "l")
	big := func(n int) *Write {
		return &Write{Ops: []Op{{Kind: OpCreate, Path: dir + "/big-", Data: make([]byte, n), Sequential: true}}, Done: func(Result) {}}
	}
	if err := s.Submit(big(256 << 10)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a write of 256 KiB of data: %v, want ErrTooLarge", err)
	}
	var largest atomic.Int64
	proxy.Observe(func(f netfault.Frame) netfault.Action {
		if f.Dir == netfault.Requests && f.Op() == netfault.OpMulti {
			largest.Store(max(largest.Load(), int64(len(f.Raw)-4)))
		}
		return netfault.Forward
	})
	var results []<-chan Result
	for range 20 {
		results = append(results, submit(t, s, big(60<<10)))
	}
	results = append(results, submit(t, s, big(maxTransaction-guardOverhead-200)))
	accepted := 0
	var err error
	for ; err == nil; accepted++ {
		err = s.Submit(big(240 << 10))
	}
	if !errors.Is(err, ErrQueueFull) || accepted*240<<10 > 16<<20 || accepted < 50 {
		t.Errorf("after %d large writes: %v, want ErrQueueFull", accepted, err)
	}
	proxy.Heal()
	for _, result := range results {
		mustBeDone(t, await(t, result))
	}
	if got := largest.Load(); got > 256<<10 || got < 200<<10 {
		t.Errorf("a transaction had %d bytes, want at most 256 KiB and not much less", got)
	}
}

func TestMoreThan8192UnansweredWritesAreRefused(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := locksDir(t, p, "l")
	var answered sync.WaitGroup
	n := 0
	for ; ; n++ {
		answered.Add(1)
		err := s.Submit(&Write{Ops: []Op{{Kind: OpDelete, Path: dir + "/nothing"}}, Done: func(Result) { answered.Done() }})
		if err != nil {
			answered.Done()
			if !errors.Is(err, ErrQueueFull) {
				t.Errorf("refused with %v", err)
			}
			break
		}
	}
	if n != 8192 {
		t.Errorf("%d were accepted, want 8192", n)
	}
	proxy.Cut() // refusing 8192 of them one by one would take long
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Close(ctx)
	answered.Wait()
}

func TestEphemeralPathsOfASessionAreCapped(t *testing.T) {
	cfg := testConfig(t)
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	dir := locksDir(t, newProbe(t, cfg), "l")
	long := strings.Repeat("x", 2000)
	var made []string
	var err error
	for err == nil {
		w := &Write{Ops: []Op{{Kind: OpCreate, Path: dir + "/" + long, Ephemeral: true, Sequential: true}}}
		result := make(chan Result, 1)
		w.Done = func(r Result) { result <- r }
		if err = s.Submit(w); err == nil {
			made = append(made, mustBeDone(t, await(t, result)).Paths[0])
		}
	}
	perNode := len(cfg.Chroot) + len(made[0]) + 4
	if !errors.Is(err, ErrEphemeralCap) || len(made) != 256<<10/perNode {
		t.Errorf("after %d nodes of %d bytes: %v, want ErrEphemeralCap at 256 KiB", len(made), perNode, err)
	}
	// A refused create does not count, a deleted node counts no more.
	mustBeDone(t, write(t, s, Op{Kind: OpDelete, Path: made[0]}))
	if r := write(t, s, Op{Kind: OpCreate, Path: dir + "/gone/" + long[:1900], Ephemeral: true}); r.Outcome != NotDone {
		t.Errorf("%+v", r)
	}
	mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: dir + "/" + long, Ephemeral: true, Sequential: true}))
	mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: dir + "/durable"}))
	newProbe(t, cfg).delete(made[1])
	s.ForgetEphemeral(made[1])
	mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: dir + "/" + long, Ephemeral: true, Sequential: true}))
}

func TestAMalformedWriteIsRefusedAndHarmsNobody(t *testing.T) {
	cfg := testConfig(t)
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	done := func(Result) { t.Error("Done was called for a write that was refused") }
	for _, w := range []*Write{
		{Done: done},
		{Ops: []Op{{Kind: OpCreate, Path: "relative"}}, Done: done},
		{Ops: []Op{{Kind: OpCreate, Path: "/a//b"}}, Done: done},
		{Ops: []Op{{Kind: OpCreate, Path: "/a/\x00"}}, Done: done},
		{Ops: []Op{{Kind: OpCreate, Path: "/a/"}}, Done: done},
		{Ops: []Op{{Kind: 99, Path: "/a"}}, Done: done},
		{Ops: []Op{{Kind: OpCreate, Path: "/a"}}},
		{Queue: "/a", More: []string{"/b", "/a"}, Ops: []Op{{Kind: OpCreate, Path: "/a"}}, Done: done},
		{Queue: "/a", More: []string{"/b", "/b"}, Ops: []Op{{Kind: OpCreate, Path: "/a"}}, Done: done},
		{Queue: "/a", More: []string{""}, Ops: []Op{{Kind: OpCreate, Path: "/a"}}, Done: done},
		{More: []string{"/a"}, Ops: []Op{{Kind: OpCreate, Path: "/a"}}, Done: done},
	} {
		if err := s.Submit(w); err == nil {
			t.Errorf("%+v was accepted", w)
		}
	}
	mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: DefaultRoot + "/locks/a"}))
}

func TestABarrierIsATransactionSentAfterTheCall(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := locksDir(t, p, "l")
	// This one is on its way before the call, so it must not count.
	earlier := submit(t, s, &Write{Ops: []Op{{Kind: OpCreate, Path: dir + "/earlier"}}})
	eventually(t, "the write is on its way", func() bool { return proxy.Held(netfault.Requests) > 0 })
	counter := proxy.CountOps()
	const callers = 50
	passed := make(chan int64, callers)
	for range callers {
		go func() {
			zxid, err := s.Barrier(testContext(t))
			if err != nil {
				t.Error(err)
			}
			passed <- zxid
		}()
	}
	eventually(t, "all have asked", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.asked == nil || proxy.Held(netfault.Requests) > 1
	})
	proxy.Heal()
	before := mustBeDone(t, await(t, earlier)).Zxid
	for range callers {
		if zxid := await(t, passed); zxid <= before {
			t.Errorf("the barrier's zxid %#x is not after %#x, which was sent before the call", zxid, before)
		}
	}
	if n := multis(counter); n > 1+maxBarriers+2 {
		t.Errorf("%d barriers took %d transactions", callers, n)
	}
}

func TestABarrierOnAnIdleSessionDoesNotWaitForTheNextGuardWrite(t *testing.T) {
	cfg := testConfig(t)
	cfg.PromiseWindow = MaxPromiseWindow // whose third is longer than this test may take
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	for range 3 {
		if _, err := s.Barrier(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// Otherwise every gateway would look a thousand times a second for as long as
// ZooKeeper is away.
func TestAnOverdueGuardWriteThatCannotBeSentIsNotLookedForAllTheTime(t *testing.T) {
	cfg := testConfig(t)
	layout := openLayout(t, cfg)
	living, ended := openSession(t, cfg, layout, 1), openSession(t, cfg, layout, 2)
	closeSession(t, ended)
	for name, change := range map[string]func(s *Session){
		"no connection": func(s *Session) { s.conn = ended.conn },
		"under way":     func(s *Session) { s.writer.bare = true },
		"raising":       func(s *Session) { s.writer.mode = raising },
		"farewell":      func(s *Session) { s.writer.parted = true },
	} {
		s := &Session{window: 9 * time.Second, conn: living.conn, writer: newWriter(time.Now().Add(-time.Minute))}
		if wait := s.nextLook(); wait != time.Millisecond {
			t.Fatalf("the next look at what is overdue is in %v", wait)
		}
		if change(s); s.nextLook() != s.window/3 {
			t.Errorf("%s: the next look is in %v", name, s.nextLook())
		}
	}
}
