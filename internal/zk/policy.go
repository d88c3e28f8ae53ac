package zk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockkeeper/internal/backoff"
	"lockkeeper/internal/zk/wire"
)

// reqKind names what was asked of ZooKeeper in the policy.
type reqKind uint8

const (
	reqCreate   reqKind = iota + 1 // by itself, or in a Write
	reqDelete                      // in a Write
	reqSet                         // in a Write
	reqCheck                       // in a Write
	reqGuard                       // the operations that guard a transaction
	reqMulti                       // a transaction as a whole
	reqGet                         // getData
	reqList                        // getChildren
	reqExists                      // exists
	reqConnect                     // connecting and the handshake
	reqAuth                        // sending credentials
	reqAddWatch                    // the observer's watch
)

// verdict is what an error means for who asked.
type verdict uint8

const (
	// itsAnswer: ZooKeeper's answer; it goes to the caller as it is.
	itsAnswer verdict = iota + 1
	// decideAgain: what depended on it has to be decided from the present state.
	decideAgain
	// tryAgain: it changes nothing; ask again after a delay.
	tryAgain
	// findOut: it may have been done. Ask what is there before anything else;
	// a write is never just repeated.
	findOut
	// sessionOver: final for this session; a new one may go on.
	sessionOver
	// needsPerson: final for the process, a *FatalError.
	needsPerson
)

// rule is one row of the policy: what an error means at the first attempt of a
// request, and what at a later one, when an earlier attempt was lost.
type rule struct {
	request reqKind
	err     error
	first   verdict
	later   verdict
	why     string
}

// policy returns the table. Normal errors are answers, recoverable ones are
// tried again or found out about, fatal ones end the session or the process.
// An error without a row is an answer.
//
// In a Write there is no difference between first and later: a Write is
// repeated, by its caller, only after its lost predecessor was proved not to
// have been applied, so an error is never the echo of that.
func policy() []rule {
	return []rule{
		{reqCreate, ErrUnavailable, findOut, findOut, "the node may have been created"},
		{reqCreate, ErrNodeExists, itsAnswer, findOut, "after a lost attempt it may be our own"},
		{reqCreate, ErrNoNode, itsAnswer, itsAnswer, "the parent is missing"},
		{reqCreate, ErrEphemeralParent, itsAnswer, itsAnswer, "somebody's ephemeral node stands in the parent's place"},
		{reqCreate, ErrNoAuth, itsAnswer, itsAnswer, "the parent's ACL refuses us"},
		{reqCreate, ErrSessionGone, sessionOver, sessionOver, "an expired session executes nothing"},

		{reqDelete, ErrNoNode, itsAnswer, itsAnswer, "somebody else has deleted it"},
		{reqDelete, ErrBadVersion, itsAnswer, itsAnswer, "somebody has written it"},
		{reqDelete, ErrNotEmpty, itsAnswer, itsAnswer, "it has children"},
		{reqDelete, ErrNoAuth, itsAnswer, itsAnswer, "the parent's ACL refuses us"},
		{reqSet, ErrNoNode, itsAnswer, itsAnswer, "there is nothing to write to"},
		{reqSet, ErrBadVersion, itsAnswer, itsAnswer, "somebody else has written it"},
		{reqSet, ErrNoAuth, itsAnswer, itsAnswer, "the ACL refuses us"},
		{reqCheck, ErrNoNode, decideAgain, decideAgain, "what it checked is gone"},
		{reqCheck, ErrBadVersion, decideAgain, decideAgain, "what it checked has changed"},

		{reqGuard, ErrNoNode, sessionOver, sessionOver, "registration or guard is gone: deposed"},
		{reqGuard, ErrBadVersion, findOut, findOut, "another epoch is in force: perhaps a raise of ours"},
		{reqGuard, ErrNoAuth, needsPerson, needsPerson, "our own nodes refuse us"},
		{reqGuard, ErrSessionGone, sessionOver, sessionOver, "an expired session executes nothing"},

		{reqMulti, ErrUnavailable, findOut, findOut, "it may have committed: the writer raises the epoch first"},
		{reqMulti, ErrNodeExists, itsAnswer, findOut, "registering: after a lost attempt it may be our own"},
		{reqMulti, ErrBadVersion, itsAnswer, itsAnswer, "registering: the layout has changed"},
		{reqMulti, ErrNoNode, itsAnswer, itsAnswer, "registering: the layout is gone"},
		{reqMulti, ErrNoAuth, itsAnswer, itsAnswer, "registering: the layout belongs to somebody else"},
		{reqMulti, ErrSessionGone, sessionOver, sessionOver, "an expired session executes nothing"},

		{reqGet, ErrUnavailable, tryAgain, tryAgain, "reading changes nothing"},
		{reqGet, ErrNoNode, itsAnswer, itsAnswer, "absence is an answer"},
		{reqGet, ErrNoAuth, itsAnswer, itsAnswer, "somebody's node that we may not read"},
		{reqGet, ErrSessionGone, sessionOver, sessionOver, "the connection's session is gone"},
		{reqList, ErrUnavailable, tryAgain, tryAgain, "reading changes nothing"},
		{reqList, ErrNoNode, itsAnswer, itsAnswer, "absence is an answer"},
		{reqList, ErrNoAuth, itsAnswer, itsAnswer, "somebody's node that we may not read"},
		{reqList, ErrSessionGone, sessionOver, sessionOver, "the connection's session is gone"},
		{reqExists, ErrUnavailable, tryAgain, tryAgain, "reading changes nothing"},
		{reqExists, ErrSessionGone, sessionOver, sessionOver, "the connection's session is gone"},

		{reqConnect, ErrUnavailable, tryAgain, tryAgain, "the next server, after a delay"},
		{reqConnect, ErrSessionGone, sessionOver, sessionOver, "expired while there was no connection"},
		{reqAuth, ErrUnavailable, tryAgain, tryAgain, "credentials are sent with every connection"},
		{reqAuth, wire.ErrAuthFailed, needsPerson, needsPerson, "they will not get better"},
		{reqAddWatch, ErrUnavailable, tryAgain, tryAgain, "watches are set with every connection"},
		{reqAddWatch, wire.ErrUnimplemented, needsPerson, needsPerson, "ZooKeeper is older than 3.6"},
	}
}

