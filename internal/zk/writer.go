package zk

import (
	"errors"
	"fmt"
	"time"

	"lockkeeper/internal/fault"
)

// maxBarriers bounds the barriers that wait for different transactions. Over
// it, calls share the last one.
const maxBarriers = 8

// depth is how many transactions with work in them may be under way at once.
// Chosen by BenchmarkLockCycles.
const depth = 3

// writer is the part of a Session that run owns. Nothing else touches it.
type writer struct {
	epoch    int32 // the registration's version as far as known
	mode     mode
	number   int64 // guarded transactions sent so far
	depth    int
	inflight map[int64]*batch
	entered  chan struct{} // closed when the newest batch is on its way into the library; nil before the first
	working  int           // of those: workBatches
	bare     bool          // a bareBatch is under way
	parted   bool          // the farewell is under way or over

	queue queue
	again []*batch // refused and to be sent again, before the queue

	lastCommit time.Time  // when the last transaction that committed was sent
	barriers   []*barrier // that were asked for, in order; at most maxBarriers

	lost  lost
	raise raise

	answers  chan answered // of transactions
	looked   chan look     // of the question what the registration's version is
	resolved chan []settled
	final    error // why run ends
}

type answered struct {
	batch *batch
	answer
	at time.Time
}

// mode says what may be sent.
type mode uint8

const (
	steady     mode = iota // anything
	raising                // the raise alone
	confirming             // one bareBatch alone, to see the guard's version in the new epoch
	asking                 // nothing: the registration's version is being read
)

// newWriter starts from the transaction that registered the session.
func newWriter(opened time.Time) writer {
	return writer{
		depth:      depth,
		inflight:   make(map[int64]*batch),
		lastCommit: opened,
		answers:    make(chan answered, 2*depth+16),
		looked:     make(chan look, 1),
		resolved:   make(chan []settled, 1),
	}
}

// run is the session's goroutine. It ends with the session.
func (s *Session) run() {
	defer close(s.released)
	w := &s.writer
	timer := time.NewTimer(s.window / 3)
	defer timer.Stop()
	for w.final == nil {
		select {
		case <-s.wakeup:
		case a := <-w.answers:
			s.onAnswer(a)
		case l := <-w.looked:
			s.onLook(l)
		case r := <-w.resolved:
			s.onResolved(r)
		case <-timer.C:
		}
		s.takeArrived()
		if w.final == nil {
			w.final = s.conn.endErr()
		}
		if w.final == nil {
			s.pump()
			timer.Reset(s.nextLook())
		}
	}
	s.finish()
}

// takeArrived moves what callers handed over into the writer's own state, and
// picks up answers that wait, so that one transaction serves them all.
func (s *Session) takeArrived() {
	w := &s.writer
	for w.final == nil {
		select {
		case a := <-w.answers:
			s.onAnswer(a)
			continue
		default:
		}
		break
	}
	s.mu.Lock()
	arrived := s.arrived
	s.arrived = nil
	if s.asked != nil && len(w.barriers) < maxBarriers {
		s.asked.after = w.number
		w.barriers = append(w.barriers, s.asked)
		s.asked = nil
	}
	s.mu.Unlock()
	for _, it := range arrived {
		w.queue.push(it)
	}
}

// guardDue is when a bare guard write has to go out unless something that is
// sent later than now commits before.
func (s *Session) guardDue() time.Time { return s.writer.lastCommit.Add(s.window / 3) }

// nextLook is how long the writer may wait for something to happen. While a
// guard write is overdue and cannot be sent (it is under way, or there is no
// connection) only an answer or a connection changes that, and both wake it.
func (s *Session) nextLook() time.Duration {
	if w := &s.writer; w.bare || w.parted || w.mode != steady || !s.conn.isConnected() {
		return s.window / 3
	}
	return max(time.Millisecond, time.Until(s.guardDue()))
}

