package manager

import (
	"context"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/periods"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
)

// Once per period. A lock with such acquires has one more node, the record of its periods (periods.Record). It is written at the
// version that was read, so each writer has seen what all before it wrote.
//
//   - A lease whose turn it is asks for its period before it is granted (admitted). It writes its own id into the period, in one
//     transaction with a check that its contender is there. When the period is done by another lease, it ends with ReasonDone.
//     So whatever removes a granted contender later, an expiry, an administrator, a takeover or another program, has no mark to
//     write: it stands there since before the grant.
//   - DoneOnGrant: that entry makes the period done. Two leases are never granted for a period: each grant needs an entry with the
//     lease's own id, an entry that is done is never replaced, and a write that has not seen it fails at its version.
//   - DoneOnRelease: the entry says that the lease runs, and the next lease replaces it. The release of its client makes the entry
//     done in the transaction that ends the lease (marking). A lease that comes to its turn afterwards writes at a version, so it
//     has seen that.
//   - No gateway tells a client in the owner's place that such a lease holds unless the record has the lease's id (HeartbeatFor).
//     No gateway releases it in the owner's place where the release would make the period done: the owner, or its successor, does.
//   - A successor knows the period by the lease's record, and asks anew: it finds the lease's own id where it was granted.

// oncePer is the period that a lease is for, and how far the lease is with it.
type oncePer struct {
	periods.Once // immutable
	periods.Mark // of the release

	asking  bool       // its turn has come, and the record of the periods is being read or written
	term    locks.Term // under which it asks
	granted bool       // the record has the lease's id: the lease may be granted
	undone  bool       // its client's release says that the work was not done
	full    bool       // the record has no room for its period
	reading locks.Term // under which it is read for mark; 0: it is not
	mark    []zk.Op    // what makes the period done in the next attempt to release; nil: not read yet
	done    *periods.Period
}

// record is what the lease's record says of it; nil: nothing.
func (o *oncePer) record() *record.Once {
	if o == nil {
		return nil
	}
	return o.Record()
}

// once is the period that the lease is for; nil: none.
func (l *lease) once() *oncePer { return l.known().once }

// admitted reports whether the record of the periods has the lease's id, so that it may be granted. Else it asks for that; the
// answer evaluates the queue again. The lease is next, and its record was read.
func (o *oncePer) admitted(m *Manager, l *lease) bool {
	switch {
	case o == nil || o.granted || fault.On("once-mark"):
		return true
	case o.asking && o.term == l.term:
		return false
	}
	o.asking, o.term = true, l.term
	o.ask(m, l)
	return false
}

// ask reads the record of the periods for a lease whose turn it is.
func (o *oncePer) ask(m *Manager, l *lease) {
	asked, ns, lock, session := l.term, l.q.Namespace.Name, l.q.Name(), m.port.Session()
	m.effect(func() {
		go func() { // ends with the read
			p, err := m.fleet.readPeriods(context.Background(), session, ns, lock)
			m.do(func() {
				if o.stillAsks(m, l, asked) {
					o.decide(m, l, &p, err)
				}
			})
		}()
	})
}

// stillAsks reports whether the lease still waits for an answer about its period. One whose turn it is no more asks again when
// its turn comes.
func (o *oncePer) stillAsks(m *Manager, l *lease, asked locks.Term) bool {
	if o.term != asked || !o.asking {
		return false
	}
	if l.term != asked || m.port.Term() != asked || !l.Waiting() || !l.turn() {
		o.asking = false
		return false
	}
	return true
}

// askAgain asks after a pause.
func (o *oncePer) askAgain(m *Manager, l *lease, pause time.Duration) {
	asked := o.term
	time.AfterFunc(pause, func() {
		m.do(func() {
			if o.stillAsks(m, l, asked) {
				o.ask(m, l)
			}
		})
	})
}

// periodRetry is the pause before a record of periods is read again that another client wrote meanwhile.
const periodRetry = 20 * time.Millisecond

