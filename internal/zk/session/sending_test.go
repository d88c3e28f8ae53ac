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
	through, proxy, layout, p := faulty(t)
	c := &crowd{t: t, proxy: proxy, dir: fixture.LocksDir(t, p, "l"), s: openSession(t, through, layout, 1)}
	c.s.writer.pace = pace // before the first Submit wakes its owner up
	held := proxy.HoldReply(1, fixture.About(c.dir))
	c.submit(&zk.Write{})
	fixture.Await(t, held.Fired())
	proxy.Observe(func(f netfault.Frame) netfault.Action {
		if f.Dir == netfault.Requests && fixture.About(c.dir)(f) {
			c.sent.Add(1)
		}
		return netfault.Forward
	})
	return c
}

// submit completes the Write with a create.
func (c *crowd) submit(w *zk.Write) {
	c.t.Helper()
	c.made++
	w.Ops = append(w.Ops, zk.Op{Kind: zk.OpCreate, Path: fmt.Sprintf("%s/n%d", c.dir, c.made)})
	c.waits = append(c.waits, submit(c.t, c.s, w))
}

// seen waits until the writer has everything that was submitted.
func (c *crowd) seen() {
	c.t.Helper()
	c.s.wake()
	fixture.Eventually(c.t, "the writer to take in what was submitted", func() bool {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		return len(c.s.arrived) == 0
	})
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
		c.seen()
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
		"operations that come in two lots": func(c *crowd) {
			for range maxBatchOps - 1 {
				c.submit(&zk.Write{})
			}
			c.seen()
			c.submit(&zk.Write{})
		},
		"bytes": func(c *crowd) {
			for range 3 {
				c.submit(&zk.Write{Ops: []zk.Op{{Kind: zk.OpCreate, Path: c.dir + "/big-", Data: make([]byte, maxBatchBytes/2), Sequential: true}}})
			}
			c.s.wake() // bytes alone do not wake it
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
	c.seen()
	c.submit(&zk.Write{Awaited: true})
	fixture.Eventually(t, "a second transaction beside the first", func() bool { return c.sent.Load() > 0 })
	c.submit(&zk.Write{})
	c.seen()
	c.finish()
	assert.Equal(t, c.sent.Load(), 2, "transactions: with the awaited write and what had come before it, and with what came later")
}

func TestAWriteDoesNotWaitForLongWhereTheRoundTripIsLongAndFewTransactionsAreUnderWay(t *testing.T) {
	c := newCrowd(t, pace)
	for n := 1; n < depth; n++ {
		c.submit(&zk.Write{})
		fixture.Eventually(t, "another transaction beside those under way", func() bool { return c.sent.Load() == int32(n) })
	}
	for range 3 {
		c.submit(&zk.Write{Alone: true})
		c.seen()
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

func TestTheWriterIsWokenWhenItHasSomethingToDo(t *testing.T) {
	one := func(in *inbox, w *zk.Write) bool {
		w.Ops = []zk.Op{{Kind: zk.OpDelete, Path: "/x"}}
		assert.NoError(t, in.accept(&item{write: w}, 0))
		select {
		case <-in.wakeup:
			return true
		default:
			return false
		}
	}
	in := newInbox("")
	assert.That(t, one(in, &zk.Write{}), "a lone write did not wake the writer")
	in.take(true)
	in.await(2)
	assert.That(t, !one(in, &zk.Write{}), "a write woke the writer that had room for two")
	assert.That(t, one(in, &zk.Write{}), "the last write for which there was room did not wake the writer")
	in.take(true)
	in.await(9)
	assert.That(t, one(in, &zk.Write{Alone: true}), "a write that travels alone did not wake the writer")
	in.take(true)
	in.await(9)
	assert.That(t, one(in, &zk.Write{Awaited: true}), "an awaited write did not wake the writer")
	in.await(1)
	select {
	case <-in.wakeup:
	default:
		t.Error("the writer was not woken for what had arrived before it said how much room there is")
	}
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
