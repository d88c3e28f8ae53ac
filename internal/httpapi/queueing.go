package httpapi

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/ratelimit"
)

// An acquire that may wait is granted at once most of the time, so it makes no context of its own. Its request's context ends when
// the client goes away. At a drain its connection's context is ended, from which that of the request comes: a connection of
// HTTP/1 has one request at a time, and it is closed after that.

// connection is what Configure remembers of a connection.
type connection struct {
	end context.CancelCauseFunc // ends the contexts of its requests

	caller     auth.Caller // of the acquire that may wait; guarded by queueing.mu, as what follows
	wait       uint64      // which one of the connection's waits it is
	queued     bool        // in the list of connections whose acquire may wait; guarded by queueing.mu, as the links are
	prev, next *connection
}

type connectionKey struct{}

// withConnection gives the requests of a connection a context that can be ended. It is not released: its parent is the
// server's, which never ends, and keeps nothing of it.
func withConnection(ctx context.Context, _ net.Conn) context.Context {
	ctx, end := context.WithCancelCause(ctx)
	return context.WithValue(ctx, connectionKey{}, &connection{end: end})
}

// queueing are the connections whose acquire may wait.
type queueing struct {
	mu      sync.Mutex
	first   *connection
	drained bool
}

// enter reports whether the acquire may wait: the server does not drain.
func (q *queueing) enter(c *connection, caller auth.Caller) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.drained {
		return false
	}
	if !c.queued {
		c.caller = caller
		c.wait++
		c.queued, c.prev, c.next = true, nil, q.first
		if q.first != nil {
			q.first.prev = c
		}
		q.first = c
	}
	return true
}

func (q *queueing) leave(c *connection) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !c.queued {
		return
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		q.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.queued, c.prev, c.next = false, nil, nil
}

// queued is one wait of a connection.
type queued struct {
	c      *connection
	wait   uint64
	caller auth.Caller
}

// recheck ends the requests whose caller check refuses, and says how many wait. No request waits for the checks.
func (q *queueing) recheck(check func(auth.Caller) *problem) (waits int) {
	q.mu.Lock()
	var all []queued
	for c := q.first; c != nil; c = c.next {
		all = append(all, queued{c, c.wait, c.caller})
	}
	q.mu.Unlock()
	for i := range all {
		if why := check(all[i].caller); why != nil {
			q.end(&all[i], why)
		}
	}
	return len(all)
}

// end ends a wait unless it is over: the connection may have another request by now.
func (q *queueing) end(one *queued, why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if one.c.queued && one.c.wait == one.wait {
		one.c.end(why)
	}
}

// drain ends the requests that wait, and lets none wait from now on.
func (q *queueing) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drained = true
	for c := q.first; c != nil; c = c.next {
		c.end(errDraining)
	}
}

// takePlaceInQueue is takePlace for an acquire. After a drain the request's context is of no use.
func (x *exchange) takePlaceInQueue(span time.Duration) (context.Context, func(), error) {
	ctx := x.r.Context() // no named result: the closure below would have it allocated
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if span <= 0 || !ok || x.r.ProtoMajor != 1 {
		return x.takePlace(span)
	}
	x.wait = span
	if err := x.takeWaiting(); err != nil {
		return nil, nil, err
	}
	if !x.s.queueing.enter(c, x.caller) {
		x.giveWaiting()
		return nil, nil, draining()
	}
	x.s.rechecks.begin()
	end := func() {
		x.s.queueing.leave(c)
		x.giveWaiting()
		x.cut = cutBy(ctx)
		if ctx.Err() != nil {
			x.Header()["Connection"] = []string{"close"}
		}
		x.allowTime()
	}
	return ctx, end, nil
}

// takeWaiting takes one of the places of requests that wait.
func (x *exchange) takeWaiting() error {
	s := x.s
	if s.drained.Err() != nil {
		return draining()
	}
	if !s.behind.take(x.from) {
		return &problem{code: codeTooManyWaiting, detail: "as many requests of this address wait as may: ask again without wait, or later"}
	}
	if !s.waiting.take() {
		s.behind.give(x.from)
		return &problem{code: codeTooManyWaiting, detail: "ask again without wait, or later"}
	}
	if err := x.waits(); err != nil {
		s.behind.give(x.from)
		s.waiting.give()
		return err
	}
	s.metrics.Waiting(1)
	return nil
}

func (x *exchange) giveWaiting() {
	_ = x.place.Move(ratelimit.Active, x.started) // which is never refused
	x.s.behind.give(x.from)
	x.s.waiting.give()
	x.s.metrics.Waiting(-1)
}

// allowTime gives the answer to a request that has waited as much time as any other. Configure has left it so much from the
// request's arrival; over HTTP/2 it has none by now (noDeadline). A recorder in a test has no deadline; on a connection this cannot fail.
func (x *exchange) allowTime() {
	if x.r.ProtoMajor > 1 || time.Since(x.started) > readTimeout/2 {
		_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(writeTimeout))
	}
}
