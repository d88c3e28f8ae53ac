package client

import (
	"context"
	"errors"
	"sync"
)

// Do acquires the lock, runs the work, and releases the lock on every path. The context of the work ends when the lease is lost,
// before another client can hold the lock, and when ctx ends.
//
// Do returns the error of Acquire when the work did not run, and nil when OncePer says that it is done; a *LeaseLost when the lease was lost before the work returned; and
// the error of the work otherwise. A release that no gateway answered is no error: the lease ends by itself.
func (c *Client) Do(ctx context.Context, name string, work func(ctx context.Context, lease *Lease) error, opts ...Option) error {
	lease, err := c.Acquire(ctx, name, opts...)
	if err != nil {
		return unlessDone(err)
	}
	return lease.guard(ctx, work)
}

// DoAll is Do for the locks of AcquireAll.
func (c *Client) DoAll(ctx context.Context, locks []Lock, work func(ctx context.Context, lease *Lease) error, opts ...Option) error {
	lease, err := c.AcquireAll(ctx, locks, opts...)
	if err != nil {
		return unlessDone(err)
	}
	return lease.guard(ctx, work)
}

func (l *Lease) guard(ctx context.Context, work func(context.Context, *Lease) error) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	done := false
	defer func() {
		// Deferred: the lock is also released when the work panics.
		stop()
		cancel(nil)
		var lost *LeaseLost
		if errors.As(l.release(ctx, done || !l.doneOnRelease), &lost) {
			lost.Work = err
			err = lost
		}
	}()
	err = work(ctx, l)
	done = err == nil
	return err
}

// Elect runs lead while this client is the leader: the holder of the lock. Waiters are the candidates, in the order in which
// they lead; Metadata says where a leader is reached, and the fencing token is the number of its term.
//
// A leader whose lease is lost is a candidate again when lead has returned. Elect returns nil when lead returns nil while it
// leads (it resigns), and the error of lead, of the acquire, or of ctx otherwise.
func (c *Client) Elect(ctx context.Context, name string, lead func(ctx context.Context, lease *Lease) error, opts ...Option) error {
	for {
		term := ""
		err := c.Do(ctx, name, func(ctx context.Context, lease *Lease) error {
			term = lease.ID()
			return lead(ctx, lease)
		}, opts...)
		var lost *LeaseLost
		if !errors.As(err, &lost) || lost.LeaseID != term || ctx.Err() != nil {
			return err // also where lead lost another lease
		}
	}
}

// Locker gives the lock as a sync.Locker, for code that takes one. Such code cannot be told that its lock is lost, so lost must
// see to it that it stops: end the process, if there is no better way. A Lock that cannot be acquired calls lost and then blocks
// for ever, because to return would be to say that the lock is held.
func (c *Client) Locker(name string, lost func(error), opts ...Option) sync.Locker {
	return &locker{client: c, name: name, lost: lost, opts: opts, free: make(chan struct{}, 1)}
}

type locker struct {
	client *Client
	name   string
	lost   func(error)
	opts   []Option

	free  chan struct{} // holds a value while the lease is taken
	lease *Lease
}

func (k *locker) Lock() {
	k.free <- struct{}{} // one of this process's goroutines at a time
	lease, err := k.client.Acquire(context.Background(), k.name, k.opts...)
	if err != nil {
		k.lost(err)
		select {}
	}
	k.lease = lease
	context.AfterFunc(lease.Context(), func() {
		if err := lease.Err(); err != nil {
			k.lost(err)
		}
	})
}

func (k *locker) Unlock() {
	lease := k.lease
	if lease == nil {
		panic("lockkeeper: Unlock of a Locker that is not locked")
	}
	k.lease = nil
	_ = lease.Release(context.Background()) // a lease that was lost has been told to lost
	<-k.free
}
