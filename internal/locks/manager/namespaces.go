package manager

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/wire"
)

// Every gateway watches every recorded namespace, also one that another gateway
// adds while this one runs: it may have to run leases there one day. The rule:
//
//	A takeover begins only when the replica holds all recorded namespaces whole.
//
// It is enough, because a gateway writes into a namespace only after the record
// is there, and no more after its registration is gone. The record stands before
// that end in the stream: whoever has seen the end has seen the record of every
// namespace in which the dead gateway can have left anything. For the same
// reason nothing is concluded meanwhile from what the replica does not show:
// that a lease of a gateway that is gone has ended, that nobody needs a
// succession entry or a key, that contenders of a group are missing.
//
// A namespace arrives in three steps: the record is read, its lock root is added
// to those that are watched, the root has been read. A record that makes no
// sense, or has a dialect that this release does not know, never arrives: this
// gateway goes on with its own leases and succeeds nobody.

// arrival is a recorded namespace on its way into the replica.
type arrival struct {
	reading bool   // the record
	space   *space // nil until the record has been read
	added   bool   // the observer has been told of its root
	problem string // why it will not arrive, "" while it may
}

// spaceOf makes what a record says.
func spaceOf(name string, ns zk.Namespace) (*space, error) {
	naming, err := recipe.ParseNaming(cmp.Or(ns.Dialect, string(recipe.Native)))
	if err != nil {
		return nil, &zk.FatalError{Kind: zk.KindNamespace, Hint: "a newer gateway made it: upgrade this one",
			Err: fmt.Errorf("namespace %s has the dialect %q, which this gateway does not know: %w", name, ns.Dialect, err)}
	}
	return newSpace(name, ns.Root, naming), nil
}

// knowsAll reports whether the replica holds all recorded namespaces.
func (m *Manager) knowsAll() bool { return len(m.arrivals) == 0 || fault.On("knows-all") }

// mayMiss is an error when a lease that the replica does not show may be in a
// namespace that is still on its way. Those of the present session are not: it
// writes only where it sees.
func (m *Manager) mayMiss(id recipe.LeaseID) *locks.Error {
	if m.knowsAll() || m.session != nil && string(id.Gateway()) == m.session.ID() {
		return nil
	}
	return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter,
		Detail: "this gateway is still reading a namespace in which that lease may be; nothing was done, repeat the request"}
}

// spaceAt is the namespace with that lock root, nil when there is none.
func (m *Manager) spaceAt(root string) *space {
	for s := range m.everySpace {
		if s.root == root {
			return s
		}
	}
	return nil
}

// everySpace yields the namespaces and those that are being read, in no order.
func (m *Manager) everySpace(yield func(*space) bool) {
	for _, s := range m.spaces {
		if !yield(s) {
			return
		}
	}
	for _, a := range m.arrivals {
		if a.space != nil && !yield(a.space) {
			return
		}
	}
}

// applyNamespace follows the records. One that is removed leaves its namespace
// in place: there may be leases in it.
func (m *Manager) applyNamespace(c *zk.Change) {
	switch c.Kind {
	case zk.NodeAdded, zk.NodeChanged:
		a := m.arrivals[c.Node]
		if a != nil && a.space != nil {
			m.log.Warn("the record of a namespace was written to; what it said first stays in force", "ns", c.Node)
			return
		}
		// A new one: the reply to an earlier read is about what was there before.
		m.arrivals[c.Node] = &arrival{}
		m.readNamespace(c.Node)
	case zk.NodeRemoved:
		if a := m.arrivals[c.Node]; a != nil && a.space == nil {
			delete(m.arrivals, c.Node)
			m.considerTakeovers(m.clock.Now().Boot())
			return
		}
		m.log.Warn("the record of a namespace was removed; this gateway goes on with it until it is restarted", "ns", c.Node)
	}
}

// readNamespaces reads the records whose reading failed.
func (m *Manager) readNamespaces() {
	for _, name := range slices.Sorted(maps.Keys(m.arrivals)) {
		if a := m.arrivals[name]; a.space == nil && !a.reading && a.problem == "" {
			m.readNamespace(name)
		}
	}
}

