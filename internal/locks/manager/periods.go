package manager

import (
	"context"
	"errors"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// Once per period. A lock with such acquires has one more node, the record of its periods (record.Periods). It is written at the
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

// oncePer is the period that a lease is for.
type oncePer struct {
	per    time.Duration
	period string
	on     locks.DoneOn

	asking   bool       // its turn has come, and the record of the periods is being read or written
	term     locks.Term // under which it asks
	admitted bool       // the record has the lease's id
	undone   bool       // its client's release says that the work was not done
	full     bool       // the record has no room for its period
	reading  locks.Term // under which it is read for mark; 0: it is not
	mark     []zk.Op    // what makes the period done in the next attempt to release; nil: not read yet
	attempts int        // to release with it
	tried    bool       // such an attempt is under way, or may have committed
	marked   bool       // it has
	missed   bool       // the last such attempt was not done
	done     *record.Period
}

func onceOf(r *record.Once) *oncePer {
	return &oncePer{per: time.Duration(r.Per) * time.Millisecond, period: r.Period, on: r.DoneOn}
}

func (o *oncePer) record() *record.Once {
	if o == nil {
		return nil
	}
	return &record.Once{Per: o.per.Milliseconds(), Period: o.period, DoneOn: o.on}
}

// once is the period that the lease is for; nil: none.
func (l *lease) once() *oncePer { return l.known().once }

// doneOf is by which lease the period was done.
func (o *oncePer) doneOf(l *lease) *locks.Done {
	return doneOf(l.q.Namespace.Name, l.q.Name(), o.done)
}

func doneOf(ns, lock string, p *record.Period) *locks.Done {
	return &locks.Done{NS: ns, Lock: lock, Period: p.Name, LeaseID: p.LeaseID, By: p.Owner, At: time.UnixMilli(p.At).UTC()}
}

// concealDone leaves out who has done it where the principal may not read the lock.
func concealDone(d *locks.Done, p locks.Principal) {
	if p.Check(access.Read, d.NS, d.Lock) != nil {
		d.By, d.LeaseID = "", ""
	}
}

func (f *fleet) periodsPath(ns, lock string) string {
	return f.root + zk.NodePeriods + "/" + ns + "," + lock
}

// periods is a lock's record of periods as it was read.
type periods struct {
	record.Periods
	path    string
	exists  bool
	version int32
}

// readPeriods reads a lock's record of periods on the connection that writes. The monitor is free.
func (f *fleet) readPeriods(ctx context.Context, session term.Session, ns, lock string) (p periods, err error) {
	if session == nil {
		return p, zk.ErrSessionGone
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	p.path = f.periodsPath(ns, lock)
	data, stat, err := session.Get(ctx, p.path)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return p, nil
	case err != nil:
		return p, err
	}
	p.exists, p.version = true, stat.Version
	p.Periods, err = record.ParsePeriods(data)
	return p, err
}

// write is the operation that makes a record of it, at the version that was read.
func (p *periods) write(next record.Periods) zk.Op {
	if !p.exists {
		return zk.Op{Kind: zk.OpCreate, Path: p.path, Data: next.Encode()}
	}
	return zk.Op{Kind: zk.OpSetData, Path: p.path, Data: next.Encode(), Version: p.version}
}

// noPeriods is the answer where the record cannot be read.
func noPeriods(path string, err error) error {
	if errors.Is(err, record.ErrNoPeriods) {
		return &locks.Error{Code: locks.CodeUnavailable, Err: err,
			Detail: "another program has written over " + path + ", the record of the lock's periods, so it is not known what was done; restore that node, or delete it when no period may be repeated by that"}
	}
	return unavailableFor(err)
}

// presentPeriods reads a lock's record of periods after a barrier: it has everything that was answered before.
func (m *Manager) presentPeriods(ctx context.Context, ns, lock string) (periods, error) {
	if err := locked(m, m.usable); err != nil {
		return periods{}, err
	}
	if err := m.barrier(ctx); err != nil {
		return periods{}, err
	}
	p, err := m.fleet.readPeriods(ctx, m.port.Session(), ns, lock)
	if err != nil {
		return p, noPeriods(m.fleet.periodsPath(ns, lock), err)
	}
	return p, nil
}

// periodDone returns by which lease the period of an acquire was done; nil: by none.
func (m *Manager) periodDone(ctx context.Context, req *locks.AcquireRequest) (*locks.Done, error) {
	p, err := m.presentPeriods(ctx, req.NS, req.Lock)
	if err != nil {
		return nil, err
	}
	found := p.Find(req.InPeriod)
	switch {
	case found != nil && found.Done:
		d := doneOf(req.NS, req.Lock, found)
		concealDone(d, req.Principal)
		return d, nil
	case found == nil && len(p.Kept(m.clock.Now().Wall().Milliseconds()).Periods) >= locks.MaxPeriods:
		return nil, tooManyPeriods(req.Lock)
	case !p.exists:
		return nil, m.roomForPeriods(ctx)
	}
	return nil, nil
}

// roomForPeriods refuses an acquire whose lock would be one more with a record of periods, where as many have one as the gateway may
// know locks. These records outlive the locks by days, so that bound on locks does not hold for them.
func (m *Manager) roomForPeriods(ctx context.Context) error {
	session := m.port.Session()
	if session == nil {
		return unavailable()
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	_, stat, err := session.Get(ctx, m.opt.Root+zk.NodePeriods)
	switch most := locked(m, func() int64 { return m.leases.quota.Limit(quota.Locks) }); {
	case err != nil:
		return unavailableFor(err)
	case int64(stat.NumChildren) >= most:
		return atBound(locks.CodeTooManyLocks, time.Minute, "%d locks have a record of their periods, as many as locks may be known: name periods of fewer locks, or repeat when some are forgotten, a day after their last use at the earliest", stat.NumChildren)
	}
	return nil
}

// doneBefore is periodDone for an acquire that repeats no other one: a repeat gets its lease, also where that has made the period
// done. Without it an acquire would wait in the queue to learn the same.
func (m *Manager) doneBefore(ctx context.Context, req *locks.AcquireRequest) (*locks.Done, error) {
	done, err := m.periodDone(ctx, req)
	e, refused := errors.AsType[*locks.Error](err)
	full := refused && (e.Code == locks.CodeTooManyPeriods || e.Code == locks.CodeTooManyLocks)
	if done == nil && !full || req.IdempotencyKey == "" || req.DryRun {
		return done, err
	}
	hash := locked(m, func() string { return m.fleet.ring.Tokens().Names.Name(req) })
	if locked(m, func() bool { return m.keys.Get(hash) != nil }) {
		return nil, nil
	}
	session := m.port.Session()
	if session == nil {
		return nil, unavailable()
	}
	switch entry, failed := m.fleet.readKey(ctx, session, hash); {
	case failed != nil:
		return nil, failed
	case entry != nil:
		return nil, nil
	}
	return done, err
}

func tooManyPeriods(lock string) *locks.Error {
	return &locks.Error{Code: locks.CodeTooManyPeriods,
		Detail: "the lock " + lock + " keeps 64 periods, and none may be forgotten yet: each stays for twice its once_per and a day at least. Use a longer period, or a lock for each job; an administrator can forget one with DELETE /v1/locks/{lock}/periods/{period}"}
}

// admitted reports whether the record of the periods has the lease's id, so that it may be granted. Else it asks for that; the
// answer evaluates the queue again. The lease is next, and its record was read.
func (l *lease) admitted(m *Manager) bool {
	o := l.once()
	switch {
	case o == nil || o.admitted || fault.On("once-mark"):
		return true
	case o.asking && o.term == l.term:
		return false
	}
	o.asking, o.term = true, l.term
	l.askPeriod(m)
	return false
}

// askPeriod reads the record of the periods for a lease whose turn it is.
func (l *lease) askPeriod(m *Manager) {
	asked, ns, lock, session := l.term, l.q.Namespace.Name, l.q.Name(), m.port.Session()
	m.effect(func() {
		go func() { // ends with the read
			p, err := m.fleet.readPeriods(context.Background(), session, ns, lock)
			m.do(func() {
				if l.stillAsks(m, asked) {
					l.decidePeriod(m, &p, err)
				}
			})
		}()
	})
}

// stillAsks reports whether the lease still waits for an answer about its period. One whose turn it is no more asks again when
// its turn comes.
func (l *lease) stillAsks(m *Manager, asked locks.Term) bool {
	o := l.once()
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
func (l *lease) askAgain(m *Manager, pause time.Duration) {
	asked := l.once().term
	time.AfterFunc(pause, func() {
		m.do(func() {
			if l.stillAsks(m, asked) {
				l.askPeriod(m)
			}
		})
	})
}

// periodRetry is the pause before a record of periods is read again that another client wrote meanwhile.
const periodRetry = 20 * time.Millisecond

// decidePeriod goes on with what the record of the periods says.
func (l *lease) decidePeriod(m *Manager, p *periods, err error) {
	o, now := l.once(), m.clock.Now()
	if err != nil {
		m.log.Warn("a lock's record of periods cannot be read", "lock", l.q.Name(), "err", err)
		l.askAgain(m, deleteRetry)
		return
	}
	found := p.Find(o.period)
	switch {
	case found != nil && found.LeaseID == string(l.id()):
		o.asking, o.admitted = false, true
		m.evaluate(l.q, now.Boot())
		return
	case found != nil && found.Done && !fault.On("once-done"):
		o.asking, o.done = false, found
		l.end(m, locks.ReasonDone, now.Boot())
		return
	}
	wall := now.Wall().Milliseconds()
	next, fits := p.With(o.entry(l, wall, o.on == locks.DoneOnGrant), wall)
	if !fits {
		o.asking, o.full = false, true
		l.end(m, locks.ReasonWaitElapsed, now.Boot())
		return
	}
	asked := o.term
	// The check: a lease whose contender is gone makes no period done.
	w := &zk.Write{Alone: true, Ops: []zk.Op{{Kind: zk.OpCheck, Path: l.path(), Version: -1}, p.write(next)}}
	m.port.Submit(w, func(res zk.Result) {
		switch {
		case !l.stillAsks(m, asked):
		case res.Outcome == zk.Done:
			o.asking, o.admitted = false, true
			m.evaluate(l.q, m.clock.Now().Boot())
		case res.Outcome == zk.NotDone && res.Culprit == 0:
			o.asking = false // the contender is gone: its event follows
		case res.Outcome == zk.NotDone && res.Culprit == 1:
			l.askAgain(m, periodRetry) // it was written meanwhile
		default:
			l.askAgain(m, deleteRetry)
		}
	})
}

// entry is the lease's own entry.
func (o *oncePer) entry(l *lease, wall int64, done bool) record.Period {
	return record.Period{Name: o.period, LeaseID: string(l.id()), Owner: l.owner, Principal: l.account.Principal(), DoneOn: o.on, Done: done, At: wall,
		Until: wall + record.KeepPeriod(o.per).Milliseconds()}
}

// marks reports whether the end of the lease makes its period done.
func (l *lease) marks() bool {
	o := l.once()
	return o != nil && o.on == locks.DoneOnRelease && !o.undone && l.reason() == locks.ReasonReleased && l.Grant() != lifecycle.GrantNone
}

// marking returns what the transaction that ends a lease must have besides: where a release makes the period done, the record of
// that. It is not ready while the record is being read; the end waits, and goes on then.
func (l *lease) marking(m *Manager) (mark []zk.Op, ready bool) {
	if !l.marks() || fault.On("once-release") {
		return nil, true
	}
	o := l.once()
	if o.mark != nil {
		return o.mark, true
	}
	if l.Change() != lifecycle.ChangePaused {
		l.SetChange(m.leases, lifecycle.ChangePaused)
	}
	m.leases.touch(l)
	if o.reading != l.term {
		o.reading = l.term
		l.readMark(m)
	}
	return nil, false
}

// missedMark reports whether the lease ends by a release that makes its period done, and no transaction of that can have committed. When
// its contender is gone, another client has deleted it.
func (l *lease) missedMark() bool { return l.Ending() && l.marks() && !l.once().tried }

// tries notes that an attempt to release which makes the period done is under way.
func (o *oncePer) tries() {
	o.attempts++
	o.tried, o.marked, o.missed = true, false, false
}

// markTried notes what became of an attempt to release that was to make the period done. A release waits for that where the lease has
// ended meanwhile. Where the outcome is unknown, nothing of it can commit later, and the record of the periods shows what did.
func (l *lease) markTried(m *Manager, outcome zk.Outcome) {
	o := l.once()
	if !o.tried {
		return
	}
	if outcome != zk.Unknown {
		l.settleMark(m, outcome == zk.Done)
		return
	}
	attempt, ns, lock, session := o.attempts, l.q.Namespace.Name, l.q.Name(), m.port.Session()
	m.effect(func() {
		go func() { // ends with the read
			p, err := m.fleet.readPeriods(context.Background(), session, ns, lock)
			if err != nil {
				return // the release's outcome stays unknown
			}
			m.do(func() {
				if o.attempts != attempt {
					return
				}
				found := p.Find(o.period)
				l.settleMark(m, found != nil && found.Done && found.LeaseID == string(l.id()))
			})
		}()
	})
}

func (l *lease) settleMark(m *Manager, done bool) {
	o := l.once()
	o.marked, o.missed, o.tried = done, !done, done
	if l.Ended() {
		m.leases.touch(l)
	}
}

// readMark reads the record of the periods for the release of a lease.
func (l *lease) readMark(m *Manager) {
	asked, ns, lock, session := l.term, l.q.Namespace.Name, l.q.Name(), m.port.Session()
	m.effect(func() {
		go func() { // ends with the read
			p, err := m.fleet.readPeriods(context.Background(), session, ns, lock)
			m.do(func() { l.goOnMarking(m, asked, &p, err) })
		}()
	})
}

func (l *lease) goOnMarking(m *Manager, asked locks.Term, p *periods, err error) {
	o := l.once()
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
					l.resubmitDelete(m)
				}
			})
		})
		return
	}
	wall := m.clock.Now().Wall().Milliseconds()
	next, _ := p.With(o.entry(l, wall, true), wall) // in the place of its own entry, which was there when it was granted
	o.mark = []zk.Op{p.write(next)}
	l.resubmitDelete(m)
}

