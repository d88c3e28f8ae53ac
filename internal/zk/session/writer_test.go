package session

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

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// stuck is a session whose transactions are stopped on the way there, so that
// what is submitted afterwards is collected.
func stuck(t *testing.T) (s *Session, p *fixture.Probe, proxy *netfault.Proxy) {
	direct, through, proxy := fixture.Faulty(t)
	layout := openLayout(t, direct)
	p = fixture.NewProbe(t, direct)
	s = openSession(t, through, layout, 1)
	proxy.StallRequests()
	return s, p, proxy
}

func TestALoneWriteGoesAtOnceAndConcurrentOnesShareTransactions(t *testing.T) {
	through, proxy, layout, p := faulty(t)
	const locks = 100
	for i := range locks {
		fixture.LocksDir(t, p, fmt.Sprint(i))
	}
	s := openSession(t, through, layout, 1)
	counter := proxy.CountOps()
	create := func(i int) *zk.Write {
		dir := fmt.Sprintf("%s/locks/%d", zk.DefaultRoot, i)
		return &zk.Write{Queues: []string{dir}, Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "/write-", Sequential: true}}}
	}
	lone := mustBeDone(t, fixture.Await(t, submit(t, s, create(0))))
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpDelete, Path: lone.Paths[0]}))
	c := counter.Take()
	assert.That(t, c[netfault.OpMulti] == 2 && c.Reads() == 0, "a lone acquire and release took %v, want two transactions and no read", c)
	// While some are under way the rest is collected.
	proxy.SetDelay(netfault.Replies, 20*time.Millisecond)
	var running sync.WaitGroup
	for i := range locks {
		running.Go(func() {
			made := attempt(s, create(i))
			if made.Outcome != zk.Done {
				t.Errorf("create: %+v", made)
				return
			}
			assert.Equal(t, attempt(s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpDelete, Path: made.Paths[0]}}}).Outcome, zk.Done, "delete")
		})
	}
	running.Wait()
	if c := counter.Take(); c[netfault.OpMulti] > locks/4 || c.Reads() != 0 {
		t.Errorf("%d concurrent acquires and releases took %v, want far fewer transactions and no read", locks, c)
	}
}

// takings is a Receiver that counts how often its lock is taken.
type takings struct {
	sync.Mutex
	n int
}

func (l *takings) Receive(list []zk.Answered) {
	l.Lock()
	defer l.Unlock()
	l.n++
	for i := range list {
		list[i].Write.Done(list[i].Result)
	}
}

func TestTheWritesOfATransactionAreAnsweredUnderOneTakingOfTheirLock(t *testing.T) {
	s, p, proxy := stuck(t)
	var lock takings
	results := make(chan zk.Result, 40)
	for i := range cap(results) {
		dir := fixture.LocksDir(t, p, fmt.Sprint(i))
		w := &zk.Write{Queues: []string{dir}, Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "/write-", Sequential: true}},
			To: &lock, Done: func(r zk.Result) { results <- r }}
		assert.That(t, s.Submit(w) == nil, "submitted")
	}
	proxy.Heal()
	transactions := map[int64]bool{}
	for range cap(results) {
		transactions[mustBeDone(t, fixture.Await(t, results)).Zxid] = true
	}
	lock.Lock()
	defer lock.Unlock()
	assert.That(t, lock.n == len(transactions) && lock.n < cap(results)/2, "%d transactions, the lock was taken %d times", len(transactions), lock.n)
}

func TestWritesOfOneQueueNeverShareAZxid(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := fixture.LocksDir(t, p, "hot")
	const contenders = 40
	var results []<-chan zk.Result
	for i := range contenders {
		results = append(results, submit(t, s, &zk.Write{Queues: []string{dir},
			Ops: []zk.Op{{Kind: zk.OpCreate, Path: fmt.Sprintf("%s/write-%d-", dir, i), Sequential: true}}}))
	}
	proxy.Heal()
	zxids := make(map[int64]bool)
	for _, result := range results {
		r := mustBeDone(t, fixture.Await(t, result))
		zxids[r.Zxid] = true
		if stat := p.Stat(r.Paths[0]); stat == nil || stat.Czxid != r.Zxid {
			t.Errorf("%s has czxid %+v, the guard said %#x", r.Paths[0], stat, r.Zxid)
		}
	}
	assert.That(t, len(zxids) == contenders, "%d contenders of one queue have %d zxids", contenders, len(zxids))
}

