package conn

import (
	"context"

	"lockkeeper/internal/zk"
)

// retried runs a read as the policy says.
func retried[T any](ctx context.Context, c *Conn, req Request, path string, read func(context.Context, string) (T, zk.Stat, error)) (value T, stat zk.Stat, err error) {
	err = c.Retry(ctx, req, func(ctx context.Context) (err error) {
		value, stat, err = read(ctx, path)
		return err
	}, nil)
	return value, stat, err
}

// RetryGet is Get, tried again as the policy says.
func (c *Conn) RetryGet(ctx context.Context, path string) ([]byte, zk.Stat, error) {
	return retried(ctx, c, ReqGet, path, c.Get)
}

// RetryChildren is Children, tried again as the policy says.
func (c *Conn) RetryChildren(ctx context.Context, path string) ([]string, zk.Stat, error) {
	return retried(ctx, c, ReqList, path, c.Children)
}

// RetryExists is Exists with the chroot of cfg, tried again as the policy says.
func (c *Conn) RetryExists(ctx context.Context, cfg *zk.Config, path string) (stat *zk.Stat, err error) {
	err = c.Retry(ctx, ReqExists, func(ctx context.Context) (err error) {
		stat, err = c.ExistsBelow(ctx, cfg, path)
		return err
	}, nil)
	return stat, err
}
