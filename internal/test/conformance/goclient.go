package conformance

import (
	"cmp"
	"context"
	"errors"
	"time"

	"lockkeeper/client"
	"lockkeeper/internal/locks"
)

// GoClient is Remote with the Go client for what that is for: taking locks, alone and several, in each mode, at once and in the
// queue, and giving them back. The client keeps a lease by itself, and its caller never sees the token: each lease is detached
// when it is held, so that the script has its token.
//
// Told is called with each acquire that the client's interface cannot express, and why; it goes through Remote then.
type GoClient struct {
	Remote
	Go   *client.Client
	Told func(why string)
}

// cannot says why an acquire cannot be asked for by the client's interface; "" when it can.
func cannot(req *locks.AcquireRequest) string {
	switch {
	case req.Token != "" || req.Hold != "":
		return "holds of a reentrant lease"
	case req.Wait == locks.WaitForever:
		return "a wait that the end of its place ends: the client queues again"
	case req.Async:
		return "a ticket in the hands of the caller: the client waits by itself"
	case req.DryRun:
		return "a preview"
	case req.IdempotencyKey != "":
		return "an idempotency key of the caller's: the client makes one for each acquire"
	case req.Deadlock != "":
		return "deadlock"
	case req.Ephemeral:
		return "ephemeral leases"
	case req.Reserves():
		return "reservations: the client keeps leases by heartbeats"
	case req.NotifyURL != "":
		return "notify_url"
	case req.DoneOn != "" && req.DoneOn != locks.DoneOnGrant && req.DoneOn != locks.DoneOnRelease:
		return "what makes a period done that is not valid"
	case req.AtLeast < 0, req.AtLeast%time.Millisecond != 0, req.OncePer < 0, req.OncePer%time.Millisecond != 0, req.Wait < 0, req.TTL%time.Millisecond != 0, req.TTL < 0:
		return "times that are not valid"
	case req.LockDelayOn != "" && req.LockDelayOn != locks.DelayAlways && req.LockDelayOn != locks.DelayOnExpiry:
		return "a lock delay that is not valid"
	case req.Mode != "" && !req.Mode.Known(), req.Mode != locks.Semaphore && req.Permits+req.Limit != 0, req.Group != nil && (req.Lock != "" || len(req.Group) == 0):
		return "a mode that is not valid"
	}
	for i := range req.Group {
		if w := &req.Group[i]; w.Mode != "" && !w.Mode.Known() || w.Mode == locks.Semaphore && w.Permits == 0 || w.Mode != locks.Semaphore && w.Permits+w.Limit != 0 || w.Permits < 0 {
			return "a mode or permits of one of several locks as the client's Lock has no field for"
		}
	}
	return ""
}

// Acquire takes one lock or several.
func (g GoClient) Acquire(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
	if why := cannot(&req); why != "" {
		g.Told(why)
		return g.Remote.Acquire(ctx, req)
	}
	lease, err := g.take(ctx, &req)
	if d := (*client.Done)(nil); errors.As(err, &d) {
		return locks.AcquireResult{Done: &locks.Done{NS: cmp.Or(req.NS, locks.DefaultNamespace), Lock: d.Lock, Period: d.Period, By: d.By, At: d.At}}, nil
	}
	if err != nil {
		return locks.AcquireResult{}, g.refusal(ctx, &req, err)
	}
	token, err := lease.Detach()
	if err != nil {
		return locks.AcquireResult{}, ended(err)
	}
	seen, err := g.Lease(ctx, locks.LeaseRequest{ID: lease.ID(), Token: token})
	seen.Token = token
	return locks.AcquireResult{Lease: seen}, err
}