func TestAWriteOfSeveralQueuesGivesEachOfItsContendersOneZxidOfItsOwn(t *testing.T) {
	s, p, proxy := stuck(t)
	dirs := []string{fixture.LocksDir(t, p, "a"), fixture.LocksDir(t, p, "b"), fixture.LocksDir(t, p, "c")}
	var results []<-chan zk.Result
	for i := range 30 {
		w := &zk.Write{Queues: []string{dirs[i%3]}}
		if i%2 == 0 { // two locks, the names in either order
			w.Queues = append(w.Queues, dirs[(i+1+i/6%2)%3])
		}
		for _, dir := range w.Queues {
			w.Ops = append(w.Ops, zk.Op{Kind: zk.OpCreate, Path: fmt.Sprintf("%s/write-%d-", dir, i), Sequential: true})
		}
		results = append(results, submit(t, s, w))
	}
	proxy.Heal()
	for _, result := range results {
		r := mustBeDone(t, fixture.Await(t, result))
		for _, path := range r.Paths {
			stat := p.Stat(path)
			assert.That(t, stat != nil && stat.Czxid == r.Zxid, "%s has czxid %+v, the guard said %#x", path, stat, r.Zxid)
		}
	}
	for _, dir := range dirs {
		zxids := make(map[int64]string)
		for _, name := range p.Children(dir) {
			czxid := p.Stat(dir + "/" + name).Czxid
			other, twice := zxids[czxid]
			assert.That(t, !twice, "%s and %s of %s have one czxid", name, other, dir)
			zxids[czxid] = name
		}
	}
}

func TestTheGuardsMzxidIsTheCzxidOfWhatWasCreated(t *testing.T) {
	cfg := fixture.ConfigAt(zkreal.SharedRealT(t)) // all fencing tokens rest on this
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	p := fixture.NewProbe(t, cfg)
	dir := fixture.LocksDir(t, p, "l")
	for range 3 { // also after the directory was made anew
		r := mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir + "/write-", Sequential: true}))
		czxid, mzxid := p.Stat(r.Paths[0]).Czxid, p.Stat(s.guard).Mzxid
		assert.That(t, czxid == r.Zxid && mzxid == r.Zxid, "czxid %#x, the guard's mzxid %#x, the answer's %#x", czxid, mzxid, r.Zxid)
		p.Delete(r.Paths[0])
		p.Delete(dir)
		p.Create(dir, "")
	}
}

func TestABadWriteAmongManyIsDroppedAlone(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := fixture.LocksDir(t, p, "l")
	p.Create(dir+"/taken", "")
	counter := proxy.CountOps()
	const writes, bad = 100, 5
	var results []<-chan zk.Result
	for i := range writes {
		path := fmt.Sprintf("%s/n%d", dir, i)
		if i%(writes/bad) == 7 {
			path = dir + "/taken"
		}
		results = append(results, submit(t, s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: path}}}))
	}
	proxy.Heal()
	for i, result := range results {
		r := fixture.Await(t, result)
		if i%(writes/bad) == 7 {
			assert.That(t, r.Outcome == zk.NotDone && errors.Is(r.Err, zk.ErrNodeExists) && r.Culprit == 0, "the bad one: %+v", r)
		} else if r.Outcome != zk.Done {
			t.Errorf("a good one: %+v", r)
		}
	}
	// 2k+1 for the batches with bad ones; up to depth further batches.
	n := fixture.Multis(counter)
	assert.That(t, n <= 2*bad+1+depth+1, "%d bad ones cost %d transactions", bad, n)
}

