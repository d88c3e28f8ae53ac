package manager

import (
	"context"
	"errors"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
)

// rewriting reports whether a write of the record, or its replacement under another name, is in flight.
// Until its outcome is known, the gateway writes nothing else to the record.
func (l *lease) rewriting() bool { return l.recordState.writing() || l.replacing() }

// writeRecord writes the contender's record with a change, at the version that was seen.
// Until the outcome is known the shorter of the two TTLs counts, so no client relies on a TTL that a successor may not
// find. then, if not nil, gets whether the write was done, unless only a read of the record can tell.
// The caller has checked that the lease is loaded and that no other write of it is in flight.
func (l *lease) writeRecord(m *Manager, change func(*record.Record), then func(error)) {
	before, term := l.recorded, l.term
	r := l.contents(before)
	change(&r)
	l.setRecord(m.leases, recordWriting)
	l.rare().outgoing = before
	l.recorded = min(before, r.LeaseTTL())
	m.leases.weigh(l, r.TextBytes())
	w := &zk.Write{Ops: []zk.Op{{Kind: zk.OpSetData, Path: l.path(), Data: r.Encode(), Version: l.dataVersion()}}}
	m.port.Submit(w, func(res zk.Result) {
		if l.phase == ended || l.term != term {
			return // adoption reads it again
		}
		contested := l.recordState == recordContested
		if l.recordState.writing() {
			l.setRecord(m.leases, recordCurrent)
		}
		switch {
		case res.Outcome == zk.Done:
			l.setDataVersion(res.Versions[0])
			l.recorded, l.rareFields.outgoing = r.LeaseTTL(), 0
			if l.learn(m.leases, r) {
				l.touchQueues(m)
			}
			if then != nil {
				then(nil)
			}
		case res.Outcome == zk.Unknown, errors.Is(res.Err, zk.ErrBadVersion):
			if m.port.Session() != nil {
				// The write can no longer commit from here on. A server that lags may show the data before it.
				l.rareFields.least = m.port.Session().LastZxid()
			}
			contested = true
		default:
			l.recorded = before
			m.leases.weigh(l, 0)
			if then != nil {
				then(res.Err)
			}
		}
		if contested {
			// One of the events may be that of this write, and another that of another writer.
			l.staleRecord(m.leases)
			l.load(m)
		}
		m.leases.touch(l)
	})
}

// amend changes a lease's record as a request wants, and returns when the write is known to be done.
// missing returns the change to write, or nil for none. amend calls written after the write, even if the request has
// ended meanwhile. The caller holds the monitor; amend releases it while the request waits.
//
// If the outcome is lost, amend reads the record and calls missing again. A repeat, also by the client, therefore
// changes nothing twice.
func (m *Manager) amend(ctx context.Context, id recipe.LeaseID, missing func(*lease) (func(*record.Record), *locks.Error), written func(*lease)) (amended *lease, err *locks.Error) {
	var (
		sent, done bool // sent: a write whose outcome is not known
		refused    error
	)
	err = m.withLease(ctx, id, func(l *lease) (bool, *locks.Error) {
		switch amended = l; {
		case refused != nil:
			return false, unavailableFor(refused)
		case done:
			return true, nil
		case l.rewriting():
			return false, nil
		}
		sent = false // the record read shows the outcome
		change, err := missing(l)
		if change == nil || err != nil {
			return true, err
		}
		sent = true
		l.writeRecord(m, change, func(err error) {
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
