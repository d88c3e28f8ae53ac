package migrate

import (
	"context"
	"errors"
	"slices"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/offline"
	"lockkeeper/internal/zk"
)

// clear deletes what another import has left: everything below the root but the
// node of the import, and its contenders in lock roots outside.
func (i *importer) clear(ctx context.Context, left claim) error {
	var all []string
	for _, o := range left.Outside {
		locks, err := i.below(ctx, []string{o.LockRoot})
		if err != nil {
			return err
		}
		contenders, err := i.below(ctx, locks)
		if err != nil {
			return err
		}
		all = append(all, slices.DeleteFunc(contenders, func(path string) bool {
			c, ok := recipe.Parse(o.FleetID, path[lastSlash(path)+1:])
			return !ok || !c.Ours
		})...)
	}
	inside, err := i.tree(ctx)
	if err != nil {
		return err
	}
	p := &planner{size: i.Size, limit: i.limit()}
	for _, path := range append(all, inside...) {
		if err := p.add(0, false, zk.Op{Kind: zk.OpDelete, Path: path, Version: -1}); err != nil {
			return err
		}
	}
	for n, s := range p.steps {
		if err := i.commit(ctx, s.ops); err != nil {
			return err
		}
		i.progress("clearing what the last import has left", n+1, len(p.steps))
	}
	return nil
}

// tree lists everything below the root but the import's node, children before their
// parents.
func (i *importer) tree(ctx context.Context) ([]string, error) {
	var all []string
	level := []string{i.Root()}
	for len(level) > 0 {
		next, err := i.below(ctx, level)
		if err != nil {
			return nil, err
		}
		level = slices.DeleteFunc(next, func(path string) bool { return path == i.mark })
		all = append(all, level...)
	}
	slices.Reverse(all)
	return all, nil
}

// below lists the children of all the given nodes. A node that is not there has none.
func (i *importer) below(ctx context.Context, parents []string) ([]string, error) {
	found := make([][]string, len(parents))
	err := offline.Each(ctx, len(parents), nil, func(ctx context.Context, n int) error {
		names, _, err := i.Children(ctx, parents[n])
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		slices.Sort(names)
		for at := range names {
			names[at] = parents[n] + "/" + names[at]
		}
		found[n] = names
		return err
	})
	return slices.Concat(found...), err
}
