package client

import (
	"context"
	"errors"
)

// errDetached is the cause of the context of a lease that its process keeps no longer.
var errDetached = errors.New("lockkeeper: the lease was detached")

// Detach hands the lease over: this process sends no more heartbeats, Context ends, Release does nothing, and the lease token is
// returned, with which another process keeps the lease (Attach) or releases it. Unless one does, the lease ends with its TTL. The
// token is a secret. The error is a *LeaseLost when the lease had ended before.
func (l *Lease) Detach() (token string, err error) {
	l.cancel(errDetached)
	<-l.done
	if err := l.Err(); err != nil {
		return "", err
	}
	return l.token, nil
}

// Attach keeps a lease that was taken elsewhere, by its token: it sends a heartbeat, and goes on as after Acquire. The lease must be
// held. The error is a *LeaseLost when it is not held any more. Of the options Margin and OnRevoke apply.
func (c *Client) Attach(ctx context.Context, token string, opts ...Option) (*Lease, error) {
	a := &acquire{}
	for _, o := range opts {
		o(a)
	}
	var answer leaseAnswer
	within, stop := context.WithTimeout(ctx, c.try)
	defer stop()
	sent, err := c.repeated(within, heartbeat(token, 0), &answer)
	switch p := asProblem(err); {
	case p != nil && p.Status == 410:
		return nil, lostBy(answer.ID, p)
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	case answer.State != "held":
		return nil, errors.New("lockkeeper: lease " + answer.ID + " is not held: it waits")
	}
	answer.Token = token
	return c.keep(ctx, a, answer, sent+ms(answer.TTL))
}
