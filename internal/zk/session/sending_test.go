package session

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/zk"
)

// crowd is a session whose first transaction is under way for as long as a test likes, and a count of the transactions
// that were sent since then for what the test submits.
type crowd struct {
	t     *testing.T
	s     *Session
	proxy *netfault.Proxy
	dir   string
	sent  atomic.Int32
	made  int
	waits []<-chan zk.Result
}

// newCrowd waits until the first transaction has been sent. Others go pace after the last one.
func newCrowd(t *testing.T, pace time.Duration) *crowd {
	t.Helper()
	c := newIdle(t, pace)
	held := c.proxy.HoldReply(1, fixture.About(c.dir))
	c.submit(&zk.Write{})
	fixture.Await(t, held.Fired())
	c.count()
	return c
}

// newIdle is a session with nothing under way.
func newIdle(t *testing.T, pace time.Duration) *crowd {
	t.Helper()
	through, proxy, layout, p := faulty(t)
	c := &crowd{t: t, proxy: proxy, dir: fixture.LocksDir(t, p, "l"), s: openSession(t, through, layout, 1)}
	c.s.mu.Lock()
	c.s.pace = pace
	c.s.mu.Unlock()
	return c
}

// count counts transactions from now on.
func (c *crowd) count() {
	c.proxy.Observe(func(f netfault.Frame) netfault.Action {
		if f.Dir == netfault.Requests && fixture.About(c.dir)(f) {
			c.sent.Add(1)
		}
		return netfault.Forward
	})
}

// submit completes the Write with a create.
func (c *crowd) submit(w *zk.Write) {
	c.t.Helper()
	c.made++
	w.Ops = append(w.Ops, zk.Op{Kind: zk.OpCreate, Path: fmt.Sprintf("%s/n%d", c.dir, c.made)})
	c.waits = append(c.waits, submit(c.t, c.s, w))
}

// finish lets the first transaction be answered, and then every Write is done.
func (c *crowd) finish() {
	c.t.Helper()
	c.proxy.Heal()
	for _, wait := range c.waits {
		mustBeDone(c.t, fixture.Await(c.t, wait))
	}
}

func TestWhatArrivesWhileATransactionIsUnderWaySharesTheNext(t *testing.T) {
	c := newCrowd(t, time.Hour)
	for range 5 {
		c.submit(&zk.Write{})
	}
	for range maxBatchOps - 6 {
		c.submit(&zk.Write{})
	}
	c.finish()
	assert.Equal(t, c.sent.Load(), 1, "transactions for all that arrived while one was under way")
}

func TestAFullTransactionDoesNotWaitForTheOneBeforeIt(t *testing.T) {
	for name, fill := range map[string]func(c *crowd){
		"operations": func(c *crowd) {
			for range maxBatchOps {
				c.submit(&zk.Write{})
			}
		},
		"bytes": func(c *crowd) {
			for range 3 {
				c.submit(&zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: c.dir + "/big-", Data: make([]byte, maxBatchBytes/2), Sequential: true}}})
			}
		},
		"a write that travels alone": func(c *crowd) { c.submit(&zk.Write{Alone: true}) },
		"one before a write that travels alone": func(c *crowd) {
			c.submit(&zk.Write{})
			c.submit(&zk.Write{Alone: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, time.Hour)
			fill(c)
			fixture.Eventually(t, "a second transaction beside the first", func() bool { return c.sent.Load() > 0 })
			c.finish()
		})
	}
}

func TestAnAwaitedWriteDoesNotWaitForTheTransactionBeforeIt(t *testing.T) {
	c := newCrowd(t, time.Hour)
	c.submit(&zk.Write{})
	c.submit(&zk.Write{Awaited: true})
	fixture.Eventually(t, "a second transaction beside the first", func() bool { return c.sent.Load() > 0 })
	c.submit(&zk.Write{})
	c.finish()
	assert.Equal(t, c.sent.Load(), 2, "transactions: with the awaited write and what had come before it, and with what came later")
}

func TestAWriteThatMayWaitSharesTheNextTransaction(t *testing.T) {
	for name, other := range map[string]*zk.Write{"any": {}, "an awaited one": {Awaited: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newIdle(t, time.Hour)
			c.count()
			c.submit(&zk.Write{MayWait: true})
			c.submit(&zk.Write{MayWait: true})
			c.submit(other)
			c.finish()
			assert.Equal(t, c.sent.Load(), 1, "transactions")
		})
	}
}

func TestAWriteThatMayWaitDoesNotWaitForLong(t *testing.T) {
	c := newIdle(t, pace)
	c.submit(&zk.Write{MayWait: true})
	// Each stands behind the one before it, and has waited when that has left.
	for range 3 {
		c.submit(&zk.Write{MayWait: true, Queues: []string{c.dir}})
	}
	c.finish()
}

// TestTheNextLookIsAheadWhileAWriteMayWait: a look that is due at once and sends nothing would be followed by another one at once.
func TestTheNextLookIsAheadWhileAWriteMayWait(t *testing.T) {
	c := newIdle(t, time.Hour)
	w := c.s.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	it := &item{write: &zk.Write{MayWait: true}, came: time.Now()}
	w.queue.push(it)
	w.working, w.workSent = 1, time.Now().Add(-2*time.Hour) // it may have been under way for long
	look, due := w.nextLook(time.Now()), w.due(time.Now())
	w.queue.pop()
	w.working = 0
	assert.That(t, look > 0 && !due, "the next look is in %v, due %v", look, due)
}

