package layout

import (
	"context"
	"errors"
	"fmt"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

// MaxTransaction bounds what Offline.Commit takes, in bytes as Offline.Size counts them.
const MaxTransaction = conn.MaxTransaction - conn.GuardOverhead

// Offline is a connection for work on a root that no gateway uses: to read it whole, or to make it. It registers
// nothing and guards nothing: that no gateway writes meanwhile, and what becomes of a transaction whose answer was
// lost, are its caller's to find out. Nodes that it creates get the ACLs that gateways give them. Its methods are safe
// for concurrent use.
type Offline struct {
	cfg *zk.Config
	c   *conn.Conn
}

// OpenOffline connects. ErrUnavailable means that ZooKeeper could not be
// reached, *FatalError that trying again is useless.
func OpenOffline(ctx context.Context, cfg zk.Config) (*Offline, error) {
	cfg, err := cfg.WithDefaults()
	if err != nil {
		return nil, err
	}
	c, err := conn.Open(ctx, &cfg, func() {})
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return &Offline{cfg: &cfg, c: c}, nil
}

// errOffline is why the connection of an Offline ends.
var errOffline = fmt.Errorf("%w: the work is done", zk.ErrSessionGone)

// Close ends the session and returns when nothing of it is left.
func (o *Offline) Close() {
	o.c.End(errOffline)
	<-o.c.Gone()
}

// Root is where the layout lives, below the chroot.
func (o *Offline) Root() string { return o.cfg.Root }

// FullRoot is the root with the chroot, for messages.
func (o *Offline) FullRoot() string { return o.cfg.Full(o.cfg.Root) }

// Get reads a node's data. It tries again while ZooKeeper cannot be reached, as do all methods that read.
func (o *Offline) Get(ctx context.Context, path string) (data []byte, stat zk.Stat, err error) {
	data, stat, err = o.c.RetryGet(ctx, path)
	return data, stat, o.understood(err)
}

// Children lists a node's children, in no order.
func (o *Offline) Children(ctx context.Context, path string) (names []string, stat zk.Stat, err error) {
	names, stat, err = o.c.RetryChildren(ctx, path)
	return names, stat, o.understood(err)
}

// Exists looks at a node; nil means that it is not there.
func (o *Offline) Exists(ctx context.Context, path string) (stat *zk.Stat, err error) {
	stat, err = o.c.RetryExists(ctx, o.cfg, path)
	return stat, o.understood(err)
}

// understood makes ErrUnavailable of a session that ended by itself: for a command
// without a gateway it is the same. A refusal by an ACL is final here.
func (o *Offline) understood(err error) error {
	switch {
	case errors.Is(err, zk.ErrSessionGone) && !errors.Is(err, errOffline):
		return fmt.Errorf("%w: %w", zk.ErrUnavailable, err)
	case errors.Is(err, zk.ErrNoAuth):
		return conn.AuthRefused(o.cfg, err)
	}
	return err
}

// Secure gives a node of the layout the ACL that gateways give it. Of changed and refused at most one is true: refused
// means that ZooKeeper does not let us change the ACL, and that it gives others more than they should have, or the
// fleet less than it needs. Without an identity it does nothing.
func (o *Offline) Secure(ctx context.Context, path string) (changed, refused bool, err error) {
	return o.secure(ctx, path, o.c.AccessAt(path))
}

// SecureQueue does the same for a lock's directory or a contender, wherever the lock root is.
func (o *Offline) SecureQueue(ctx context.Context, path string) (changed, refused bool, err error) {
	return o.secure(ctx, path, o.c.AccessInQueue(path))
}

func (o *Offline) secure(ctx context.Context, path string, who conn.Access) (changed, refused bool, err error) {
	if !o.cfg.Identified() {
		return false, false, nil
	}
	s, err := o.c.Secure(ctx, path, who, nil)
	return s.Changed && err == nil, s.Refused && !conn.Tolerable(s.Have, who), o.understood(err)
}

// SecureLayout gives each node of a layout that exists the ACL that gateways give it, with the checks of a gateway's
// start. The error is a *FatalError where others may change a node, and the fleet may not close it. Without an identity
// it does nothing.
func (o *Offline) SecureLayout(ctx context.Context) error {
	layout := opener{ctx: ctx, cfg: o.cfg, c: o.c}
	return o.understood(layout.secureAll())
}

// ACLChanges tells how often a node's ACL was changed since the node was created, and whether it is the one that
// gateways give the node, which it never is without an identity.
func (o *Offline) ACLChanges(ctx context.Context, path string) (times int32, fits bool, err error) {
	have, stat, err := o.c.RetryACL(ctx, path)
	return stat.Aversion, o.cfg.Identified() && conn.SameACL(have, o.c.ACL(o.c.AccessAt(path))), o.understood(err)
}

// CreateAncestors creates what is missing of the chroot and of the nodes above path.
func (o *Offline) CreateAncestors(ctx context.Context, path string) error {
	maker := opener{ctx: ctx, cfg: o.cfg, c: o.c}
	bare := *o.cfg
	bare.Chroot = ""
	whole := o.cfg.Full(path)
	for above := range ancestry(whole) {
		if above == whole {
			break
		}
		who := o.c.AccessAt(o.cfg.Below(above))
		if who == conn.OpenToAll {
			who = conn.Above
		}
		if err := maker.create(&bare, above, nil, who); err != nil {
			return o.understood(err)
		}
	}
	return nil
}

// Commit carries out the operations in one transaction. The error of a transaction that ZooKeeper refused wraps that of
// its first operation that failed, and culprit is the index of that one; else culprit is -1, and with ErrUnavailable or
// a context's end nothing is known.
func (o *Offline) Commit(ctx context.Context, ops []zk.Op) (culprit int, err error) {
	size := 0
	encoded := make([]conn.Op, len(ops))
	for i := range ops {
		size += o.Size(&ops[i])
		encoded[i] = o.c.OpAs(&ops[i], o.c.AccessAt(ops[i].Path))
	}
	if size > MaxTransaction {
		return -1, fmt.Errorf("a transaction of %d bytes: %w", size, zk.ErrTooLarge)
	}
	switch {
	case ctx.Err() != nil: // what is not wanted any more is not sent
		return -1, context.Cause(ctx)
	case !o.c.Connected():
		return -1, fmt.Errorf("%w: not connected", zk.ErrUnavailable)
	}
	a, err := o.c.Transact(ctx, encoded)
	switch {
	case err != nil:
		return -1, err
	case a.Refused:
		return a.Culprit, o.understood(conn.Within("writing", ops[a.Culprit].Path, a.Err))
	}
	return -1, o.understood(a.Err)
}

// Size bounds what an operation takes in a transaction.
func (o *Offline) Size(op *zk.Op) int {
	size := o.c.Size(op)
	if op.Kind == zk.OpCreate {
		for _, a := range o.c.ACL(o.c.AccessAt(op.Path)) { // perhaps more than those that are counted in it
			size += len(a.Scheme) + len(a.ID) + 12
		}
	}
	return size
}

// Barrier commits a transaction that changes nothing and tells a zxid that is at or above its own, and above that of
// everything that was committed before. What is read afterwards is not older than the barrier.
func (o *Offline) Barrier(ctx context.Context) (zxid int64, err error) {
	path := o.cfg.Root + "/barrier"
	ops := []conn.Op{
		o.c.OpAs(&zk.Op{Kind: zk.OpCreate, Path: path}, conn.ReadOnly),
		o.c.Op(&zk.Op{Kind: zk.OpDelete, Path: path, Version: -1}),
	}
	err = o.c.Retry(ctx, conn.ReqMulti, func(ctx context.Context) error {
		a, err := o.c.Transact(ctx, ops)
		if err != nil {
			return err
		}
		return a.Err
	}, func(context.Context) (bool, error) { return false, nil }) // once more does no harm
	return o.c.LastZxid(), o.understood(err)
}

// Directories are the parts of the layout that are only parents, as paths relative to the root.
func Directories() []string {
	paths := make([]string, len(conn.Directories))
	for i, d := range conn.Directories {
		paths[i] = d.Path
	}
	return paths
}
