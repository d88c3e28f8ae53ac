package session

import (
	"fmt"
	"sync"

	"lockkeeper/internal/zk"
)

// inbox is what the callers of a Session and its writer share.
type inbox struct {
	wakeup   chan struct{} // one place: the writer looks at everything when woken
	done     chan struct{} // closed after the last answer
	released chan struct{} // closed when nothing of the session is left

	mu         sync.Mutex
	arrived    []*item
	room       int      // operations that may arrive before the writer is woken; 0: the first one wakes it
	asked      *barrier // calls that the writer has not seen yet
	unanswered int      // Writes accepted and not answered
	bytes      int      // of those
	ephemerals ephemerals
	lastAnswer zk.Instant
	closing    bool
	refuse     error // why nothing is accepted any more
	err        error // final; set before done is closed
}

func newInbox(chroot string) *inbox {
	return &inbox{wakeup: make(chan struct{}, 1), done: make(chan struct{}), released: make(chan struct{}),
		ephemerals: ephemerals{chroot: len(chroot)}}
}

// barrier is what Barrier calls wait for together.
type barrier struct {
	after  int64 // the last transaction that was sent before the writer saw this
	zxid   int64 // set before passed is closed
	passed chan struct{}
}

// wake makes the writer look at what is there.
func (in *inbox) wake() {
	select {
	case in.wakeup <- struct{}{}:
	default: // it will look anyway
	}
}

// accept takes an item in, with what it adds to the ephemeral paths.
func (in *inbox) accept(it *item, ephemeral int) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.refuse != nil:
		return in.refuse
	case in.unanswered >= maxQueuedWrites || in.bytes+it.bytes > maxQueuedBytes:
		return zk.ErrQueueFull
	case !in.ephemerals.reserve(ephemeral):
		return zk.ErrEphemeralCap
	}
	in.unanswered++
	in.bytes += it.bytes
	in.arrived = append(in.arrived, it)
	if in.room -= len(it.write.Ops); in.room <= 0 || it.write.Alone || it.write.Awaited {
		in.wake()
	}
	return nil
}

// await says how many operations may arrive before the writer is woken: it does nothing with them earlier.
func (in *inbox) await(room int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.room = room
	for _, it := range in.arrived {
		in.room -= len(it.write.Ops)
	}
	if len(in.arrived) > 0 && in.room <= 0 {
		in.wake()
	}
}

// ask joins the barrier that the writer has not seen yet.
func (in *inbox) ask() (*barrier, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.refuse != nil {
		return nil, in.refuse
	}
	if in.asked == nil {
		in.asked = &barrier{passed: make(chan struct{})}
	}
	in.wake()
	return in.asked, nil
}

// take gives the writer what has arrived, and the barrier that was asked for if it has room for one.
func (in *inbox) take(room bool) (arrived []*item, asked *barrier) {
	in.mu.Lock()
	defer in.mu.Unlock()
	arrived, in.arrived = in.arrived, nil
	if room {
		asked, in.asked = in.asked, nil
	}
	return arrived, asked
}

// answer tells the callers of items what became of them.
func (in *inbox) answer(outcomes ...outcome) {
	answers := make([]zk.Answered, len(outcomes))
	in.mu.Lock()
	for i := range outcomes {
		it, r := outcomes[i].item, &outcomes[i].result
		in.unanswered--
		in.bytes -= it.bytes
		in.ephemerals.account(it.write, *r)
		answers[i] = zk.Answered{Write: it.write, Result: *r}
	}
	in.mu.Unlock()
	zk.Answer(answers)
}

// heard notes when ZooKeeper answered.
func (in *inbox) heard(now zk.Instant) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.lastAnswer = now
}

// close refuses what comes from now on. What was accepted is answered first.
func (in *inbox) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closing = true
	if in.refuse == nil {
		in.refuse = fmt.Errorf("%w: it is closing", zk.ErrSessionGone)
	}
	in.wake()
}

// drained reports whether a Close waits and every Write is answered.
func (in *inbox) drained() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.closing && in.unanswered == 0 && len(in.arrived) == 0
}

// end refuses everything from now on, for the session is over.
func (in *inbox) end(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.refuse, in.err = err, err
}

// errClosed is how a session ends that was closed in good order.
var errClosed = fmt.Errorf("%w: closed", zk.ErrSessionGone)
