package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/offline"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// ExportOptions change what an export does.
type ExportOptions struct {
	// LeaveForeign goes on when there are contenders that cannot be moved.
	LeaveForeign bool
	// Progress may be nil. It gets the step and how far it is, often,
	// from several goroutines.
	Progress func(what string, done, total int)
}

// Export reads a root. Its errors are *Error, *zk.FatalError, and those that wrap
// zk.ErrUnavailable; it never changes anything.
func Export(ctx context.Context, cfg zk.Config, opt ExportOptions) (*Archive, Summary, error) {
	o, err := layout.OpenOffline(ctx, cfg)
	if err != nil {
		return nil, Summary{}, err
	}
	defer o.Close()
	e := exporter{Offline: o, opt: opt, a: &Archive{Header: Header{Format: format, Created: time.Now().UTC().Truncate(time.Second), Root: o.Root()}}}
	if err := e.run(ctx); err != nil {
		return nil, Summary{}, fmt.Errorf("exporting %s: %w", o.FullRoot(), err)
	}
	return e.a, e.sum, nil
}

type exporter struct {
	*layout.Offline
	opt   ExportOptions
	a     *Archive
	sum   Summary
	fleet recipe.FleetID
	// lockRoots of the namespaces, by their names.
	lockRoots map[string]string
	namings   map[string]*recipe.Naming // by namespace
}

func (e *exporter) run(ctx context.Context) error {
	version, _, err := e.Get(ctx, e.Root()+zk.NodeVersion)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return offline.Refuse(KindNoRoot, "correct --zk, its chroot or --root", "there is no Lockkeeper")
	case err != nil:
		return err
	}
	if err := layout.CheckVersion(version); err != nil {
		return err
	}
	// Between the two barriers no gateway is registered, so everything that a
	// gateway ever wrote was there at the first, and no more can have been written
	// when the second has passed.
	if _, err := e.Barrier(ctx); err != nil {
		return err
	}
	before, err := e.unregistered(ctx)
	if err != nil {
		return err
	}
	if err := e.readAll(ctx); err != nil {
		return err
	}
	zxid, err := e.Barrier(ctx)
	if err != nil {
		return err
	}
	after, err := e.unregistered(ctx)
	if err != nil {
		return err
	}
	if before != after {
		return offline.Refuse(KindInUse, "stop all gateways and keep them stopped", "a gateway was started while the root was read")
	}
	if err := e.setTokens(zxid); err != nil {
		return err
	}
	if err := e.markSecret(ctx); err != nil {
		return err
	}
	if err := e.dropForgedTokens(ctx); err != nil {
		return err
	}
	return e.summarize()
}

// unregistered makes sure that no gateway is registered, and returns a number that
// changes whenever one registers.
func (e *exporter) unregistered(ctx context.Context) (pzxid int64, err error) {
	dir := e.Root() + zk.NodeGateways
	ids, stat, err := e.Children(ctx, dir)
	if err != nil || len(ids) == 0 {
		return stat.Pzxid, err
	}
	return 0, offline.InUse(ctx, e.Offline, ids)
}

// setTokens notes the end of the tokens: every one that was given is the base and a
// czxid from before the last barrier.
func (e *exporter) setTokens(zxid int64) error {
	var base int64
	for _, n := range e.a.Nodes {
		if n.Path != zk.NodeFenceBase {
			continue
		}
		if err := json.Unmarshal(n.Data, &base); err != nil {
			return offline.Refuse(KindNotMovable, "", "%s cannot be understood: %w", n.Path, err)
		}
	}
	e.a.TokensBelow = base + zxid
	return nil
}

