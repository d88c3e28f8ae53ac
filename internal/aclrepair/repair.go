// Package aclrepair closes, in the background, what an earlier start left open below the layout's directories.
//
// layout.Open checks the nodes of the layout itself before a gateway serves. Below them there may be a hundred
// thousand nodes, so a start does not wait for those: Run goes through them once, at a bounded pace, while the
// gateway serves.
//
// # What it promises
//
// Every idempotency key, webhook, outbox entry, setting, succession entry and namespace record gets the ACL that
// gateways give it, and so does every lock directory of the default namespace and every contender of this fleet in
// any namespace, wherever ZooKeeper lets the fleet's identity change it. From then on no other program can close them with
// setACL. A node that another gateway deletes meanwhile is skipped. With Config.CloseLocks the queues of the default namespace
// are closed to all other programs.
//
// # The gateway's own store
//
// A gateway without --zk knows which ACLs its store has. Where gateways give each of them, the nodes of locks are
// not asked for: no other program has ADMIN on any, and the fleet lacks nothing.
//
// # What it refuses
//
// It does nothing without an identity. It never touches contenders of other programs and other fleets, lock directories
// of other namespaces, registrations and guards (they end with their gateways), and records of API tokens (layout.Open
// deletes those that others could have made). A node that ZooKeeper does not let the
// fleet change stays as it is, and is counted: it affects no other lock.
//
// # Ownership
//
// Run blocks until it is through, its context ends, or an error shows that trying again is useless. It has one
// connection, and at most readsAtOnce goroutines. It asks ZooKeeper for at most perSecond ACLs a second.
package aclrepair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
	zklayout "lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/wire"
)

const (
	readsAtOnce = 64
	// perSecond is far below what a ZooKeeper answers and a gateway can ask, so that clients do not notice the reads: 100,000
	// leases take seven minutes, and 3 % of a core.
	perSecond = 500
	// again is the pause before another attempt when ZooKeeper could not be reached.
	again = 5 * time.Second
)

// Report says what a run has found.
type Report struct {
	Checked, Closed, Refused int
}

// Run repairs the ACLs below a layout. It tries again while ZooKeeper cannot be reached. acls are those that the nodes had
// before this gateway, nil when they are not known.
func Run(ctx context.Context, cfg zk.Config, layout *zklayout.Layout, acls [][]wire.ACL) (Report, error) {
	if !cfg.Identified() {
		return Report{}, nil
	}
	for {
		report, err := once(ctx, cfg, layout, acls)
		if err == nil || ctx.Err() != nil || !errors.Is(err, zk.ErrUnavailable) {
			return report, err
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return report, context.Cause(ctx)
		}
	}
}

// Log logs what a run has changed or could not change.
func (r Report) Log(log *slog.Logger) {
	if r.Closed > 0 {
		log.Warn("other programs had rights on nodes of this fleet; the gateway has removed them", "closed", r.Closed, "checked", r.Checked)
	}
	if r.Refused > 0 {
		log.Warn("the ACLs of some nodes cannot be changed by this fleet; another program can take these locks, or keep gateways out of them", "nodes", r.Refused, "checked", r.Checked)
	}
}