func (g GoClient) take(ctx context.Context, req *locks.AcquireRequest) (*client.Lease, error) {
	options := []client.Option{client.Owner(req.Owner), client.Metadata(req.Metadata), client.Wait(req.Wait)}
	if req.TTL != 0 {
		options = append(options, client.TTL(req.TTL))
	}
	switch {
	case req.LockDelayOn == locks.DelayAlways:
		options = append(options, client.LockDelayAlways(req.LockDelay))
	case req.LockDelay != 0:
		options = append(options, client.LockDelay(req.LockDelay))
	}
	if req.Purpose != "" {
		options = append(options, client.Reason(req.Purpose))
	}
	if req.AtLeast != 0 {
		options = append(options, client.AtLeast(req.AtLeast))
	}
	if req.OncePer != 0 {
		options = append(options, client.OncePer(req.OncePer))
	}
	if req.Period != "" {
		options = append(options, client.Period(req.Period))
	}
	if req.DoneOn == locks.DoneOnRelease {
		options = append(options, client.DoneOnRelease())
	}
	if req.Group != nil {
		several := make([]client.Lock, len(req.Group))
		for i, w := range req.Group {
			several[i] = client.Lock{Name: w.Lock, Namespace: w.NS, Shared: w.Mode == locks.Shared, Permits: w.Permits, Limit: w.Limit}
		}
		return g.Go.AcquireAll(ctx, several, options...)
	}
	if req.NS != "" {
		options = append(options, client.Namespace(req.NS))
	}
	switch req.Mode {
	case locks.Shared:
		options = append(options, client.Shared())
	case locks.Semaphore:
		options = append(options, client.Permits(req.Permits, req.Limit))
	}
	return g.Go.Acquire(ctx, req.Lock, options...)
}

// refusal is the client's error in the words of the domain. A NotAcquired has of each holder what people need: the rest is looked up.
func (g GoClient) refusal(ctx context.Context, req *locks.AcquireRequest, err error) error {
	var taken *client.NotAcquired
	if !errors.As(err, &taken) {
		return ended(err)
	}
	e := &locks.Error{Code: locks.CodeHeldByOther, Detail: err.Error(), QueueLength: taken.QueueLength, RetryAfter: taken.RetryAfter}
	if req.Wait != 0 {
		e.Code = locks.CodeWaitElapsed
	}
	for _, w := range req.Wants() {
		lock, err := g.Lock(ctx, locks.LockRequest{NS: w.NS, Lock: w.Lock})
		if err != nil {
			return err
		}
		if lock.State == locks.LockDelayed && req.Wait == 0 {
			e.Code = locks.CodeLockDelayed
		}
		for _, holder := range taken.Holders {
			for _, c := range lock.Holders {
				if c.LeaseID == holder.LeaseID && c.Owner == holder.Owner {
					e.Holders = append(e.Holders, c)
				}
			}
		}
	}
	return e
}

// ended is another error of the client in the words of the domain.
func ended(err error) error {
	var p *client.Problem
	var lost *client.LeaseLost
	switch {
	case errors.As(err, &lost):
		return &locks.Error{Code: locks.CodeEnded, Reason: locks.Reason(lost.Reason), By: lost.By, Detail: lost.Detail}
	case errors.As(err, &p):
		return &locks.Error{Code: locks.Code(p.Code), Field: p.Field, Detail: p.Detail, Reason: locks.Reason(p.Reason), By: p.By, Limit: p.Limit}
	}
	return err
}

// Release gives a lease back as another process does that was handed it. What does not hold is released through Remote.
func (g GoClient) Release(ctx context.Context, p locks.Principal, id, token string) error {
	if locks.IsUndone(ctx) {
		return g.Remote.Release(ctx, p, id, token)
	}
	lease, err := g.Go.Attach(ctx, token)
	if err == nil && id != "" && id != lease.ID() {
		_, err = lease.Detach() // the script has the token of another lease
		err = cmp.Or(err, errors.New("not the lease that is named"))
	}
	if err != nil {
		return g.Remote.Release(ctx, p, id, token)
	}
	if err := lease.Release(ctx); err != nil {
		return ended(err)
	}
	return nil
}
