package sweep

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/offline"
	"lockkeeper/internal/zk"
)

// leftovers is what a look has found, in the order in which it goes.
type leftovers struct {
	guards []zk.Op
	leases []lease
	// rest is what goes after the leases, each with the count that it belongs to.
	keys, successions, outbox []zk.Op
}

// lease is one lease's contenders.
type lease struct {
	contenders []contender
	created    int64 // the zxid of the transaction that made the first of them
}

type contender struct {
	recipe.Contender
	dir     string
	version int32
	created int64
	ttl     time.Duration
}

func (c *contender) path() string { return c.dir + "/" + c.Name }

// look reads everything that the fleet may have left. A node that goes away meanwhile
// is not there any more, and that is well.
func (s *sweeper) look(ctx context.Context) (left leftovers, err error) {
	guards, _, err := s.Children(ctx, s.Root()+zk.NodeGuards)
	if err == nil {
		left.guards, _, err = s.sessionless(ctx, zk.NodeGuards, guards)
	}
	if err != nil {
		return left, err
	}
	if left.leases, err = s.leases(ctx); err != nil {
		return left, err
	}
	if left.keys, err = s.nodes(ctx, "/keys"); err != nil {
		return left, err
	}
	if left.successions, err = s.chains(ctx); err != nil {
		return left, err
	}
	left.outbox, err = s.nodes(ctx, "/outbox")
	return left, err
}

// leases finds the fleet's contenders in all namespaces, the newest lease first: so the
// tail of each queue goes first, and of leases over several locks the same one in all of them.
func (s *sweeper) leases(ctx context.Context) ([]lease, error) {
	roots, err := s.lockRoots(ctx)
	if err != nil {
		return nil, err
	}
	var all []contender
	for _, root := range slices.Sorted(maps.Keys(roots)) {
		found, err := s.queues(ctx, root, roots[root])
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if all, err = s.records(ctx, all); err != nil {
		return nil, err
	}
	byID := map[recipe.LeaseID]*lease{}
	var leases []*lease
	for _, c := range all {
		l := byID[c.LeaseID]
		if l == nil || c.LeaseID == "" { // of a later release, and unreadable: alone
			l = &lease{created: math.MaxInt64}
			byID[c.LeaseID] = l
			leases = append(leases, l)
		}
		l.contenders = append(l.contenders, c)
		l.created = min(l.created, c.created)
		s.report.LongestTTL = max(s.report.LongestTTL, c.ttl)
	}
	ordered := make([]lease, len(leases))
	for i, l := range leases {
		slices.SortFunc(l.contenders, func(a, b contender) int {
			return cmp.Or(cmp.Compare(a.dir, b.dir), -recipe.Compare(a.Number, a.Name, b.Number, b.Name))
		})
		ordered[i] = *l
	}
	slices.SortStableFunc(ordered, func(a, b lease) int { return cmp.Compare(b.created, a.created) })
	return ordered, nil
}

// lockRoots of all recorded namespaces, and how the leases in them are named. In a dialect
// of a later release they are known by their ids.
func (s *sweeper) lockRoots(ctx context.Context) (map[string]*recipe.Naming, error) {
	names, _, err := s.Children(ctx, s.Root()+zk.NodeNamespaces)
	if err != nil {
		return nil, err
	}
	roots := map[string]*recipe.Naming{}
	for _, name := range names {
		var ns zk.Namespace
		data, _, err := s.Get(ctx, s.Root()+zk.NodeNamespaces+"/"+name)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, &ns); err != nil || zk.CheckPath(ns.Root) != nil {
			return nil, offline.Refuse(KindCorrupt, "sweep with the release that wrote it, or correct the record", "the namespace record %s cannot be understood: where its leases are is not known", name)
		}
		naming, err := recipe.ParseNaming(ns.Dialect)
		if err != nil {
			naming = &recipe.Naming{}
		}
		roots[ns.Root] = naming
	}
	return roots, nil
}

