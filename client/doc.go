// Package client takes locks from a Lockkeeper gateway, and stops the work that they protect in time.
//
//	c, err := client.FromEnv() // LOCKKEEPER_URL, LOCKKEEPER_TOKEN
//	...
//	err = c.Do(ctx, "report", func(ctx context.Context, lease *client.Lease) error {
//		return writeReport(ctx, lease.Fence())
//	})
//
// # What it promises
//
// Do runs the work while it holds the lock. The context of the work ends before another client can hold the lock: when the
// lease is lost, and at the latest the margin (see Margin) before the lease can pass by time. The cause of the context is a
// *LeaseLost then. Do waits for the work to return, releases the lease on every path, and returns a *LeaseLost also when the
// work did not notice.
//
// Work has to look at its context. A goroutine cannot be stopped from outside, and a process that stands still (SIGSTOP, a
// suspended machine) cannot stop itself: it sees the end of its context when it runs again. What must not happen even then
// is refused by what the lock protects: send it the fencing token (see Lease.Fence).
//
// # How it keeps a lease
//
// The client holds a lease until it sent the request + waited_ms + ttl_ms, by a clock that goes on while the machine sleeps.
// Each heartbeat that is answered begins the time anew from when it was sent. One heartbeat follows the other, each held open by
// the gateway for a third of the TTL, so that the client learns within milliseconds that its lease was ended.
//
// A request that gets no answer, or 429 or 5xx, or the page of a proxy, is repeated at the next gateway while there is time. A
// gateway's 403, 404 and 410 end the lease. Each acquire has an idempotency key, so that a repeat cannot take a second place in the
// queue. docs/clients.md has the whole contract; the clients for other languages keep the same one.
//
// # Errors
//
//   - [LeaseLost]: the lease ended before its holder released it, why, and by which administrator, if one ended it.
//   - [NotAcquired]: others hold the lock, and the time for waiting is over.
//   - [Problem]: a gateway refuses the request.
//
// Another error says that no gateway answered, that the caller's context ended, or what is wrong with an option.
//
// # What else there is
//
// [Client.Acquire] and its like give a [Lease] without a function around it; its Context is that of the work. [Client.Elect] leads
// again and again, [Client.Locker] is for code that takes a sync.Locker, [Client.DoAll] and [Client.AcquireAll] take several locks at
// once. [Lease.Detach] and [Client.Attach] hand a lease to another process. [Client.Call] and [Client.Open] send any request of the API.
//
// # Who owns what
//
// A Lease owns two goroutines: one sends its heartbeats, one ends it at its deadline. They end with the lease: when it is lost,
// or with Release. A Client owns nothing but the idle connections of its http.Client; it is safe for concurrent use.
package client