func TestASessionThatClosesLetsNoWriteWait(t *testing.T) {
	c := newIdle(t, time.Hour)
	c.submit(&zk.Write{MayWait: true})
	assert.NoError(t, c.s.Close(t.Context()))
	c.finish()
}

func TestABarrierLetsNoWriteWait(t *testing.T) {
	c := newIdle(t, time.Hour)
	c.submit(&zk.Write{MayWait: true})
	_, err := c.s.Barrier(t.Context())
	assert.NoError(t, err)
	c.finish()
}

func TestAWriteDoesNotWaitForLongWhereTheRoundTripIsLongAndFewTransactionsAreUnderWay(t *testing.T) {
	c := newCrowd(t, pace)
	for n := 1; n < depth; n++ {
		c.submit(&zk.Write{})
		fixture.Eventually(t, "another transaction beside those under way", func() bool { return c.sent.Load() == int32(n) })
	}
	for range 3 {
		c.submit(&zk.Write{Alone: true})
	}
	assert.Equal(t, c.sent.Load(), depth-1, "transactions beside the first one, before any is answered")
	c.finish()
}

// What a Barrier waits for is a transaction that is sent after it was asked for: the Writes that wait are one.
func TestABarrierSendsWhatWaits(t *testing.T) {
	c := newCrowd(t, time.Hour)
	c.submit(&zk.Write{})
	asked := make(chan error, 1)
	go func() {
		_, err := c.s.Barrier(fixture.Context(t))
		asked <- err
	}()
	fixture.Eventually(t, "a transaction for the barrier", func() bool { return c.sent.Load() > 0 })
	c.finish()
	assert.NoError(t, fixture.Await(t, asked))
}

// A Write that can go is on its way when Submit returns: no other goroutine has to wake up for it. One that shares the next
// transaction leaves all others asleep.
func TestTheCallerOfSubmitSendsItsWrite(t *testing.T) {
	through, proxy, layout, p := faulty(t)
	dir := fixture.LocksDir(t, p, "l")
	s := openSession(t, through, layout, 1)
	s.mu.Lock()
	s.pace = time.Hour
	s.mu.Unlock()
	fixture.Eventually(t, "the session's goroutine has looked at the new connection", func() bool { return len(s.wakeup) == 0 })
	held := proxy.HoldReply(1, fixture.About(dir))
	transactions := func() int64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.number
	}
	before := transactions()
	first := submit(t, s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "/a"}}})
	assert.Equal(t, transactions(), before+1, "transactions sent once a lone write was submitted")
	fixture.Await(t, held.Fired())
	second := submit(t, s, &zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: dir + "/b"}}})
	assert.Equal(t, transactions(), before+1, "transactions sent while one is under way")
	assert.Equal(t, len(s.wakeup), 0, "wake-ups of the session's goroutine")
	proxy.Heal()
	mustBeDone(t, fixture.Await(t, first))
	mustBeDone(t, fixture.Await(t, second))
}

// The writer sends a transaction beside another one when nothing could join it; the line's totals only spare it the look.
func TestATransactionIsFullWhenNothingCouldJoinIt(t *testing.T) {
	write := func(w zk.Write, ops, bytes int) *item {
		for range ops {
			w.Ops = append(w.Ops, zk.Op{Kind: zk.OpDelete, Path: "/x"})
		}
		return &item{write: &w, bytes: bytes}
	}
	check := zk.Op{Kind: zk.OpCheck, Path: "/settings", Version: 1}
	for _, c := range []struct {
		line []*item
		full bool
	}{
		{nil, false},
		{[]*item{write(zk.Write{}, 1, 10), write(zk.Write{}, 2, 10)}, false},
		{[]*item{write(zk.Write{}, 2, 10), write(zk.Write{}, 2, 10)}, true},
		{[]*item{write(zk.Write{}, 9, 10)}, true},
		{[]*item{write(zk.Write{}, 1, 60), write(zk.Write{}, 1, 41)}, true},
		{[]*item{write(zk.Write{}, 1, 60), write(zk.Write{}, 1, 40)}, false},
		{[]*item{write(zk.Write{Alone: true}, 1, 10)}, true},
		{[]*item{write(zk.Write{}, 1, 10), write(zk.Write{Alone: true}, 1, 10)}, true},
		{[]*item{write(zk.Write{Awaited: true}, 1, 10)}, false},
		{[]*item{write(zk.Write{Ops: []zk.Op{check}}, 1, 10), write(zk.Write{Ops: []zk.Op{check}}, 1, 10)}, false},
	} {
		var q queue
		var told []string
		for _, it := range c.line {
			q.push(it)
			told = append(told, fmt.Sprintf("%d operations, %d bytes, alone %v", len(it.write.Ops), it.bytes, it.write.Alone))
		}
		assert.Equal(t, q.full(4, 100), c.full, "full with "+strings.Join(told, "; "))
		for !q.empty() {
			q.take(4, 100)
		}
		assert.That(t, q.ops == 0 && q.bytes == 0 && q.alone == 0 && q.awaited == 0,
			"an empty line has %d operations, %d bytes, %d alone, %d awaited", q.ops, q.bytes, q.alone, q.awaited)
	}
}
