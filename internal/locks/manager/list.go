package manager

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/paging"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
)

// scanChunk bounds the queues that a list scans under one hold of the monitor. Few of them may match, and a scan of
// 100,000 locks in one go would delay every acquire.
const scanChunk = 4096

// Locks lists the locks with holders, waiters or a limit that was set, in order of their names or as Sort says, or those in one
// state. A list over many locks is made in chunks. A lock that appears or disappears meanwhile may be in it; a lock that matches all the time is.
// The end of ctx ends it.
func (m *Manager) Locks(ctx context.Context, f locks.LockFilter) (locks.LockPage, error) {
	if err := f.Check(); err != nil {
		return locks.LockPage{}, err
	}
	last, behind, err := placeIn(&f)
	if err != nil {
		return locks.LockPage{}, err
	}
	if err := f.Principal.CheckIn(access.Read, f.NS); err != nil {
		return locks.LockPage{}, err
	}
	return locked2(m, func() (locks.LockPage, error) {
		if err := known(&m.stream, m.replica, f.NS); err != nil {
			return locks.LockPage{}, err
		}
		prefix := recipe.ParseNamePrefix(f.Prefix)
		list := lockList{m: m, filter: &f, prefix: prefix, last: last, limit: cmp.Or(f.Limit, locks.DefaultPage), from: max(prefix.Dir(), last), text: paging.MaxText}
		if err := list.make(ctx, m.replica.Namespaces[f.NS], behind); err != nil {
			return locks.LockPage{}, err
		}
		for i := range list.page.Items {
			f.Principal.Conceal(list.page.Items[i].Holders)
		}
		return list.page, nil
	})
}

// lockList is a page under construction.
type lockList struct {
	m      *Manager
	filter *locks.LockFilter
	limit  int
	end    string // the directory of the page's last lock
	prefix recipe.NamePrefix
	last   string // the directory of the lock before the page
	from   string // the directory at which the scan continues
	page   locks.LockPage
	text   paging.Budget
	also   map[string]bool // directories of the filter's Elsewhere
}

// scan reads the next queues and reports whether the page is complete. The monitor is held. The tree may change
// between two calls, so a scan continues by name.
func (l *lockList) scan(s *queues.Namespace) bool {
	looked, done := 0, true
	s.Queues.Ascend(queues.At(l.from), func(q *queues.Queue) bool {
		if looked++; looked > scanChunk {
			l.from, done = q.Dir(), false
			return false
		}
		dir := q.Dir()
		switch {
		case !strings.HasPrefix(dir, l.prefix.Dir()):
			return false
		case dir == l.last || !l.prefix.Fits(dir) || !l.matches(q):
			return true
		}
		return l.show(q)
	})
	return done
}

// show puts a lock of a list by names on the page. It reports false when the page is full.
func (l *lockList) show(q *queues.Queue) bool {
	if !l.add(q) {
		l.page.NextCursor = paging.Locks.Cursor(l.end)
		return false
	}
	l.end = q.Dir()
	return true
}

// add puts a lock on the page, and reports whether there was room for it.
func (l *lockList) add(q *queues.Queue) bool {
	if len(l.page.Items) == l.limit {
		return false
	}
	view := l.m.answers.lock(q)
	if !l.text.TakeLock(&view) && len(l.page.Items) > 0 {
		return false
	}
	l.page.Items = append(l.page.Items, view)
	return true
}

func (l *lockList) matches(q *queues.Queue) bool {
	f, m := l.filter, l.m
	switch {
	case q.NoLock(), !readable(q, f.Principal.Rules):
		return false
	case !strings.Contains(q.Dir(), f.Contains) && !(q.Extras().EncodedName && strings.Contains(q.Name(), f.Contains)):
		return false
	case !l.wanted(q), f.Mode != "" && !hasMode(q, f.Mode):
		return false
	case f.Hazardous:
		return q.Extras().Hazards != nil && (f.State == "" || m.answers.lockState(q) == f.State)
	case f.State == "":
		limit, agreed := q.Limit()
		return q.Contenders.Len() > 0 || limit > 0 && !agreed
	case f.State == locks.LockFree:
		return q.Contenders.Len() == 0 && (q.Exists || q.HasSettings())
	}
	return m.answers.lockState(q) == f.State
}

// readable reports whether the rules let read a lock. A list that looks at 100,000 names writes none of them for one who may
// read all.
func readable(q *queues.Queue, rules *access.Rules) bool {
	return rules.MayAll(access.Read) || rules.May(access.Read, q.Namespace.Name, q.Name())
}

// Namespaces describes the recorded namespaces in which the principal may read a lock, in order of their names. It counts the
// locks that the principal may read.
func (m *Manager) Namespaces(ctx context.Context, p locks.Principal) ([]locks.NamespaceInfo, error) {
	return locked2(m, func() ([]locks.NamespaceInfo, error) {
		if err := known(&m.stream, m.replica, ""); err != nil {
			return nil, err
		}
		list := m.answers.namespaces(p.Rules)
		for i := range list {
			if s := m.replica.Namespaces[list[i].Name]; s != nil && !p.Rules.MayAllIn(access.Read, s.Name) {
				if err := countReadable(ctx, m, s, p.Rules, &list[i]); err != nil {
					return nil, err
				}
			}
		}
		return list, nil
	})
}

// countReadable counts the locks that the rules let read. The monitor is held, and released between chunks.
func countReadable(ctx context.Context, m *Manager, s *queues.Namespace, rules *access.Rules, info *locks.NamespaceInfo) (err error) {
	info.Locks, info.Hazardous = 0, 0
	for from, done := "", false; !done; {
		looked := 0
		done = true
		s.Queues.Ascend(queues.At(from), func(q *queues.Queue) bool {
			if looked++; looked > scanChunk {
				from, done = q.Dir(), false
				return false
			}
			if readable(q, rules) && !q.NoLock() {
				info.Locks += min(q.Contenders.Len(), 1)
				if q.Extras().Hazards != nil {
					info.Hazardous++
				}
			}
			return true
		})
		if m.outside(func() { err = ctx.Err() }); err != nil {
			return cancelled(ctx)
		}
	}
	return nil
}

// namespaces are the recorded namespaces in which the rules let read a lock, with the counts of all locks.
func (a *answers) namespaces(rules *access.Rules) (list []locks.NamespaceInfo) {
	for s := range a.replica.All {
		if !rules.MayIn(access.Read, s.Name) {
			continue
		}
		info := locks.NamespaceInfo{Name: s.Name, Root: s.Root, Dialect: string(s.Naming.Dialect()), Ready: s.Whole,
			Swept: s.Name == locks.DefaultNamespace, Locks: s.InUse, Hazardous: s.Hazardous}
		info.Names.Exclusive, info.Names.Shared, info.Names.ForeignShared = s.Naming.Names()
		list = append(list, info)
	}
	for name, loading := range a.replica.Loading {
		if !rules.MayIn(access.Read, name) {
			continue
		}
		if loading.Namespace == nil && a.replica.Namespaces[name] == nil {
			list = append(list, locks.NamespaceInfo{Name: name, Problem: loading.Problem})
		} else if loading.Problem != "" {
			for i := range list {
				if list[i].Name == name {
					list[i].Problem = loading.Problem
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b locks.NamespaceInfo) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