// markSecret notes in the archive whether others than the fleet could read the secret: the target cannot know otherwise.
func (e *exporter) markSecret(ctx context.Context) error {
	changes, fits, err := e.ACLChanges(ctx, e.Root()+zk.NodeSecret)
	if err != nil {
		return err
	}
	for i := range e.a.Nodes {
		if n := &e.a.Nodes[i]; n.Path == zk.NodeSecret {
			secret, err := layout.ParseSecret(n.Data)
			if err != nil {
				return err
			}
			if n.Data, err = layout.MarkSecret(n.Data, !fits || changes != secret.ACLChanges || secret.SaidExposed, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// readAll reads first the nodes, which say where the locks are, then the locks.
func (e *exporter) readAll(ctx context.Context) error {
	secret, _, err := e.Get(ctx, e.Root()+zk.NodeSecret)
	if err != nil {
		return err
	}
	parsed, err := layout.ParseSecret(secret)
	if err != nil {
		return err
	}
	e.fleet = recipe.FleetID(parsed.FleetID)
	if err := e.readNamespaces(ctx); err != nil {
		return err
	}
	if err := e.readNodes(ctx); err != nil {
		return err
	}
	for _, ns := range slices.Sorted(maps.Keys(e.lockRoots)) {
		if err := e.readLocks(ctx, ns); err != nil {
			return err
		}
	}
	if len(e.sum.Foreign) > 0 && !e.opt.LeaveForeign {
		return offline.Refuse(KindForeign, "let those programs release their locks first, or leave them behind with --leave-foreign: leases that wait for them will hold on the new ZooKeeper",
			"other programs are in the queues, and cannot be moved: %s", offline.Few(e.sum.Foreign))
	}
	return nil
}

func (e *exporter) readNamespaces(ctx context.Context) error {
	names, _, err := e.Children(ctx, e.Root()+zk.NodeNamespaces)
	if err != nil {
		return err
	}
	e.lockRoots, e.namings = make(map[string]string, len(names)), make(map[string]*recipe.Naming, len(names))
	for _, name := range names {
		var ns zk.Namespace
		data, _, err := e.Get(ctx, e.Root()+zk.NodeNamespaces+"/"+name)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(data, &ns); err != nil {
			return offline.Refuse(KindNotMovable, "", "the namespace record %s cannot be understood: %w", name, err)
		}
		e.lockRoots[name] = ns.Root
		if e.namings[name], err = namingOf(name, ns); err != nil {
			return err
		}
	}
	return nil
}

// opaque says whether a node below the root is copied as it is.
func (e *exporter) opaque(path string) bool {
	switch path {
	case zk.NodeGateways, zk.NodeGuards, zk.NodeLocks, zk.NodeImport, zk.NodeRotation:
		return false
	}
	for _, root := range e.lockRoots {
		if root == e.Root()+path {
			return false
		}
	}
	return true
}

// readNodes reads the nodes that are copied as they are, level by level.
func (e *exporter) readNodes(ctx context.Context) error {
	type found struct {
		Node
		gone     bool
		children []string
	}
	level := []found{{}} // the root itself, which is not copied
	for depth := 0; len(level) > 0; depth++ {
		err := e.each(ctx, "reading nodes", len(level), func(ctx context.Context, i int) error {
			n := &level[i]
			data, stat, err := e.Get(ctx, e.Root()+n.Path)
			if err == nil && stat.EphemeralOwner == 0 && stat.NumChildren > 0 {
				n.children, _, err = e.Children(ctx, e.Root()+n.Path)
			}
			n.Data, n.gone = data, stat.EphemeralOwner != 0
			if errors.Is(err, zk.ErrNoNode) {
				n.gone, err = true, nil
			}
			return err
		})
		if err != nil {
			return err
		}
		var next []found
		for i := range level {
			n := &level[i]
			if n.gone {
				continue
			}
			if depth > 0 {
				e.a.Nodes = append(e.a.Nodes, n.Node)
			}
			slices.Sort(n.children)
			for _, name := range n.children {
				if path := n.Path + "/" + name; e.opaque(path) {
					next = append(next, found{Node: Node{Path: path}})
				}
			}
		}
		level = next
	}
	return nil
}

// readLocks reads the queues of a namespace.
func (e *exporter) readLocks(ctx context.Context, ns string) error {
	root := e.lockRoots[ns]
	locks, _, err := e.Children(ctx, root)
	if errors.Is(err, zk.ErrNoNode) {
		return nil // it was never used
	}
	if err != nil {
		return err
	}
	slices.Sort(locks)
	queues := make([][]string, len(locks))
	err = e.each(ctx, "reading queues", len(locks), func(ctx context.Context, i int) (err error) {
		queues[i], _, err = e.Children(ctx, root+"/"+locks[i])
		if errors.Is(err, zk.ErrNoNode) {
			err = nil
		}
		return err
	})
	if err != nil {
		return err
	}
	from := len(e.a.Contenders)
	for i, lock := range locks {
		slices.Sort(queues[i])
		for _, name := range queues[i] {
			c, ok := e.namings[ns].Parse(e.fleet, name)
			path := root + "/" + lock + "/" + name
			switch {
			case !ok || !c.Ours:
				e.sum.Foreign = append(e.sum.Foreign, path)
			case c.Unknown:
				return offline.Refuse(KindNotMovable, "export with the release that made it, or a later one", "%s is a contender of a later release", path)
			case c.Ephemeral:
				e.sum.Ephemeral = append(e.sum.Ephemeral, path)
			default:
				e.a.Contenders = append(e.a.Contenders, Contender{NS: ns, Lock: lock, Name: name})
			}
		}
	}
	return e.readContenders(ctx, root, e.a.Contenders[from:])
}

func (e *exporter) readContenders(ctx context.Context, root string, contenders []Contender) error {
	err := e.each(ctx, "reading leases", len(contenders), func(ctx context.Context, i int) error {
		c := &contenders[i]
		data, stat, err := e.Get(ctx, root+"/"+c.Lock+"/"+c.Name)
		c.Data, c.Czxid, c.Ctime = data, stat.Czxid, stat.Ctime
		if errors.Is(err, zk.ErrNoNode) { // deleted by hand
			return nil
		}
		return err
	})
	e.a.Contenders = slices.DeleteFunc(e.a.Contenders, func(c Contender) bool { return c.Czxid == 0 })
	return err
}

// summarize puts the contenders into order, and proves that what was exported can be
// imported.
func (e *exporter) summarize() error {
	c, err := e.a.understand(e.Root())
	if err != nil {
		return err
	}
	ordered := make([]Contender, len(c.contenders))
	for i := range c.contenders {
		ordered[i] = *c.contenders[i].Contender
	}
	e.a.Contenders = ordered
	counts := c.summary()
	counts.Ephemeral, counts.Foreign, counts.TokensLeft = e.sum.Ephemeral, e.sum.Foreign, e.sum.TokensLeft
	e.sum = counts
	return nil
}

// each is each with progress.
func (e *exporter) each(ctx context.Context, what string, n int, do func(ctx context.Context, i int) error) error {
	var done atomic.Int64
	return offline.Each(ctx, n, nil, func(ctx context.Context, i int) error {
		err := do(ctx, i)
		if at := int(done.Add(1)); e.opt.Progress != nil {
			e.opt.Progress(what, at, n)
		}
		return err
	})
}
