package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lease is a lock that is held. It is safe for concurrent use.
type Lease struct {
	client   *Client
	id       string
	token    string
	ttl      time.Duration
	margin   time.Duration
	fence    uint64
	fences   []fence
	onRevoke func(Revocation)

	doneOnRelease bool // see DoneOnRelease

	ctx    context.Context // of the work; its cause is a *LeaseLost, errReleased, or that of the acquire's context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the goroutine of the lease has ended

	mu       sync.Mutex
	deadline time.Duration // by client.now, without the margin
}

// errReleased is the cause of the context of a lease that its holder released.
var errReleased = errors.New("lockkeeper: the lease was released")

// keep makes the Lease of a grant whose time is over at deadline, and begins to keep it.
func (c *Client) keep(ctx context.Context, a *acquire, grant leaseAnswer, deadline time.Duration) (*Lease, error) {
	ttl := ms(grant.TTL)
	l := &Lease{
		client: c, id: grant.ID, token: grant.Token, ttl: ttl, margin: a.margin, fence: grant.Fence, fences: grant.Locks,
		onRevoke: a.onRevoke, doneOnRelease: a.body.DoneOn == onRelease, deadline: deadline, done: make(chan struct{}),
	}
	if l.margin == 0 {
		l.margin = usualMargin(ttl)
	}
	if err := a.checkMargin(ttl); err != nil { // the gateway may give less time than was asked for
		c.leave(ctx, a, l.token)
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go l.run()
	return l, nil
}

// checkMargin refuses a margin that leaves no time for work, or that would let work go on after the lease.
func (a *acquire) checkMargin(ttl time.Duration) error {
	if a.margin < 0 || 2*a.margin >= ttl {
		return fmt.Errorf("lockkeeper: the margin (%v) must be positive and less than half of the TTL (%v)", a.margin, ttl)
	}
	return nil
}

// ID names the lease in logs and lists. It gives no right.
func (l *Lease) ID() string { return l.id }

// Fence is the fencing token: each holder of the lock has a higher one than the holder before. What the lock protects keeps the
// highest that it has seen, and refuses lower ones. For a lease of several locks it is the highest of theirs.
func (l *Lease) Fence() uint64 { return l.fence }

// FenceOf is the fencing token of one lock of AcquireAll, and 0 for a lock that the lease does not hold.
func (l *Lease) FenceOf(namespace, lock string) uint64 {
	for _, f := range l.fences {
		if f.Lock == lock && f.NS == namespace {
			return f.Fence
		}
	}
	return 0
}

// Context ends when the lease is lost or released, and before its time is over. Its cause is a *LeaseLost when it is lost. It
// carries the values of the context of the acquire, and does not end with that.
func (l *Lease) Context() context.Context { return l.ctx }

// Held says whether the work may go on now. Work that cannot watch Context asks before each step that takes less than the margin.
// Once it has said no, the lease is lost: the call that runs the work reports that.
func (l *Lease) Held() bool { return l.ctx.Err() == nil && !l.late() }

// Err is a *LeaseLost when the lease is lost, and nil while it is held and after it was released.
func (l *Lease) Err() error {
	var lost *LeaseLost
	if errors.As(context.Cause(l.ctx), &lost) {
		return lost
	}
	return nil
}

// Left is the time for which the work may go on without another heartbeat: until the margin before the end of the lease's time. It
// is negative when the time is over.
func (l *Lease) Left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline - l.margin - l.client.now()
}

func (l *Lease) extend(deadline time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = max(l.deadline, deadline)
}

// late ends the lease when its time is over, and reports whether it is.
func (l *Lease) late() bool {
	if l.Left() > 0 {
		return false
	}
	l.cancel(l.overdue())
	return true
}

func (l *Lease) overdue() *LeaseLost {
	return &LeaseLost{LeaseID: l.id, Reason: ReasonDeadline, Detail: "no gateway confirmed it in time"}
}

// lostBy is the loss that a gateway's refusal tells.
func lostBy(id string, p *Problem) *LeaseLost {
	return &LeaseLost{LeaseID: id, Reason: cmp.Or(p.Reason, ReasonGone), By: p.By, Detail: p.Detail}
}

// looksAt bounds the time between two looks at the clock: a timer stands still while the machine sleeps.
const looksAt = 250 * time.Millisecond

