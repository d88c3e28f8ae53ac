package manager

import (
	"context"
	"errors"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/zk"
)

// Many contenders of a queue are ended in batches, one transaction after the other, from the queue's tail on, also
// within a batch. So no contender is granted on the way that is to be ended itself, in whatever order watchers receive
// the events. A batch is far below ZooKeeper's size limit, so that other writes do not wait long behind it.
const (
	// pieceBytes bounds a batch: a quarter of a transaction's limit.
	pieceBytes = 64 << 10
	// opOverhead is an upper bound of a delete's bytes besides its path.
	opOverhead = 64
)

// tree is a lease, or another program's contender, that is to be ended.
type tree struct {
	at      queues.Location
	l       *lease // nil: not of this gateway
	version int32  // of at; -1: any
	ops     []zk.Op
	parts   []queues.Location
	gone    map[string]bool
	begun   bool         // this call has made its lease ending
	noting  noting       // the outbox operations before ops
	unnoted bool         // the outbox has the end already, or cannot take it
	blind   bool         // the operations before ops may not be checked
	notify  string       // the notify_url of another gateway's lease
	looked  bool         // notify is known
	ended   locks.Reason // of another gateway's lease that ended and whose contender remains
	over    bool         // nothing is left to do
	err     error        // over: why this call did not end it; errEnded, zk.ErrBadVersion, ...
}

// why returns the reason for a target's end. A lease that has ended already keeps its reason when its contender is
// deleted.
func (t *tree) why(v verdict) verdict {
	if t.ended != "" {
		return verdict{reason: t.ended}
	}
	return v
}

// fell ends the targets, which are ordered from the tail of a queue on. Each is over when fell returns nil. It stops
// at an error that is not about one target; the remaining ones may then be ending. stop, when not nil, decides for
// each target that could not be ended whether fell stops there.
func (m *Manager) fell(ctx context.Context, v verdict, trees []*tree, stop func(error) bool) error {
	return locked(m, func() error {
		stopped := false
		defer func() {
			for _, t := range trees {
				if !t.begun || t.l.phase != ending {
					continue
				}
				if some, _ := t.l.gonePart(); stopped && !some {
					m.spare(t.l)
				} else {
					t.l.resubmitDelete(m) // continues at its own pace; submitting twice does no harm
				}
			}
		}()
		lost := 0
		for {
			if err := m.usable(); err != nil {
				return err
			}
			piece, w, ready := m.piece(v, trees)
			switch {
			case !ready:
				if lost++; lost == adminAttempts {
					return outcomeUnknown()
				}
				m.awaitOutbox(ctx)
				if ctx.Err() != nil {
					return cancelled(ctx)
				}
				continue
			case len(piece) == 0:
				return nil
			}
			answer := make(chan zk.Result, 1)
			m.port.Submit(w, func(res zk.Result) {
				m.notedPiece(piece, res)
				if res.Outcome == zk.Done {
					m.felled(v, piece)
				}
				answer <- res
			})
			var res zk.Result
			m.outside(func() {
				select {
				case res = <-answer:
				case <-time.After(settleWithin):
				case <-ctx.Done():
				}
			})
			again := res.Outcome == zk.Unknown || res.Outcome == zk.Conflict || errors.Is(res.Err, zk.ErrNotApplied) ||
				errors.Is(res.Err, zk.ErrSessionGone) || errors.Is(res.Err, zk.ErrQueueFull)
			var err error
			if again {
				m.outside(func() { err = m.barrier(ctx) }) // after it the replica shows what was done
			}
			switch {
			case ctx.Err() != nil:
				return cancelled(ctx)
			case res.Outcome == 0, err != nil:
				return outcomeUnknown()
			case res.Outcome == zk.Done:
				lost = 0
			case again:
				if lost++; lost == adminAttempts {
					return outcomeUnknown()
				}
			default:
				if t := m.stood(piece, res); t != nil && stop != nil && stop(t.err) {
					stopped = true
					return refusedBlow(t.err)
				}
			}
		}
	})
}

// piece returns the next transaction: the first targets that are not over, as many as fit. ready is false while it is
// not known which events must be noted.
func (m *Manager) piece(v verdict, trees []*tree) (piece []*tree, w *zk.Write, ready bool) {
	w = &zk.Write{Alone: true}
	bytes := 0
	for _, t := range trees {
		if t.over || !m.mark(v, t) {
			continue
		}
		size := 0
		if !m.noteTree(v, t) {
			return nil, nil, false
		}
		for _, ops := range [][]zk.Op{t.noting.ops, t.ops, t.noting.checks} {
			for i := range ops {
				size += len(ops[i].Path) + len(ops[i].Data) + opOverhead
			}
		}
		if len(piece) > 0 && bytes+size > pieceBytes {
			break
		}
		bytes += size
		piece = append(piece, t)
		w.Ops = append(append(w.Ops, t.noting.ops...), t.ops...)
	}
	w.Ops = append(w.Ops, checksOf(piece)...)
	for _, t := range piece {
		if t.l != nil && !t.begun {
			t.begun = true
			m.beginEnd(t.l, v)
		}
		for _, p := range t.parts {
			m.verdicts[p.Contender] = t.why(v)
		}
		m.tellVerdict(noticeVerdict, t.why(v), t.parts)
		if t.l != nil && t.noting.ops != nil {
			t.l.noteHandedOver(m.leases)
		}
	}
	return piece, w, true
}

