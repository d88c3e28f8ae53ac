package term

import (
	"context"
	"sync"
	"time"

	"lockkeeper/internal/zk"
)

const (
	// AnswerWithin is how long a request waits while ZooKeeper answers nothing at all.
	AnswerWithin = 900 * time.Millisecond
	// barrierWithin bounds how long a barrier waits while ZooKeeper answers others.
	barrierWithin = 5 * time.Second
	// maxBarriers bounds the barriers under way: the transaction of one has not been answered, the others wait for the
	// observer. A caller that comes meanwhile joins the group that is forming, so their number does not grow with the callers'.
	maxBarriers = 4
)

// barriers share one barrier among all callers of a group: a guarded transaction that was sent after each of them came has
// committed, and the observer's stream has come to it. A caller joins the group that is forming. The group is handed
// over, and closed to others, as soon as the transaction of the one before has been answered: a later caller waits for the next
// one, because a transaction that may have been sent before a question proves nothing about it.
type barriers struct {
	mu      sync.Mutex
	forming *group // not handed over; nil when there is none
	sending bool   // the transaction of a group is not answered yet
	under   int    // groups handed over and not over
}

// group is one barrier and its callers.
type group struct {
	ref     *Ref
	done    chan struct{} // closed when err is there
	err     error
	callers int                // guarded by barriers.mu
	cancel  context.CancelFunc // nil while it is forming
}

// join makes the caller one of the next group.
func (b *barriers) join(ref *Ref, watcher Watcher) *group {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.forming
	if g != nil && g.ref != ref {
		g.err = zk.ErrSessionGone
		close(g.done)
		g = nil
	}
	if g == nil {
		g = &group{ref: ref, done: make(chan struct{})}
		b.forming = g
	}
	g.callers++
	b.start(watcher)
	return g
}

// leave ends what join began. A group without callers is given up.
func (b *barriers) leave(g *group) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g.callers--
	switch {
	case g.callers > 0:
	case g.cancel != nil:
		g.cancel()
	case b.forming == g:
		b.forming = nil
	}
}

// start submits the forming group when its turn has come; the caller holds b.mu.
func (b *barriers) start(watcher Watcher) {
	g := b.forming
	if g == nil || b.sending || b.under == maxBarriers {
		return
	}
	b.forming, b.sending = nil, true
	b.under++
	var ctx context.Context
	ctx, g.cancel = context.WithTimeout(context.Background(), barrierWithin)
	go b.run(ctx, g, watcher)
}

// run is the goroutine of one group. It ends with its bound, with its last caller, or with the session.
func (b *barriers) run(ctx context.Context, g *group, watcher Watcher) {
	defer g.cancel()
	zxid, err := g.ref.Session.Barrier(ctx)
	b.mu.Lock()
	b.sending = false
	b.start(watcher)
	b.mu.Unlock()
	if err == nil {
		err = watcher.Reached(ctx, zxid)
	}
	g.err = err
	close(g.done)
	b.mu.Lock()
	b.under--
	b.start(watcher)
	b.mu.Unlock()
}

// Barrier returns once everything that was acknowledged before the call is in the replica: a guarded transaction that was
// sent after it has committed, and the observer's stream has come to it. (ZooKeeper's own sync is no quorum operation: a
// leader that is cut off still answers it.) It tells under which session. Its error is zk.ErrUnavailable when ZooKeeper
// answers nothing for AnswerWithin. The lock is free.
func (p *Port) Barrier(ctx context.Context) (*Ref, error) {
	ref := p.Present()
	if ref == nil {
		return nil, zk.ErrUnavailable
	}
	g := p.barriers.join(ref, p.Watcher)
	defer p.barriers.leave(g)
	bound := time.NewTimer(barrierWithin)
	defer bound.Stop()
	look := time.NewTimer(AnswerWithin)
	defer look.Stop()
	begun := p.opt.Clock.Now().Boot()
	for {
		select {
		case <-g.done:
			if g.err != nil {
				return nil, g.err
			}
			return ref, nil
		case <-look.C:
			if p.opt.Clock.Now().Boot()-max(begun, ref.Session.LastAnswer().Boot()) >= AnswerWithin {
				return nil, zk.ErrUnavailable
			}
			look.Reset(AnswerWithin / 4)
		case <-bound.C:
			return nil, context.DeadlineExceeded
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
