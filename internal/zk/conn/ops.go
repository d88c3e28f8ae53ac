package conn

import (
	"context"
	"errors"
	"fmt"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/zk"
)

// translate turns the library's error into one of ours. An error that is no answer of ZooKeeper's (a broken connection,
// no server) becomes ErrUnavailable: of a write it says nothing at all about the outcome.
func translate(err error) error {
	if err == nil {
		return nil
	}
	for _, e := range [...]struct{ theirs, ours error }{
		{gozk.ErrNoNode, zk.ErrNoNode}, {gozk.ErrNodeExists, zk.ErrNodeExists}, {gozk.ErrBadVersion, zk.ErrBadVersion},
		{gozk.ErrNotEmpty, zk.ErrNotEmpty}, {gozk.ErrNoAuth, zk.ErrNoAuth}, {gozk.ErrSessionExpired, zk.ErrSessionGone},
		{gozk.ErrNoChildrenForEphemerals, zk.ErrEphemeralParent}, {gozk.ErrInvalidACL, err}, {gozk.ErrBadArguments, err}, {gozk.ErrInvalidPath, err},
	} {
		if errors.Is(err, e.theirs) {
			return e.ours
		}
	}
	return fmt.Errorf("%w: %w", zk.ErrUnavailable, err)
}

// outcome is the word for the metrics.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, zk.ErrUnavailable), errors.Is(err, zk.ErrSessionGone):
		return "unknown"
	default:
		return "refused"
	}
}

// call runs one request of the library, which knows no context. When ctx ends first the request is left to itself; its
// slot is free again when it ends, which is with the connection at the latest.
func call[T any](ctx context.Context, c *Conn, op string, request func() (T, error)) (T, error) {
	var none T
	if !c.Connected() {
		if err := c.Err(); err != nil {
			return none, err
		}
		return none, fmt.Errorf("%w: not connected", zk.ErrUnavailable)
	}
	select {
	case c.reads <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-c.ended:
		return none, c.Err()
	}
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	began := time.Now()
	go func() {
		value, err := request()
		<-c.reads
		answered <- answer{value, err}
	}()
	select {
	case a := <-answered:
		err := translate(a.err)
		c.cfg.Metrics.Op(op, outcome(err), time.Since(began))
		if err != nil {
			if over := c.Err(); over != nil && errors.Is(err, zk.ErrUnavailable) {
				err = over
			}
			return none, err
		}
		return a.value, nil
	case <-ctx.Done():
		c.cfg.Metrics.Op(op, "unknown", time.Since(began))
		return none, context.Cause(ctx)
	}
}

// read is call for a node's data, children or ACL, with its Stat.
func read[T any](ctx context.Context, c *Conn, op, doing, path string, request func(path string) (T, *gozk.Stat, error)) (T, zk.Stat, error) {
	type reply struct {
		value T
		stat  zk.Stat
	}
	r, err := call(ctx, c, op, func() (reply, error) {
		value, stat, err := request(c.cfg.Full(path))
		if err != nil {
			return reply{}, err
		}
		return reply{value, ourStat(stat)}, nil
	})
	return r.value, r.stat, Within(doing, path, err)
}

// Get reads a node's data.
func (c *Conn) Get(ctx context.Context, path string) ([]byte, zk.Stat, error) {
	return read(ctx, c, "getData", "reading", path, c.lib.Get)
}

// Children lists a node's children, in no order.
func (c *Conn) Children(ctx context.Context, path string) ([]string, zk.Stat, error) {
	return read(ctx, c, "getChildren", "listing", path, c.lib.Children)
}

// Exists answers nil for a node that is not there.
func (c *Conn) Exists(ctx context.Context, path string) (*zk.Stat, error) {
	return c.ExistsBelow(ctx, c.cfg, path)
}

// ExistsBelow is exists with another chroot than the connection's.
func (c *Conn) ExistsBelow(ctx context.Context, cfg *zk.Config, path string) (*zk.Stat, error) {
	stat, err := call(ctx, c, "exists", func() (*zk.Stat, error) {
		there, stat, err := c.lib.Exists(cfg.Full(path))
		if err != nil || !there {
			return nil, err
		}
		s := ourStat(stat)
		return &s, nil
	})
	return stat, Within("looking at", path, err)
}

// Create makes one node outside the guarded transactions: for the layout, before there is a session to guard.
func (c *Conn) Create(ctx context.Context, cfg *zk.Config, path string, data []byte, who Access) error {
	_, err := call(ctx, c, "create", func() (string, error) {
		return c.lib.Create(cfg.Full(path), data, 0, c.acls[who])
	})
	return Within("creating", path, err)
}

// Within says what was done when an error came; nil stays nil.
func Within(doing, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", doing, path, err)
}

func ourStat(s *gozk.Stat) zk.Stat {
	return zk.Stat{
		Czxid: s.Czxid, Mzxid: s.Mzxid, Ctime: s.Ctime, Mtime: s.Mtime,
		Version: s.Version, Cversion: s.Cversion, Aversion: s.Aversion,
		EphemeralOwner: s.EphemeralOwner, DataLength: s.DataLength, NumChildren: s.NumChildren, Pzxid: s.Pzxid,
	}
}

// Answer is what ZooKeeper said to a transaction, or that nothing is known.
type Answer struct {
	// committed, refused or unknown: exactly one of the three.
	Committed bool
	Refused   bool
	Err       error // refused: the culprit's error; unknown: why nothing is known
	Culprit   int   // refused: the first operation with an error
	Results   []OpResult
}

// OpResult is the result of one operation of a committed transaction.
type OpResult struct {
	Path    string // of a created node
	Set     bool   // a set; the other two are its node's afterwards
	Version int32
	Mzxid   int64
}

// GuardWritten tells the zxid of a committed guarded transaction, and the
// guard's version after it. ok is false when the answer lacks them.
func (a *Answer) GuardWritten() (zxid int64, version int32, ok bool) {
	guard := &a.Results[1]
	return guard.Mzxid, guard.Version, guard.Set
}