// decide goes on with what the record of the periods says.
func (o *oncePer) decide(m *Manager, l *lease, p *periods.Node, err error) {
	now := m.clock.Now()
	if err != nil {
		m.log.Warn("a lock's record of periods cannot be read", "lock", l.q.Name(), "err", err)
		o.askAgain(m, l, deleteRetry)
		return
	}
	wall := now.Wall().Milliseconds()
	next := p.Decide(o.entry(l, wall, o.On == locks.DoneOnGrant), wall)
	switch {
	case next.Admitted:
		o.asking, o.granted = false, true
		m.evaluate(l.q, now.Boot())
		return
	case next.Done != nil:
		o.asking, o.done = false, next.Done
		l.end(m, locks.ReasonDone, now.Boot())
		return
	case next.Full:
		o.asking, o.full = false, true
		l.end(m, locks.ReasonWaitElapsed, now.Boot())
		return
	}
	asked := o.term
	// The check: a lease whose contender is gone makes no period done.
	w := &zk.Write{Alone: true, Ops: []zk.Op{{Kind: zk.OpCheck, Path: l.path(), Version: -1}, next.Write}}
	m.port.Submit(w, func(res zk.Result) {
		switch {
		case !o.stillAsks(m, l, asked):
		case res.Outcome == zk.Done:
			o.asking, o.granted = false, true
			m.evaluate(l.q, m.clock.Now().Boot())
		case res.Outcome == zk.NotDone && res.Culprit == 0:
			o.asking = false // the contender is gone: its event follows
		case res.Outcome == zk.NotDone && res.Culprit == 1:
			o.askAgain(m, l, periodRetry) // it was written meanwhile
		default:
			o.askAgain(m, l, deleteRetry)
		}
	})
}

// entry is the lease's own entry.
func (o *oncePer) entry(l *lease, wall int64, done bool) periods.Period {
	return o.Entry(string(l.id()), l.owner, l.account.Principal(), wall, done)
}

// marks reports whether the end of the lease makes its period done.
func (o *oncePer) marks(l *lease) bool {
	return o != nil && o.On == locks.DoneOnRelease && !o.undone && l.reason() == locks.ReasonReleased && l.Grant() != lifecycle.GrantNone
}

// marking returns what the transaction that ends a lease must have besides: where a release makes the period done, the record of
// that. It is not ready while the record is being read; the end waits, and goes on then.
func (o *oncePer) marking(m *Manager, l *lease) (mark []zk.Op, ready bool) {
	if !o.marks(l) || fault.On("once-release") {
		return nil, true
	}
	if o.mark != nil {
		return o.mark, true
	}
	if l.Change() != lifecycle.ChangePaused {
		l.SetChange(m.leases, lifecycle.ChangePaused)
	}
	m.leases.touch(l)
	if o.reading != l.term {
		o.reading = l.term
		o.readMark(m, l)
	}
	return nil, false
}

// missedMark reports whether the lease ends by a release that makes its period done, and no transaction of that can have committed. When
// its contender is gone, another client has deleted it.
func (o *oncePer) missedMark(l *lease) bool { return l.Ending() && o.marks(l) && !o.Tried() }

// markTried notes what became of an attempt to release that was to make the period done. A release waits for that where the lease has
// ended meanwhile. Where the outcome is unknown, nothing of it can commit later, and the record of the periods shows what did.
func (o *oncePer) markTried(m *Manager, l *lease, outcome zk.Outcome) {
	if !o.Tried() {
		return
	}
	if outcome != zk.Unknown {
		o.settle(m, l, outcome == zk.Done)
		return
	}
	attempt, ns, lock, session := o.Attempt(), l.q.Namespace.Name, l.q.Name(), m.port.Session()
	m.effect(func() {
		go func() { // ends with the read
			p, err := m.fleet.readPeriods(context.Background(), session, ns, lock)
			if err != nil {
				return // the release's outcome stays unknown
			}
			m.do(func() {
				if o.Attempt() != attempt {
					return
				}
				found := p.Find(o.Period)
				o.settle(m, l, found != nil && found.Done && found.LeaseID == string(l.id()))
			})
		}()
	})
}

func (o *oncePer) settle(m *Manager, l *lease, done bool) {
	o.Settle(done)
	if l.Ended() {
		m.leases.touch(l)
	}
}

// readMark reads the record of the periods for the release of a lease.
func (o *oncePer) readMark(m *Manager, l *lease) {
	asked, ns, lock, session := l.term, l.q.Namespace.Name, l.q.Name(), m.port.Session()
	m.effect(func() {
		go func() { // ends with the read
			p, err := m.fleet.readPeriods(context.Background(), session, ns, lock)
			m.do(func() { o.goOnMarking(m, l, asked, &p, err) })
		}()
	})
}

func (o *oncePer) goOnMarking(m *Manager, l *lease, asked locks.Term, p *periods.Node, err error) {
	if o.reading != asked {
		return // adoption has begun anew
	}
	o.reading = 0
	switch {
	case !l.Ending() || l.term != asked:
		return // adoption resumes it
	case err != nil:
		m.log.Warn("a lock's record of periods cannot be read", "lock", l.q.Name(), "err", err)
		time.AfterFunc(deleteRetry, func() {
			m.do(func() {
				if l.Ending() && l.term == asked {
					l.submitDelete(m)
				}
			})
		})
		return
	}
	wall := m.clock.Now().Wall().Milliseconds()
	next, _ := p.With(o.entry(l, wall, true), wall) // in the place of its own entry, which was there when it was granted
	o.mark = []zk.Op{p.Write(next)}
	l.submitDelete(m)
}
