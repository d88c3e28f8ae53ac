package conformance

import (
	"context"
	"errors"
	"time"

	"lockkeeper/internal/locks"
)

// patient is a Service whose requests are repeated when they are answered that ZooKeeper was too slow: on a loaded machine it
// takes longer than a gateway lets its clients wait, and repeating is what clients are told to do. A service that has no other
// answer fails the script all the same. An acquire without a key is given up by a gateway that could not say whether it was
// done, so it can be repeated, too. Who asks is anonymous and may do everything: the scripts are not about rights.
type patient struct{ Service }

// insist repeats a request until it has an answer.
func insist[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	begun := time.Now()
	for {
		v, err := ask()
		var e *locks.Error
		again := errors.As(err, &e) && (e.Code == locks.CodeUnavailable || e.Code == locks.CodeOutcomeUnknown)
		if !again || time.Since(begun) > patience {
			return v, err
		}
		select {
		case <-time.After(e.RetryAfter):
		case <-ctx.Done():
			return v, err
		}
	}
}

func insisted(ctx context.Context, ask func() error) error {
	_, err := insist(ctx, func() (struct{}, error) { return struct{}{}, ask() })
	return err
}

func (p patient) Acquire(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
	req.Principal = locks.Anonymous
	return insist(ctx, func() (locks.AcquireResult, error) { return p.Service.Acquire(ctx, req) })
}

func (p patient) Lease(ctx context.Context, req locks.LeaseRequest) (locks.Lease, error) {
	req.Principal = locks.Anonymous
	return insist(ctx, func() (locks.Lease, error) { return p.Service.Lease(ctx, req) })
}

func (p patient) Heartbeat(ctx context.Context, who locks.Principal, id, token string, ttl time.Duration) (locks.Heartbeat, error) {
	return insist(ctx, func() (locks.Heartbeat, error) { return p.Service.Heartbeat(ctx, who, id, token, ttl) })
}

func (p patient) AwaitChange(ctx context.Context, who locks.Principal, id, token string, wait time.Duration) (locks.Heartbeat, error) {
	return insist(ctx, func() (locks.Heartbeat, error) { return p.Service.AwaitChange(ctx, who, id, token, wait) })
}

func (p patient) Release(ctx context.Context, who locks.Principal, id, token string) error {
	return insisted(ctx, func() error { return p.Service.Release(ctx, who, id, token) })
}

func (p patient) ReleaseHold(ctx context.Context, who locks.Principal, id, token, hold string) error {
	return insisted(ctx, func() error { return p.Service.ReleaseHold(ctx, who, id, token, hold) })
}

func (p patient) Update(ctx context.Context, req locks.UpdateRequest) (locks.Lease, error) {
	req.Principal = locks.Anonymous
	return insist(ctx, func() (locks.Lease, error) { return p.Service.Update(ctx, req) })
}

func (p patient) Downgrade(ctx context.Context, who locks.Principal, id, token string) (locks.Lease, error) {
	return insist(ctx, func() (locks.Lease, error) { return p.Service.Downgrade(ctx, who, id, token) })
}

func (p patient) Lock(ctx context.Context, req locks.LockRequest) (locks.Lock, error) {
	req.Principal = locks.Anonymous
	return insist(ctx, func() (locks.Lock, error) { return p.Service.Lock(ctx, req) })
}

func (p patient) Fence(ctx context.Context, req locks.FenceRequest) (locks.FenceAnswer, error) {
	req.Principal = locks.Anonymous
	return insist(ctx, func() (locks.FenceAnswer, error) { return p.Service.Fence(ctx, req) })
}

func (p patient) Configure(ctx context.Context, req locks.SettingsRequest) (locks.Lock, error) {
	req.Principal = locks.Anonymous
	return insist(ctx, func() (locks.Lock, error) { return p.Service.Configure(ctx, req) })
}

func (p patient) Remove(ctx context.Context, who locks.Principal, ns, lock string) error {
	return insisted(ctx, func() error { return p.Service.Remove(ctx, who, ns, lock) })
}

func (p patient) Withdraw(ctx context.Context, req locks.WithdrawRequest) (locks.WithdrawAnswer, error) {
	req.Principal = locks.Anonymous
	return insist(ctx, func() (locks.WithdrawAnswer, error) { return p.Service.Withdraw(ctx, req) })
}

func (p patient) Revoke(ctx context.Context, req locks.RevokeRequest) (locks.RevokeAnswer, error) {
	req.Principal = locks.Anonymous
	return insist(ctx, func() (locks.RevokeAnswer, error) { return p.Service.Revoke(ctx, req) })
}

func (p patient) Break(ctx context.Context, req locks.BreakRequest) error {
	req.Principal = locks.Anonymous
	return insisted(ctx, func() error { return p.Service.Break(ctx, req) })
}

func (p patient) Reap(ctx context.Context, req locks.ReapRequest) (locks.ReapAnswer, error) {
	req.Principal = locks.Anonymous
	return insist(ctx, func() (locks.ReapAnswer, error) { return p.Service.Reap(ctx, req) })
}

func (p patient) Destroy(ctx context.Context, req locks.DestroyRequest) (locks.DestroyAnswer, error) {
	req.Principal = locks.Anonymous
	return insist(ctx, func() (locks.DestroyAnswer, error) { return p.Service.Destroy(ctx, req) })
}

func (p patient) Leases(ctx context.Context, filter locks.LeaseFilter) (locks.LeasePage, error) {
	filter.Principal = locks.Anonymous
	return p.Service.Leases(ctx, filter)
}

func (p patient) Locks(ctx context.Context, filter locks.LockFilter) (locks.LockPage, error) {
	filter.Principal = locks.Anonymous
	return p.Service.Locks(ctx, filter)
}
