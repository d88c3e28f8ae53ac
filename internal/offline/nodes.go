package offline

import (
	"context"
	"errors"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// Nodes is ZooKeeper without a gateway, for packages that keep something of their own below the root, as term.Nodes is
// with one. Its writes are guarded by nothing but their own versions.
type Nodes struct{ *layout.Offline }

// Commit carries out operations in one transaction. An unknown outcome may become known only later: the transaction may still
// be on its way.
func (n Nodes) Commit(ctx context.Context, ops []zk.Op) zk.Result {
	culprit, err := n.Offline.Commit(ctx, ops)
	res := zk.Result{Outcome: zk.NotDone, Culprit: culprit, Err: err}
	switch {
	case err == nil:
		res.Outcome = zk.Done
	case culprit < 0 && (errors.Is(err, zk.ErrUnavailable) || ctx.Err() != nil):
		res.Outcome = zk.Unknown
	}
	return res
}

// Barrier returns when later reads show at least what was true at the call.
func (n Nodes) Barrier(ctx context.Context) error {
	_, err := n.Offline.Barrier(ctx)
	return err
}
