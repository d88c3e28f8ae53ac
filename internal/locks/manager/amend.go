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
	l.rare().outgoing = before
	l.recorded = min(before, r.LeaseTTL())
	m.weigh(l, r.TextBytes())
	w := &zk.Write{Ops: []zk.Op{{Kind: zk.OpSetData, Path: l.path(), Data: r.Encode(), Version: l.dataVersion()}}}
	m.port.Submit(w, func(res zk.Result) {
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
			l.recorded, l.rareFields.outgoing = r.LeaseTTL(), 0
			if l.learn(m, r) {
				m.touchQueues(l)
			}
			if then != nil {
				then(nil)
			}
		case res.Outcome == zk.Unknown, errors.Is(res.Err, zk.ErrBadVersion):
			if m.port.Session() != nil {
				// From here on nothing of it can commit. A server that has not come so far
				// may show what it replaced.
				l.rareFields.least = m.port.Session().LastZxid()
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

// amend brings a lease's record to what a request wants: it is written, and known to be, before the request is answered.
// missing tells what has to be written; nil when nothing has to. written is called when that has been done, also when
// the request is not waited for any more. The monitor is held, and released while the request waits.
//
// The fate of a write that was lost is read in the record, and missing asked again, so a repeat, also by the client
// itself, changes nothing twice.
func (m *Manager) amend(ctx context.Context, id recipe.LeaseID, missing func(*lease) (func(*record.Record), *locks.Error), written func(*lease)) (amended *lease, err *locks.Error) {
	var (
		sent, done bool // sent: a write whose fate is not known
		refused    error
	)
	err = m.withLease(ctx, id, func(l *lease) (bool, *locks.Error) {
		switch amended = l; {
		case refused != nil:
			return false, m.unavailableFor(refused)
		case done:
			return true, nil
		case l.rewriting():
			return false, nil
		}
		sent = false // what became of it has been read
		change, err := missing(l)
		if change == nil || err != nil {
			return true, err
		}
		sent = true
		m.writeRecord(l, change, func(err error) {
			sent, done, refused = false, err == nil, err
			if done {
				written(l)
			}
		})
		return false, nil
	})
	if err != nil && (sent || done) {
		err = unsure(err)
	}
	return amended, err
}
