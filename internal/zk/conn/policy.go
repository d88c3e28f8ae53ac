package conn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockkeeper/internal/backoff"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// Request names what was asked of ZooKeeper in the policy.
type Request uint8

const (
	ReqCreate   Request = iota + 1 // by itself, or in a Write
	ReqDelete                      // in a Write
	ReqSet                         // in a Write
	ReqCheck                       // in a Write
	ReqGuard                       // the operations that guard a transaction
	ReqMulti                       // a transaction as a whole
	ReqGet                         // getData
	ReqList                        // getChildren
	ReqExists                      // exists
	ReqConnect                     // connecting and the handshake
	ReqAuth                        // sending credentials
	ReqAddWatch                    // the observer's watch
)

// Class is what an error means for its caller.
type Class uint8

const (
	// IsAnswer: ZooKeeper's answer; it goes to the caller as it is.
	IsAnswer Class = iota + 1
	// DecideAgain: what depended on it has to be decided from the present state.
	DecideAgain
	// TryAgain: it changes nothing; ask again after a delay.
	TryAgain
	// FindOut: it may have been done. Ask what is there before anything else; a write is never just repeated.
	FindOut
	// SessionOver: final for this session; a new one may go on.
	SessionOver
	// Fatal: final for the process, a *FatalError.
	Fatal
)

// Rule is one row of the policy: what an error means at the first attempt of a
// request, and what at a later one, when an earlier attempt was lost.
type Rule struct {
	Request Request
	Err     error
	First   Class
	Later   Class
	Why     string
}

// Policy returns the table. Normal errors are answers, recoverable ones are tried again or found out about, fatal ones
// end the session or the process. An error without a row is an answer.
//
// In a Write there is no difference between first and later: a Write is repeated, by its caller, only after its lost
// predecessor was proved not to have been applied, so an error is never the echo of that.
func Policy() []Rule {
	return []Rule{
		{ReqCreate, zk.ErrUnavailable, FindOut, FindOut, "the node may have been created"},
		{ReqCreate, zk.ErrNodeExists, IsAnswer, FindOut, "after a lost attempt it may be our own"},
		{ReqCreate, zk.ErrNoNode, IsAnswer, IsAnswer, "the parent is missing"},
		{ReqCreate, zk.ErrEphemeralParent, IsAnswer, IsAnswer, "another program's ephemeral node is in the parent's place"},
		{ReqCreate, zk.ErrNoAuth, IsAnswer, IsAnswer, "the parent's ACL refuses us"},
		{ReqCreate, zk.ErrSessionGone, SessionOver, SessionOver, "an expired session executes nothing"},

		{ReqDelete, zk.ErrNoNode, IsAnswer, IsAnswer, "another program has deleted it"},
		{ReqDelete, zk.ErrBadVersion, IsAnswer, IsAnswer, "another program has written it"},
		{ReqDelete, zk.ErrNotEmpty, IsAnswer, IsAnswer, "it has children"},
		{ReqDelete, zk.ErrNoAuth, IsAnswer, IsAnswer, "the parent's ACL refuses us"},
		{ReqSet, zk.ErrNoNode, IsAnswer, IsAnswer, "there is nothing to write to"},
		{ReqSet, zk.ErrBadVersion, IsAnswer, IsAnswer, "another program has written it"},
		{ReqSet, zk.ErrNoAuth, IsAnswer, IsAnswer, "the ACL refuses us"},
		{ReqCheck, zk.ErrNoNode, DecideAgain, DecideAgain, "what it checked is gone"},
		{ReqCheck, zk.ErrBadVersion, DecideAgain, DecideAgain, "what it checked has changed"},

		{ReqGuard, zk.ErrNoNode, SessionOver, SessionOver, "registration or guard is gone: deposed"},
		{ReqGuard, zk.ErrBadVersion, FindOut, FindOut, "another epoch is in force: perhaps a bump of ours"},
		{ReqGuard, zk.ErrNoAuth, Fatal, Fatal, "our own nodes refuse us"},
		{ReqGuard, zk.ErrSessionGone, SessionOver, SessionOver, "an expired session executes nothing"},

		{ReqMulti, zk.ErrUnavailable, FindOut, FindOut, "it may have committed: the writer bumps the epoch first"},
		{ReqMulti, zk.ErrNodeExists, IsAnswer, FindOut, "registering: after a lost attempt it may be our own"},
		{ReqMulti, zk.ErrBadVersion, IsAnswer, IsAnswer, "registering: the layout has changed"},
		{ReqMulti, zk.ErrNoNode, IsAnswer, IsAnswer, "registering: the layout is gone"},
		{ReqMulti, zk.ErrNoAuth, IsAnswer, IsAnswer, "registering: the layout belongs to another identity"},
		{ReqMulti, zk.ErrSessionGone, SessionOver, SessionOver, "an expired session executes nothing"},

		{ReqGet, zk.ErrUnavailable, TryAgain, TryAgain, "reading changes nothing"},
		{ReqGet, zk.ErrNoNode, IsAnswer, IsAnswer, "absence is an answer"},
		{ReqGet, zk.ErrNoAuth, IsAnswer, IsAnswer, "a node that this identity may not read"},
		{ReqGet, zk.ErrSessionGone, SessionOver, SessionOver, "the connection's session is gone"},
		{ReqList, zk.ErrUnavailable, TryAgain, TryAgain, "reading changes nothing"},
		{ReqList, zk.ErrNoNode, IsAnswer, IsAnswer, "absence is an answer"},
		{ReqList, zk.ErrNoAuth, IsAnswer, IsAnswer, "a node that this identity may not read"},
		{ReqList, zk.ErrSessionGone, SessionOver, SessionOver, "the connection's session is gone"},
		{ReqExists, zk.ErrUnavailable, TryAgain, TryAgain, "reading changes nothing"},
		{ReqExists, zk.ErrSessionGone, SessionOver, SessionOver, "the connection's session is gone"},

		{ReqConnect, zk.ErrUnavailable, TryAgain, TryAgain, "the next server, after a delay"},
		{ReqConnect, zk.ErrSessionGone, SessionOver, SessionOver, "expired while there was no connection"},
		{ReqAuth, zk.ErrUnavailable, TryAgain, TryAgain, "credentials are sent with every connection"},
		{ReqAuth, wire.ErrAuthFailed, Fatal, Fatal, "they will not get better"},
		{ReqAddWatch, zk.ErrUnavailable, TryAgain, TryAgain, "watches are set with every connection"},
		{ReqAddWatch, wire.ErrUnimplemented, Fatal, Fatal, "ZooKeeper is older than 3.6"},
	}
}