// pump sends what may be sent.
func (s *Session) pump() {
	w := &s.writer
	if !s.conn.isConnected() || w.parted {
		return
	}
	switch w.mode {
	case raising:
		if !w.raise.underWay {
			w.raise.underWay = true
			s.send(&batch{kind: raiseBatch})
		}
		return
	case confirming:
		if !w.bare {
			s.send(&batch{kind: bareBatch})
		}
		return
	case asking:
		s.ask()
		return
	}
	s.resolveLost()
	// Ahead of the batches: a run of refused batches must not close the fence.
	if !w.bare && !time.Now().Before(s.guardDue()) && !fault.On("bare-writes") {
		s.send(&batch{kind: bareBatch})
	}
	for w.working < w.depth {
		if len(w.again) > 0 {
			b := w.again[0]
			w.again = w.again[1:]
			s.send(b)
		} else if !w.queue.empty() {
			s.send(&batch{kind: workBatch, items: w.queue.take(maxBatchOps, maxTransaction-guardOverhead)})
		} else {
			break
		}
	}
	if w.unattended() && !w.bare {
		s.send(&batch{kind: bareBatch})
	}
	if s.drained() {
		w.parted = true
		s.send(&batch{kind: farewellBatch})
	}
}

// unattended reports whether a Barrier waits for which nothing is under way
// that was sent after it was asked for.
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

// drained reports whether a Close waits and everything else is answered.
func (s *Session) drained() bool {
	w := &s.writer
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing && s.unanswered == 0 && len(w.inflight) == 0 && len(s.arrived) == 0
}

// send hands a batch to the library, in a goroutine that ends with the answer
// or with the connection's end.
func (s *Session) send(b *batch) {
	w := &s.writer
	w.number++
	b.number, b.epoch = w.number, w.epoch
	b.floor = s.conn.lastSeen()
	b.at, b.sent = time.Now(), s.cfg.Clock.Now()
	w.inflight[b.number] = b
	switch b.kind {
	case workBatch:
		w.working++
		s.cfg.Metrics.Batch(len(b.items))
	case bareBatch:
		w.bare = true
	}
	for _, it := range b.items {
		it.maybe = true
	}
	ops := s.request(b)
	before, entered := w.entered, make(chan struct{})
	w.entered = entered
	go func() {
		if before != nil {
			<-before // else the scheduler would say in which order they go, and it prefers the last
		}
		close(entered)
		w.answers <- answered{b, s.conn.multi(ops), time.Now()}
	}()
}

// onAnswer is told what became of a batch.
func (s *Session) onAnswer(a answered) {
	w, b := &s.writer, a.batch
	delete(w.inflight, b.number)
	switch b.kind {
	case workBatch:
		w.working--
	case bareBatch:
		w.bare = false
	case raiseBatch:
		w.raise.underWay = false
	}
	took := a.at.Sub(b.at)
	if a.committed || a.refused {
		s.mu.Lock()
		s.lastAnswer = s.cfg.Clock.Now()
		s.mu.Unlock()
	}
	switch {
	case a.committed:
		s.cfg.Metrics.Op("multi", "ok", took)
		s.onCommitted(b, a)
	case a.refused:
		s.cfg.Metrics.Op("multi", "refused", took)
		s.onRefused(b, a)
	default:
		s.cfg.Metrics.Op("multi", "unknown", took)
		s.onLost(b, a.err)
	}
}

func (s *Session) onCommitted(b *batch, a answered) {
	w := &s.writer
	if b.kind == farewellBatch {
		w.final = errFarewell
		return
	}
	zxid, version, ok := a.guardWritten()
	if fault.On("guard") && !ok && b.kind != raiseBatch {
		zxid, version, ok = s.conn.lastSeen(), w.lost.highest, true
	}
	if !ok { // an answer that does not fit the question: as good as none
		s.onLost(b, errors.New("the guard's write was answered without a version"))
		return
	}
	s.moveFence(b, zxid)
	w.lost.told(version)
	switch {
	case b.kind == raiseBatch:
		s.onRaised(a.results[0], version)
	case w.mode == confirming && b.epoch == w.epoch:
		s.onConfirmed(version)
	}
	s.results(b, zxid, a.results, s.answer)
}

// moveFence does what a commit proves: W starts at its sending, and everyone
// who asked before it was sent may go on.
func (s *Session) moveFence(b *batch, zxid int64) {
	w := &s.writer
	if b.at.After(w.lastCommit) {
		w.lastCommit = b.at
	}
	s.fence.committed(b.number, b.sent, zxid)
	for len(w.barriers) > 0 && w.barriers[0].after < b.number {
		w.barriers[0].zxid = zxid
		close(w.barriers[0].passed)
		w.barriers = w.barriers[1:]
	}
}

