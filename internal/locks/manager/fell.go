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

// Many contenders of a queue are ended in pieces, one transaction after the other,
// from the queue's tail on, within a piece too: at no moment, and in no order in which
// watchers are told, is somebody let in by it who is to go himself. A piece is small, so
// that nobody waits long behind it, and far below what ZooKeeper takes.
const (
	// pieceBytes bounds a piece, a quarter of what a transaction may have.
	pieceBytes = 64 << 10
	// opOverhead is more than what a delete takes besides its path.
	opOverhead = 64
)

// tree is a lease, or another program's contender, that is to be felled.
type tree struct {
	at      queues.Location
	l       *lease // of this gateway
	version int32  // of at; -1: any
	ops     []zk.Op
	parts   []queues.Location
	gone    map[string]bool
	begun   bool         // its lease has been made ending here
	noting  noting       // what stands before ops
	unnoted bool         // the outbox has it already, or cannot take it
	blind   bool         // what stands before it may not be looked at
	notify  string       // its notify_url, of a lease of another gateway
	looked  bool         // that is known
	ended   locks.Reason // of another gateway's lease that has ended, and has left its place
	over    bool         // nothing is left to do
	err     error        // over: why it was not done here; errEnded, zk.ErrBadVersion, ...
}

// why is the verdict on a tree. Who frees the place of a lease that has ended gives it no other reason.
func (t *tree) why(v verdict) verdict {
	if t.ended != "" {
		return verdict{reason: t.ended}
	}
	return v
}

// fell ends what the trees stand for, which come from the tail of a queue on. Each
// is over when it returns nil. It stops at an error that is not about one of
// them: then the rest may be ending. stop, when not nil, is asked about each that
// could not be ended whether to go on.
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
					m.resubmitDelete(t.l) // at its own pace from here on; twice does no harm
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
				m.outside(func() { err = m.barrier(ctx) }) // after it the replica tells what was done
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

// piece is the next transaction: the first trees that are not over, as many as fit.
// It is not ready while it is not known who wants to be told.
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
			t.l.noteHandedOver(m)
		}
	}
	return piece, w, true
}

// checksOf are a piece's checks that are not made by what it deletes itself: most of those who are ended together stand one behind
// the other.
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

// noteTree finds what belongs before a tree's deletions. It reports false while that is not known.
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
	// It is described as what it is about to become.
	why, words := l.why, l.words()
	l.why, l.rare().words, l.rareFields.trace = postmortem.CauseOf(v.reason), v.words, v.trace
	t.noting, ready = m.noteEnd(l)
	l.why, l.rareFields.words, l.rareFields.trace = why, words, ""
	return ready
}

// notedPiece tells the outbox what became of a piece.
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

// mark finds what is there of a tree. It reports false when that is nothing.
func (m *Manager) mark(v verdict, t *tree) bool {
	if l := t.l; l != nil {
		switch {
		case l.phase == ended && t.begun && l.reason() == v.reason:
			t.over = true // the news came before the answer, or without one
		case l.phase == ended, !t.begun && l.phase != waiting && l.phase != held:
			t.over, t.err = true, errEnded
		case l.replacing():
			m.endBy(l, v) // a downgrade is under way: its names are not certain
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

// beginEnd begins the end of a lease whose contenders a piece deletes.
func (m *Manager) beginEnd(l *lease, v verdict) {
	l.rare().words, l.rareFields.trace = v.words, v.trace
	m.beginEnding(l, postmortem.CauseOf(v.reason))
	l.setChange(m, changeDeleting)
}

// spare makes a lease what it was: nothing of it was deleted, nor will be.
func (m *Manager) spare(l *lease) {
	l.rareFields.words, l.rareFields.trace = "", ""
	m.revive(l, m.clock.Now().Boot())
}

// felled: a piece was done.
func (m *Manager) felled(v verdict, piece []*tree) {
	now := m.clock.Now().Boot()
	for _, t := range piece {
		t.over = true
		if t.l == nil {
			m.struck(&blow{verdict: t.why(v), at: t.at})
		} else if t.l.phase == ending {
			m.finish(t.l, v.reason, now)
		}
	}
}

// stood notes why a piece was not done, with the tree that was the cause when that
// one is over by it.
func (m *Manager) stood(piece []*tree, res zk.Result) *tree {
	at := res.Culprit
	for _, t := range piece {
		if at < 0 || at >= len(t.noting.ops)+len(t.ops) {
			at -= len(t.noting.ops) + len(t.ops)
			continue
		}
		if at -= len(t.noting.ops); at < 0 {
			return nil // the outbox's: it goes without
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
					s.delete(m, t.l)
				}
			}
			if _, all := t.l.gonePart(); all {
				t.over = true
				m.finish(t.l, t.l.reason(), m.clock.Now().Boot())
			}
		default:
			if t.gone == nil {
				t.gone = map[string]bool{}
			}
			t.gone[path] = true
		}
		return nil
	}
	if at >= 0 { // a check's
		for _, t := range piece {
			t.blind = true
		}
		return nil
	}
	// A refusal that is nobody's: the whole write's.
	for _, t := range piece {
		t.over, t.err = true, res.Err
		m.acquit(t.parts)
	}
	return piece[0]
}
