package manager

import (
	"context"
	"errors"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/zk"
)

// Break, reap and destroy end leases and other programs' contenders with one pipeline: terminateAll. Its targets are
// ordered from the tail of a queue on, and so is each batch. So the pipeline grants no contender that it is to end
// itself, in whatever order watchers receive the events. A batch is one transaction, far below ZooKeeper's size limit,
// so that other writes do not wait long behind it.
//
//   - A lease of this gateway is ending from the moment its batch is submitted, and its client is told the reason. No
//     lock delay follows.
//   - The contenders of another gateway's lease are deleted together, at the version of the record that was read
//     before. A record that is closed says that the lease has ended: the deletion then frees the place and ends nothing.
//   - Another program's contender has no record: it is deleted at the version that was looked at.
//   - Each end that a webhook waits for is noted in the same transaction.
//   - An unknown outcome is looked for in the replica, after a barrier. A target that is still there is submitted again.
//   - A batch with a target that cannot be ended goes again without it, or everything stops there: destroy stops, so
//     that nothing nearer to the head is ended.

const (
	// batchBytes bounds a batch: a quarter of a transaction's limit.
	batchBytes = 64 << 10
	// opOverhead is an upper bound of a delete's bytes besides its path.
	opOverhead = 64
)

// terminateAll ends the targets, which are ordered from the tail of a queue on. Each is over when it returns nil. It
// stops at an error that is not about one target; the remaining ones may then be ending. stop: it also stops at the
// first target that cannot be ended, and the leases of its batch go on.
func (m *Manager) terminateAll(ctx context.Context, c reports.Cause, targets []*target, stop bool) error {
	return locked(m, func() error {
		stopped := false
		defer func() { m.leaveTargets(targets, stopped) }()
		for lost := 0; lost < adminAttempts; lost++ {
			if err := m.usable(); err != nil {
				return err
			}
			batch, w, ready := m.nextBatch(c, targets)
			switch {
			case !ready:
				_ = m.sleep(ctx, m.deliveries.changed(), answerWithin)
				if ctx.Err() != nil {
					return cancelled(ctx)
				}
				continue
			case len(batch) == 0:
				waits := downgraded(targets)
				if waits == nil {
					return nil
				}
				_ = m.sleep(ctx, waits.changed(), answerWithin)
				if ctx.Err() != nil {
					return cancelled(ctx)
				}
				continue
			}
			res, err := m.submitBatch(ctx, c, batch, w)
			switch {
			case err != nil:
				return err
			case res.Outcome == zk.Done:
				lost = -1
			case undecided(res):
				for _, t := range batch {
					t.lost = t.lost || res.Outcome == zk.Unknown
				}
			default:
				if t := m.batchFailed(batch, res); t != nil && stop {
					stopped = true
					return refusedTermination(t.err)
				}
				lost = -1 // it goes on without what failed
			}
		}
		return outcomeUnknown()
	})
}

// downgraded is a lease among the targets whose end waits for its downgrade, nil when there is none.
func downgraded(targets []*target) *lease {
	for _, t := range targets {
		if t.l != nil && !t.over && t.l.replacing() {
			return t.l
		}
	}
	return nil
}

// leaveTargets goes on with the leases of this gateway that are ending when terminateAll returns. After a stop at a
// target that cannot be ended they are restored; else their ends continue at their own pace, and submitting one twice
// does no harm.
func (m *Manager) leaveTargets(targets []*target, stopped bool) {
	for _, t := range targets {
		if !t.begun || !t.l.Ending() {
			continue
		}
		if some, _ := t.l.gonePart(); stopped && !some {
			t.l.rareFields.cause = nil
			t.l.revive(m, m.clock.Now().Boot())
		} else {
			t.l.submitDelete(m)
		}
	}
}

// undecided reports whether a batch may have been done, or is to be decided again.
func undecided(res zk.Result) bool {
	return res.Outcome == zk.Unknown || res.Outcome == zk.Conflict || errors.Is(res.Err, zk.ErrNotApplied) ||
		errors.Is(res.Err, zk.ErrSessionGone) || errors.Is(res.Err, zk.ErrQueueFull)
}

