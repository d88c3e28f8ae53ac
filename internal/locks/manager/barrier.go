package manager

import (
	"context"
	"sync"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/zk"
)

const (
	// barrierWithin bounds how long fence checks, verify and consistent reads wait.
	barrierWithin = 5 * time.Second
	// maxCrossings bounds the crossings under way: one whose transaction has not
	// been answered, the others wait for the observer. Whoever comes meanwhile
	// joins the one that is forming, so their number does not grow with the callers'.
	maxCrossings = 4
)

// crossings share one barrier among all who wait for one: a guarded transaction
// that was sent after each of them came has committed, and the observer's stream
// has come to it. Whoever comes joins the crossing that is forming. It is handed
// over, and closed to newcomers, as soon as the transaction of the one before has
// been answered: who comes later waits for the next one, because a transaction
// that may have been sent before a question proves nothing about it.
type crossings struct {
	mu      sync.Mutex
	forming *crossing // not handed over; nil when nobody waits for one
	sending bool      // a crossing's transaction has not been answered
	under   int       // crossings handed over and not over
}

// crossing is one barrier and those who wait for it.
type crossing struct {
	ref    *termRef
	done   chan struct{} // closed when err is there
	err    error
	wait   int                // how many wait; guarded by crossings.mu
	cancel context.CancelFunc // nil while it is forming
}

// join makes the caller one of those who wait for the next crossing.
func (x *crossings) join(ref *termRef, watcher Watcher) *crossing {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.forming
	if c != nil && c.ref != ref {
		c.err = zk.ErrSessionGone
		close(c.done)
		c = nil
	}
	if c == nil {
		c = &crossing{ref: ref, done: make(chan struct{})}
		x.forming = c
	}
	c.wait++
	x.start(watcher)
	return c
}

// leave ends what join began. A crossing that nobody waits for is given up.
func (x *crossings) leave(c *crossing) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.wait--
	switch {
	case c.wait > 0:
	case c.cancel != nil:
		c.cancel()
	case x.forming == c:
		x.forming = nil
	}
}

// start hands the forming crossing over if its turn has come; x.mu is held.
func (x *crossings) start(watcher Watcher) {
	c := x.forming
	if c == nil || x.sending || x.under == maxCrossings {
		return
	}
	x.forming, x.sending = nil, true
	x.under++
	var ctx context.Context
	ctx, c.cancel = context.WithTimeout(context.Background(), barrierWithin)
	go x.run(ctx, c, watcher)
}

// run is the goroutine of one crossing. It ends with its bound, with the last
// who waits for it, or with the session.
func (x *crossings) run(ctx context.Context, c *crossing, watcher Watcher) {
	defer c.cancel()
	zxid, err := c.ref.session.Barrier(ctx)
	x.mu.Lock()
	x.sending = false
	x.start(watcher)
	x.mu.Unlock()
	if err == nil {
		err = watcher.Reached(ctx, zxid)
	}
	c.err = err
	close(c.done)
	x.mu.Lock()
	x.under--
	x.start(watcher)
	x.mu.Unlock()
}

// barrier returns once everything that was acknowledged before the call is in
// the replica: a guarded transaction that was sent after it has committed, and
// the observer's stream has come to it. (ZooKeeper's own sync is no quorum
// operation: a leader that is cut off still answers it.)
func (m *Manager) barrier(ctx context.Context) error {
	_, err := m.cross(ctx)
	return err
}

// cross is barrier, and tells under which session.
func (m *Manager) cross(ctx context.Context) (*termRef, error) {
	ref := m.current.Load()
	if ref == nil {
		return nil, m.unavailable()
	}
	c := m.crossings.join(ref, m.watcher)
	defer m.crossings.leave(c)
	bound := time.NewTimer(barrierWithin)
	defer bound.Stop()
	look := time.NewTimer(answerWithin)
	defer look.Stop()
	begun := m.clock.Now().Boot()
	for {
		select {
		case <-c.done:
			if c.err == nil {
				return ref, nil
			}
			return nil, m.unavailableFor(c.err)
		case <-look.C:
			if m.clock.Now().Boot()-max(begun, ref.session.LastAnswer().Boot()) >= answerWithin {
				return nil, m.unavailable() // ZooKeeper answers nobody
			}
			look.Reset(answerWithin / 4)
		case <-bound.C:
			return nil, m.unavailableFor(context.DeadlineExceeded)
		case <-ctx.Done():
			return nil, cancelled(ctx)
		}
	}
}

// unavailableFor is unavailable with a cause for the log.
func (m *Manager) unavailableFor(cause error) *locks.Error {
	e := m.unavailable()
	e.Err = cause
	return e
}
