package manager

import (
	"context"
	"encoding/json"
	"errors"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
)

// Administrators revoke other clients' leases (revoke.go) or end them (break.go, reap.go, destroy.go).
// Each operation begins with a barrier, so it finds every contender acknowledged before it. Each may be repeated.

const (
	// adminWindow is how many leases one request revokes at a time.
	adminWindow = 64
	// adminAttempts bounds how often a request reads and writes a node again that others write concurrently.
	adminAttempts = 8
)

// lockAt returns a lock's queue after a barrier, so it contains everything acknowledged before the call.
// It creates the queue of an unused lock, and keeps it until leaveQueue.
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
		m.leaveQueue(q)
		return nil, err
	}
	return q, nil
}

// useQueue returns a lock's queue and keeps it until leaveQueue; it creates the queue of an unused lock.
func (m *Manager) useQueue(ns, lock string) (*queues.Queue, error) {
	if err := m.usable(); err != nil {
		return nil, err
	}
	s := m.replica.Namespaces[ns]
	if s == nil {
		return nil, namespaceUnknown("ns", ns)
	}
	q := m.replica.Queue(s, lock, m.clock.Now().Boot())
	q.Polls++
	return q, nil
}

// leaveQueue ends the use of a queue from lockAt or useQueue.
func (m *Manager) leaveQueue(q *queues.Queue) {
	q.Polls--
	m.replica.Forget(q)
}

// write submits a write and waits for its outcome; the caller does not hold the monitor.
func (m *Manager) write(ctx context.Context, w *zk.Write) zk.Result {
	return locked(m, func() zk.Result { return m.commit(ctx, w) })
}

// rewrite changes the record of a contender that this gateway does not run. It keeps fields that it does not know.
// change reports whether the record must be written. rewrite returns zk.ErrNoNode if the contender is gone.
func (m *Manager) rewrite(ctx context.Context, path string, change func(record.Record, map[string]any) bool) error {
	return m.rewriteData(ctx, path, func(data []byte) ([]byte, error) {
		known, ok := record.Parse(data)
		var members map[string]any
		if !ok || json.Unmarshal(data, &members) != nil {
			return nil, record.ErrNoRecord
		}
		if !change(known, members) {
			return nil, nil
		}
		return record.EncodeMembers(members)
	})
}

// rewriteData reads a contender's data and writes the change at the version that it read.
// It repeats both after a conflicting write or a lost reply. change returns nil to write nothing.
func (m *Manager) rewriteData(ctx context.Context, path string, change func([]byte) ([]byte, error)) error {
	var last error
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
		last = res.Err
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
