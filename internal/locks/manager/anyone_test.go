package manager

import (
	"context"

	"lockkeeper/internal/locks"
)

// anyone is a manager whose requests come from locks.Anonymous when they name no principal, as those of a gateway without
// authentication. What principals may do is tested on the manager itself: see access_test.go.
type anyone struct{ *Manager }

func named(p locks.Principal) locks.Principal {
	if p == (locks.Principal{}) {
		return locks.Anonymous
	}
	return p
}

func (a anyone) Acquire(ctx context.Context, r locks.AcquireRequest) (locks.AcquireResult, error) {
	r.Principal = named(r.Principal)
	return a.Manager.Acquire(ctx, r)
}

func (a anyone) Lease(ctx context.Context, r locks.LeaseRequest) (locks.Lease, error) {
	r.Principal = named(r.Principal)
	return a.Manager.Lease(ctx, r)
}

func (a anyone) Leases(ctx context.Context, r locks.LeaseFilter) (locks.LeasePage, error) {
	r.Principal = named(r.Principal)
	return a.Manager.Leases(ctx, r)
}

func (a anyone) Update(ctx context.Context, r locks.UpdateRequest) (locks.Lease, error) {
	r.Principal = named(r.Principal)
	return a.Manager.Update(ctx, r)
}

func (a anyone) Lock(ctx context.Context, r locks.LockRequest) (locks.Lock, error) {
	r.Principal = named(r.Principal)
	return a.Manager.Lock(ctx, r)
}

func (a anyone) Locks(ctx context.Context, r locks.LockFilter) (locks.LockPage, error) {
	r.Principal = named(r.Principal)
	return a.Manager.Locks(ctx, r)
}

func (a anyone) Fence(ctx context.Context, r locks.FenceRequest) (locks.FenceAnswer, error) {
	r.Principal = named(r.Principal)
	return a.Manager.Fence(ctx, r)
}

func (a anyone) Configure(ctx context.Context, r locks.SettingsRequest) (locks.Lock, error) {
	r.Principal = named(r.Principal)
	return a.Manager.Configure(ctx, r)
}

func (a anyone) Revoke(ctx context.Context, r locks.RevokeRequest) (locks.RevokeAnswer, error) {
	r.Principal = named(r.Principal)
	return a.Manager.Revoke(ctx, r)
}

func (a anyone) Withdraw(ctx context.Context, r locks.WithdrawRequest) (locks.WithdrawAnswer, error) {
	r.Principal = named(r.Principal)
	return a.Manager.Withdraw(ctx, r)
}

func (a anyone) Break(ctx context.Context, r locks.BreakRequest) error {
	r.Principal = named(r.Principal)
	return a.Manager.Break(ctx, r)
}

func (a anyone) Reap(ctx context.Context, r locks.ReapRequest) (locks.ReapAnswer, error) {
	r.Principal = named(r.Principal)
	return a.Manager.Reap(ctx, r)
}

func (a anyone) Destroy(ctx context.Context, r locks.DestroyRequest) (locks.DestroyAnswer, error) {
	r.Principal = named(r.Principal)
	return a.Manager.Destroy(ctx, r)
}
