package term

import (
	"context"

	"lockkeeper/internal/zk"
)

// Nodes is ZooKeeper under the present session, for packages that keep something of their own below the root: their
// writes are guarded like all others.
type Nodes struct{ p *Port }

// Nodes gives access to ZooKeeper. It fails while there is no session.
func (p *Port) Nodes() Nodes { return Nodes{p} }

// Commit puts operations into one guarded transaction and returns its outcome; when ctx ends first, the outcome is
// unknown. More than one operation has a transaction of its own, because it may write what other writes check.
func (n Nodes) Commit(ctx context.Context, ops []zk.Op) zk.Result {
	session := n.p.Session()
	if session == nil {
		return zk.Result{Outcome: zk.NotDone, Err: zk.ErrUnavailable, Culprit: -1}
	}
	answer := make(chan zk.Result, 1)
	if err := session.Submit(&zk.Write{Ops: ops, Alone: len(ops) > 1, Done: func(res zk.Result) { answer <- res }}); err != nil {
		return zk.Result{Outcome: zk.NotDone, Err: err, Culprit: -1}
	}
	select {
	case res := <-answer:
		return res
	case <-ctx.Done():
		return zk.Result{Outcome: zk.Unknown, Err: context.Cause(ctx), Culprit: -1}
	}
}

// Barrier returns when later reads show at least what was true at the call.
func (n Nodes) Barrier(ctx context.Context) error {
	session := n.p.Session()
	if session == nil {
		return zk.ErrUnavailable
	}
	_, err := session.Barrier(ctx)
	return err
}

// Get reads a node.
func (n Nodes) Get(ctx context.Context, path string) ([]byte, zk.Stat, error) {
	if session := n.p.Session(); session != nil {
		return session.Get(ctx, path)
	}
	return nil, zk.Stat{}, zk.ErrUnavailable
}

// Children lists the children of a node.
func (n Nodes) Children(ctx context.Context, path string) ([]string, zk.Stat, error) {
	if session := n.p.Session(); session != nil {
		return session.Children(ctx, path)
	}
	return nil, zk.Stat{}, zk.ErrUnavailable
}

// Exists looks at a node; nil: it is not there.
func (n Nodes) Exists(ctx context.Context, path string) (*zk.Stat, error) {
	if session := n.p.Session(); session != nil {
		return session.Exists(ctx, path)
	}
	return nil, zk.ErrUnavailable
}
