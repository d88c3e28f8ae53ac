package layout

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// aclsAtOnce bounds how many ACLs are read at the same time.
const aclsAtOnce = 64

// dropForgedTokens deletes records of API tokens that another program may have written: to close them, as is done with
// all other nodes, would let in who wrote them. The fleet creates its records with their ACLs and never changes those. The
// directory's ACL was changed where others could create records; it is closed by now, so no more come. Without an identity there
// is nothing to tell the fleet's records by.
func (o *opener) dropForgedTokens() error {
	if !o.cfg.Identified() {
		return nil
	}
	dir := o.cfg.Root + zk.NodeTokens
	_, stat, err := o.c.RetryACL(o.ctx, dir)
	if err != nil || stat.Aversion == 0 {
		return err
	}
	names, _, err := o.c.RetryChildren(o.ctx, dir)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var dropped []string
	group := errgroup.Group{}
	group.SetLimit(aclsAtOnce)
	for _, name := range names {
		group.Go(func() error {
			path := dir + "/" + name
			have, stat, err := o.c.RetryACL(o.ctx, path)
			switch {
			case errors.Is(err, zk.ErrNoNode):
				return nil
			case err != nil && !errors.Is(err, zk.ErrNoAuth):
				return err
			case err == nil && stat.Aversion == 0 && conn.SameACL(have, o.c.ACL(conn.Private)):
				return nil
			}
			if err := o.remove(path); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			dropped = append(dropped, name)
			return nil
		})
	}
	err = group.Wait()
	if len(dropped) > 0 {
		o.cfg.Logger.Warn("API tokens that other programs could have made are deleted; create new ones with gateway token create", "token_ids", dropped)
	}
	return err
}

// remove deletes a node unless it is gone.
func (o *opener) remove(path string) error {
	op := o.c.Op(&zk.Op{Kind: zk.OpDelete, Path: path, Version: -1})
	err := o.c.Retry(o.ctx, conn.ReqMulti, func(ctx context.Context) error {
		a, err := o.c.Transact(ctx, []conn.Op{op})
		if err != nil {
			return err
		}
		return a.Err
	}, func(ctx context.Context) (bool, error) {
		stat, err := o.exists(o.cfg, path)
		return stat == nil, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", path, err)
	}
	return nil
}
