package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockkeeper/internal/zk"
)

// Session is one ZooKeeper session that is registered as one gateway id. Its methods are safe for concurrent use.
type Session struct{ *writer }

// ID is the gateway id.
func (s *Session) ID() string { return s.id }

// TrustWindow tells for how long the gateway may answer for its leases.
func (s *Session) TrustWindow() *TrustWindow { return s.trust }

// Done is closed when the session is over, after every Write was answered.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why the session is over: ErrSessionGone (expired, or closed by
// Close), ErrDeposed or a *FatalError, wrapped. It is nil before Done is closed.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// LastZxid is the highest zxid that ZooKeeper has answered to this session:
// what another connection has to have seen so as not to go back in time.
func (s *Session) LastZxid() int64 { return s.conn.LastZxid() }

// LastAnswer is when ZooKeeper last answered a transaction, also with an error.
func (s *Session) LastAnswer() zk.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastAnswer
}

// Timeout is the session timeout that the server granted.
func (s *Session) Timeout() time.Duration { return s.conn.Timeout() }

// Connected reports whether there is a connection at this moment. It promises nothing; the TrustWindow does.
func (s *Session) Connected() bool { return s.conn.Connected() }

// State is a word for people: "connected", "suspended" (no connection, the session may still live) or "gone".
func (s *Session) State() string {
	switch {
	case s.conn.Err() != nil:
		return "gone"
	case s.conn.Connected():
		return "connected"
	default:
		return "suspended"
	}
}

// Submit hands over a Write, which must not be changed afterwards. When it returns nil, w.Done is called exactly once, by
// another goroutine, which may be before Submit returns. Otherwise nothing was done and Done is not called: ErrQueueFull (more than 8192
// Writes or 16 MiB are unanswered), ErrSessionGone, ErrTooLarge, ErrEphemeralCap, or what is wrong with the Write.
func (s *Session) Submit(w *zk.Write) error {
	if err := checkWrite(w); err != nil {
		return fmt.Errorf("submitting a write: %w", err)
	}
	it := &item{write: w, onlyDeletes: true}
	ephemeral := 0
	for i := range w.Ops {
		op := &w.Ops[i]
		it.bytes += s.conn.Size(op)
		it.onlyDeletes = it.onlyDeletes && (op.Kind == zk.OpDelete || w.DeletesLast)
		ephemeral += s.ephemerals.size(op)
	}
	if it.bytes > maxBatchBytes {
		return fmt.Errorf("submitting a write of %d bytes: %w", it.bytes, zk.ErrTooLarge)
	}
	return s.accept(it, ephemeral)
}

// Barrier waits until a guarded transaction has committed that was sent after the call began, and tells its zxid. Calls
// that wait together share one. It fails when ctx ends or the session does.
func (s *Session) Barrier(ctx context.Context) (zxid int64, err error) {
	b, err := s.ask()
	if err != nil {
		return 0, err
	}
	select {
	case <-b.passed:
		return b.zxid, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-s.done:
		return 0, s.Err()
	}
}

// Get reads a node's data on the writer's connection. It gives up with ctx. Errors are ErrNoNode, ErrNoAuth,
// ErrUnavailable (no connection), or the session's end, wrapped. It may read what is a moment old; after Barrier it
// reads at least what was true when Barrier was called.
func (s *Session) Get(ctx context.Context, path string) ([]byte, zk.Stat, error) {
	return s.conn.Get(ctx, path)
}

// Children lists a node's children, in no order; otherwise as Get.
func (s *Session) Children(ctx context.Context, path string) ([]string, zk.Stat, error) {
	return s.conn.Children(ctx, path)
}

// Exists looks at a node; nil means that it is not there. Otherwise as Get.
func (s *Session) Exists(ctx context.Context, path string) (*zk.Stat, error) {
	return s.conn.Exists(ctx, path)
}

// Close ends the session: nothing more is accepted, what was accepted is answered first, then guard and registration
// are deleted in one transaction, the last of this session. When ctx ends before that is done, the rest is cut short;
// ZooKeeper then removes both when the session closes or expires. It returns nil only if the last transaction is known
// to have committed.
func (s *Session) Close(ctx context.Context) error {
	s.leave()
	select {
	case <-s.done:
	case <-ctx.Done():
		s.conn.End(fmt.Errorf("%w: closed in haste", zk.ErrSessionGone))
		return fmt.Errorf("closing the session: %w", context.Cause(ctx))
	}
	if err := s.Err(); !errors.Is(err, errClosed) {
		return err
	}
	return nil
}

// ForgetEphemeral takes a node off the session's count of ephemeral paths:
// for one that another program has deleted. Unknown paths are ignored.
func (s *Session) ForgetEphemeral(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ephemerals.release(path)
}