// submitBatch submits a batch and waits for its outcome; its error is CodeOutcomeUnknown or CodeCancelled. When the
// batch is undecided, the replica shows afterwards what was done. The monitor is held, and released meanwhile.
func (m *Manager) submitBatch(ctx context.Context, c reports.Cause, batch []*target, w *zk.Write) (res zk.Result, err error) {
	answer := make(chan zk.Result, 1)
	m.port.Submit(w, func(res zk.Result) {
		m.notedBatch(batch, res)
		if res.Outcome == zk.Done {
			m.terminated(c, batch, res.Zxid)
		}
		answer <- res
	})
	m.outside(func() {
		select {
		case res = <-answer:
		case <-time.After(settleWithin):
		case <-ctx.Done():
		}
		if undecided(res) {
			err = m.barrier(ctx)
		}
	})
	switch {
	case ctx.Err() != nil:
		return res, cancelled(ctx)
	case res.Outcome == 0, err != nil:
		return res, outcomeUnknown()
	}
	return res, nil
}

// nextBatch returns the next transaction: the first targets that are not over, as many as fit. ready is false while it
// is not known which ends must be noted.
func (m *Manager) nextBatch(c reports.Cause, targets []*target) (batch []*target, w *zk.Write, ready bool) {
	w = &zk.Write{Alone: true} // it may fail, and must fail no other write
	bytes := 0
	for _, t := range targets {
		if t.over || !m.remaining(c, t) {
			continue
		}
		if !m.noteTarget(c, t) {
			return nil, nil, false
		}
		if bytes += t.size(); len(batch) > 0 && bytes > batchBytes {
			break
		}
		batch = append(batch, t)
		w.Ops = append(append(w.Ops, t.noting.ops...), t.ops...)
	}
	w.Ops = append(w.Ops, checksOf(batch)...)
	for _, t := range batch {
		if t.l != nil && !t.begun {
			t.begun = true
			t.l.rare().cause = &c
			t.l.beginEnding(m, postmortem.CauseOf(c.Reason))
			t.l.SetChange(m.leases, lifecycle.ChangeDeleting)
		}
		m.reports.Terminating(t.parts, t.why(c)) // before it is handed over: the event may come before the answer
		if t.l != nil && t.noting.ops != nil {
			t.l.NoteHandedOver(m.leases)
		}
	}
	return batch, w, true
}

// remaining finds a target's remaining contenders. It reports false when there are none.
func (m *Manager) remaining(c reports.Cause, t *target) bool {
	if t.l != nil {
		return m.remainingOwn(c, t)
	}
	t.ops, t.parts = t.ops[:0], t.parts[:0]
	for _, p := range queues.TailFirst(m.replica.Locations(t.at)) {
		if t.gone[p.Path()] || p.Queue.Contenders.Get(p.Contender.Name) != p.Contender {
			continue
		}
		version := int32(-1)
		if p.Contender == t.at.Contender {
			version = t.version
		}
		t.ops, t.parts = append(t.ops, zk.Op{Kind: zk.OpDelete, Path: p.Path(), Version: version}), append(t.parts, p)
	}
	if t.close != nil && len(t.ops) > 0 {
		t.ops = []zk.Op{{Kind: zk.OpSetData, Path: t.at.Path(), Data: t.close, Version: t.version}}
	}
	switch {
	case len(t.ops) > 0 && !(t.close != nil && t.gone[t.at.Path()]):
		return true
	case t.lost:
		m.terminated(c, []*target{t}, 0) // by the attempt whose answer was lost
	default:
		t.over, t.err = true, errEnded
	}
	return false
}

// remainingOwn is remaining for a lease of this gateway.
func (m *Manager) remainingOwn(c reports.Cause, t *target) bool {
	l := t.l
	switch {
	case l.Ended() && t.begun && l.reason() == c.Reason:
		t.over = true // the deletion's event came before the write's answer
	case l.Ended(), !t.begun && !l.Settled():
		t.over, t.err = true, errEnded
	case l.replacing():
		// A downgrade is under way: the names are not certain, and the end waits for it. So does this request.
		if !t.begun {
			l.rare().cause = &c
			l.end(m, c.Reason, m.clock.Now().Boot())
			t.begun = true
		}
		return false
	}
	t.ops = l.deletions(-1)
	return !t.over
}

