package term

import (
	"context"
	"time"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/wire"
)

// Store is ZooKeeper as a Port needs it. ZooKeeper implements it on a real ensemble.
type Store interface {
	// Layout opens or creates the root and reads what is recorded there. It
	// retries until ctx ends or the error is fatal (*zk.FatalError).
	Layout(ctx context.Context) (*layout.Layout, error)
	// Open registers a gateway id with a session of its own, in one attempt: zk.ErrUnavailable says that another one may go on, with
	// another id. onCommit is called
	// for every transaction that the session commits, the registering one
	// included, with the time it was sent.
	Open(ctx context.Context, id string, registration []byte, onCommit func(sent zk.Instant, zxid int64)) (Session, error)
	// Watch prepares the observer of the given roots.
	Watch(roots []zk.WatchRoot, sink zk.Sink, writerZxid func() int64) Watcher
}

// Session is the writing side of one gateway id; see session.Session.
type Session interface {
	ID() string
	Done() <-chan struct{}
	Err() error
	Submit(*zk.Write) error
	// Trusted reports whether now lies within the promise window of the
	// last committed transaction.
	Trusted(now zk.Instant) bool
	TrustMargin(now zk.Instant) time.Duration
	// LastAnswer is the time at which ZooKeeper last answered a write, and
	// whether it is connected.
	LastAnswer() zk.Instant
	Connected() bool
	LastZxid() int64
	Barrier(ctx context.Context) (zxid int64, err error)
	// ForgetEphemeral takes a node that is gone off the session's count of
	// ephemeral nodes.
	ForgetEphemeral(path string)
	Get(ctx context.Context, path string) ([]byte, zk.Stat, error)
	Children(ctx context.Context, path string) ([]string, zk.Stat, error)
	// Exists reads the Stat of a node with any ACL; nil: it is not there.
	Exists(ctx context.Context, path string) (*zk.Stat, error)
	// Guards looks at the guards of gateways; those that it could not look at are
	// not in the answer.
	Guards(ctx context.Context, ids []string) map[string]zk.Guard
	// Takeover submits the transaction by which this session succeeds a dead gateway: one that is gone, or one that is
	// stalled and whose guard was polled.
	Takeover(ctx context.Context, dead string, polled *zk.Guard, done func(zk.Result))
	// Abandon closes the trust window for good and ends the session, which was deposed.
	Abandon()
	// Close hands over: guard and registration go in one last transaction.
	Close(ctx context.Context) error
}

// Watcher is the reading side; see observer.Observer.
type Watcher interface {
	Run(ctx context.Context) error
	// AddRoot adds a tree to those that are followed. Its own Synced tells when
	// it has been read; after a lost connection the one for all of them.
	AddRoot(root zk.WatchRoot) error
	Get(path string, reply func(data []byte, stat wire.Stat, zxid int64, err error))
	List(dir string)
	Reached(ctx context.Context, zxid int64) error
	// Current reports whether what the replica shows may be acted upon.
	Current(now zk.Instant) bool
	// Lag is for how long the stream has not been seen to have reached a transaction that this gateway has committed.
	Lag(now zk.Instant) time.Duration
	Committed(sent zk.Instant, zxid int64)
}