// run keeps the lease, and ends it when its time is over.
func (l *Lease) run() {
	defer close(l.done)
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		l.beat()
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for l.ctx.Err() == nil {
		select {
		case <-timer.C:
			if !l.late() {
				timer.Reset(min(l.Left(), looksAt))
			}
		case <-l.ctx.Done():
		}
	}
	<-beating
}

// heartbeat is the request that begins the TTL anew. The gateway holds its answer until something happens to the lease, or hold
// is over.
func heartbeat(token string, hold time.Duration) request {
	r := request{method: "POST", path: heartbeatPath, lease: token, timeout: requestTimeout}
	if hold > 0 {
		r.path += "?wait=" + millis(hold)
	}
	return r
}

// beat sends one heartbeat after the other until the lease is over. Each is held for a third of the TTL; after a failure one is
// sent that is not held, so that another gateway can confirm the lease at once.
func (l *Lease) beat() {
	pause, asked := leastPause, false
	for hold := l.hold(); l.ctx.Err() == nil; {
		r := heartbeat(l.token, hold)
		r.timeout = hold + min(requestTimeout, max(l.ttl/6, 100*time.Millisecond))
		var answer leaseAnswer
		sent := l.client.now()
		err := l.client.once(l.ctx, r, &answer)
		if err == nil {
			l.extend(sent + ms(answer.TTL))
			hold, pause = l.hold(), leastPause
			if ask := answer.RevokeRequested; ask != nil && !asked && l.onRevoke != nil {
				r := Revocation{Reason: ask.Reason, By: ask.By}
				if ask.ForceIn != nil {
					r.ForceIn = max(ms(*ask.ForceIn), 1)
				}
				go l.onRevoke(r)
			}
			asked = answer.RevokeRequested != nil
			// An early answer that says nothing about this lease, such as one about new waiters, must not make a busy loop.
			_ = sleep(l.ctx, leastPause)
			continue
		}
		switch p := asProblem(err); {
		case p != nil && p.final():
			l.cancel(lostBy(l.id, p))
			return
		case p != nil && !p.temporary():
			_ = sleep(l.ctx, l.hold()) // a gateway that holds no heartbeats: it is asked in their rhythm
		default:
			_ = sleep(l.ctx, jitter(min(pause, l.ttl/20)))
		}
		hold, pause = 0, min(2*pause, mostPause)
	}
}

// mostHold is within what a gateway holds an answer for.
const mostHold = 4 * time.Minute

// hold is for how long the gateway holds a heartbeat: a third of the TTL. The answer confirms the lease from when the heartbeat was
// sent, so that two thirds of the TTL can be over before the next answer comes. A margin that is longer than usual takes from the
// last third: the heartbeats are shorter then.
func (l *Lease) hold() time.Duration {
	return min(mostHold, (l.ttl-2*max(0, l.margin-usualMargin(l.ttl)))/3)
}

// usualMargin is that of a lease without Margin.
func usualMargin(ttl time.Duration) time.Duration { return min(time.Second, ttl/5) }

// releaseWithin bounds how long Release asks gateways that do not answer.
const releaseWithin = 5 * time.Second

// Release gives the lock back, and returns when the goroutine of the lease has ended. It is harmless to call it again. The error
// is a *LeaseLost when the lease had ended before; another error says that no gateway answered, so that others may wait for
// the lock until the lease's time is over. The end of ctx does not keep Release from trying for up to 5 s.
func (l *Lease) Release(ctx context.Context) error { return l.release(ctx, true) }

func (l *Lease) release(ctx context.Context, done bool) error {
	late := l.Left() <= 0 // and not noticed yet: then only a gateway can say that the lease was held
	l.cancel(errReleased)
	<-l.done
	if err := l.Err(); err != nil {
		return err
	}
	if errors.Is(context.Cause(l.ctx), errDetached) {
		return nil
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer stop()
	_, err := l.client.repeated(ctx, leaving(l.token, done), nil)
	if p := asProblem(err); p != nil && p.final() {
		return lostBy(l.id, p)
	}
	if err != nil && late {
		return l.overdue()
	}
	if err != nil {
		return fmt.Errorf("lockkeeper: lease %s could not be released, and ends by itself within %v: %w", l.id, l.ttl, err)
	}
	return nil
}
