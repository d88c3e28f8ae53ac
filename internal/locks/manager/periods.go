package manager

import (
	"context"
	"errors"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/periods"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// The record of a lock's periods (package periods): what an acquire asks of it before it queues, what administrators do with it, and
// how it is deleted. once.go has what a lease does with it.

func (f *fleet) periodsPath(ns, lock string) string {
	return f.root + zk.NodePeriods + "/" + ns + "," + lock
}

// readPeriods reads a lock's record of periods on the connection that writes. The monitor is free.
func (f *fleet) readPeriods(ctx context.Context, session term.Session, ns, lock string) (p periods.Node, err error) {
	if session == nil {
		return p, zk.ErrSessionGone
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	path := f.periodsPath(ns, lock)
	data, stat, err := session.Get(ctx, path)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return periods.NoNode(path), nil
	case err != nil:
		return p, err
	}
	return periods.NodeOf(path, data, stat.Version)
}

// noPeriods is the answer where the record cannot be read.
func noPeriods(path string, err error) error {
	if errors.Is(err, periods.ErrNoRecord) {
		return &locks.Error{Code: locks.CodeUnavailable, Err: err,
			Detail: "another program has written over " + path + ", the record of the lock's periods, so it is not known what was done; restore that node, or delete it when no period may be repeated by that"}
	}
	return unavailableFor(err)
}

// lockPeriods asks of the record of one lock's periods.
type lockPeriods struct {
	m        *Manager
	ns, lock string
}

// present reads the record after a barrier: it has everything that was answered before.
func (r lockPeriods) present(ctx context.Context) (p periods.Node, err error) {
	m := r.m
	if err := locked(m, m.usable); err != nil {
		return p, err
	}
	if err := m.barrier(ctx); err != nil {
		return p, err
	}
	p, err = m.fleet.readPeriods(ctx, m.port.Session(), r.ns, r.lock)
	if err != nil {
		return p, noPeriods(m.fleet.periodsPath(r.ns, r.lock), err)
	}
	return p, nil
}

// done returns by which lease the period of an acquire was done; nil: by none.
func (r lockPeriods) done(ctx context.Context, req *locks.AcquireRequest) (*locks.Done, error) {
	p, err := r.present(ctx)
	if err != nil {
		return nil, err
	}
	found := p.Find(req.InPeriod)
	switch {
	case found != nil && found.Done:
		d := periods.DoneBy(req.NS, req.Lock, found)
		periods.Conceal(d, req.Principal)
		return d, nil
	case found == nil && len(p.Kept(r.m.clock.Now().Wall().Milliseconds()).Periods) >= locks.MaxPeriods:
		return nil, periods.TooMany(req.Lock)
	case !p.Exists:
		return nil, r.room(ctx)
	}
	return nil, nil
}

// room refuses an acquire whose lock would be one more with a record of periods, where as many have one as the gateway may
// know locks. These records outlive the locks by days, so that bound on locks does not hold for them.
func (r lockPeriods) room(ctx context.Context) error {
	m := r.m
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

// doneBefore is done for an acquire that repeats no other one: a repeat gets its lease, also where that has made the period
// done. Without it an acquire would wait in the queue to learn the same.
func (r lockPeriods) doneBefore(ctx context.Context, req *locks.AcquireRequest) (*locks.Done, error) {
	m := r.m
	done, err := r.done(ctx, req)
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

// Periods are the periods of a lock that its record has.
func (m *Manager) Periods(ctx context.Context, req locks.PeriodsRequest) ([]locks.Period, error) {
	if err := req.Check(false); err != nil {
		return nil, err
	}
	if err := may(req.Principal, access.Operate, &req.NS, &req.Lock); err != nil {
		return nil, err
	}
	p, err := lockPeriods{m, req.NS, req.Lock}.present(ctx)
	if err != nil {
		return nil, err
	}
	return p.List(), nil
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
		p, err := lockPeriods{m, req.NS, req.Lock}.present(ctx)
		switch {
		case err != nil:
			return err
		case p.Find(req.Period) == nil:
			return &locks.Error{Code: locks.CodeNoPeriod, Detail: "the lock's record has no such period: it was not done, or is forgotten"}
		}
		// Never deleted here: a node that is made anew begins at the version 0 again.
		switch res := m.write(ctx, &zk.Write{Alone: true, Ops: []zk.Op{p.Write(p.Without(req.Period))}}); {
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
		p, err := periods.Parse(data)
		now := m.clock.Now().Wall()
		if err != nil || len(p.Kept(now.Milliseconds()).Periods) > 0 || now < time.Duration(stat.Mtime)*time.Millisecond+24*time.Hour {
			continue
		}
		m.do(func() {
			m.port.Submit(&zk.Write{Alone: true, Ops: []zk.Op{{Kind: zk.OpDelete, Path: dir + "/" + name, Version: stat.Version}}}, func(zk.Result) {})
		})
	}
}
