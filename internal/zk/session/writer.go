package session

import (
	"slices"
	"sync"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// maxBarriers bounds the barriers that wait for different transactions. Over it, calls share the last one.
const maxBarriers = 8

// Both are chosen by BenchmarkLockCycles; see doc.go.
const (
	// depth is how many transactions with work in them may be under way at once.
	depth = 3
	// pace is how long after the last one another goes that is not full.
	pace = 2 * time.Millisecond
)

// writer sends the Writes of a Session. Its methods are called with mu held, but for those that say that they take it.
type writer struct {
	facts
	wakeup   chan struct{}    // one place: run looks at everything when woken
	looked   chan versionRead // of the question what the registration's version is
	resolved chan []outcome
	timer    *time.Timer   // wakes run
	done     chan struct{} // closed after the last answer
	released chan struct{} // closed when nothing of the session is left

	mu sync.Mutex

	// What callers have handed over, and what they are told.
	queue      queue
	asked      *barrier // has no place among the barriers yet
	unanswered int      // Writes accepted and not answered
	bytes      int      // of those
	ephemerals ephemerals
	told       []zk.Answered // waits for the lock to be free
	spare      []zk.Answered // memory for it
	answering  int           // calls of unlock that tell answers
	lastAnswer zk.Instant
	leaving    bool  // Close was called
	refuse     error // why nothing is accepted any more
	err        error // final; set before done is closed

	// What is under way.
	epoch    int32 // the registration's version as far as known
	mode     mode
	number   int64 // guarded transactions sent so far
	depth    int
	pace     time.Duration
	inflight map[int64]*batch
	working  int        // workBatches in flight
	workSent time.Time  // when the last of them was sent
	guarding bool       // a guardBatch is under way
	closing  bool       // the closeBatch is under way or over
	again    []*batch   // to be sent before the queue: refused, or the connection was gone
	queued   bool       // the Conn has frames to flush
	barriers []*barrier // that were asked for, in order; at most maxBarriers

	lastCommit time.Time // when the last transaction that committed was sent
	alarmAt    time.Time // when timer fires; zero: it does not
	lost       lost
	bump       bump
	final      error // why the session is over
}

// mode says what may be sent.
type mode uint8

const (
	steady     mode = iota // anything
	bumping                // the bump alone
	confirming             // one guardBatch alone, to see the guard's version in the new epoch
	reading                // nothing: the registration's version is being read
)

// newWriter makes a writer without a connection.
func newWriter(f facts) *writer {
	return &writer{
		facts:      f,
		wakeup:     make(chan struct{}, 1),
		looked:     make(chan versionRead, 1),
		resolved:   make(chan []outcome, 1),
		timer:      time.NewTimer(f.window / 3),
		done:       make(chan struct{}),
		released:   make(chan struct{}),
		ephemerals: ephemerals{chroot: len(f.cfg.Chroot)},
		depth:      depth,
		pace:       pace,
		inflight:   make(map[int64]*batch),
	}
}

// run is the session's goroutine: it does what no caller and no answer does. It takes the lock, and ends with the session.
func (w *writer) run() {
	defer close(w.released)
	defer w.timer.Stop()
	for !w.over() {
		select {
		case <-w.wakeup:
			w.mu.Lock()
		case l := <-w.looked:
			w.mu.Lock()
			w.onVersionRead(l)
		case r := <-w.resolved:
			w.mu.Lock()
			w.onResolved(r)
		case <-w.timer.C:
			w.mu.Lock()
			w.alarmAt = time.Time{}
		}
		if w.final == nil {
			w.final = w.conn.Err()
		}
		w.unlock()
	}
	w.finish()
}

// over takes the lock and reports whether the session is.
func (w *writer) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.final != nil
}

// wake makes run look at what is there. It needs no lock.
func (w *writer) wake() {
	select {
	case w.wakeup <- struct{}{}:
	default: // it will look anyway
	}
}

// unlock ends each use of the lock. With the lock free it tells callers what became of their Writes. Then it sends what is
// due, so that what follows from the answers shares one transaction.
func (w *writer) unlock() {
	if w.final != nil && w.err == nil {
		w.end()
	}
	for len(w.told) > 0 {
		told := w.told
		w.told, w.spare = w.spare, nil
		w.answering++
		w.mu.Unlock()
		zk.Answer(told)
		clear(told)
		w.mu.Lock()
		w.answering--
		if cap(told) <= maxBatchOps {
			w.spare = told[:0]
		}
	}
	if w.final != nil {
		w.wake() // for finish
	} else if w.answering == 0 {
		now := time.Now()
		w.pump(now)
		w.setAlarm(now)
	}
	flush := w.queued
	w.queued = false
	w.mu.Unlock()
	if flush {
		w.conn.Flush()
	}
}

