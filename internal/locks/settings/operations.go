package settings

import (
	"context"
	"errors"
	"slices"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// This file has the operations on settings, and what ZooKeeper has of them before a change.

// Agree returns what the transaction that creates a contender must carry for the limit in its name: a check that it is
// in force, or, where the lock has no settings, their creation. alone: the transaction is likely to fail, so no other
// write shares it.
func (t Tree) Agree(q *queues.Queue, n int) (ops []zk.Op, alone bool) {
	if inForce, _ := q.Limit(); inForce != 0 {
		if fault.On("limit-check") {
			return nil, false
		}
		return []zk.Op{{Kind: zk.OpCheck, Path: t.Limit(q, n), Version: -1}}, false
	}
	dir := t.Dir(q)
	if q.HasSettingsDir() {
		// Another gateway may be creating another limit in it at this moment. So it is deleted first, which fails unless
		// it is empty.
		ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: dir, Version: -1})
	}
	return append(ops, zk.Op{Kind: zk.OpCreate, Path: dir},
		zk.Op{Kind: zk.OpCreate, Path: t.Limit(q, n), Data: limitData(byAcquire)}), true
}

// Failed reports whether a create was not done because the settings are not what the replica showed.
func (t Tree) Failed(w *zk.Write, res zk.Result) bool {
	switch {
	case res.Outcome == zk.Conflict:
		return slices.ContainsFunc(w.Ops, func(op zk.Op) bool { return t.has(op.Path) })
	case res.Outcome != zk.NotDone || res.Culprit < 0 || !t.has(w.Ops[res.Culprit].Path):
		return false
	}
	return errors.Is(res.Err, zk.ErrNodeExists) || errors.Is(res.Err, zk.ErrNoNode) || errors.Is(res.Err, zk.ErrNotEmpty)
}

// Present is the directory of a lock's settings as ZooKeeper has it.
type Present struct {
	Exists bool
	limits []limitNode
}

type limitNode struct {
	n   int
	set bool // a client set it
}

// Session reads on the connection that writes.
type Session interface {
	Children(ctx context.Context, path string) ([]string, wire.Stat, error)
	Get(ctx context.Context, path string) ([]byte, wire.Stat, error)
}

// Read reads the settings in a directory.
func Read(ctx context.Context, session Session, dir string) (*Present, error) {
	names, _, err := session.Children(ctx, dir)
	if errors.Is(err, zk.ErrNoNode) {
		return &Present{}, nil
	}
	if err != nil {
		return nil, err
	}
	d := &Present{Exists: true}
	for _, name := range names {
		n, ok := queues.ParseLimit(name)
		if !ok {
			continue
		}
		_, stat, err := session.Get(ctx, dir+"/"+name)
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // a limit that is gone fails the transaction that counts on it
			return nil, err
		}
		d.limits = append(d.limits, limitNode{n: n, set: stat.Version > 0})
	}
	slices.SortFunc(d.limits, func(a, b limitNode) int { return a.n - b.n })
	return d, nil
}

// Set returns the transaction that makes n the limit that is set, no operations when it is already.
func (t Tree) Set(q *queues.Queue, d *Present, n int) []zk.Op {
	i := slices.IndexFunc(d.limits, func(l limitNode) bool { return l.n == n })
	if i >= 0 && len(d.limits) == 1 && d.limits[i].set {
		return nil
	}
	var ops []zk.Op
	dir := t.Dir(q)
	if i < 0 {
		if d.Exists && len(d.limits) == 0 {
			ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: dir, Version: -1}) // see Agree
		}
		if len(d.limits) == 0 {
			ops = append(ops, zk.Op{Kind: zk.OpCreate, Path: dir})
		}
		ops = append(ops, zk.Op{Kind: zk.OpCreate, Path: t.Limit(q, n), Data: limitData(bySet)})
	}
	// Once more: no sweep takes it for one that an acquire agreed upon.
	ops = append(ops, zk.Op{Kind: zk.OpSetData, Path: t.Limit(q, n), Data: limitData(bySet), Version: -1})
	for _, l := range d.limits {
		if l.n != n {
			// Of two changes at once the second finds this gone, and is decided again.
			ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: t.Limit(q, l.n), Version: -1})
		}
	}
	return ops
}

// Remove returns the transaction that removes a lock that is unused in the replica. It fails when the lock is in use.
// The directories of other namespaces stay: other programs' lock objects create theirs only once.
func (t Tree) Remove(q *queues.Queue, d *Present) []zk.Op {
	ops := removeLock(q, d.Exists)
	if d.Exists {
		for _, l := range d.limits {
			ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: t.Limit(q, l.n), Version: -1})
		}
		ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: t.Dir(q), Version: -1})
	}
	return ops
}

// Sweep returns the transaction that removes the rest of a lock that has been idle for a while. It fails when the lock
// is used again: its directory is not empty, or is there again. In other namespaces an agreed limit may be deleted
// just after a contender came, which keeps the limit in its name, as after a change.
func (t Tree) Sweep(q *queues.Queue) []zk.Op {
	limits, agreed := q.Agreed()
	ops := removeLock(q, agreed)
	if agreed {
		for _, n := range limits {
			ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: t.Limit(q, n), Version: 0})
		}
		ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: t.Dir(q), Version: -1})
	}
	return ops
}

// removeLock removes a lock's directory where gateways may. settings: settings are removed with it, which fails when
// the directory is in use.
func removeLock(q *queues.Queue, settings bool) []zk.Op {
	switch {
	case q.Exists && (q.Namespace.Name == locks.DefaultNamespace || q.Extras().Temporary):
		return queues.RemoveDir(q.Path)
	case q.Namespace.Name == locks.DefaultNamespace && settings:
		return []zk.Op{{Kind: zk.OpCreate, Path: q.Path}, {Kind: zk.OpDelete, Path: q.Path, Version: -1}}
	}
	return nil
}
