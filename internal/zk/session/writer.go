package session

import (
	"errors"
	"fmt"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
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
	guarding bool          // a bareBatch is under way
	closing  bool          // the farewell is under way or over

	queue queue
	again []*batch // refused and to be sent again, before the queue

	lastCommit time.Time  // when the last transaction that committed was sent
	barriers   []*barrier // that were asked for, in order; at most maxBarriers

	lost lost
	bump bump

	answers  chan answered    // of transactions
	looked   chan versionRead // of the question what the registration's version is
	resolved chan []outcome
	final    error // why run ends
}

type answered struct {
	batch *batch
	conn.Answer
	at time.Time
}

// mode says what may be sent.
type mode uint8

const (
	steady     mode = iota // anything
	bumping                // the raise alone
	confirming             // one bareBatch alone, to see the guard's version in the new epoch
	reading                // nothing: the registration's version is being read
)

// newWriter starts from the transaction that registered the session.
func newWriter(opened time.Time) writer {
	return writer{
		depth:      depth,
		inflight:   make(map[int64]*batch),
		lastCommit: opened,
		answers:    make(chan answered, 2*depth+16),
		looked:     make(chan versionRead, 1),
		resolved:   make(chan []outcome, 1),
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
			s.onVersionRead(l)
		case r := <-w.resolved:
			s.onResolved(r)
		case <-timer.C:
		}
		s.takeArrived()
		if w.final == nil {
			w.final = s.conn.Err()
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
	if w := &s.writer; w.guarding || w.closing || w.mode != steady || !s.conn.Connected() {
		return s.window / 3
	}
	return max(time.Millisecond, time.Until(s.guardDue()))
}

// pump sends what may be sent.
func (s *Session) pump() {
	w := &s.writer
	if !s.conn.Connected() || w.closing {
		return
	}
	switch w.mode {
	case bumping:
		if !w.bump.underWay {
			w.bump.underWay = true
			s.send(&batch{kind: bumpBatch})
		}
		return
	case confirming:
		if !w.guarding {
			s.send(&batch{kind: guardBatch})
		}
		return
	case reading:
		s.readVersion()
		return
	}
	s.resolveLost()
	// Ahead of the batches: a run of refused batches must not close the fence.
	if !w.guarding && !time.Now().Before(s.guardDue()) && !fault.On("guard-writes") {
		s.send(&batch{kind: guardBatch})
	}
	for w.working < w.depth {
		if len(w.again) > 0 {
			b := w.again[0]
			w.again = w.again[1:]
			s.send(b)
		} else if !w.queue.empty() {
			s.send(&batch{kind: workBatch, items: w.queue.take(maxBatchOps, conn.MaxTransaction-conn.GuardOverhead)})
		} else {
			break
		}
	}
	if w.unattended() && !w.guarding {
		s.send(&batch{kind: guardBatch})
	}
	if s.drained() {
		w.closing = true
		s.send(&batch{kind: closeBatch})
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
	b.floor = s.conn.LastZxid()
	b.at, b.sent = time.Now(), s.cfg.Clock.Now()
	w.inflight[b.number] = b
	switch b.kind {
	case workBatch:
		w.working++
		s.cfg.Metrics.Batch(len(b.items))
	case guardBatch:
		w.guarding = true
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
		w.answers <- answered{b, s.conn.Multi(ops), time.Now()}
	}()
}

// onAnswer is told what became of a batch.
func (s *Session) onAnswer(a answered) {
	w, b := &s.writer, a.batch
	delete(w.inflight, b.number)
	switch b.kind {
	case workBatch:
		w.working--
	case guardBatch:
		w.guarding = false
	case bumpBatch:
		w.bump.underWay = false
	}
	took := a.at.Sub(b.at)
	if a.Committed || a.Refused {
		s.mu.Lock()
		s.lastAnswer = s.cfg.Clock.Now()
		s.mu.Unlock()
	}
	switch {
	case a.Committed:
		s.cfg.Metrics.Op("multi", "ok", took)
		s.onCommitted(b, a)
	case a.Refused:
		s.cfg.Metrics.Op("multi", "refused", took)
		s.onRefused(b, a)
	default:
		s.cfg.Metrics.Op("multi", "unknown", took)
		s.onLost(b, a.Err)
	}
}

func (s *Session) onCommitted(b *batch, a answered) {
	w := &s.writer
	if b.kind == closeBatch {
		w.final = errClosed
		return
	}
	zxid, version, ok := a.GuardWritten()
	if fault.On("guard") && !ok && b.kind != bumpBatch {
		zxid, version, ok = s.conn.LastZxid(), w.lost.highest, true
	}
	if !ok { // an answer that does not fit the question: as good as none
		s.onLost(b, errors.New("the guard's write was answered without a version"))
		return
	}
	s.extendTrust(b, zxid)
	w.lost.told(version)
	switch {
	case b.kind == bumpBatch:
		s.onBumped(a.Results[0], version)
	case w.mode == confirming && b.epoch == w.epoch:
		s.onConfirmed(version)
	}
	s.results(b, zxid, a.Results, s.answer)
}

// moveFence does what a commit proves: W starts at its sending, and everyone
// who asked before it was sent may go on.
func (s *Session) extendTrust(b *batch, zxid int64) {
	w := &s.writer
	if b.at.After(w.lastCommit) {
		w.lastCommit = b.at
	}
	s.trust.committed(b.number, b.sent, zxid)
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
	case b.kind == closeBatch:
		w.final = fmt.Errorf("%w: its last transaction was refused: %w", zk.ErrSessionGone, a.Err)
	case a.Culprit < guardOps || errors.Is(a.Err, zk.ErrSessionGone):
		if len(b.items) > 0 { // none of theirs was the culprit
			w.again = append(w.again, &batch{kind: workBatch, items: b.items, fails: b.fails})
		}
		s.onUnguarded(b, a)
	default:
		f := blame(b.items, b.original(a.Culprit-guardOps), a.Err)
		if f.dropped != nil {
			s.answer(f.dropped, zk.Result{Outcome: zk.NotDone, Err: a.Err, Culprit: f.op})
		}
		for _, it := range f.conflicts {
			s.answer(it, zk.Result{Outcome: zk.Conflict, Err: a.Err, Culprit: -1})
		}
		w.again = append(w.again, again(f.rest, b.fails+1)...)
	}
}

// onUnguarded: the check of the epoch or the guard's write was what failed.
func (s *Session) onUnguarded(b *batch, a answered) {
	w := &s.writer
	switch found := conn.Classify(conn.ReqGuard, a.Err, 1); {
	case found == conn.SessionOver && errors.Is(a.Err, zk.ErrNoNode):
		w.final = fmt.Errorf("%w: registration or guard is gone", zk.ErrDeposed)
	case found == conn.SessionOver:
		w.final = a.Err
	case found == conn.Fatal:
		w.final = conn.AuthRefused(s.cfg, fmt.Errorf("writing to its own registration: %w", a.Err))
	case found == conn.FindOut && b.kind == bumpBatch:
		s.onBumpOvertaken()
	case found == conn.FindOut:
		if b.epoch == w.epoch && (w.mode == steady || w.mode == confirming) {
			// Nobody but us raises it, and we did not: make sure.
			w.mode = reading
		}
	default:
		// Nothing that an unharmed server would say (the session has moved to
		// another connection, say). Start over on a new connection.
		s.cfg.Logger.Warn("zookeeper refused a guarded transaction", "gateway", s.id, "err", a.Err)
		s.conn.Cut()
	}
}

// finish ends the session: the fence first, then every caller gets an answer,
// then Done is closed. What is left (go-zookeeper's goroutines) ends within
// seconds.
func (s *Session) finish() {
	w := &s.writer
	s.trust.Close()
	s.conn.End(w.final)
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
		s.onLateAnswer(a)
	}
	for _, b := range w.lost.batches {
		s.giveUp(b.items)
	}
	if w.lost.resolving {
		s.onResolved(<-w.resolved)
	}
	for _, b := range w.again {
		s.giveUp(b.items)
	}
	s.giveUp(w.queue.drain())
	close(s.done)
	<-s.conn.Gone()
}

// lastWord takes an answer that comes when the session is already over.
func (s *Session) onLateAnswer(a answered) {
	if a.Committed && a.batch.kind == workBatch {
		if zxid, _, ok := a.GuardWritten(); ok {
			s.results(a.batch, zxid, a.Results, s.answer)
			return
		}
	}
	if a.Refused {
		for _, it := range a.batch.items {
			it.maybe = false
		}
	}
	s.giveUp(a.batch.items)
}

// abandon answers items that the session did not live to see.
func (s *Session) giveUp(items []*item) {
	for _, it := range items {
		if it.maybe {
			s.answer(it, zk.Result{Outcome: zk.Unknown, Err: s.writer.final, Culprit: -1})
		} else {
			s.answer(it, zk.Result{Outcome: zk.NotDone, Err: s.writer.final, Culprit: -1})
		}
	}
}