// queues reads a lock root.
func (s *sweeper) queues(ctx context.Context, root string, naming *recipe.Naming) ([]contender, error) {
	locks, _, err := s.Children(ctx, root)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil // it was never used
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(locks)
	queues := make([][]string, len(locks))
	err = s.each(ctx, "reading queues", len(locks), func(ctx context.Context, i int) (err error) {
		queues[i], _, err = s.Children(ctx, root+"/"+locks[i])
		return gone(err)
	})
	if err != nil {
		return nil, err
	}
	var found []contender
	for i, names := range queues {
		for _, name := range names {
			c, ok := naming.Parse(s.fleet, name)
			switch {
			case ok && c.Ours:
				found = append(found, contender{Contender: c, dir: root + "/" + locks[i]})
			case ok:
				s.report.Foreign++
			}
		}
	}
	return found, nil
}

// records reads the contenders' data and versions.
func (s *sweeper) records(ctx context.Context, all []contender) ([]contender, error) {
	err := s.each(ctx, "reading leases", len(all), func(ctx context.Context, i int) error {
		c := &all[i]
		data, stat, err := s.Get(ctx, c.path())
		c.version, c.created = stat.Version, stat.Czxid
		if c.FirstCzxid > 0 {
			c.created = c.FirstCzxid // it has the place of the one that it replaced
		}
		var record struct {
			TTL int64 `json:"ttl_ms"`
		}
		if err == nil && json.Unmarshal(data, &record) == nil {
			c.ttl = time.Duration(record.TTL) * time.Millisecond
		}
		return gone(err)
	})
	return slices.DeleteFunc(all, func(c contender) bool { return c.created == 0 }), err
}

// nodes lists a part of the root, as operations that delete what is in it, in order of
// the names.
func (s *sweeper) nodes(ctx context.Context, dir string) ([]zk.Op, error) {
	names, _, err := s.Children(ctx, s.Root()+dir)
	if gone(err) != nil {
		return nil, err
	}
	slices.Sort(names)
	ops := make([]zk.Op, len(names))
	err = s.each(ctx, "reading "+dir[1:], len(names), func(ctx context.Context, i int) error {
		path := s.Root() + dir + "/" + names[i]
		stat, err := s.Exists(ctx, path)
		if stat != nil {
			ops[i] = zk.Op{Kind: zk.OpDelete, Path: path, Version: stat.Version}
		}
		return err
	})
	return slices.DeleteFunc(ops, func(op zk.Op) bool { return op.Path == "" }), err
}

// chains lists the succession entries, each before the one that it names.
func (s *sweeper) chains(ctx context.Context) ([]zk.Op, error) {
	ops, err := s.nodes(ctx, "/succession")
	if err != nil {
		return nil, err
	}
	prefix := s.Root() + "/succession/"
	names := make([]string, len(ops)) // what each entry names
	err = s.each(ctx, "reading succession", len(ops), func(ctx context.Context, i int) error {
		data, _, err := s.Get(ctx, ops[i].Path)
		names[i] = prefix + string(data)
		return gone(err)
	})
	if err != nil {
		return nil, err
	}
	at := make(map[string]int, len(ops))
	for i := range ops {
		at[ops[i].Path] = i
	}
	named := make([]int, len(ops)) // by how many entries
	for i := range ops {
		if to, ok := at[names[i]]; ok {
			named[to]++
		}
	}
	ordered := make([]zk.Op, 0, len(ops))
	taken := make([]bool, len(ops))
	take := func(i int) {
		for !taken[i] && named[i] == 0 {
			taken[i] = true
			ordered = append(ordered, ops[i])
			to, ok := at[names[i]]
			if !ok {
				return
			}
			named[to]--
			i = to
		}
	}
	for i := range ops {
		take(i)
	}
	for i := range ops { // what is left is a cycle, which no gateway makes
		if !taken[i] {
			ordered = append(ordered, ops[i])
		}
	}
	return ordered, nil
}

// gone takes a node that is not there any more for nothing.
func gone(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// each is offline.Each with progress.
func (s *sweeper) each(ctx context.Context, what string, n int, do func(ctx context.Context, i int) error) error {
	return offline.Each(ctx, n, func(done int) { s.progress(what, done, n) }, do)
}