func TestKBadOnesCostLogarithmicallyManyRounds(t *testing.T) {
	for _, bad := range []int{0, 1, 2, 7, 64, 128} {
		items := make([]*item, 128)
		isBad := make(map[*item]bool)
		for i := range items {
			items[i] = &item{write: &zk.Write{Ops: []zk.Op{{Kind: zk.OpDelete, Path: "/x"}}}}
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
				f := blame(b.items, culprit, zk.ErrNoNode)
				assert.Must(t, f.dropped == b.items[culprit] && len(f.rest) == len(b.items)-1, "blame of %d: %+v", culprit, f)
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

func TestAFailedCheckSendsAllThatDependOnItBackAndNoOther(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := fixture.LocksDir(t, p, "l")
	settings := zk.DefaultRoot + "/settings"
	check := zk.Op{Kind: zk.OpCheck, Path: settings, Version: 3} // it is at 0
	var dependent, others []<-chan zk.Result
	for i := range 5 {
		w := &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: fmt.Sprintf("%s/d%d", dir, i)}}}
		if i%2 == 0 {
			w.Ops = append([]zk.Op{check}, w.Ops...)
		} else {
			w.Ops = append(w.Ops, check)
		}
		dependent = append(dependent, submit(t, s, w))
		others = append(others,
			submit(t, s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpCheck, Path: settings, Version: 0}, {Kind: zk.OpCreate, Path: fmt.Sprintf("%s/o%d", dir, i)}}}))
	}
	counter := proxy.CountOps()
	proxy.Heal()
	for _, result := range dependent {
		r := fixture.Await(t, result)
		assert.That(t, r.Outcome == zk.Conflict && errors.Is(r.Err, zk.ErrBadVersion), "depends on the failed check: %+v, want Conflict", r)
	}
	for _, result := range others {
		mustBeDone(t, fixture.Await(t, result))
	}
	got := p.Children(dir)
	assert.That(t, len(got) == 5, "%v is there", got)
	// The first three go by themselves, the others share one transaction, which fails once for all of the dependents.
	n := fixture.Multis(counter)
	assert.That(t, n <= depth+2+1, "it took %d transactions", n)
}

func TestAnAloneWriteTravelsAlone(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := fixture.LocksDir(t, p, "l")
	var crowded atomic.Int32
	proxy.Observe(func(f netfault.Frame) netfault.Action {
		if f.Dir == netfault.Requests && fixture.About("alone")(f) && bytes.Contains(f.Raw, []byte("/other")) {
			crowded.Add(1)
		}
		return netfault.Forward
	})
	var results []<-chan zk.Result
	for i := range 30 {
		w := &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: fmt.Sprintf("%s/other%d", dir, i)}}}
		if i%3 == 0 {
			w = &zk.Write{Alone: true, Ops: []zk.Op{{Kind: zk.OpCreate, Path: fmt.Sprintf("%s/alone%d", dir, i)}}}
		}
		results = append(results, submit(t, s, w))
	}
	proxy.Heal()
	for _, result := range results {
		mustBeDone(t, fixture.Await(t, result))
	}
	assert.That(t, crowded.Load() == 0, "%d transactions carried others beside one that is to be alone", crowded.Load())
}

func TestDeletesStandBehindCreatesInATransaction(t *testing.T) {
	var q queue
	q.push(&item{write: &zk.Write{Ops: []zk.Op{{Kind: zk.OpDelete, Path: "/a"}}}, onlyDeletes: true})
	q.push(&item{write: &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: "/b"}}}})
	q.push(&item{write: &zk.Write{Ops: []zk.Op{{Kind: zk.OpDelete, Path: "/c"}}}, onlyDeletes: true})
	q.push(&item{write: &zk.Write{Ops: []zk.Op{{Kind: zk.OpSetData, Path: "/d"}, {Kind: zk.OpDelete, Path: "/e"}}}})
	var order []string
	for _, it := range q.take(maxBatchOps, conn.MaxTransaction) {
		for _, op := range it.write.Ops {
			order = append(order, op.Path)
		}
	}
	assert.Equal(t, strings.Join(order, " "), "/b /d /e /a /c", "order")
}

