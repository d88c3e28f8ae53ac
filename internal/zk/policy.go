package zk

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// reqKind names an operation toward ZooKeeper in the policy.
type reqKind uint8

// The operations. reqSet and reqCheck occur only inside a multi, where a
// refusal is the answer of the whole.
const (
	reqCreate reqKind = iota + 1
	reqDelete
	reqSet
	reqCheck
	reqGet
	reqList
	reqExists
	reqMulti
	reqConnect
	reqAuth
	reqAddWatch
)

// verdict is what an error means for who asked.
type verdict uint8

const (
	// itsAnswer: ZooKeeper's answer; it goes to the caller as it is.
	itsAnswer verdict = iota + 1
	// tryAgain: nothing was done or can have been done; ask again after a delay.
	tryAgain
	// findOut: it may have been done. Ask what is there before anything else;
	// a write is never just repeated.
	findOut
	// wasDone: an earlier attempt, or somebody else, did what was asked for.
	wasDone
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

// errRefusedCredentials and errUnimplemented stand for answers that carry no
// error of ours otherwise.
var (
	errRefusedCredentials = errors.New("the credentials were refused")
	errUnimplemented      = errors.New("the server does not know the operation")
)

// policy returns the table. Normal errors are answers, recoverable ones are
// tried again or found out about, fatal ones end the session or the process.
// Errors without a row are answers.
func policy() []rule {
	return []rule{
		{reqCreate, ErrUnavailable, findOut, findOut, "the node may have been created"},
		{reqCreate, ErrNodeExists, itsAnswer, findOut, "after a lost attempt it may be our own"},
		{reqCreate, ErrNoNode, itsAnswer, itsAnswer, "the parent is missing"},
		{reqCreate, ErrNoAuth, itsAnswer, itsAnswer, "the parent's ACL refuses us"},
		{reqCreate, ErrSessionGone, sessionOver, sessionOver, "an expired session executes nothing"},

		{reqDelete, ErrUnavailable, findOut, findOut, "the node may be gone"},
		{reqDelete, ErrNoNode, itsAnswer, wasDone, "after a lost attempt absence is what was asked for"},
		{reqDelete, ErrBadVersion, itsAnswer, itsAnswer, "somebody has written it; it is there"},
		{reqDelete, ErrNotEmpty, itsAnswer, itsAnswer, "it has children; it is there"},
		{reqDelete, ErrNoAuth, itsAnswer, itsAnswer, "the parent's ACL refuses us"},
		{reqDelete, ErrSessionGone, sessionOver, sessionOver, "an expired session executes nothing"},

		{reqSet, ErrUnavailable, findOut, findOut, "the data may have been written"},
		{reqSet, ErrBadVersion, itsAnswer, findOut, "after a lost attempt the new version may be our own"},
		{reqSet, ErrNoNode, itsAnswer, itsAnswer, "there is nothing to write to"},
		{reqSet, ErrNoAuth, itsAnswer, itsAnswer, "the ACL refuses us"},
		{reqSet, ErrSessionGone, sessionOver, sessionOver, "an expired session executes nothing"},

		{reqCheck, ErrUnavailable, findOut, findOut, "its transaction may have committed"},
		{reqCheck, ErrBadVersion, itsAnswer, itsAnswer, "what depended on it has to be decided again"},
		{reqCheck, ErrNoNode, itsAnswer, itsAnswer, "what depended on it has to be decided again"},

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

		{reqMulti, ErrUnavailable, findOut, findOut, "it may have committed: the writer raises the epoch first"},
		{reqMulti, ErrNodeExists, itsAnswer, itsAnswer, "the culprit's answer; nothing of it was done"},
		{reqMulti, ErrNoNode, itsAnswer, itsAnswer, "the culprit's answer; of registration or guard: deposed"},
		{reqMulti, ErrBadVersion, itsAnswer, itsAnswer, "the culprit's answer; of the registration: the epoch was raised"},
		{reqMulti, ErrNotEmpty, itsAnswer, itsAnswer, "the culprit's answer; nothing of it was done"},
		{reqMulti, ErrNoAuth, itsAnswer, itsAnswer, "the culprit's answer; of registration or guard: needs a person"},
		{reqMulti, ErrSessionGone, sessionOver, sessionOver, "an expired session executes nothing"},

		{reqConnect, ErrUnavailable, tryAgain, tryAgain, "the next server, after a delay"},
		{reqConnect, ErrSessionGone, sessionOver, sessionOver, "expired while we were away"},
		{reqAuth, ErrUnavailable, tryAgain, tryAgain, "credentials are sent with every connection"},
		{reqAuth, errRefusedCredentials, needsPerson, needsPerson, "they will not get better"},
		{reqAddWatch, ErrUnavailable, tryAgain, tryAgain, "watches are set with every connection"},
		{reqAddWatch, errUnimplemented, needsPerson, needsPerson, "ZooKeeper is older than 3.6"},
		{reqAddWatch, ErrSessionGone, sessionOver, sessionOver, "a new session sets them again"},
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

// retry runs a request that may be repeated: a read, or a write whose own
// answer tells whether an earlier attempt did it already. It waits for a
// connection before each further attempt.
func (c *conn) retry(ctx context.Context, req reqKind, attempt func(ctx context.Context) error) error {
	delays := newBackoff()
	for n := 1; ; n++ {
		err := attempt(ctx)
		if err == nil {
			return nil
		}
		switch judge(req, err, n) {
		case itsAnswer, sessionOver, needsPerson:
			return err
		case wasDone:
			return nil
		}
		if over := c.endErr(); over != nil {
			return over
		}
		if n == retryAttempts {
			return fmt.Errorf("giving up after %d attempts: %w", n, err)
		}
		if err := c.await(ctx, delays.NextBackOff()); err != nil {
			return err
		}
	}
}

// await pauses and then waits for a connection, for at most what the session
// may take to be expired.
func (c *conn) await(ctx context.Context, delay time.Duration) error {
	if err := pause(ctx, delay); err != nil {
		return context.Cause(ctx)
	}
	limit := time.NewTimer(c.sessionTimeout())
	defer limit.Stop()
	select {
	case <-c.upNow():
	case <-c.over:
		return c.endErr()
	case <-limit.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