// RequestOf is the row's request for an operation of a Write.
func RequestOf(kind zk.OpKind) Request {
	return [...]Request{zk.OpCreate: ReqCreate, zk.OpDelete: ReqDelete, zk.OpSetData: ReqSet, zk.OpCheck: ReqCheck}[kind]
}

// Classify looks an error up in the policy.
func Classify(req Request, err error, attempt int) Class {
	var fatal *zk.FatalError
	if errors.As(err, &fatal) {
		return Fatal
	}
	for _, r := range Policy() {
		if r.Request == req && errors.Is(err, r.Err) {
			if attempt == 1 {
				return r.First
			}
			return r.Later
		}
	}
	return IsAnswer
}

// RetryAttempts bounds how often something is tried before the caller is told that ZooKeeper is unavailable. With the
// delays of NewBackoff and the wait for a connection that is some seconds.
const RetryAttempts = 6

// Retry runs a request as the policy says. find tells whether a lost attempt has done it; it may be nil for what only
// reads. A further attempt is made only when it has not, and waits for a connection first.
func (c *Conn) Retry(ctx context.Context, req Request, do func(context.Context) error, find func(context.Context) (bool, error)) error {
	delays := NewBackoff(c.cfg.Random)
	for n := 1; ; n++ {
		err := do(ctx)
		if err == nil {
			return nil
		}
		found := false
		switch Classify(req, err, n) {
		case FindOut:
			found = true
		case TryAgain:
		default:
			return err
		}
		if over := c.Err(); over != nil {
			return over
		}
		if n == RetryAttempts {
			return fmt.Errorf("giving up after %d attempts: %w", n, err)
		}
		if waited := c.Await(ctx, delays.NextBackOff()); waited != nil {
			return waited
		}
		if found {
			var done bool
			look := c.Retry(ctx, ReqExists, func(ctx context.Context) (err error) {
				done, err = find(ctx)
				return err
			}, nil)
			if look != nil || done {
				return look
			}
			if !errors.Is(err, zk.ErrUnavailable) { // an answer, and not about us
				return err
			}
		}
	}
}

// Await pauses and then waits for a connection, for at most what the session may take to be expired.
func (c *Conn) Await(ctx context.Context, delay time.Duration) error {
	if err := backoff.Sleep(ctx, delay); err != nil {
		return context.Cause(ctx)
	}
	limit := time.NewTimer(c.Timeout())
	defer limit.Stop()
	select {
	case <-c.Up():
	case <-c.ended:
		return c.Err()
	case <-limit.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