func once(ctx context.Context, cfg zk.Config, layout *zklayout.Layout, acls [][]wire.ACL) (Report, error) {
	o, err := zklayout.OpenOffline(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer o.Close()
	r := repairer{Offline: o, fleet: recipe.FleetID(layout.FleetID)}
	if err = r.layout(ctx); err == nil && (acls == nil || !conn.GivesAll(&cfg, acls)) {
		err = r.locks(ctx, layout)
	}
	return Report{int(r.checked.Load()), int(r.closed.Load()), int(r.refused.Load())}, err
}

type repairer struct {
	*zklayout.Offline
	fleet                    recipe.FleetID
	checked, closed, refused atomic.Int64
}

// layout repairs what is below the directories of the layout but the locks.
func (r *repairer) layout(ctx context.Context) error {
	for _, dir := range zklayout.Directories() {
		switch dir {
		case zk.NodeLocks, zk.NodeGateways, zk.NodeGuards:
			continue
		case zk.NodeAuth, zk.NodeTokens, zk.NodeRotation:
			continue // layout.Open has deleted what was open there
		}
		depth := 1
		if dir == zk.NodeSettings {
			depth = 2
		}
		if err := r.below(ctx, r.Root()+dir, depth); err != nil {
			return err
		}
	}
	return nil
}

// locks repairs the queues of all namespaces.
func (r *repairer) locks(ctx context.Context, layout *zklayout.Layout) error {
	for name, ns := range layout.Namespaces {
		naming, err := recipe.ParseNaming(dialect(ns))
		if err != nil {
			naming = &recipe.Naming{} // of a later release: its leases are known by their ids
		}
		if err := r.queues(ctx, ns.Root, naming, ns.Root == r.Root()+zk.NodeLocks); err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	return nil
}

func dialect(ns zk.Namespace) string {
	if ns.Dialect == "" {
		return string(recipe.Native)
	}
	return ns.Dialect
}

// below repairs what is below a directory of the layout.
func (r *repairer) below(ctx context.Context, dir string, depth int) error {
	names, err := r.children(ctx, dir)
	if err != nil || len(names) == 0 {
		return err
	}
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = dir + "/" + name
	}
	if err := r.secure(ctx, paths, r.Secure); err != nil || depth == 1 {
		return err
	}
	for _, path := range paths {
		if err := r.below(ctx, path, depth-1); err != nil {
			return err
		}
	}
	return nil
}

// queues repairs the contenders of a lock root, a bounded number of directories at a time.
func (r *repairer) queues(ctx context.Context, root string, naming *recipe.Naming, own bool) error {
	names, err := r.children(ctx, root)
	if err != nil {
		return err
	}
	for len(names) > 0 {
		piece := names[:min(readsAtOnce, len(names))]
		names = names[len(piece):]
		found := make([][]string, len(piece))
		group, reading := errgroup.WithContext(ctx)
		for i, name := range piece {
			group.Go(func() error {
				dir := root + "/" + name
				if own {
					found[i] = append(found[i], dir)
				}
				contenders, err := r.children(reading, dir)
				for _, c := range contenders {
					if parsed, ok := naming.Parse(r.fleet, c); ok && parsed.Ours {
						found[i] = append(found[i], dir+"/"+c)
					}
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		for _, paths := range found {
			if err := r.secure(ctx, paths, r.SecureQueue); err != nil {
				return err
			}
		}
	}
	return nil
}

// children lists a node. A node that is gone, or hidden from us, has none.
func (r *repairer) children(ctx context.Context, path string) ([]string, error) {
	names, _, err := r.Children(ctx, path)
	var fatal *zk.FatalError
	if errors.Is(err, zk.ErrNoNode) || errors.As(err, &fatal) && errors.Is(err, zk.ErrNoAuth) {
		return nil, nil
	}
	return names, err
}

// secure is layout.Offline.Secure, or SecureQueue.
type secure func(ctx context.Context, path string) (changed, refused bool, err error)

// secure repairs nodes at the pace that perSecond allows.
func (r *repairer) secure(ctx context.Context, paths []string, how secure) error {
	for len(paths) > 0 {
		piece := paths[:min(readsAtOnce, len(paths))]
		paths = paths[len(piece):]
		pace := time.NewTimer(time.Duration(len(piece)) * time.Second / perSecond)
		group, asking := errgroup.WithContext(ctx)
		for _, path := range piece {
			group.Go(func() error { return r.secureOne(asking, path, how) })
		}
		err := group.Wait()
		if err != nil {
			pace.Stop()
			return err
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			pace.Stop()
			return context.Cause(ctx)
		}
	}
	return nil
}

func (r *repairer) secureOne(ctx context.Context, path string, how secure) error {
	changed, refused, err := how(ctx, path)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil
	case err != nil:
		return err
	}
	r.checked.Add(1)
	if changed {
		r.closed.Add(1)
	}
	if refused {
		r.refused.Add(1)
	}
	return nil
}
