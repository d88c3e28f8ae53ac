package conformance

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

// patience ends a wait that has gone wrong.
const patience = 30 * time.Second

// Place is where the scripts run.
type Place struct {
	Service
	// Foreign puts another program's contender into the queue of a lock that was used before, by the name of its znode.
	Foreign func(t testing.TB, lock, znode string)
}

// script is one requirement, as a sentence, and what shows it.
type script struct {
	name string
	run  func(*actor)
}

// Run runs every script, all at once, on a service that has no other clients.
func Run(t *testing.T, place Place) {
	place.Service = patient{place.Service}
	for _, s := range slices.Concat(exclusive, leases, shared, semaphores, groups, holds, revocations, ends, sweeps, delays, periods, plain, deadlocks, reservations) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			h := fnv.New32a()
			_, _ = h.Write([]byte(t.Name())) // of a hash it never fails
			s.run(&actor{TB: t, Place: place, prefix: fmt.Sprintf("c%08x:", h.Sum32())})
		})
	}
}

// actor is a client of the service in one script. Its methods end the script when the service does not do what they say,
// so they are for the script's own goroutine.
type actor struct {
	testing.TB
	Place
	prefix string
}

// lock is the name of a lock that only this script uses.
func (a *actor) lock(name string) string { return a.prefix + name }

// acquire asks, with terms of a minute unless the script says otherwise.
func (a *actor) acquire(req locks.AcquireRequest) (locks.AcquireResult, error) {
	if req.TTL == 0 && req.Token == "" && !req.Reserves() {
		req.TTL = time.Minute
	}
	return a.Acquire(a.Context(), req)
}

// hold acquires what must be free.
func (a *actor) hold(req locks.AcquireRequest) locks.Lease {
	a.Helper()
	res := assert.Value(a.acquire(req))(a, "acquire %+v", req)
	if l := res.Lease; l.State != locks.Held || l.Token == "" || l.FencingToken == 0 || res.Replayed || res.HoldAdded {
		a.Fatalf("acquire %+v: %+v", req, res)
	}
	return res.Lease
}

// queue takes a place behind another contender, with a ticket.
func (a *actor) queue(req locks.AcquireRequest) locks.Lease {
	a.Helper()
	req.Async = true
	res := assert.Value(a.acquire(req))(a, "queue %+v", req)
	if l := res.Lease; l.State != locks.Waiting || l.Token == "" || l.FencingToken != 0 || l.Position == 0 && len(l.Locks) == 0 {
		a.Fatalf("queue %+v: %+v", req, l)
	}
	return res.Lease
}

// begun is an acquire that stands in line with its connection open.
type begun struct {
	done   chan struct{}
	result locks.AcquireResult
	err    error
	leave  context.CancelFunc
}

func (a *actor) begin(req locks.AcquireRequest) *begun {
	ctx, cancel := context.WithCancel(a.Context())
	b := &begun{done: make(chan struct{}), leave: cancel}
	if req.TTL == 0 {
		req.TTL = time.Minute
	}
	go func() {
		defer close(b.done)
		b.result, b.err = a.Acquire(ctx, req)
	}()
	a.Cleanup(func() { cancel(); <-b.done })
	return b
}

// granted waits for an acquire that must succeed.
func (a *actor) granted(b *begun) locks.Lease {
	a.Helper()
	testkit.Closed(a, patience, b.done, "the acquire is answered")
	assert.Must(a, b.err == nil && b.result.Lease.State == locks.Held, "the acquire: %+v, %v", b.result.Lease, b.err)
	return b.result.Lease
}

func (a *actor) letGo(l locks.Lease) {
	a.Helper()
	a.fine(a.Release(a.Context(), locks.Anonymous, l.ID, l.Token), "release")
}

func (a *actor) fine(err error, what string) {
	a.Helper()
	assert.NoError(a, err, "%s", what)
}

// look is an outsider's look at a lease.
func (a *actor) look(l locks.Lease) locks.Lease {
	a.Helper()
	now, err := a.Lease(a.Context(), locks.LeaseRequest{ID: l.ID})
	a.fine(err, "look at a lease")
	return now
}

// becomes polls a lease, with its token, until it is in a state, and returns it.
func (a *actor) becomes(l locks.Lease, state locks.State) locks.Lease {
	a.Helper()
	return a.poll(l, string(state), func(now locks.Lease) bool { return now.State == state })
}

// poll polls a lease, with its token, until it is as wanted.
func (a *actor) poll(l locks.Lease, wanted string, as func(locks.Lease) bool) locks.Lease {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), patience)
	defer cancel()
	rev := ""
	for {
		now, err := a.Lease(ctx, locks.LeaseRequest{ID: l.ID, Token: l.Token, Wait: patience, Since: rev})
		assert.NoError(a, err, "poll until it is %s", wanted)
		if as(now) {
			return now
		}
		assert.Must(a, now.State != locks.Ended, "it is to be %s, and ended: %s", wanted, now.Reason)
		rev = now.Rev
	}
}

// ended polls a lease without its token until it has ended, and holds its reason against what is wanted.
func (a *actor) ended(l locks.Lease, reason locks.Reason) {
	a.Helper()
	now := a.look(locks.Lease{ID: l.ID})
	for ctx := a.Context(); now.State != locks.Ended; {
		next := assert.Value(a.Lease(ctx, locks.LeaseRequest{ID: l.ID, Wait: patience, Since: now.Rev}))(a, "poll until it has ended")
		assert.Must(a, next.Rev != now.Rev, "it does not end: %+v", next)
		now = next
	}
	assert.Must(a, now.Reason == reason, "it ended: %s, and not %s", now.Reason, reason)
}

// see polls a lock until it is as wanted, and returns it.
func (a *actor) see(name, wanted string, as func(locks.Lock) bool) locks.Lock {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), patience)
	defer cancel()
	rev := ""
	var last locks.Lock
	for {
		now, err := a.Lock(ctx, locks.LockRequest{Lock: name, Wait: patience, Since: rev})
		assert.Must(a, err == nil, "poll %s until %s: %v; it was %+v", name, wanted, err, last)
		if as(now) {
			return now
		}
		rev, last = now.Rev, now
	}
}

// sees waits until so many hold a lock and so many wait for it.
func (a *actor) sees(name string, holders, waiters int) locks.Lock {
	a.Helper()
	return a.see(name, fmt.Sprintf("%d hold it and %d wait", holders, waiters), func(l locks.Lock) bool {
		return len(l.Holders) == holders && l.QueueLength == waiters
	})
}

// refused wants an error of one code, and returns it.
func (a *actor) refused(err error, code locks.Code) *locks.Error {
	a.Helper()
	var e *locks.Error
	assert.Must(a, errors.As(err, &e) && e.Code == code, "answered %v, and not %s", err, code)
	return e
}

// refusedField wants a field to be found wrong.
func (a *actor) refusedField(err error, field string) {
	a.Helper()
	var e *locks.Error
	assert.Must(a, errors.As(err, &e) && e.Code == locks.CodeInvalid && e.Field == field, "answered %v, where %s is wrong", err, field)
}

// current asks about a lease's fencing token.
func (a *actor) current(name string, token int64) locks.FenceAnswer {
	a.Helper()
	f, err := a.Fence(a.Context(), locks.FenceRequest{Lock: name, Token: token})
	a.fine(err, "fence")
	return f
}

// beat heartbeats a lease that lives.
func (a *actor) beat(l locks.Lease) locks.Heartbeat {
	a.Helper()
	h, err := a.Heartbeat(a.Context(), locks.Anonymous, l.ID, l.Token, 0)
	a.fine(err, "heartbeat")
	return h
}
