package manager

import (
	"context"
	"errors"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/settings"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// configureAttempts bounds how often a change of settings is decided again
// because another gateway wrote first.
const configureAttempts = 8

// Configure sets a lock's limit. It applies to later acquires; a lease in the queue keeps the limit that its contender
// names. A repeat does the same again.
func (m *Manager) Configure(ctx context.Context, req locks.SettingsRequest) (locks.Lock, error) {
	if err := req.Check(); err != nil {
		return locks.Lock{}, err
	}
	reserved := false // a place for settings that are on their way
	err := m.change(ctx, req.NS, req.Lock, func(q *queues.Queue, d *settings.Present) ([]zk.Op, error) {
		if req.IfMatch != nil && !slices.Contains(req.IfMatch, m.leases.revString(q.Rev)) {
			return nil, locks.Changed()
		}
		if !d.Exists && !reserved {
			if !m.quota.Fits(quota.Settings, 1) {
				return nil, tooManySettings(&m.quota)
			}
			m.quota.Add(quota.Settings, 1)
			reserved = true
		}
		return m.fleet.settings.Set(q, d, req.Limit), nil
	})
	if reserved { // from here on the replica counts them
		m.do(func() { m.quota.Add(quota.Settings, -1) })
	}
	if err != nil {
		return locks.Lock{}, err
	}
	v, err := m.Lock(ctx, locks.LockRequest{Principal: req.Principal, NS: req.NS, Lock: req.Lock, Limit: maxHolders})
	text := textBudget(settingsText)
	text.trim(v.Holders)
	text.trim(v.Waiters)
	return v, err
}

// Remove deletes an unused lock and its settings. For a lock in use it returns
// CodeLockInUse, for a lock that is not there nil.
func (m *Manager) Remove(ctx context.Context, _ locks.Principal, ns, lock string) error {
	return m.change(ctx, ns, lock, func(q *queues.Queue, d *settings.Present) ([]zk.Op, error) {
		if q.Contenders.Len() > 0 || q.Leases > 0 {
			return nil, m.lockInUse(ctx, q)
		}
		return m.fleet.settings.Remove(q, d), nil
	})
}

// lockInUse refuses to remove a lock, with its holders. The monitor is held, and released while their records are read.
func (m *Manager) lockInUse(ctx context.Context, q *queues.Queue) *locks.Error {
	e := &locks.Error{Code: locks.CodeLockInUse, Holders: m.describeHolders(ctx, q, maxHolders), QueueLength: q.Contenders.Waiting(),
		Detail: "the lock has holders or waiters, and DELETE removes only an unused lock; to release your own lease, send DELETE /v1/leases/self with its token in the Lease-Token header"}
	e.RetryAfter = locks.RetryAfter(e.Holders)
	if q.Contenders.Len() == 0 && q.Leases == 0 {
		e.Detail = "the lock's directory has a child that is no contender; delete it, then the lock"
	}
	return e
}

// change decides from what ZooKeeper has how a lock's settings must change, and writes that.
// It decides again when another gateway wrote first. It calls decide with the monitor held;
// decide returns no operations when nothing has to change. When change returns, the replica
// shows what was done.
func (m *Manager) change(ctx context.Context, ns, lock string, decide func(*queues.Queue, *settings.Present) ([]zk.Op, error)) error {
	if err := locks.CheckPlace(&ns, &lock); err != nil {
		return err
	}
	return locked(m, func() error {
		q, err := m.useQueue(ns, lock)
		if err != nil {
			return err
		}
		defer m.leaveQueue(q)
		used := false // by a contender that the replica did not show
		for range configureAttempts {
			d, err := m.presentLimits(ctx, m.fleet.settings.Dir(q))
			if err != nil {
				return err
			}
			if err := m.usable(); err != nil {
				return err
			}
			ops, err := decide(q, d)
			if err != nil || len(ops) == 0 {
				return err
			}
			res := m.commit(ctx, &zk.Write{Alone: true, Ops: ops})
			switch {
			case res.Outcome == zk.Done:
				m.outside(func() { show(m.port, ctx, res.Zxid) })
				return nil
			case res.Outcome == zk.Unknown:
				return outcomeUnknown()
			case errors.Is(res.Err, zk.ErrNotEmpty), errors.Is(res.Err, zk.ErrEphemeralParent):
				used = true
			case errors.Is(res.Err, zk.ErrNodeExists), errors.Is(res.Err, zk.ErrNoNode), errors.Is(res.Err, zk.ErrNotApplied):
			default:
				return createFailure(res.Err)
			}
		}
		if used {
			return m.lockInUse(ctx, q)
		}
		return unavailable()
	})
}

// presentLimits is what ZooKeeper has of a lock's settings, whose directory is at the path, read after
// everything that was acknowledged before the call; the replica has come as far. The monitor is held, and released meanwhile.
func (m *Manager) presentLimits(ctx context.Context, dir string) (d *settings.Present, err error) {
	m.outside(func() {
		var ref *term.Ref
		if ref, err = m.barrierUnder(ctx); err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		if d, err = settings.Read(ctx, ref.Session, dir); err != nil {
			err = unavailableFor(err)
		}
	})
	return d, err
}

// show waits until the replica has come to a transaction, but not for long: it was done.
func show(port *term.Port, ctx context.Context, zxid int64) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	_ = port.Watcher.Reached(ctx, zxid)
}

// commit hands a write over and waits for its outcome; the monitor is held, and released
// meanwhile. When ZooKeeper answers nobody, or the caller goes away, it is
// unknown.
func (m *Manager) commit(ctx context.Context, w *zk.Write) zk.Result {
	done := make(chan zk.Result, 1)
	begun := m.clock.Now().Boot()
	m.port.Submit(w, func(res zk.Result) { done <- res })
	look := time.NewTicker(answerWithin / 4)
	defer look.Stop()
	var res zk.Result
	for {
		m.outside(func() {
			select {
			case res = <-done:
			case <-look.C:
			case <-ctx.Done():
			}
		})
		switch {
		case res.Outcome != 0:
			return res
		case ctx.Err() != nil || m.overdue(begun, m.clock.Now().Boot()):
			return zk.Result{Outcome: zk.Unknown, Culprit: -1}
		}
	}
}