func (m *Manager) readNamespace(name string) {
	a := m.arrivals[name]
	a.reading = true
	m.effect(func() {
		m.watcher.Get(m.opt.Root+zk.NodeNamespaces+"/"+name, func(data []byte, _ wire.Stat, _ int64, err error) {
			m.do(func() {
				if m.arrivals[name] != a {
					return
				}
				a.reading = false
				if err != nil {
					return // gone, which an event tells, or the connection is: Synced or the clock asks again
				}
				if err := m.learnNamespace(name, a, data); err != nil {
					a.problem = err.Error()
					m.log.Error("a recorded namespace cannot be used: until that is cured this gateway takes no other gateway's leases over", "ns", name, "err", err)
				}
			})
		})
	})
}

// learnNamespace takes in what a record says.
func (m *Manager) learnNamespace(name string, a *arrival, data []byte) error {
	record, err := layout.ParseNamespace(name, data)
	if err != nil {
		return err
	}
	s, err := spaceOf(name, record)
	if err != nil {
		return err
	}
	if have := m.spaces[name]; have != nil {
		if have.root != s.root || have.naming.String() != s.naming.String() {
			return fmt.Errorf("namespace %s is recorded with root %s and dialect %s now, and was with root %s and dialect %s: restart this gateway",
				name, s.root, s.naming, have.root, have.naming)
		}
		delete(m.arrivals, name)
		m.considerTakeovers(m.clock.Now().Boot())
		return nil
	}
	all := map[string]zk.Namespace{name: record}
	for other := range m.everySpace {
		all[other.name] = zk.Namespace{Root: other.root, Dialect: other.naming.String()}
	}
	cfg := zk.Config{Root: m.opt.Root}
	if err := layout.CheckNamespaces(&cfg, all); err != nil {
		return err
	}
	a.space = s
	m.watchArrival(name, a)
	return nil
}

// watchArrival has the lock root read. Only a synced replica is given a root:
// then either the root's own Synced tells when it has been read, or, if the
// connection is lost first, the Synced of the next one tells so of all.
func (m *Manager) watchArrival(name string, a *arrival) {
	if !m.synced || a.added {
		return
	}
	a.added = true
	m.effect(func() {
		if err := m.watcher.AddRoot(zk.WatchRoot{Path: a.space.root, Depth: 2}); err != nil {
			m.log.Error("a recorded namespace cannot be watched", "ns", name, "err", err)
			m.do(func() { a.problem = "its lock root cannot be watched: " + err.Error() })
		}
	})
}

// arrived notes what has been read: one root, or, nil, all that the observer
// has been told of.
func (m *Manager) arrived(root *zk.WatchRoot) {
	for _, name := range slices.Sorted(maps.Keys(m.arrivals)) {
		a := m.arrivals[name]
		switch {
		case a.space == nil:
		case a.added && a.problem == "" && (root == nil || root.Path == a.space.root):
			a.space.whole = true
			m.spaces[name] = a.space
			delete(m.arrivals, name) // afterSync follows
			m.log.Info("a namespace was added", "ns", name, "root", a.space.root, "dialect", a.space.naming)
		default:
			m.watchArrival(name, a)
		}
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
		for s := range m.everySpace {
			info := locks.NamespaceInfo{Name: s.name, Root: s.root, Dialect: string(s.naming.Dialect()), Ready: s.whole,
				Swept: s.name == locks.DefaultNamespace, Locks: s.inUse, Hazardous: s.hazardous}
			info.Names.Exclusive, info.Names.Shared, info.Names.ForeignShared = s.naming.Names()
			list = append(list, info)
		}
		for name, a := range m.arrivals {
			if a.space == nil && m.spaces[name] == nil {
				list = append(list, locks.NamespaceInfo{Name: name, Problem: a.problem})
			} else if a.problem != "" {
				for i := range list {
					if list[i].Name == name {
						list[i].Problem = a.problem
					}
				}
			}
		}
		slices.SortFunc(list, func(a, b locks.NamespaceInfo) int { return cmp.Compare(a.Name, b.Name) })
		return list, nil
	})
}