// reqOf is the row's request for an operation of a Write.
func reqOf(kind OpKind) reqKind {
	switch kind {
	case OpCreate:
		return reqCreate
	case OpDelete:
		return reqDelete
	case OpSetData:
		return reqSet
	default:
		return reqCheck
	}
}

// judge looks an error up in the policy.
func judge(req reqKind, err error, attempt int) verdict {
	var fatal *FatalError
	if errors.As(err, &fatal) {
		return needsPerson
	}
	for _, r := range policy() {
		if r.request == req && errors.Is(err, r.err) {
			if attempt == 1 {
				return r.first
			}
			return r.later
		}
	}
	return itsAnswer
}

// retryAttempts bounds how often something is tried before the caller is told
// that ZooKeeper is unavailable. With the delays of newBackoff and the wait for
// a connection that is some seconds.
const retryAttempts = 6

// retry runs a request as the policy says. find tells whether a lost attempt
// has done it; it may be nil for what only reads. A further attempt is made
// only when it has not, and waits for a connection first.
func (c *conn) retry(ctx context.Context, req reqKind, do func(context.Context) error, find func(context.Context) (bool, error)) error {
	delays := newBackoff(c.cfg.Random)
	for n := 1; ; n++ {
		err := do(ctx)
		if err == nil {
			return nil
		}
		found := false
		switch judge(req, err, n) {
		case findOut:
			found = true
		case tryAgain:
		default:
			return err
		}
		if over := c.endErr(); over != nil {
			return over
		}
		if n == retryAttempts {
			return fmt.Errorf("giving up after %d attempts: %w", n, err)
		}
		if waited := c.await(ctx, delays.NextBackOff()); waited != nil {
			return waited
		}
		if found {
			var done bool
			look := c.retry(ctx, reqExists, func(ctx context.Context) (err error) {
				done, err = find(ctx)
				return err
			}, nil)
			if look != nil || done {
				return look
			}
			if !errors.Is(err, ErrUnavailable) { // an answer, and not about us
				return err
			}
		}
	}
}

// await pauses and then waits for a connection, for at most what the session
// may take to be expired.
func (c *conn) await(ctx context.Context, delay time.Duration) error {
	if err := backoff.Sleep(ctx, delay); err != nil {
		return context.Cause(ctx)
	}
	limit := time.NewTimer(c.sessionTimeout())
	defer limit.Stop()
	select {
	case <-c.upNow():
	case <-c.ended:
		return c.endErr()
	case <-limit.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