// checksOf returns a batch's checks without those on paths that the batch deletes. Most contenders that are ended
// together are neighbours in the queue.
func checksOf(piece []*tree) (checks []zk.Op) {
	seen := map[string]bool{}
	for _, t := range piece {
		for i := range t.ops {
			seen[t.ops[i].Path] = true
		}
	}
	for _, t := range piece {
		for _, check := range t.noting.checks {
			if !seen[check.Path] {
				seen[check.Path] = true
				checks = append(checks, check)
			}
		}
	}
	return checks
}

// noteTree finds the operations that belong before a target's deletions. It reports false while they are not known.
func (m *Manager) noteTree(v verdict, t *tree) (ready bool) {
	if t.l == nil {
		if t.noting, ready = m.noteTaken(t.parts, v, t.notify, t.unnoted); t.blind {
			t.noting.checks = nil
		}
		return ready
	}
	l := t.l
	if t.begun {
		t.noting, ready = m.noteEnd(l)
		return ready
	}
	// The outbox entry describes the lease as it will be after its end.
	why, words := l.why, l.words()
	l.why, l.rare().words, l.rareFields.trace = postmortem.CauseOf(v.reason), v.words, v.trace
	t.noting, ready = m.noteEnd(l)
	l.why, l.rareFields.words, l.rareFields.trace = why, words, ""
	return ready
}

// notedPiece gives the outbox the result of a batch.
func (m *Manager) notedPiece(piece []*tree, res zk.Result) {
	at := 0
	for _, t := range piece {
		own := res
		if own.Culprit -= at; own.Culprit < 0 || own.Culprit >= len(t.noting.ops)+len(t.ops) {
			own.Culprit = -1
		}
		at += len(t.noting.ops) + len(t.ops)
		switch {
		case t.noting.ops == nil:
		case t.l != nil:
			m.noted(t.l, t.noting, own)
		default:
			m.opt.Outbox.Ended(t.noting.entry, t.noting.ops, own)
			t.unnoted = t.unnoted || t.noting.culprit(own)
		}
	}
}

// mark finds a target's remaining contenders. It reports false when there are none.
func (m *Manager) mark(v verdict, t *tree) bool {
	if l := t.l; l != nil {
		switch {
		case l.phase == ended && t.begun && l.reason() == v.reason:
			t.over = true // the deletion's event came before the write's answer
		case l.phase == ended, !t.begun && l.phase != waiting && l.phase != held:
			t.over, t.err = true, errEnded
		case l.replacing():
			m.endBy(l, v) // a downgrade is under way: the names are not certain
			t.over, t.begun = true, true
		}
		t.ops = l.deletions(nil, -1)
		return !t.over
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
	if len(t.ops) == 0 {
		t.over, t.err = true, errEnded
	}
	return !t.over
}

func (m *Manager) beginEnd(l *lease, v verdict) {
	l.rare().words, l.rareFields.trace = v.words, v.trace
	l.beginEnding(m, postmortem.CauseOf(v.reason))
	l.setChange(m.leases, changeDeleting)
}

// spare restores a lease whose end was submitted: none of its contenders was or will be deleted.
func (m *Manager) spare(l *lease) {
	l.rareFields.words, l.rareFields.trace = "", ""
	l.revive(m, m.clock.Now().Boot())
}

// felled concludes a batch that was done.
func (m *Manager) felled(v verdict, piece []*tree) {
	now := m.clock.Now().Boot()
	for _, t := range piece {
		t.over = true
		if t.l == nil {
			m.struck(&blow{verdict: t.why(v), at: t.at})
		} else if t.l.phase == ending {
			t.l.finish(m, v.reason, now)
		}
	}
}

// stood records why a batch was not done. It returns the target that caused it, when that target is over.
func (m *Manager) stood(piece []*tree, res zk.Result) *tree {
	at := res.Culprit
	for _, t := range piece {
		if at < 0 || at >= len(t.noting.ops)+len(t.ops) {
			at -= len(t.noting.ops) + len(t.ops)
			continue
		}
		if at -= len(t.noting.ops); at < 0 {
			return nil // the outbox's operation: the next attempt omits it
		}
		path := t.ops[at].Path
		switch {
		case !errors.Is(res.Err, zk.ErrNoNode):
			t.over, t.err = true, res.Err
			m.acquit(t.parts)
			return t
		case t.l != nil:
			for s := range t.l.slots {
				if s.path() == path {
					s.delete(m.leases, t.l)
				}
			}
			if _, all := t.l.gonePart(); all {
				t.over = true
				t.l.finish(m, t.l.reason(), m.clock.Now().Boot())
			}
		default:
			if t.gone == nil {
				t.gone = map[string]bool{}
			}
			t.gone[path] = true
		}
		return nil
	}
	if at >= 0 { // a check failed
		for _, t := range piece {
			t.blind = true
		}
		return nil
	}
	// The whole write was refused, not one of its operations.
	for _, t := range piece {
		t.over, t.err = true, res.Err
		m.acquit(t.parts)
	}
	return piece[0]
}
