package layout

import (
	"context"
	"encoding/json"
	"errors"
	"iter"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// opener is one run of Open.
type opener struct {
	ctx context.Context
	cfg *zk.Config
	c   *conn.Conn

	first  bool // the root had no version when we came: the nodes that are there already must be the fleet's
	closed []string
	opened []string // nodes that were the fleet's alone, and that other programs may use now
}

// create makes a node unless it is there. It looks first, so that a gateway that may only read an old root does not
// need the right to create. Whether an earlier attempt or another gateway was quicker makes no difference.
func (o *opener) create(cfg *zk.Config, path string, data []byte, who conn.Access) error {
	if stat, err := o.exists(cfg, path); err != nil || stat != nil {
		return err
	}
	if data == nil {
		data = []byte{}
	}
	err := o.c.Retry(o.ctx, conn.ReqCreate, func(ctx context.Context) error {
		return o.c.Create(ctx, cfg, path, data, who)
	}, func(ctx context.Context) (bool, error) {
		stat, err := o.c.ExistsBelow(ctx, cfg, path)
		return stat != nil, err
	})
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

func (o *opener) exists(cfg *zk.Config, path string) (stat *zk.Stat, err error) {
	return o.c.RetryExists(o.ctx, cfg, path)
}

func (o *opener) read(name string) (data []byte, stat zk.Stat, err error) {
	return o.c.RetryGet(o.ctx, o.cfg.Root+name)
}

func (o *opener) readRecord(name string, record any) (version int32, err error) {
	data, stat, err := o.read(name)
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(data, record); err != nil {
		return 0, corrupt(name, err)
	}
	return stat.Version, nil
}

// ancestry yields the paths that lead to a path, and the path itself.
func ancestry(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := 1; i <= len(path); i++ {
			if (i == len(path) || path[i] == '/') && !yield(path[:i]) {
				return
			}
		}
	}
}
