package manager

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// mayMiss returns an error when a lease that the replica lacks may be in a namespace that is still loading.
// Leases of the present session cannot be: the session writes only in loaded namespaces.
func (m *Manager) mayMiss(id recipe.LeaseID) *locks.Error {
	if m.replica.KnowsAll() || m.port.Session() != nil && string(id.Gateway()) == m.port.Session().ID() {
		return nil
	}
	return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter,
		Detail: "this gateway is still reading a namespace in which that lease may be; nothing was done, repeat the request"}
}

// applyNamespace applies a change of a namespace's record. A removed record leaves its namespace in place, because
// the namespace may contain leases.
func (m *Manager) applyNamespace(c *zk.Change, now time.Duration) {
	switch c.Kind {
	case zk.NodeAdded, zk.NodeChanged:
		if !m.replica.Recorded(c.Node) {
			m.log.Warn("the record of a namespace was written to; what it said first stays in force", "ns", c.Node)
			return
		}
		m.readNamespace(c.Node)
	case zk.NodeRemoved:
		if m.replica.Unrecorded(c.Node) {
			m.considerTakeovers(now)
			return
		}
		m.log.Warn("the record of a namespace was removed; this gateway goes on with it until it is restarted", "ns", c.Node)
	}
}

// readNamespaces reads again the records that could not be read.
func (m *Manager) readNamespaces() {
	for _, name := range m.replica.Unread() {
		m.readNamespace(name)
	}
}

func (m *Manager) readNamespace(name string) {
	loading := m.replica.Loading[name]
	loading.Reading = true
	m.effect(func() {
		m.port.Watcher.Get(m.opt.Root+zk.NodeNamespaces+"/"+name, func(data []byte, _ wire.Stat, _ int64, err error) {
			m.do(func() {
				if m.replica.Loading[name] != loading {
					return
				}
				loading.Reading = false
				if err != nil {
					return // the record is gone and an event follows, or the connection is lost and Synced or the clock retries
				}
				known, err := m.replica.Learn(name, m.opt.Root, data)
				switch {
				case err != nil:
					loading.Problem = err.Error()
					m.log.Error("a recorded namespace cannot be used: until that is cured this gateway takes no other gateway's leases over", "ns", name, "err", err)
				case known:
					m.considerTakeovers(m.clock.Now().Boot())
				default:
					m.watchNamespace(name, loading)
				}
			})
		})
	})
}

// watchNamespace starts to watch and read the lock root of a namespace.
func (m *Manager) watchNamespace(name string, loading *queues.Loading) {
	if !loading.Watch(m.stream.synced) {
		return
	}
	m.effect(func() {
		if err := m.port.Watcher.AddRoot(zk.WatchRoot{Path: loading.Namespace.Root, Depth: 2}); err != nil {
			m.log.Error("a recorded namespace cannot be watched", "ns", name, "err", err)
			m.do(func() { loading.Problem = "its lock root cannot be watched: " + err.Error() })
		}
	})
}

// namespaceLoaded records that one root has been read, or, when root is nil, all watched roots.
func (m *Manager) namespaceLoaded(root *zk.WatchRoot) {
	for _, s := range m.replica.Arrived(root) { // afterSync follows
		m.log.Info("a namespace was added", "ns", s.Name, "root", s.Root, "dialect", s.Naming)
	}
	for _, name := range slices.Sorted(maps.Keys(m.replica.Loading)) {
		m.watchNamespace(name, m.replica.Loading[name])
	}
	m.readNamespaces()
}

// Namespaces describes the recorded namespaces, in order of their names.
func (m *Manager) Namespaces(context.Context) ([]locks.NamespaceInfo, error) {
	return locked2(m, func() ([]locks.NamespaceInfo, error) {
		if err := m.known(""); err != nil {
			return nil, err
		}
		var list []locks.NamespaceInfo
		for s := range m.replica.All {
			info := locks.NamespaceInfo{Name: s.Name, Root: s.Root, Dialect: string(s.Naming.Dialect()), Ready: s.Whole,
				Swept: s.Name == locks.DefaultNamespace, Locks: s.InUse, Hazardous: s.Hazardous}
			info.Names.Exclusive, info.Names.Shared, info.Names.ForeignShared = s.Naming.Names()
			list = append(list, info)
		}
		for name, a := range m.replica.Loading {
			if a.Namespace == nil && m.replica.Namespaces[name] == nil {
				list = append(list, locks.NamespaceInfo{Name: name, Problem: a.Problem})
			} else if a.Problem != "" {
				for i := range list {
					if list[i].Name == name {
						list[i].Problem = a.Problem
					}
				}
			}
		}
		slices.SortFunc(list, func(a, b locks.NamespaceInfo) int { return cmp.Compare(a.Name, b.Name) })
		return list, nil
	})
}