// checksOf returns a batch's checks without those on paths that the batch deletes. Most contenders that are ended
// together are neighbours in the queue.
func checksOf(batch []*target) (checks []zk.Op) {
	seen := map[string]bool{}
	for _, t := range batch {
		for i := range t.ops {
			seen[t.ops[i].Path] = true
		}
	}
	for _, t := range batch {
		for _, check := range t.noting.checks {
			if !seen[check.Path] {
				seen[check.Path] = true
				checks = append(checks, check)
			}
		}
	}
	return checks
}

// noteTarget finds the operations that belong before a target's deletions. It reports false while they are not known.
func (m *Manager) noteTarget(c reports.Cause, t *target) (ready bool) {
	l := t.l
	switch {
	case l == nil:
		if t.noting, ready = m.deliveries.endTaken(t.parts, t.why(c), t.notify, t.unnoted || t.ended != ""); t.blind {
			t.noting.checks = nil
		}
		return ready
	case t.begun:
		t.noting, ready = m.deliveries.end(l)
		return ready
	}
	// The outbox entry describes the lease as it will be after its end.
	why, cause := l.why, l.rare().cause
	l.why, l.rareFields.cause = postmortem.CauseOf(c.Reason), &c
	t.noting, ready = m.deliveries.end(l)
	l.why, l.rareFields.cause = why, cause
	return ready
}

// notedBatch gives the outbox the result of a batch.
func (m *Manager) notedBatch(batch []*target, res zk.Result) {
	at := 0
	for _, t := range batch {
		own := res
		if own.Culprit -= at; own.Culprit < 0 || own.Culprit >= len(t.noting.ops)+len(t.ops) {
			own.Culprit = -1
		}
		at += len(t.noting.ops) + len(t.ops)
		switch {
		case t.noting.ops == nil:
		case t.l != nil:
			m.deliveries.ended(t.l, t.noting, own)
		default:
			m.opt.Outbox.Ended(t.noting.entry, t.noting.ops, own)
			t.unnoted = t.unnoted || t.noting.culprit(own)
		}
	}
}

// terminated concludes a batch that was done.
func (m *Manager) terminated(c reports.Cause, batch []*target, zxid int64) {
	for _, t := range batch {
		t.over, t.zxid = true, zxid
		switch {
		case t.l == nil:
			m.rememberTermination(t, t.why(c))
		case t.l.Ending():
			t.l.finish(m, c.Reason, m.clock.Now().Boot())
		}
	}
}

// batchFailed records why a batch was not done. It returns the target that caused it, when that target is over.
func (m *Manager) batchFailed(batch []*target, res zk.Result) *target {
	at := res.Culprit
	for _, t := range batch {
		if at < 0 || at >= len(t.noting.ops)+len(t.ops) {
			at -= len(t.noting.ops) + len(t.ops)
			continue
		}
		if at -= len(t.noting.ops); at < 0 {
			return nil // the outbox's operation: the next attempt omits it
		}
		if !errors.Is(res.Err, zk.ErrNoNode) {
			t.fail(m, res.Err)
			return t
		}
		m.partGone(t, t.ops[at].Path)
		return nil
	}
	if res.Culprit >= 0 { // a check failed
		for _, t := range batch {
			t.blind = true
		}
		return nil
	}
	if slices.ContainsFunc(batch, func(t *target) bool { return t.noting.culprit(res) }) {
		return nil // it was too large with what is noted in it: the next attempt omits that
	}
	// The whole write was refused, not one of its operations.
	for _, t := range batch {
		t.fail(m, res.Err)
	}
	return batch[0]
}

// partGone records that one of a target's contenders was gone already; the others go.
func (m *Manager) partGone(t *target, path string) {
	if t.l == nil {
		if t.gone == nil {
			t.gone = map[string]bool{}
		}
		t.gone[path] = true
		return
	}
	for s := range t.l.slots {
		if s.path() == path {
			s.presence.Delete(m.leases, &t.l.State)
		}
	}
	if _, all := t.l.gonePart(); all {
		t.over = true
		t.l.finish(m, t.l.reason(), m.clock.Now().Boot())
	}
}

// refusedTermination turns why something could not be ended into the error to answer.
func refusedTermination(err error) error {
	var e *locks.Error
	if errors.As(err, &e) {
		return e
	}
	return &locks.Error{Code: locks.CodeUnavailable, Detail: "not ended: " + obstacle(err), Err: err}
}