// setAlarm makes the timer wake run when it has to look again, or before.
func (w *writer) setAlarm(now time.Time) {
	look := w.nextLook(now)
	if at := now.Add(look); w.alarmAt.IsZero() || at.Before(w.alarmAt) {
		w.alarmAt = at
		w.timer.Reset(look)
	}
}

// guardDue is when a guard-only write has to go out unless something that is sent later than now commits before.
func (w *writer) guardDue() time.Time { return w.lastCommit.Add(w.window / 3) }

// nextLook is for how long nothing has to be done unless something happens. While a guard write is overdue and cannot be sent
// (it is under way, or there is no connection) only an answer or a connection changes that, and both wake it.
func (w *writer) nextLook(now time.Time) time.Duration {
	if w.closing || w.mode != steady || !w.conn.Connected() {
		return w.window / 3
	}
	look := w.window / 3
	if !w.guarding {
		look = max(time.Millisecond, w.guardDue().Sub(now))
	}
	if !w.queue.empty() && w.working < w.depth {
		var wait time.Duration // for other Writes: until neither collecting nor waiting
		if w.working > 0 {
			wait = w.workSent.Add(w.pace).Sub(now)
		}
		if since, ok := w.queue.waitsSince(); ok {
			wait = max(wait, since.Add(w.pace).Sub(now))
		}
		if w.working > 0 || wait > 0 {
			look = min(look, wait)
		}
	}
	return look
}

// collecting reports whether Writes wait for others to share their transaction: one that was sent a moment ago is under
// way. The wait ends with its answer, after pace, or when the transaction is full.
func (w *writer) collecting(now time.Time) bool {
	return w.working > 0 && now.Sub(w.workSent) < w.pace
}

// due reports whether the next transaction goes although others may be under way, or come in a moment. A Barrier needs one that
// is sent now.
func (w *writer) due(now time.Time) bool {
	return !w.queue.empty() && (!w.collecting(now) && !w.waiting(now) || w.queue.awaited > 0 || w.unattended() || w.queue.full(maxBatchOps, maxBatchBytes))
}

// waiting reports whether all Writes in the line may wait for another one, and have not done so for long.
func (w *writer) waiting(now time.Time) bool {
	since, ok := w.queue.waitsSince()
	return ok && !w.leaving && now.Sub(since) < w.pace
}

// pump sends what may be sent.
func (w *writer) pump(now time.Time) {
	if w.asked != nil && len(w.barriers) < maxBarriers {
		w.asked.after = w.number
		w.barriers = append(w.barriers, w.asked)
		w.asked = nil
	}
	if w.closing || !w.conn.Connected() {
		return
	}
	switch w.mode {
	case bumping:
		if !w.bump.underWay {
			w.bump.underWay = w.send(&batch{kind: bumpBatch})
		}
		return
	case confirming:
		if !w.guarding {
			w.send(&batch{kind: guardBatch})
		}
		return
	case reading:
		w.readVersion()
		return
	}
	w.resolveLost()
	// Ahead of the batches: a run of refused batches must not close the trust window.
	if !w.guarding && !now.Before(w.guardDue()) && !fault.On("guard-writes") {
		w.send(&batch{kind: guardBatch})
	}
	w.pumpWork(now)
	if w.unattended() && !w.guarding {
		w.send(&batch{kind: guardBatch})
	}
	if len(w.inflight) == 0 && w.leaving && w.unanswered == 0 {
		w.closing = w.send(&batch{kind: closeBatch})
	}
}

// pumpWork sends Writes.
func (w *writer) pumpWork(now time.Time) {
	for w.working < w.depth {
		var b *batch
		switch {
		case len(w.again) > 0:
			b = w.again[0]
			w.again = w.again[1:]
		case w.due(now):
			b = &batch{kind: workBatch, items: w.queue.take(maxBatchOps, maxBatchBytes)}
		default:
			return
		}
		if !w.send(b) {
			w.again = slices.Insert(w.again, 0, b)
			return
		}
	}
}

// unattended reports whether a Barrier waits for which nothing is under way that was sent after it was asked for.
func (w *writer) unattended() bool {
	if len(w.barriers) == 0 {
		return false
	}
	last := w.barriers[len(w.barriers)-1].after
	for number := range w.inflight {
		if number > last {
			return false
		}
	}
	return true
}

// send queues a batch for the connection. It returns false when that is gone: then nothing was sent.
func (w *writer) send(b *batch) bool {
	b.number, b.epoch = w.number+1, w.epoch
	b.floor = w.conn.LastZxid()
	b.at, b.sent = time.Now(), w.cfg.Clock.Now()
	if !w.conn.Send(b.request(&w.facts), func(a conn.Answer) { w.answered(b, a) }) {
		return false
	}
	w.number++
	w.queued = true
	w.inflight[b.number] = b
	switch b.kind {
	case workBatch:
		w.working++
		w.workSent = b.at
		w.cfg.Metrics.Batch(len(b.items))
	case guardBatch:
		w.guarding = true
	}
	for _, it := range b.items {
		it.maybe = true
	}
	return true
}