// mayTellHeld reports whether a gateway may tell in the owner's place that a lease holds that is for a period: the record of the
// periods has its id. The monitor is free.
func (m *Manager) mayTellHeld(ctx context.Context, session term.Session, lock, id string, r record.Record) bool {
	if r.Once == nil {
		return true
	}
	p, err := m.fleet.readPeriods(ctx, session, locks.DefaultNamespace, lock)
	if err != nil {
		return false
	}
	found := p.Find(r.Once.Period)
	return found != nil && found.LeaseID == id
}

// Periods are the periods of a lock that its record has.
func (m *Manager) Periods(ctx context.Context, req locks.PeriodsRequest) ([]locks.Period, error) {
	if err := req.Check(false); err != nil {
		return nil, err
	}
	if err := may(req.Principal, access.Operate, &req.NS, &req.Lock); err != nil {
		return nil, err
	}
	p, err := m.presentPeriods(ctx, req.NS, req.Lock)
	if err != nil {
		return nil, err
	}
	list := make([]locks.Period, 0, len(p.Periods.Periods))
	for _, one := range p.Periods.Periods {
		list = append(list, locks.Period{Name: one.Name, LeaseID: one.LeaseID, Owner: one.Owner, Principal: one.Principal, DoneOn: one.DoneOn, Done: one.Done,
			At: time.UnixMilli(one.At).UTC(), KeptUntil: time.UnixMilli(one.Until).UTC()})
	}
	return list, nil
}

