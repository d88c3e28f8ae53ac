package locks

import (
	"context"
	"errors"
	"slices"
	"time"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// While a plain node stands in a lock's place nothing can queue behind it. Acquires
// that wait stand in a line in memory then, in the order of their arrival, and when
// the node is gone they are called, each when the create of the one before is
// decided: so the queue that they make has their order. The line is this
// gateway's alone, and ends with it: other gateways have lines of their own, and
// whoever is quickest of all, another program included, is the first in the new queue, or
// puts the next plain node there. Then who was called goes on standing where he stood.
//
// A try does not stand in line, and neither does an async acquire: its ticket would be
// lost with this gateway.

// codePlainNode marks, inside the package, a create that was refused because a plain
// node stands in a lock's place.
const codePlainNode Code = "plain_node"

const (
	// maxStanding bounds the requests that stand in lines.
	maxStanding = 4096
	// standPause is when who was called while nothing could be decided tries again.
	standPause = 100 * time.Millisecond
	// suspectPause is when a lock is tried again in whose place something ephemeral
	// stands that may not be read.
	suspectPause = time.Second
)

// stander is a request in a lock's line.
type stander struct {
	q      *queue
	wake   chan struct{} // closed when it is called
	since  time.Duration // boot: when it first stood in a line
	called bool          // it is its turn: until its create is decided nobody else is called
	pause  bool          // nothing could be decided: it tries again after a pause
}

// blocked is the first of the locks in which a request has to stand in line, nil when
// there is none. at is where it has been called from.
func (m *Manager) blocked(wants []Want, at *stander) *queue {
	for i := range wants {
		q := m.spaces[wants[i].NS].find(wants[i].Lock)
		if q == nil {
			continue
		}
		if q.plain() != nil || q.noted().suspect || len(q.noted().line) > 0 && (at == nil || at.q != q || !at.called) {
			return q
		}
	}
	return nil
}

// stand puts a request into a lock's line; from another line it goes to the end
// of this one, and in the same one it keeps its place.
func (m *Manager) stand(q *queue, at *stander) (*stander, *Error) {
	if at != nil && at.q == q {
		if at.called {
			at.called, at.wake = false, make(chan struct{})
			m.call(q)
		}
		return at, nil
	}
	if at == nil && m.standing == maxStanding {
		return nil, &Error{Code: CodeTooManyWaiters, RetryAfter: retryAfter,
			Detail: "as many requests as may wait on this gateway for other programs' nodes to go; repeat later or on another gateway"}
	}
	since := m.clock.Now().Boot()
	if at != nil {
		since = at.since
	}
	m.leaveLine(at)
	at = &stander{q: q, since: since, wake: make(chan struct{})}
	q.note().line = append(q.note().line, at)
	q.polls++
	m.standing++
	return at, nil
}

// leaveLine takes a request out of the line that it stands in, and calls the next one.
func (m *Manager) leaveLine(at *stander) {
	if at == nil || !slices.Contains(at.q.noted().line, at) {
		return
	}
	q, r := at.q, at.q.note()
	r.line = slices.DeleteFunc(r.line, func(s *stander) bool { return s == at })
	if len(r.line) == 0 {
		r.line = nil
	}
	q.unnote("")
	q.polls--
	m.standing--
	m.call(q)
	m.forget(q)
}

// arrive ends the standing in line of a lease whose create is decided.
func (m *Manager) arrive(l *lease) {
	if l.seldom != nil && l.seldom.stander != nil {
		m.leaveLine(l.seldom.stander)
		l.seldom.stander = nil
	}
}

// call tells the first in a lock's line that it is its turn, once nothing stands
// in the lock's place as far as is known.
func (m *Manager) call(q *queue) {
	line := q.noted().line
	if len(line) == 0 || line[0].called || q.plain() != nil || q.noted().suspect {
		return
	}
	line[0].called = true
	m.wakes = append(m.wakes, line[0].wake)
}

// passes reports whether what keeps a request from being decided will pass: then it
// goes on standing in line.
func (m *Manager) passes(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == CodeUnavailable && !m.draining
}

// waitInLine waits until a request that stands in line is called, or a try knows
// what stands there. With an error it stands there no more.
func (m *Manager) waitInLine(ctx context.Context, req *AcquireRequest, at *stander) error {
	m.mu.Lock()
	m.acquiring++
	wake, pause := at.wake, at.pause
	at.pause = false
	var news <-chan struct{}
	atMost := req.Wait
	if req.Wait == 0 {
		atMost = max(answerWithin-(m.clock.Now().Boot()-at.since), 1)
		if at.q.noted().suspect {
			news = at.q.changed()
		}
	}
	m.unlock()
	var elapsed <-chan time.Time
	if atMost != WaitForever {
		timer := time.NewTimer(atMost)
		defer timer.Stop()
		elapsed = timer.C
	}
	var paused <-chan time.Time
	if pause {
		wake = nil
		timer := time.NewTimer(standPause)
		defer timer.Stop()
		paused = timer.C
	}
	var err error
	over := false
	select {
	case <-wake:
	case <-news:
	case <-paused:
	case <-elapsed:
		over = true
	case <-ctx.Done():
		err = cancelled(ctx)
	case <-m.drain:
		err = &Error{Code: CodeUnavailable, Detail: "this gateway is shutting down, and nothing stands in line for the request yet; repeat it, another gateway or the restarted one answers"}
	}
	m.mu.Lock()
	m.acquiring--
	switch {
	case over && req.Wait == 0:
		m.leaveLine(at)
		err = m.unavailable()
	case over:
		q := at.q
		q.polls++
		m.leaveLine(at)
		q.polls--
		return m.heldByOther(ctx, q, CodeWaitElapsed) // releases mu
	case err != nil:
		m.leaveLine(at)
	}
	m.unlock()
	return err
}

// look makes certain what stands in the place of a lock whose directory is so new that it
// has not been looked at. mu is held, and released meanwhile; q stays.
func (m *Manager) look(ctx context.Context, q *queue) {
	if !q.exists || q.contenders.Len() > 0 || q.noted().strays > 0 || !q.listing && !slices.Contains(m.unlooked, q) {
		return
	}
	m.suspect(q)
	timer := time.NewTimer(answerWithin)
	defer timer.Stop()
	for over := false; q.noted().suspect && !over; {
		news := q.changed()
		m.unlock()
		select {
		case <-news:
		case <-timer.C:
			over = true
		case <-ctx.Done():
			over = true
		}
		m.mu.Lock()
	}
}

// suspect notes that something ephemeral may stand in a lock's place, as when a create
// was refused because of it. What, is read from a server that has come to where the writer is.
func (m *Manager) suspect(q *queue) {
	if q.noted().suspect || q.plain() != nil {
		return
	}
	q.note().suspect = true
	q.polls++ // keeps the queue
	settle := func() {
		q.note().suspect = false
		q.unnote("")
		q.polls--
		m.touchQueue(q)
		m.call(q)
		m.forget(q)
	}
	var least int64
	if m.session != nil {
		least = m.session.LastZxid()
	}
	m.readFrom(q.path, least, func(data []byte, stat wire.Stat, err error) {
		switch {
		case errors.Is(err, zk.ErrNoAuth):
			time.AfterFunc(suspectPause, func() {
				m.mu.Lock()
				defer m.unlock()
				settle()
			})
			return
		case err == nil:
			q.exists = true
			m.stands(q, &stat, m.clock.Now().Boot(), false)
			if q.plain() != nil {
				q.setInfo(plainName, data, stat)
			}
		}
		settle()
	})
}