// Watchers see the operations one by one: from the head on, each of the others would seem to hold for a moment.
func TestAQueueIsDeletedFromItsTailOn(t *testing.T) {
	var q queue
	for _, path := range []string{"/locks/b/x-0000000003", "/locks/a/z-0000000009", "/locks/b/y-0000000001", "/locks/a/x-0000000010", "/locks/b/z-0000000002"} {
		q.push(&item{write: &zk.Write{Ops: []zk.Op{{Kind: zk.OpDelete, Path: path}}}, onlyDeletes: true})
	}
	var order []string
	for _, it := range q.take(maxBatchOps, conn.MaxTransaction) {
		order = append(order, it.write.Ops[0].Path)
	}
	if got := strings.Join(order, " "); got != "/locks/a/x-0000000010 /locks/a/z-0000000009 /locks/b/x-0000000003 /locks/b/z-0000000002 /locks/b/y-0000000001" {
		t.Errorf("order %s", got)
	}
}

func TestTransactionsAndTheQueueAreBounded(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := fixture.LocksDir(t, p, "l")
	big := func(n int) *zk.Write {
		return &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "/big-", Data: make([]byte, n), Sequential: true}}, Done: func(zk.Result) {}}
	}
	assert.ErrorIs(t, s.Submit(big(256<<10)), zk.ErrTooLarge, "a write of 256 KiB of data")
	var largest atomic.Int64
	proxy.Observe(func(f netfault.Frame) netfault.Action {
		if f.Dir == netfault.Requests && f.Op() == netfault.OpMulti {
			largest.Store(max(largest.Load(), int64(len(f.Raw)-4)))
		}
		return netfault.Forward
	})
	var results []<-chan zk.Result
	for range 20 {
		results = append(results, submit(t, s, big(60<<10)))
	}
	results = append(results, submit(t, s, big(conn.MaxTransaction-conn.GuardOverhead-200)))
	accepted := 0
	var err error
	for ; err == nil; accepted++ {
		err = s.Submit(big(240 << 10))
	}
	assert.That(t, errors.Is(err, zk.ErrQueueFull) && accepted*240<<10 <= 16<<20 && accepted >= 50,
		"after %d large writes: %v, want ErrQueueFull", accepted, err)
	proxy.Heal()
	for _, result := range results {
		mustBeDone(t, fixture.Await(t, result))
	}
	got := largest.Load()
	assert.That(t, got <= 256<<10 && got >= 200<<10, "a transaction had %d bytes, want at most 256 KiB and not much less", got)
}

func TestMoreThan8192UnansweredWritesAreRefused(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := fixture.LocksDir(t, p, "l")
	var answered sync.WaitGroup
	n := 0
	for ; ; n++ {
		answered.Add(1)
		err := s.Submit(&zk.Write{Ops: []zk.Op{{Kind: zk.OpDelete, Path: dir + "/nothing"}}, Done: func(zk.Result) { answered.Done() }})
		if err != nil {
			answered.Done()
			assert.That(t, errors.Is(err, zk.ErrQueueFull), "refused with %v", err)
			break
		}
	}
	assert.That(t, n == 8192, "%d were accepted, want 8192", n)
	proxy.Cut() // refusing 8192 of them one by one would take long
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Close(ctx)
	answered.Wait()
}

