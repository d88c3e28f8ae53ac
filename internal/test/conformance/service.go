package conformance

import (
	"context"
	"time"

	"lockkeeper/internal/locks"
)

// Service is a lock service in the words of the domain: locks.Manager, or Remote. Errors are *locks.Error, except those of a
// connection that broke.
type Service interface {
	Acquire(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error)
	Lease(ctx context.Context, req locks.LeaseRequest) (locks.Lease, error)
	Leases(ctx context.Context, filter locks.LeaseFilter) (locks.LeasePage, error)
	Heartbeat(ctx context.Context, p locks.Principal, id, token string, ttl time.Duration) (locks.Heartbeat, error)
	AwaitChange(ctx context.Context, p locks.Principal, id, token string, wait time.Duration) (locks.Heartbeat, error)
	Heartbeats(ctx context.Context, p locks.Principal, tokens []string) []locks.HeartbeatResult
	Release(ctx context.Context, p locks.Principal, id, token string) error
	ReleaseHold(ctx context.Context, p locks.Principal, id, token, hold string) error
	Update(ctx context.Context, req locks.UpdateRequest) (locks.Lease, error)
	Downgrade(ctx context.Context, p locks.Principal, id, token string) (locks.Lease, error)
	Postmortem(ctx context.Context, p locks.Principal, id string) (locks.Postmortem, error)
	Lock(ctx context.Context, req locks.LockRequest) (locks.Lock, error)
	Locks(ctx context.Context, filter locks.LockFilter) (locks.LockPage, error)
	Graph(ctx context.Context, req locks.GraphRequest) (locks.WaitGraph, error)
	Fence(ctx context.Context, req locks.FenceRequest) (locks.FenceAnswer, error)
	Periods(ctx context.Context, req locks.PeriodsRequest) ([]locks.Period, error)
	ForgetPeriod(ctx context.Context, req locks.PeriodsRequest) error
	Configure(ctx context.Context, req locks.SettingsRequest) (locks.Lock, error)
	Remove(ctx context.Context, p locks.Principal, ns, lock string) error
	Revoke(ctx context.Context, req locks.RevokeRequest) (locks.RevokeAnswer, error)
	Withdraw(ctx context.Context, req locks.WithdrawRequest) (locks.WithdrawAnswer, error)
	Break(ctx context.Context, req locks.BreakRequest) error
	Reap(ctx context.Context, req locks.ReapRequest) (locks.ReapAnswer, error)
	Destroy(ctx context.Context, req locks.DestroyRequest) (locks.DestroyAnswer, error)
}
