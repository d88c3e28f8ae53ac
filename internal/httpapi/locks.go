package httpapi

import (
	"context"
	"time"

	"lockkeeper/internal/locks"
)

// Locks is the lock manager as this package needs it. Each group of handlers uses one of its parts.
type Locks interface {
	Leases
	Queues
	Administration
	Ownership
	Process
	Tokens
	// StillValid reports whether what was said about a lease may be written now.
	StillValid(term locks.Term) bool
}

// Leases is what clients do with leases.
type Leases interface {
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
}

// Queues is what can be seen of locks.
type Queues interface {
	Lock(ctx context.Context, req locks.LockRequest) (locks.Lock, error)
	Locks(ctx context.Context, filter locks.LockFilter) (locks.LockPage, error)
	Graph(ctx context.Context, req locks.GraphRequest) (locks.WaitGraph, error)
	Fence(ctx context.Context, req locks.FenceRequest) (locks.FenceAnswer, error)
}

// Administration is what ends or asks for the leases of others, and settings.
type Administration interface {
	Configure(ctx context.Context, req locks.SettingsRequest) (locks.Lock, error)
	Remove(ctx context.Context, p locks.Principal, ns, lock string) error
	Revoke(ctx context.Context, req locks.RevokeRequest) (locks.RevokeAnswer, error)
	Withdraw(ctx context.Context, req locks.WithdrawRequest) (locks.WithdrawAnswer, error)
	Break(ctx context.Context, req locks.BreakRequest) error
	// Periods and ForgetPeriod are about the periods that a lock's record has.
	Periods(ctx context.Context, req locks.PeriodsRequest) ([]locks.Period, error)
	ForgetPeriod(ctx context.Context, req locks.PeriodsRequest) error
	Reap(ctx context.Context, req locks.ReapRequest) (locks.ReapAnswer, error)
	Destroy(ctx context.Context, req locks.DestroyRequest) (locks.DestroyAnswer, error)
}

// Ownership finds the gateway that runs a lease.
type Ownership interface {
	GatewayID() string
	Peers() []locks.Peer
	LeftGateways() []locks.LeftGateway
	// Registered reports whether the replica shows the registration of a gateway.
	Registered(gateway string) bool
	RouteOf(lease string) (locks.Route, bool)
	// Arrive waits until this gateway is known to run the lease, Reached until the replica has come to the zxid.
	Arrive(ctx context.Context, lease string, zxid int64) error
	Reached(ctx context.Context, zxid int64) error
	// HeartbeatFor renews a lease in the place of the gateway that runs it and cannot be reached.
	HeartbeatFor(ctx context.Context, p locks.Principal, token string) (locks.Heartbeat, error)
	// ReleaseFor releases a lease in the place of the gateway that runs it and cannot be reached.
	ReleaseFor(ctx context.Context, p locks.Principal, token string) error
}

// Tokens are for the adapters, whose clients keep none.
type Tokens interface {
	// TokenOf is the token of a lease. It does not ask who wants it.
	TokenOf(id string) (string, error)
}

// Process is what this gateway says of itself.
type Process interface {
	Namespaces(ctx context.Context, p locks.Principal) ([]locks.NamespaceInfo, error)
	Info(ctx context.Context) locks.Info
	Ready() error // nil: requests should be sent here
	Alive() error // nil: the manager's loops turn
}
