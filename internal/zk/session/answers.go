package session

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// answered takes the lock. It is told what became of a batch.
func (w *writer) answered(b *batch, a conn.Answer) {
	took := time.Since(b.at)
	w.mu.Lock()
	defer w.unlock()
	delete(w.inflight, b.number)
	if w.final != nil {
		w.onLateAnswer(b, a)
		return
	}
	if a.Committed || a.Refused {
		w.lastAnswer = w.cfg.Clock.Now()
	}
	switch b.kind {
	case workBatch:
		w.working--
	case guardBatch:
		w.guarding = false
	case bumpBatch:
		w.bump.underWay = false
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

func (w *writer) onCommitted(b *batch, a conn.Answer) {
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
	w.answer(b.results(w.cfg, zxid, a.Results)...)
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
func (w *writer) onRefused(b *batch, a conn.Answer) {
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
		w.answer(outcomes...)
		w.again = append(w.again, again(f.rest, b.fails+1)...)
	}
}

// onUnguarded: the check of the epoch or the guard's write was what failed.
func (w *writer) onUnguarded(b *batch, a conn.Answer) {
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

// end refuses everything from now on, for the session is over. The trust window closes first.
func (w *writer) end() {
	w.trust.Close()
	w.conn.End(w.final)
	w.refuse, w.err = w.final, w.final
}

// finish takes the lock. Once what is under way has its answers, which the Conn gives as soon as it is over, it answers all
// other Writes, and then Done is closed. What is left (go-zookeeper's goroutines) ends within seconds.
func (w *writer) finish() {
	for w.busy() {
		<-w.wakeup
	}
	w.mu.Lock()
	if w.lost.resolving {
		w.mu.Unlock()
		all := <-w.resolved
		w.mu.Lock()
		w.onResolved(all)
	}
	for _, b := range slices.Concat(w.lost.batches, w.again) {
		w.giveUp(b.items)
	}
	w.giveUp(w.queue.drain())
	w.unlock()
	close(w.done)
	<-w.conn.Gone()
}

// busy takes the lock. It reports whether there are answers to come, or to be told.
func (w *writer) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.inflight) > 0 || w.answering > 0
}

// onLateAnswer takes an answer that comes when the session is already over.
func (w *writer) onLateAnswer(b *batch, a conn.Answer) {
	if a.Committed && b.kind == workBatch {
		if zxid, _, ok := a.GuardWritten(); ok {
			w.answer(b.results(w.cfg, zxid, a.Results)...)
			return
		}
	}
	if a.Refused {
		for _, it := range b.items {
			it.maybe = false
		}
	}
	w.giveUp(b.items)
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
	w.answer(outcomes...)
}
