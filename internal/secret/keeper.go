package secret

import (
	"context"
	"log/slog"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/zk/layout"
)

const (
	pollEvery  = 5 * time.Second // while a rotation is under way
	retryEvery = time.Second     // what has failed is tried again
	readWithin = 20 * time.Second
)

// Leases is the gateway's lock manager.
type Leases interface {
	GatewayID() string
	OldLeases(ctx context.Context, cut, reached int64, last locks.OldLeases) (locks.OldLeases, bool)
}

// Options of a Keeper.
type Options struct {
	Tree    Tree
	Keyring *layout.Keyring
	Leases  Leases
	Log     *slog.Logger
	// Changed is told what has become of the secret; nil: nothing is. It must return at once. Every gateway of a fleet is told the same.
	Changed func(was, is *layout.Secret)
}

// Keeper keeps a gateway's keyring as ZooKeeper has it, and takes part in rotations.
type Keeper struct {
	Options
	wake chan struct{} // one place

	last locks.OldLeases // of Run's goroutine
}

// NewKeeper makes a keeper. Run runs it.
func NewKeeper(o Options) *Keeper {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Keeper{Options: o, wake: make(chan struct{}, 1)}
}

// Look is called when the secret, or what a gateway says of a rotation, may have changed. It returns at once.
func (k *Keeper) Look() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run follows ZooKeeper until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		case <-timer.C:
		}
		if wait := k.refresh(ctx); wait > 0 {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
	}
}

// refresh does what is to be done, and tells when to look again; 0: when something has changed.
func (k *Keeper) refresh(ctx context.Context) time.Duration {
	id := k.Leases.GatewayID()
	if id == "" {
		return retryEvery
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	read, err := k.Tree.Read(ctx)
	if err == nil {
		k.take(read)
		if read.Rotation == nil {
			if err = k.Tree.tidy(ctx, read); err == nil {
				return 0
			}
		}
	}
	if err == nil {
		err = k.say(ctx, id, k.Keyring.Load())
	}
	if err == nil {
		_, err = k.Tree.Advance(ctx)
	}
	if err != nil {
		k.Log.Debug("the secret could not be followed, which is tried again", "err", err)
		return retryEvery
	}
	return pollEvery
}

// take puts what was read into force before anything is said of it.
func (k *Keeper) take(read *layout.Secret) {
	was := k.Keyring.Load()
	if !k.Keyring.Take(read) {
		return
	}
	switch r := read.Rotation; {
	case r != nil && (was == nil || was.Rotation == nil || *was.Rotation != *r):
		k.Log.Info("the fleet's secret is being rotated", "phase", r.Phase, "new_key", r.Key, "begun_by", r.By)
	case r == nil && was != nil && was.Rotation != nil:
		k.Log.Info("the fleet's secret is rotated; the old key is refused", "key", read.Keys[0].ID)
	}
	if k.Changed != nil && was != nil {
		k.Changed(was, read)
	}
}

// say tells the fleet that this gateway has taken in the secret, and whether it needs the old key.
func (k *Keeper) say(ctx context.Context, id string, s *layout.Secret) error {
	r := s.Rotation
	if r == nil {
		return nil // dropped since it was read
	}
	now := said{Key: r.Key, Phase: r.Phase}
	if r.Phase == layout.Retiring {
		if err := k.count(ctx, r.Cut, &now); err != nil {
			return err
		}
	}
	return k.Tree.say(ctx, id, now)
}

// count counts the leases that need the old key.
func (k *Keeper) count(ctx context.Context, cut int64, now *said) error {
	_, members, err := k.Tree.members(ctx)
	if err != nil {
		return err
	}
	found, ok := k.Leases.OldLeases(ctx, cut, members, k.last)
	if !ok {
		return ErrUnavailable // the replica does not show as much yet
	}
	k.last = found
	now.Leases, now.Some, now.Unowned = found.N, found.Some, found.Unowned
	if found.N == 0 && found.Unowned == 0 {
		now.Idle = members
	}
	return nil
}
