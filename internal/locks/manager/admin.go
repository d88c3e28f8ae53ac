package manager

import (
	"context"
	"errors"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/paging"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/settings"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// Administrators revoke other clients' leases (revoke.go) or end them (break.go, reap.go).
// Each operation begins with a barrier, so it finds every contender acknowledged before it. Each may be repeated.

const (
	// adminWindow is how many leases one request revokes at a time.
	adminWindow = 64
	// adminAttempts bounds how often a request reads and writes a node again that others write concurrently.
	adminAttempts = 8
)

// lockAt returns a lock's queue after a barrier, so it contains everything acknowledged before the call.
// It creates the queue of an unused lock, and keeps it until Replica.Leave.
// The caller holds the monitor; lockAt releases it while it waits.
func (m *Manager) lockAt(ctx context.Context, ns, lock string) (*queues.Queue, error) {
	if err := locks.CheckPlace(&ns, &lock); err != nil {
		return nil, err
	}
	var err error
	if m.outside(func() { err = m.barrier(ctx) }); err != nil {
		return nil, err
	}
	q, err := m.useQueue(ns, lock)
	if err != nil {
		return nil, err
	}
	m.look(ctx, q)
	if err := m.usable(); err != nil { // the session may have ended during the barrier
		m.replica.Leave(q)
		return nil, err
	}
	return q, nil
}

// useQueue returns a lock's queue and keeps it until Replica.Leave; it creates the queue of an unused lock.
func (m *Manager) useQueue(ns, lock string) (*queues.Queue, error) {
	if err := m.usable(); err != nil {
		return nil, err
	}
	s := m.replica.Namespaces[ns]
	if s == nil {
		return nil, locks.NamespaceUnknown("ns", ns)
	}
	q := m.replica.Queue(s, lock, m.clock.Now().Boot())
	q.Polls++
	return q, nil
}

// write submits a write and waits for its outcome; the caller does not hold the monitor.
func (m *Manager) write(ctx context.Context, w *zk.Write) zk.Result {
	return locked(m, func() zk.Result { return m.commit(ctx, w) })
}

// rewriteData reads the data of a contender that this gateway does not run, and writes the change at the version that it read.
// It repeats both after a conflicting write or a lost reply. change returns nil to write nothing.
//
// zk.ErrNoNode: the contender is gone, or change says so. After a lost reply it may have gone because of that write, and then the
// error is outcomeUnknown.
func (m *Manager) rewriteData(ctx context.Context, path string, change func([]byte) ([]byte, error)) (err error) {
	var last error
	lost := false
	defer func() {
		if lost && errors.Is(err, zk.ErrNoNode) {
			err = outcomeUnknown()
		}
	}()
	for range adminAttempts {
		session := m.port.Session()
		if session == nil {
			return unavailable()
		}
		attempt, cancel := context.WithTimeout(ctx, settleWithin)
		data, stat, err := session.Get(attempt, path)
		cancel()
		if err != nil {
			return err
		}
		if data, err = change(data); data == nil || err != nil {
			return err
		}
		// Alone: a conflict with the owner's write must fail no other write.
		res := m.write(ctx, &zk.Write{Alone: true, Ops: []zk.Op{{Kind: zk.OpSetData, Path: path, Data: data, Version: stat.Version}}})
		last, lost = res.Err, lost || res.Outcome == zk.Unknown
		switch {
		case res.Outcome == zk.Done:
			return nil
		case res.Outcome == zk.NotDone && (errors.Is(last, zk.ErrNoNode) || errors.Is(last, zk.ErrNoAuth) || errors.Is(last, zk.ErrSessionGone)):
			return last
		case ctx.Err() != nil:
			return cancelled(ctx)
		}
	}
	return last
}

// obstacle describes for an administrator why an operation on a contender failed.
func obstacle(err error) string {
	var e *locks.Error
	switch {
	case errors.As(err, &e):
		return e.Detail
	case errors.Is(err, errForeign), errors.Is(err, errNotRevocable), errors.Is(err, errNewer), errors.Is(err, errDelayed), errors.Is(err, errCopied),
		errors.Is(err, errNotWithdrawn):
		return err.Error()
	case errors.Is(err, record.ErrNoRecord):
		return "another program has written over its data, so it cannot be asked; break ends it"
	case errors.Is(err, zk.ErrNoAuth):
		return "its ACL, or that of the lock's directory, forbids it to the gateways' ZooKeeper identity; the program that made it can delete it"
	case errors.Is(err, zk.ErrNotEmpty):
		return "there are nodes below its node; delete them first"
	case errors.Is(err, zk.ErrBadVersion):
		return "it is being changed all the time; repeat the request"
	case errors.Is(err, zk.ErrQueueFull):
		return "too many writes wait for ZooKeeper; repeat the request"
	}
	return "ZooKeeper has not confirmed it; it may have been done: repeat the request"
}

var errNotRevocable = errors.New("a holder of Curator's listens only if it is revocable, and its data says that this one is not; break ends it")

var (
	errForeign = errors.New("another program's contender cannot be asked; break ends it")
	errDelayed = errors.New("its lease has ended and the lock is kept for its lock delay; break ends that")
	errCopied  = errors.New("another program made it with the id of a lease that stands elsewhere; break ends it, and not the lease")
	errNewer   = errors.New("a newer release made it, and this one does not know how to ask it; break ends it")
)

var errNotWithdrawn = errors.New("the program has been told already: Curator's recipe has no way to withdraw a revocation")

// Configure sets a lock's limit. It applies to later acquires; a lease in the queue keeps the limit that its contender
// names. A repeat does the same again.
func (m *Manager) Configure(ctx context.Context, req locks.SettingsRequest) (locks.Lock, error) {
	if err := req.Check(); err != nil {
		return locks.Lock{}, err
	}
	if err := may(req.Principal, access.Operate, &req.NS, &req.Lock); err != nil {
		return locks.Lock{}, err
	}
	reserved := false // a place for settings that are on their way
	err := m.change(ctx, req.NS, req.Lock, func(q *queues.Queue, d *settings.Present) ([]zk.Op, error) {
		if req.IfMatch != nil && !slices.Contains(req.IfMatch, m.leases.revString(q.Rev)) {
			return nil, locks.Changed()
		}
		if !d.Exists && !reserved {
			if !m.leases.quota.Fits(quota.Settings, 1) {
				return nil, tooManySettings(&m.leases.quota)
			}
			m.leases.quota.Add(quota.Settings, 1)
			reserved = true
		}
		return m.fleet.settings.Set(q, d, req.Limit), nil
	})
	if reserved { // from here on the replica counts them
		m.do(func() { m.leases.quota.Add(quota.Settings, -1) })
	}
	if err != nil {
		return locks.Lock{}, err
	}
	v, err := m.Lock(ctx, locks.LockRequest{Principal: req.Principal, NS: req.NS, Lock: req.Lock, Limit: maxHolders})
	text := paging.SettingsText
	text.Trim(v.Holders)
	text.Trim(v.Waiters)
	return v, err
}

// Remove deletes an unused lock and its settings. For a lock in use it returns
// CodeLockInUse, for a lock that is not there nil.
func (m *Manager) Remove(ctx context.Context, p locks.Principal, ns, lock string) error {
	if err := may(p, access.Operate, &ns, &lock); err != nil {
		return err
	}
	err := m.change(ctx, ns, lock, func(q *queues.Queue, d *settings.Present) ([]zk.Op, error) {
		if q.Contenders.Len() > 0 || q.Leases > 0 {
			return nil, m.lockInUse(ctx, q)
		}
		return m.fleet.settings.Remove(q, d), nil
	})
	return p.ConcealIn(err)
}

// may normalizes the name of a lock, and refuses a principal that lacks the verb for it.
func may(p locks.Principal, v access.Verb, ns, lock *string) error {
	if err := locks.CheckPlace(ns, lock); err != nil {
		return err
	}
	if err := p.Check(v, *ns, *lock); err != nil {
		return err
	}
	return nil
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
		defer m.replica.Leave(q)
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

// commit hands a write over and waits for its outcome; the monitor is held, and released
// meanwhile. When ZooKeeper does not answer, or the caller goes away, it is
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

// configureAttempts bounds how often a change of settings is decided again
// because another gateway wrote first.
const configureAttempts = 8

// shown is a Shown as sets: lease ids and znodes, and whether each was found. nil: every contender is meant.
type shown map[string]bool
