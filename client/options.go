package client

import "time"

// Option changes how a lock is acquired.
type Option func(*acquire)

// TTL is the time to live of the lease: for so long others wait when this process dies. 30 s unless given, 1 s to 24 h. Below
// 15 s the crash of a gateway can cost the lease.
func TTL(d time.Duration) Option {
	return func(a *acquire) { a.ttl, a.body.TTL = d, millis(d) }
}

// Wait bounds how long an acquire waits in the queue; without it, until its context is over. 0 tries.
func Wait(d time.Duration) Option { return func(a *acquire) { a.wait, a.bounded = d, true } }

// Owner is a label for people who look at the lock. Without it the gateway takes the caller's name or address.
func Owner(name string) Option { return func(a *acquire) { a.body.Owner = name } }

// Reason says what the lock is taken for, to people who look at it.
func Reason(text string) Option { return func(a *acquire) { a.body.Reason = text } }

// Metadata is a text that every client can read at the lock, such as the address of a leader.
func Metadata(text string) Option { return func(a *acquire) { a.body.Metadata = text } }

// Namespace is the namespace of the lock.
func Namespace(ns string) Option { return func(a *acquire) { a.body.NS = ns } }

// Shared takes the lock together with other readers.
func Shared() Option { return func(a *acquire) { a.body.Mode = "shared" } }

// Permits takes n of the limit permits of a lock. A limit of 0 is the lock's own.
func Permits(n, limit int) Option {
	return func(a *acquire) { a.body.Mode, a.body.Permits, a.body.Limit = "semaphore", n, limit }
}

// LockDelay keeps the lock free for so long after the lease was held, so that a holder that has not noticed yet can finish.
func LockDelay(d time.Duration) Option { return func(a *acquire) { a.body.LockDelay = millis(d) } }

// LockDelayAlways is LockDelay that follows a release, too.
func LockDelayAlways(d time.Duration) Option {
	return func(a *acquire) { a.body.LockDelay, a.body.DelayOn = millis(d), "always" }
}

// Margin is how long before the end of the lease's time the work is stopped: the longest time that it takes to stop. Without it
// one second, or a fifth of a TTL below 5 s. It must be less than half of the TTL.
func Margin(d time.Duration) Option { return func(a *acquire) { a.margin = d } }

// OnRevoke is called once when the holder is asked to release the lease. The work may go on until the lease is lost. The call has
// a goroutine of its own, and may call Release.
func OnRevoke(f func(Revocation)) Option { return func(a *acquire) { a.onRevoke = f } }

// Revocation is what the holder of a lease is asked.
type Revocation struct {
	Reason  string        // the text of the request
	By      string        // who asks, when the gateway tells: the name of a caller, or its address
	ForceIn time.Duration // the gateway ends the lease then; 0 when it does not
}

// OnQueued is called with the place among the waiters while the acquire waits: first when it enters the queue, then when
// the place changes. The call must not block.
func OnQueued(f func(position int)) Option { return func(a *acquire) { a.onQueued = f } }
