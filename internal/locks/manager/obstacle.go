package manager

import (
	"context"
	"errors"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// While a plain node stands in a lock's place no contender can queue behind it. An acquire
// that waits then waits here, in memory, and tries again once the node is gone. No order is
// promised among those acquires, as in the recipe itself: the quickest one, which may be
// another gateway's or another program's, is first in the new queue.
//
// A try does not wait for a plain node, and neither does an async acquire: its ticket would be
// lost with this gateway.

// codePlainNode marks, inside the package, a create that was refused because a plain
// node stands in a lock's place.
const codePlainNode locks.Code = "plain_node"

const (
	// maxObstructed bounds the acquires that wait for plain nodes to go.
	maxObstructed = 4096
	// obstructedPause is when an acquire that waited tries again after an attempt that decided nothing.
	obstructedPause = 100 * time.Millisecond
	// suspectPause is when a lock is tried again in whose place something ephemeral
	// stands that may not be read.
	suspectPause = time.Second
)

// firstObstructed is the first of the locks whose place is obstructed, nil when there is none.
func firstObstructed(replica *queues.Replica, wants []locks.Want) *queues.Queue {
	for i := range wants {
		if q := replica.Namespaces[wants[i].NS].Find(wants[i].Lock); q != nil && q.Obstructed() {
			return q
		}
	}
	return nil
}

// obstruct counts an acquire that has to wait until the lock's place is free, and keeps
// the queue meanwhile. awaitPlace takes it back.
func (r *requests) obstruct(q *queues.Queue) *locks.Error {
	if r.obstructed == maxObstructed {
		return &locks.Error{Code: locks.CodeTooManyWaiters, RetryAfter: retryAfter,
			Detail: "as many requests as may wait on this gateway for other programs' nodes to go; repeat later or on another gateway"}
	}
	q.Polls++
	r.obstructed++
	return nil
}

// onlyForNow reports whether an attempt failed only for now: then an acquire that has waited for a plain node goes on
// waiting.
func onlyForNow(draining bool, err error) bool {
	e, ok := errors.AsType[*locks.Error](err)
	return ok && e.Code == locks.CodeUnavailable && !draining
}

// awaitPlace waits until the lock's place is not obstructed any more, after a call of obstruct. nil q: the last attempt
// decided nothing, and it waits for obstructedPause. An acquire that does not wait, waits only until it is known what
// stands there, for as long as an answer may take, counted from begun (boot).
func (m *Manager) awaitPlace(ctx context.Context, req *locks.AcquireRequest, q *queues.Queue, begun time.Duration) error {
	return locked(m, func() error {
		atMost := req.Wait
		if req.Wait == 0 {
			atMost = max(answerWithin-(m.clock.Now().Boot()-begun), 1)
		}
		m.requests.acquiring++
		over, err := m.sleepObstructed(ctx, req, q, atMost)
		m.requests.acquiring--
		if q != nil {
			m.requests.obstructed--
			q.Polls--
		}
		switch {
		case over && (req.Wait == 0 || q == nil):
			err = unavailable()
		case over:
			return m.heldByOther(ctx, req, q, locks.CodeWaitElapsed)
		}
		if q != nil {
			m.replica.Forget(q)
		}
		return err
	})
}

// sleepObstructed releases the monitor until the place is free; over: the time was over first. nil q: for
// obstructedPause.
func (m *Manager) sleepObstructed(ctx context.Context, req *locks.AcquireRequest, q *queues.Queue, atMost time.Duration) (over bool, err error) {
	var elapsed, paused <-chan time.Time
	if atMost != locks.WaitForever {
		timer := time.NewTimer(atMost)
		defer timer.Stop()
		elapsed = timer.C
	}
	if q == nil {
		timer := time.NewTimer(obstructedPause)
		defer timer.Stop()
		paused = timer.C
	}
	for resumed := false; !over && !resumed && err == nil && stillObstructed(req, q); {
		var changed <-chan struct{}
		if q != nil {
			changed = q.Changed()
		}
		m.outside(func() {
			select {
			case <-changed:
			case <-paused:
				resumed = true
			case <-elapsed:
				over = true
			case <-ctx.Done():
				err = cancelled(ctx)
			case <-m.life.drain:
				err = &locks.Error{Code: locks.CodeUnavailable, Detail: "this gateway is shutting down, and the request has no place in line yet; repeat it, another gateway or the restarted one answers"}
			}
		})
	}
	return over, err
}

// stillObstructed reports whether an acquire has to go on waiting in front of a lock's place.
func stillObstructed(req *locks.AcquireRequest, q *queues.Queue) bool {
	switch {
	case q == nil:
		return true
	case req.Wait == 0:
		return q.Extras().Unidentified // then it is known which program holds
	}
	return q.Obstructed()
}

// look makes certain what stands in the place of a lock whose directory is so new that it
// has not been looked at. The monitor is held, and released meanwhile; q stays.
func (m *Manager) look(ctx context.Context, q *queues.Queue) {
	if !q.Empty() || !q.Listing() && !slices.Contains(m.stream.unlooked, q) {
		return
	}
	m.suspect(q)
	begun := m.clock.Now().Boot()
	for left := answerWithin; q.Extras().Unidentified && left > 0; left = answerWithin - (m.clock.Now().Boot() - begun) {
		if m.sleep(ctx, q.Changed(), left) != nil {
			return
		}
	}
}

// suspect notes that something ephemeral may stand in a lock's place, as when a create
// was refused because of it. What, is read from a server that has come to where the writer is.
func (m *Manager) suspect(q *queues.Queue) {
	if q.Extras().Unidentified || q.Plain() != nil {
		return
	}
	q.MakeExtras().Unidentified = true
	q.Polls++ // keeps the queue
	settle := func() {
		q.MakeExtras().Unidentified = false
		q.Trim()
		q.Polls--
		m.replica.Touch(q)
		m.replica.Forget(q)
	}
	var least int64
	if m.port.Session() != nil {
		least = m.port.Session().LastZxid()
	}
	m.port.Read(q.Path, least, func(data []byte, stat wire.Stat, err error) {
		switch {
		case errors.Is(err, zk.ErrNoAuth):
			time.AfterFunc(suspectPause, func() {
				m.do(func() { settle() })
			})
			return
		case err == nil:
			q.Exists = true
			m.stands(q, &stat, m.clock.Now().Boot(), false)
			if q.Plain() != nil {
				q.SetNode(interop.PlainNode, data, stat)
			}
		}
		settle()
	})
}

// invalidAmong is the first of the locks that is marked as being destroyed, or is such
// a marker.
func invalidAmong(replica *queues.Replica, wants []locks.Want, clock zk.Clock) *queues.Queue {
	for i := range wants {
		if s := replica.Namespaces[wants[i].NS]; s.Marked(wants[i].Lock) {
			return replica.Queue(s, wants[i].Lock, clock.Now().Boot())
		}
	}
	return nil
}

// stands notes what a listing or a read has shown in the place of the lock's
// directory; stat is nil for what is just a directory.
func (m *Manager) stands(q *queues.Queue, stat *wire.Stat, now time.Duration, listed bool) {
	if stat != nil && !stat.Ephemeral() && 0 < stat.DataLength && stat.DataLength <= maxDirData {
		readDir(m.port, m.replica, q)
	}
	if q.Replaced(stat) {
		m.plainGone(q, now)
	}
	if c := q.NewPlain(stat); c != nil {
		m.addContender(q, c, listed, now)
		m.seenHolding(q, c, now, listed)
	}
}

// plainGone takes a plain node out of the queue: it is deleted, or another node
// stands in its place.
func (m *Manager) plainGone(q *queues.Queue, now time.Duration) {
	if q.Plain() == nil {
		return
	}
	m.tellRemoved(q, interop.PlainNode)
	m.removeContender(q, interop.PlainNode, now)
}

// passOn removes a directory that was to go when it is empty. The sweeper does, too, where
// this comes to nothing.
func (m *Manager) passOn(q *queues.Queue, now time.Duration) {
	if q.Contenders.Len() > 0 || !q.Extras().Temporary || q.Leases > 0 || q.Extras().Unnumbered > 0 || !m.trusted() || m.life.draining {
		return
	}
	q.Idle = now
	m.port.Submit(&zk.Write{Alone: true, Ops: queues.RemoveDir(q.Path)}, func(zk.Result) {})
}