// ForgetPeriod takes a period out of a lock's record, so that its work can run again. A period that is not there is CodeNoPeriod,
// also when the request is repeated. A lease that runs for the period stays; only a release of it makes the period done again.
func (m *Manager) ForgetPeriod(ctx context.Context, req locks.PeriodsRequest) error {
	if err := req.Check(true); err != nil {
		return err
	}
	if err := may(req.Principal, access.Operate, &req.NS, &req.Lock); err != nil {
		return err
	}
	for range adminAttempts {
		p, err := m.presentPeriods(ctx, req.NS, req.Lock)
		switch {
		case err != nil:
			return err
		case p.Find(req.Period) == nil:
			return &locks.Error{Code: locks.CodeNoPeriod, Detail: "the lock's record has no such period: it was not done, or is forgotten"}
		}
		// Never deleted here: a node that is made anew begins at the version 0 again.
		switch res := m.write(ctx, &zk.Write{Alone: true, Ops: []zk.Op{p.write(p.Without(req.Period))}}); {
		case res.Outcome == zk.Done:
			return nil
		case res.Outcome == zk.Unknown:
			return outcomeUnknown()
		case ctx.Err() != nil:
			return cancelled(ctx)
		case res.Culprit != 0:
			return unavailableFor(res.Err)
		}
	}
	return unavailable()
}

