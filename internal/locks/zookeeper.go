package locks

import (
	"context"
	"time"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// ZooKeeper is the Store on a real ensemble.
type ZooKeeper struct {
	Config zk.Config

	layout *zk.Layout
}

// Layout implements Store.
func (z *ZooKeeper) Layout(ctx context.Context) (*zk.Layout, error) {
	layout, err := zk.OpenLayout(ctx, z.Config)
	if err != nil {
		return nil, err
	}
	z.layout = layout
	z.Config.PromiseWindow = layout.PromiseWindow // the recorded one is the observer's too
	return layout, nil
}

// Open implements Store.
func (z *ZooKeeper) Open(ctx context.Context, id string, registration []byte, onCommit func(zk.Instant, int64)) (Session, error) {
	session, err := zk.OpenSession(ctx, z.Config, z.layout, id, registration)
	if err != nil {
		return nil, err
	}
	session.Fence().OnCommit(onCommit)
	return writer{session}, nil
}

// Watch implements Store.
func (z *ZooKeeper) Watch(roots []zk.WatchRoot, sink zk.Sink, writerZxid func() int64) Watcher {
	return reader{zk.NewObserver(z.Config, roots, sink, writerZxid)}
}

// writer is a zk.Session as the manager sees it.
type writer struct{ *zk.Session }

func (w writer) FenceOpen(now zk.Instant) bool            { return w.Fence().Open(now) }
func (w writer) FenceMargin(now zk.Instant) time.Duration { return w.Fence().Margin(now) }

// reader is a zk.Observer as the manager sees it.
type reader struct{ *zk.Observer }

func (r reader) Get(path string, reply func([]byte, wire.Stat, int64, error)) {
	if err := r.Observer.Get(path, reply); err != nil {
		reply(nil, wire.Stat{}, 0, err)
	}
}

func (r reader) Current(now zk.Instant) bool           { return r.Observer.Current().Current(now) }
func (r reader) Committed(sent zk.Instant, zxid int64) { r.Observer.Current().Committed(sent, zxid) }
