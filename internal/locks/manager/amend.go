package manager

import (
	"context"
	"errors"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
)

// rewriting reports whether the record is being written, or is being made anew
// under another name: until that is known, nothing else may be written.
func (l *lease) rewriting() bool { return l.recordState.writing() || l.replacing() }

// writeRecord writes the contender's record with a change, at the version that
// was seen. Until the outcome is known its TTL counts as the shorter of the two:
// nothing is promised that a successor might not find. then, which may be nil, is
// told whether it was done, unless the record has to be read to know. A write
// at a time: the caller has seen that the lease is loaded and none is under way.
func (m *Manager) writeRecord(l *lease, change func(*record.Record), then func(error)) {
	before, term := l.recorded, l.term
	r := l.contents(before)
	change(&r)
	l.setRecord(m, recordWriting)
	l.few().outgoing = before
	l.recorded = min(before, r.LeaseTTL())
	m.weigh(l, r.TextBytes())
	w := &zk.Write{Ops: []zk.Op{{Kind: zk.OpSetData, Path: l.path(), Data: r.Encode(), Version: l.dataVersion()}}}
	m.submit(w, func(res zk.Result) {
		if l.phase == ended || l.term != term {
			return // adoption reads it again
		}
		contested := l.recordState == recordContested
		if l.recordState.writing() {
			l.setRecord(m, recordCurrent)
		}
		switch {
		case res.Outcome == zk.Done:
			l.setDataVersion(res.Versions[0])
			l.recorded, l.seldom.outgoing = r.LeaseTTL(), 0
			if l.learn(m, r) {
				m.touchQueues(l)
			}
			if then != nil {
				then(nil)
			}
		case res.Outcome == zk.Unknown, errors.Is(res.Err, zk.ErrBadVersion):
			if m.session != nil {
				// From here on nothing of it can commit. A server that has not come so far
				// may show what it replaced.
				l.seldom.least = m.session.LastZxid()
			}
			contested = true
		default:
			l.recorded = before
			m.weigh(l, 0)
			if then != nil {
				then(res.Err)
			}
		}
		if contested {
			// Of the events one may be that of this write, and another that of somebody else's.
			l.staleRecord(m)
			m.load(l)
		}
		m.touch(l)
	})
}

// amend brings a lease's record to what a request wants: it is written, and
// known to be, before the request is answered. missing tells, with mu held, what
// has to be written; nil when nothing has to. written is called, with mu held,
// when that has been done, also when the request is not waited for any more. The
// lease is returned with mu held; with an error mu is free.
//
// The fate of a write that was lost is read in the record, and missing asked
// again, so a repeat, also by the client itself, changes nothing twice.
func (m *Manager) amend(ctx context.Context, id recipe.LeaseID, missing func(*lease) (func(*record.Record), *locks.Error), written func(*lease)) (*lease, *locks.Error) {
	m.mu.Lock()
	begun := m.clock.Now().Boot()
	var (
		met, done bool
		sent      bool // a write whose fate is not known
		refused   error
	)
	fail := func(err *locks.Error) (*lease, *locks.Error) {
		m.unlock()
		if (sent || done) && err.Code != locks.CodeEnded {
			unknown := outcomeUnknown()
			unknown.Err = err
			return nil, unknown
		}
		return nil, err
	}
	for {
		l, err := m.owned(id)
		if err != nil && err.UnknownGateway && !met {
			if met, err = true, m.meet(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return fail(err)
		}
		if err := m.usable(); err != nil {
			return fail(err)
		}
		switch {
		case refused != nil:
			err := m.unavailable()
			err.Err = refused
			return fail(err)
		case l.phase == creating, l.phase == ending, l.term != m.term:
			return fail(m.unavailable())
		case done:
			return l, nil
		case !l.recordState.loaded() || l.czxid == 0:
			m.load(l)
		case !l.rewriting():
			sent = false // what became of it has been read
			change, err := missing(l)
			if err != nil {
				return fail(err)
			}
			if change == nil {
				return l, nil
			}
			sent = true
			m.writeRecord(l, change, func(err error) {
				sent = false
				if refused = err; err == nil {
					done = true
					written(l)
				}
			})
		}
		if m.overdue(begun, m.clock.Now().Boot()) {
			return fail(m.unavailable())
		}
		if err := m.wait(ctx, l, answerWithin/4); err != nil {
			return nil, cancelled(ctx)
		}
		m.mu.Lock()
	}
}