func TestEphemeralPathsOfASessionAreCapped(t *testing.T) {
	cfg := fixture.Config(t)
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	dir := fixture.LocksDir(t, fixture.NewProbe(t, cfg), "l")
	long := strings.Repeat("x", 2000)
	var made []string
	var err error
	for err == nil {
		w := &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "/" + long, Ephemeral: true, Sequential: true}}}
		result := make(chan zk.Result, 1)
		w.Done = func(r zk.Result) { result <- r }
		if err = s.Submit(w); err == nil {
			made = append(made, mustBeDone(t, fixture.Await(t, result)).Paths[0])
		}
	}
	perNode := len(cfg.Chroot) + len(made[0]) + 4
	assert.That(t, errors.Is(err, zk.ErrEphemeralCap) && len(made) == 256<<10/perNode,
		"after %d nodes of %d bytes: %v, want ErrEphemeralCap at 256 KiB", len(made), perNode, err)
	// A refused create does not count, a deleted node counts no more.
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpDelete, Path: made[0]}))
	assert.Equal(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir + "/gone/" + long[:1900], Ephemeral: true}).Outcome, zk.NotDone)
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir + "/" + long, Ephemeral: true, Sequential: true}))
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir + "/durable"}))
	fixture.NewProbe(t, cfg).Delete(made[1])
	s.ForgetEphemeral(made[1])
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir + "/" + long, Ephemeral: true, Sequential: true}))
}

func TestAMalformedWriteIsRefusedAndHarmsNoOther(t *testing.T) {
	cfg := fixture.Config(t)
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	done := func(zk.Result) { t.Error("Done was called for a write that was refused") }
	for _, w := range []*zk.Write{
		{Done: done},
		{Ops: []zk.Op{{Kind: zk.OpCreate, Path: "relative"}}, Done: done},
		{Ops: []zk.Op{{Kind: zk.OpCreate, Path: "/a//b"}}, Done: done},
		{Ops: []zk.Op{{Kind: zk.OpCreate, Path: "/a/\x00"}}, Done: done},
		{Ops: []zk.Op{{Kind: zk.OpCreate, Path: "/a/"}}, Done: done},
		{Ops: []zk.Op{{Kind: 99, Path: "/a"}}, Done: done},
		{Ops: []zk.Op{{Kind: zk.OpCreate, Path: "/a"}}},
		{Queues: []string{"/a", "/b", "/a"}, Ops: []zk.Op{{Kind: zk.OpCreate, Path: "/a"}}, Done: done},
		{Queues: []string{"/a", "/b", "/b"}, Ops: []zk.Op{{Kind: zk.OpCreate, Path: "/a"}}, Done: done},
		{Queues: []string{"/a", ""}, Ops: []zk.Op{{Kind: zk.OpCreate, Path: "/a"}}, Done: done},
		{Queues: []string{"", "/a"}, Ops: []zk.Op{{Kind: zk.OpCreate, Path: "/a"}}, Done: done},
	} {
		assert.That(t, s.Submit(w) != nil, "%+v was accepted", w)
	}
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: zk.DefaultRoot + "/locks/a"}))
}

func TestABarrierIsATransactionSentAfterTheCall(t *testing.T) {
	s, p, proxy := stuck(t)
	dir := fixture.LocksDir(t, p, "l")
	// This one is on its way before the call, so it must not count.
	earlier := submit(t, s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "/earlier"}}})
	fixture.Eventually(t, "the write is on its way", func() bool { return proxy.Held(netfault.Requests) > 0 })
	counter := proxy.CountOps()
	const callers = 50
	passed := make(chan int64, callers)
	for range callers {
		go func() {
			zxid, err := s.Barrier(fixture.Context(t))
			assert.Nil(t, err)
			passed <- zxid
		}()
	}
	fixture.Eventually(t, "all have asked", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.asked == nil || proxy.Held(netfault.Requests) > 1
	})
	proxy.Heal()
	before := mustBeDone(t, fixture.Await(t, earlier)).Zxid
	for range callers {
		zxid := fixture.Await(t, passed)
		assert.That(t, zxid > before, "the barrier's zxid %#x is not after %#x, which was sent before the call", zxid, before)
	}
	n := fixture.Multis(counter)
	assert.That(t, n <= 1+maxBarriers+2, "%d barriers took %d transactions", callers, n)
}

func TestABarrierOnAnIdleSessionDoesNotWaitForTheNextGuardWrite(t *testing.T) {
	cfg := fixture.Config(t)
	cfg.PromiseWindow = zk.MaxPromiseWindow // whose third is longer than this test may take
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	for range 3 {
		assert.Value(s.Barrier(fixture.Context(t)))(t)
	}
}