// periodsEvery is how often records of periods are looked through. One of which nothing has to be kept is deleted a day after its
// last write at the earliest: no read that is under way is so old, so none meets a version of the node's next life.
const periodsEvery = time.Hour

// periods deletes the records of which nothing has to be kept, of those locks that fall to this gateway.
func (w *sweeper) periods(ctx context.Context) {
	m := w.m
	session, trusted := locked2(m, func() (term.Session, bool) {
		return m.port.Session(), m.trusted() && !m.life.draining
	})
	if !trusted {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, scanEvery/2)
	defer cancel()
	dir := m.opt.Root + zk.NodePeriods
	names, _, err := session.Children(ctx, dir)
	if err != nil {
		return // the next round sees them
	}
	for _, name := range names {
		if !locked(m, func() bool { return m.members.Appointed("periods/" + name) }) {
			continue
		}
		data, stat, err := session.Get(ctx, dir+"/"+name)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			continue
		}
		p, err := record.ParsePeriods(data)
		now := m.clock.Now().Wall()
		if err != nil || len(p.Kept(now.Milliseconds()).Periods) > 0 || now < time.Duration(stat.Mtime)*time.Millisecond+24*time.Hour {
			continue
		}
		m.do(func() {
			m.port.Submit(&zk.Write{Alone: true, Ops: []zk.Op{{Kind: zk.OpDelete, Path: dir + "/" + name, Version: stat.Version}}}, func(zk.Result) {})
		})
	}
}
