package session

import (
	"errors"
	"fmt"
	"math"
	"slices"
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

// writer sends the Writes of a Session. Only its goroutine, run, touches it.
type writer struct {
	facts
	in *inbox

	epoch    int32 // the registration's version as far as known
	mode     mode
	number   int64 // guarded transactions sent so far
	depth    int
	pace     time.Duration
	inflight map[int64]*batch
	entered  chan struct{} // closed when the newest batch is on its way into the library; nil before the first
	working  int           // workBatches in flight
	workSent time.Time     // when the last of them was sent
	guarding bool          // a guardBatch is under way
	closing  bool          // the closeBatch is under way or over

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
	bumping                // the bump alone
	confirming             // one guardBatch alone, to see the guard's version in the new epoch
	reading                // nothing: the registration's version is being read
)

// newWriter starts from the transaction that registered the session.
func newWriter(f facts, in *inbox, opened time.Time) *writer {
	return &writer{
		facts:      f,
		in:         in,
		depth:      depth,
		pace:       pace,
		inflight:   make(map[int64]*batch),
		lastCommit: opened,
		answers:    make(chan answered, 2*depth+16),
		looked:     make(chan versionRead, 1),
		resolved:   make(chan []outcome, 1),
	}
}

// run is the session's goroutine. It ends with the session.
func (w *writer) run() {
	defer close(w.in.released)
	timer := time.NewTimer(w.window / 3)
	defer timer.Stop()
	for w.final == nil {
		select {
		case <-w.in.wakeup:
		case a := <-w.answers:
			w.onAnswer(a)
		case l := <-w.looked:
			w.onVersionRead(l)
		case r := <-w.resolved:
			w.onResolved(r)
		case <-timer.C:
		}
		w.takeArrived()
		if w.final == nil {
			w.final = w.conn.Err()
		}
		if w.final == nil {
			w.pump()
			look := w.nextLook() // ahead of room: pace may elapse between the two
			w.in.await(w.room())
			timer.Reset(look)
		}
	}
	w.finish()
}

// takeArrived picks up answers that wait, and what callers handed over, so that one transaction serves them all.
func (w *writer) takeArrived() {
	for w.final == nil {
		select {
		case a := <-w.answers:
			w.onAnswer(a)
			continue
		default:
		}
		break
	}
	arrived, asked := w.in.take(len(w.barriers) < maxBarriers)
	if asked != nil {
		asked.after = w.number
		w.barriers = append(w.barriers, asked)
	}
	for _, it := range arrived {
		w.queue.push(it)
	}
}

// guardDue is when a guard-only write has to go out unless something that is sent later than now commits before.
func (w *writer) guardDue() time.Time { return w.lastCommit.Add(w.window / 3) }

// nextLook is how long the writer may wait for something to happen. While a guard write is overdue and cannot be sent
// (it is under way, or there is no connection) only an answer or a connection changes that, and both wake it.
func (w *writer) nextLook() time.Duration {
	if w.closing || w.mode != steady || !w.conn.Connected() {
		return w.window / 3
	}
	look := w.window / 3
	if !w.guarding {
		look = max(time.Millisecond, time.Until(w.guardDue()))
	}
	if (w.collecting() || !w.queue.empty()) && 0 < w.working && w.working < w.depth {
		look = min(look, time.Until(w.workSent.Add(w.pace)))
	}
	return look
}

// collecting reports whether Writes wait for others to share their transaction: one that was sent a moment ago is under
// way. The wait ends with its answer, after pace, or when the transaction is full.
func (w *writer) collecting() bool {
	return w.working > 0 && time.Since(w.workSent) < w.pace
}

// due reports whether the next transaction goes although others may be under way. A Barrier needs one that is sent now.
func (w *writer) due() bool {
	return !w.queue.empty() && (!w.collecting() || w.queue.awaited > 0 || w.unattended() || w.queue.full(maxBatchOps, maxBatchBytes))
}

// room is how many operations may arrive before the writer has something to do with them; 0: none.
func (w *writer) room() int {
	switch {
	case w.working == w.depth:
		return math.MaxInt // only an answer helps
	case w.collecting():
		return max(0, maxBatchOps-w.queue.ops)
	}
	return 0
}

// pump sends what may be sent.
func (w *writer) pump() {
	if !w.conn.Connected() || w.closing {
		return
	}
	switch w.mode {
	case bumping:
		if !w.bump.underWay {
			w.bump.underWay = true
			w.send(&batch{kind: bumpBatch})
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
	if !w.guarding && !time.Now().Before(w.guardDue()) && !fault.On("guard-writes") {
		w.send(&batch{kind: guardBatch})
	}
	for w.working < w.depth {
		if len(w.again) > 0 {
			b := w.again[0]
			w.again = w.again[1:]
			w.send(b)
		} else if w.due() {
			w.send(&batch{kind: workBatch, items: w.queue.take(maxBatchOps, maxBatchBytes)})
		} else {
			break
		}
	}
	if w.unattended() && !w.guarding {
		w.send(&batch{kind: guardBatch})
	}
	if len(w.inflight) == 0 && w.in.drained() {
		w.closing = true
		w.send(&batch{kind: closeBatch})
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

// send hands a batch to the library, in a goroutine that ends with the answer or with the connection's end.
func (w *writer) send(b *batch) {
	w.number++
	b.number, b.epoch = w.number, w.epoch
	b.floor = w.conn.LastZxid()
	b.at, b.sent = time.Now(), w.cfg.Clock.Now()
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
	ops := b.request(&w.facts)
	before, entered := w.entered, make(chan struct{})
	w.entered = entered
	go func() {
		if before != nil {
			<-before // the scheduler would prefer the last
		}
		close(entered)
		w.answers <- answered{b, w.conn.Multi(ops), time.Now()}
	}()
}

// onAnswer is told what became of a batch.
func (w *writer) onAnswer(a answered) {
	b := a.batch
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
		w.in.heard(w.cfg.Clock.Now())
	}
	switch {
	case a.Committed:
		w.cfg.Metrics.Op("multi", "ok", took)
		w.onCommitted(b, a)
	case a.Refused:
		w.cfg.Metrics.Op("multi", "refused", took)
		w.onRefused(b, a)
	default:
		w.cfg.Metrics.Op("multi", "unknown", took)
		w.onLost(b, a.Err)
	}
}

func (w *writer) onCommitted(b *batch, a answered) {
	if b.kind == closeBatch {
		w.final = errClosed
		return
	}
	zxid, version, ok := a.GuardWritten()
	if fault.On("guard") && !ok && b.kind != bumpBatch {
		zxid, version, ok = w.conn.LastZxid(), w.lost.highest, true
	}
	if !ok { // the answer does not fit the question: treated as lost
		w.onLost(b, errors.New("the guard's write was answered without a version"))
		return
	}
	w.extendTrust(b, zxid)
	w.lost.told(version)
	switch {
	case b.kind == bumpBatch:
		w.onBumped(a.Results[0], version)
	case w.mode == confirming && b.epoch == w.epoch:
		w.onConfirmed(version)
	}
	w.in.answer(b.results(w.cfg, zxid, a.Results)...)
}

// extendTrust does what a commit proves: W starts at its sending, and barriers
// that were asked for before it was sent are passed.
func (w *writer) extendTrust(b *batch, zxid int64) {
	if b.at.After(w.lastCommit) {
		w.lastCommit = b.at
	}
	w.trust.committed(b.number, b.sent, zxid)
	for len(w.barriers) > 0 && w.barriers[0].after < b.number {
		w.barriers[0].zxid = zxid
		close(w.barriers[0].passed)
		w.barriers = w.barriers[1:]
	}
}

// onRefused: ZooKeeper executed the transaction and refused it.
func (w *writer) onRefused(b *batch, a answered) {
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
		w.onUnguarded(b, a)
	default:
		f := blame(b.items, b.original(a.Culprit-guardOps), a.Err)
		var outcomes []outcome
		if f.dropped != nil {
			outcomes = append(outcomes, outcome{f.dropped, zk.Result{Outcome: zk.NotDone, Err: a.Err, Culprit: f.op}})
		}
		for _, it := range f.conflicts {
			outcomes = append(outcomes, outcome{it, zk.Result{Outcome: zk.Conflict, Err: a.Err, Culprit: -1}})
		}
		w.in.answer(outcomes...)
		w.again = append(w.again, again(f.rest, b.fails+1)...)
	}
}

// onUnguarded: the check of the epoch or the guard's write was what failed.
func (w *writer) onUnguarded(b *batch, a answered) {
	switch found := conn.Classify(conn.ReqGuard, a.Err, 1); {
	case found == conn.SessionOver && errors.Is(a.Err, zk.ErrNoNode):
		w.final = fmt.Errorf("%w: registration or guard is gone", zk.ErrDeposed)
	case found == conn.SessionOver:
		w.final = a.Err
	case found == conn.Fatal:
		w.final = conn.AuthRefused(w.cfg, fmt.Errorf("writing to its own registration: %w", a.Err))
	case found == conn.FindOut && b.kind == bumpBatch:
		w.onBumpOvertaken()
	case found == conn.FindOut:
		if b.epoch == w.epoch && (w.mode == steady || w.mode == confirming) {
			// Only this session bumps it, and it did not: make sure.
			w.mode = reading
		}
	default:
		// Nothing that an unharmed server would say (the session has moved to
		// another connection, say). Start over on a new connection.
		w.cfg.Logger.Warn("zookeeper refused a guarded transaction", "gateway", w.id, "err", a.Err)
		w.conn.Cut()
	}
}

// finish ends the session: the trust window first, then every caller gets an answer, then Done is closed. What is left
// (go-zookeeper's goroutines) ends within seconds.
func (w *writer) finish() {
	w.trust.Close()
	w.conn.End(w.final)
	w.in.end(w.final)
	w.takeArrived()
	// The library answers everything that is under way as soon as its Conn is
	// closing; some of it may still be a real answer.
	for len(w.inflight) > 0 {
		a := <-w.answers
		delete(w.inflight, a.batch.number)
		w.onLateAnswer(a)
	}
	for _, b := range slices.Concat(w.lost.batches, w.again) {
		w.giveUp(b.items)
	}
	if w.lost.resolving {
		w.onResolved(<-w.resolved)
	}
	w.giveUp(w.queue.drain())
	close(w.in.done)
	<-w.conn.Gone()
}

// onLateAnswer takes an answer that comes when the session is already over.
func (w *writer) onLateAnswer(a answered) {
	if a.Committed && a.batch.kind == workBatch {
		if zxid, _, ok := a.GuardWritten(); ok {
			w.in.answer(a.batch.results(w.cfg, zxid, a.Results)...)
			return
		}
	}
	if a.Refused {
		for _, it := range a.batch.items {
			it.maybe = false
		}
	}
	w.giveUp(a.batch.items)
}

// giveUp answers items whose outcome the session can no longer find out.
func (w *writer) giveUp(items []*item) {
	outcomes := make([]outcome, 0, len(items))
	for _, it := range items {
		r := zk.Result{Outcome: zk.NotDone, Err: w.final, Culprit: -1}
		if it.maybe {
			r.Outcome = zk.Unknown
		}
		outcomes = append(outcomes, outcome{it, r})
	}
	w.in.answer(outcomes...)
}