// onRefused: ZooKeeper executed the transaction and refused it.
func (s *Session) onRefused(b *batch, a answered) {
	w := &s.writer
	for _, it := range b.items {
		it.maybe = false
	}
	switch {
	case b.kind == farewellBatch:
		w.final = fmt.Errorf("%w: its last transaction was refused: %w", ErrSessionGone, a.err)
	case a.culprit < guardOps || errors.Is(a.err, ErrSessionGone):
		if len(b.items) > 0 { // none of theirs was the culprit
			w.again = append(w.again, &batch{kind: workBatch, items: b.items, fails: b.fails})
		}
		s.onUnguarded(b, a)
	default:
		f := blame(b.items, b.original(a.culprit-guardOps), a.err)
		if f.dropped != nil {
			s.answer(f.dropped, Result{Outcome: NotDone, Err: a.err, Culprit: f.op})
		}
		for _, it := range f.redecide {
			s.answer(it, Result{Outcome: Redecide, Err: a.err, Culprit: -1})
		}
		w.again = append(w.again, again(f.rest, b.fails+1)...)
	}
}

// onUnguarded: the check of the epoch or the guard's write was what failed.
func (s *Session) onUnguarded(b *batch, a answered) {
	w := &s.writer
	switch found := judge(reqGuard, a.err, 1); {
	case found == sessionOver && errors.Is(a.err, ErrNoNode):
		w.final = fmt.Errorf("%w: registration or guard is gone", ErrDeposed)
	case found == sessionOver:
		w.final = a.err
	case found == needsPerson:
		w.final = authRefused(s.cfg, fmt.Errorf("writing to its own registration: %w", a.err))
	case found == findOut && b.kind == raiseBatch:
		s.onRaiseOvertaken()
	case found == findOut:
		if b.epoch == w.epoch && (w.mode == steady || w.mode == confirming) {
			// Nobody but us raises it, and we did not: make sure.
			w.mode = asking
		}
	default:
		// Nothing that an unharmed server would say (the session has moved to
		// another connection, say). Start over on a new connection.
		s.cfg.Logger.Warn("zookeeper refused a guarded transaction", "gateway", s.id, "err", a.err)
		s.conn.cut()
	}
}

// finish ends the session: the fence first, then every caller gets an answer,
// then Done is closed. What is left (go-zookeeper's goroutines) ends within
// seconds.
func (s *Session) finish() {
	w := &s.writer
	s.fence.Close()
	s.conn.end(w.final)
	s.mu.Lock()
	s.refuse = w.final
	s.err = w.final
	s.mu.Unlock()
	s.takeArrived()
	// The library answers everything that is under way as soon as its Conn is
	// closing; some of it may still be a real answer.
	for len(w.inflight) > 0 {
		a := <-w.answers
		delete(w.inflight, a.batch.number)
		s.lastWord(a)
	}
	for _, b := range w.lost.batches {
		s.abandon(b.items)
	}
	if w.lost.resolving {
		s.onResolved(<-w.resolved)
	}
	for _, b := range w.again {
		s.abandon(b.items)
	}
	s.abandon(w.queue.drain())
	close(s.done)
	<-s.conn.gone()
}

// lastWord takes an answer that comes when the session is already over.
func (s *Session) lastWord(a answered) {
	if a.committed && a.batch.kind == workBatch {
		if zxid, _, ok := a.guardWritten(); ok {
			s.results(a.batch, zxid, a.results, s.answer)
			return
		}
	}
	if a.refused {
		for _, it := range a.batch.items {
			it.maybe = false
		}
	}
	s.abandon(a.batch.items)
}

// abandon answers items that the session did not live to see.
func (s *Session) abandon(items []*item) {
	for _, it := range items {
		if it.maybe {
			s.answer(it, Result{Outcome: Unknown, Err: s.writer.final, Culprit: -1})
		} else {
			s.answer(it, Result{Outcome: NotDone, Err: s.writer.final, Culprit: -1})
		}
	}
}
