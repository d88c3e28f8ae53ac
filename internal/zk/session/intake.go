package session

import (
	"fmt"
	"time"

	"lockkeeper/internal/zk"
)

// What callers hand over. These methods take the lock.

// barrier is what Barrier calls wait for together.
type barrier struct {
	after  int64 // the last transaction that was sent before it was asked for
	zxid   int64 // set before passed is closed
	passed chan struct{}
}

// accept takes an item in, with what it adds to the ephemeral paths.
func (w *writer) accept(it *item, ephemeral int) error {
	w.mu.Lock()
	defer w.unlock()
	switch {
	case w.refuse != nil:
		return w.refuse
	case w.unanswered >= maxQueuedWrites || w.bytes+it.bytes > maxQueuedBytes:
		return zk.ErrQueueFull
	case !w.ephemerals.reserve(ephemeral):
		return zk.ErrEphemeralCap
	}
	if it.write.MayWait {
		it.came = time.Now()
	}
	w.unanswered++
	w.bytes += it.bytes
	w.queue.push(it)
	return nil
}

// ask joins the barrier that has no place yet.
func (w *writer) ask() (*barrier, error) {
	w.mu.Lock()
	defer w.unlock()
	if w.refuse != nil {
		return nil, w.refuse
	}
	if w.asked == nil {
		w.asked = &barrier{passed: make(chan struct{})}
	}
	return w.asked, nil
}

// leave refuses what comes from now on. What was accepted is answered first.
func (w *writer) leave() {
	w.mu.Lock()
	defer w.unlock()
	w.leaving = true
	if w.refuse == nil {
		w.refuse = fmt.Errorf("%w: it is closing", zk.ErrSessionGone)
	}
}

// answer has the callers of items told what became of them. The lock is held.
func (w *writer) answer(outcomes ...outcome) {
	for i := range outcomes {
		it, r := outcomes[i].item, &outcomes[i].result
		w.unanswered--
		w.bytes -= it.bytes
		w.ephemerals.account(it.write, *r)
		w.told = append(w.told, zk.Answered{Write: it.write, Result: *r})
	}
}

// errClosed is how a session ends that was closed in good order.
var errClosed = fmt.Errorf("%w: closed", zk.ErrSessionGone)
