package term

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"

	retry "lockkeeper/internal/backoff"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/observer"
	"lockkeeper/internal/zk/session"
	"lockkeeper/internal/zk/wire"
)

// ZooKeeper is the Store on a real ensemble.
type ZooKeeper struct {
	Config zk.Config
	// ReachWithin bounds how long Layout tries when ZooKeeper does not answer
	// at the start; 0 tries until ctx ends.
	ReachWithin time.Duration
	// Keyring gets the fleet's secret whenever the layout is read: before a session is registered it has what is in force; nil: it is not kept.
	Keyring *layout.Keyring

	layout *layout.Layout
}

// Layout implements Store. Its error is zk.ErrUnavailable, wrapped, when
// ZooKeeper was not reached within ReachWithin.
func (z *ZooKeeper) Layout(ctx context.Context) (*layout.Layout, error) {
	layout, err := z.reach(ctx)
	if err != nil {
		return nil, err
	}
	z.take(layout)
	z.Config.PromiseWindow = layout.PromiseWindow // the recorded one is the observer's too
	return layout, nil
}

func (z *ZooKeeper) take(layout *layout.Layout) {
	z.layout = layout
	if z.Keyring != nil {
		z.Keyring.Take(layout.Secret)
	}
}

// Open implements Store. A registration is refused when the layout has changed since it was read: then it is read anew, and accepted if
// nothing but the secret has changed.
func (z *ZooKeeper) Open(ctx context.Context, id string, registration []byte, onCommit func(zk.Instant, int64)) (Session, error) {
	ctx, cancel := context.WithTimeout(ctx, reachAttempt)
	defer cancel()
	for {
		opened, err := session.Open(ctx, z.Config, z.layout, id, registration)
		if err == nil {
			opened.TrustWindow().OnCommit(onCommit)
			return writer{opened}, nil
		}
		if !errors.Is(err, zk.ErrBadVersion) {
			return nil, err
		}
		read, failed := layout.Open(ctx, z.Config)
		switch {
		case failed != nil:
			return nil, failed
		case !onlySecretChanged(z.layout, read):
			return nil, err
		}
		z.take(read)
	}
}

// onlySecretChanged reports whether what a registration checks has moved, and all but the secret is as before. The secret may be the same:
// a rotation's step between the two reads of a layout gives an old version and the new secret.
func onlySecretChanged(from, to *layout.Layout) bool {
	return from.FleetID == to.FleetID && from.FenceBase == to.FenceBase && from.PromiseWindow == to.PromiseWindow && from.LargestWindow == to.LargestWindow &&
		(from.FenceBaseVersion != to.FenceBaseVersion || from.PromiseWindowVersion != to.PromiseWindowVersion)
}

// reachAttempt bounds one attempt; every one that fails is logged.
const reachAttempt = 5 * time.Second

// reach reads the layout, and tries until ZooKeeper answers, for at most ReachWithin (0: as long as ctx lasts). Any error but
// zk.ErrUnavailable is final.
func (z *ZooKeeper) reach(ctx context.Context) (*layout.Layout, error) {
	return backoff.Retry(ctx, func() (*layout.Layout, error) {
		attempt, cancel := context.WithTimeout(ctx, reachAttempt)
		defer cancel()
		read, err := layout.Open(attempt, z.Config)
		if err != nil && !errors.Is(err, zk.ErrUnavailable) {
			return read, backoff.Permanent(err)
		}
		return read, err
	}, backoff.WithBackOff(reachDelays(z.Config.Random)), backoff.WithMaxElapsedTime(z.ReachWithin), backoff.WithNotify(func(err error, _ time.Duration) {
		if z.Config.Logger != nil {
			z.Config.Logger.Warn("zookeeper cannot be reached yet", "doing", "reading the layout", "servers", z.Config.Servers, "err", err)
		}
	}))
}

// reachDelays are the delays between attempts to reach ZooKeeper.
func reachDelays(random rand.Source) *retry.Backoff {
	return retry.New(random, 50*time.Millisecond, 2*time.Second)
}

// Watch implements Store.
func (z *ZooKeeper) Watch(roots []zk.WatchRoot, sink zk.Sink, writerZxid func() int64) Watcher {
	return reader{observer.New(z.Config, roots, sink, writerZxid)}
}

// writer is a session.Session as a Port sees it.
type writer struct{ *session.Session }

func (w writer) Trusted(now zk.Instant) bool              { return w.TrustWindow().Open(now) }
func (w writer) TrustMargin(now zk.Instant) time.Duration { return w.TrustWindow().Margin(now) }

// reader is an observer.Observer as a Port sees it.
type reader struct{ *observer.Observer }

func (r reader) Get(path string, reply func([]byte, wire.Stat, int64, error)) {
	if err := r.Observer.Get(path, reply); err != nil {
		reply(nil, wire.Stat{}, 0, err)
	}
}

func (r reader) Current(now zk.Instant) bool           { return r.Observer.Freshness().Current(now) }
func (r reader) Lag(now zk.Instant) time.Duration      { return r.Observer.Freshness().Lag(now) }
func (r reader) Committed(sent zk.Instant, zxid int64) { r.Observer.Freshness().Committed(sent, zxid) }
