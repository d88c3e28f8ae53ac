package zk

import (
	"context"
	"errors"
	"fmt"
	"time"

	gozk "github.com/go-zookeeper/zk"
)

// maxReads bounds the reads of one session that are under way. One more waits
// for its turn or for its context.
const maxReads = 256

// translate turns the library's error into one of ours. An error that is no
// answer of ZooKeeper's (a broken connection, no server) becomes
// ErrUnavailable: of a write it says nothing at all about the outcome.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, gozk.ErrNoNode):
		return ErrNoNode
	case errors.Is(err, gozk.ErrNodeExists):
		return ErrNodeExists
	case errors.Is(err, gozk.ErrBadVersion):
		return ErrBadVersion
	case errors.Is(err, gozk.ErrNotEmpty):
		return ErrNotEmpty
	case errors.Is(err, gozk.ErrNoAuth):
		return ErrNoAuth
	case errors.Is(err, gozk.ErrSessionExpired):
		return ErrSessionGone
	case errors.Is(err, gozk.ErrNoChildrenForEphemerals):
		return ErrEphemeralParent
	case errors.Is(err, gozk.ErrInvalidACL), errors.Is(err, gozk.ErrBadArguments), errors.Is(err, gozk.ErrInvalidPath):
		return err
	default:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}

// outcome is the word for the metrics.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrSessionGone):
		return "unknown"
	default:
		return "refused"
	}
}

// call runs one request of the library, which knows no context. When ctx ends
// first the request is left to itself; its slot is free again when it ends,
// which is with the connection at the latest.
func call[T any](ctx context.Context, c *conn, op string, request func() (T, error)) (T, error) {
	var none T
	if !c.isConnected() {
		if err := c.endErr(); err != nil {
			return none, err
		}
		return none, fmt.Errorf("%w: not connected", ErrUnavailable)
	}
	select {
	case c.reads <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-c.ended:
		return none, c.endErr()
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
			if over := c.endErr(); over != nil && errors.Is(err, ErrUnavailable) {
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

type dataAndStat struct {
	data []byte
	stat Stat
}

func (c *conn) get(ctx context.Context, path string) ([]byte, Stat, error) {
	r, err := call(ctx, c, "getData", func() (dataAndStat, error) {
		data, stat, err := c.lib.Get(c.cfg.full(path))
		if err != nil {
			return dataAndStat{}, err
		}
		return dataAndStat{data, ourStat(stat)}, nil
	})
	return r.data, r.stat, within("reading", path, err)
}

type childrenAndStat struct {
	children []string
	stat     Stat
}

func (c *conn) list(ctx context.Context, path string) ([]string, Stat, error) {
	r, err := call(ctx, c, "getChildren", func() (childrenAndStat, error) {
		children, stat, err := c.lib.Children(c.cfg.full(path))
		if err != nil {
			return childrenAndStat{}, err
		}
		return childrenAndStat{children, ourStat(stat)}, nil
	})
	return r.children, r.stat, within("listing", path, err)
}

// exists answers nil for a node that is not there.
func (c *conn) exists(ctx context.Context, path string) (*Stat, error) {
	return c.existsBelow(ctx, c.cfg, path)
}

// existsBelow is exists with another chroot than the connection's.
func (c *conn) existsBelow(ctx context.Context, cfg *Config, path string) (*Stat, error) {
	stat, err := call(ctx, c, "exists", func() (*Stat, error) {
		there, stat, err := c.lib.Exists(cfg.full(path))
		if err != nil || !there {
			return nil, err
		}
		s := ourStat(stat)
		return &s, nil
	})
	return stat, within("looking at", path, err)
}

// create makes one node outside the guarded transactions: for the layout,
// before there is a session to guard.
func (c *conn) create(ctx context.Context, cfg *Config, path string, data []byte, who access) error {
	_, err := call(ctx, c, "create", func() (string, error) {
		return c.lib.Create(cfg.full(path), data, 0, c.acls[who])
	})
	return within("creating", path, err)
}

func within(doing, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", doing, path, err)
}

func ourStat(s *gozk.Stat) Stat {
	return Stat{
		Czxid: s.Czxid, Mzxid: s.Mzxid, Ctime: s.Ctime, Mtime: s.Mtime,
		Version: s.Version, Cversion: s.Cversion, Aversion: s.Aversion,
		EphemeralOwner: s.EphemeralOwner, DataLength: s.DataLength, NumChildren: s.NumChildren, Pzxid: s.Pzxid,
	}
}

// answer is what ZooKeeper said to a multi, or that nothing is known.
type answer struct {
	// committed, refused or unknown: exactly one of the three.
	committed bool
	refused   bool
	err       error // refused: the culprit's error; unknown: why nothing is known
	culprit   int   // refused: the first operation with an error
	results   []opResult
}

// opResult is what the library tells about one operation: String is the path of a created node, Stat that after a set.
type opResult = gozk.MultiResponse

// guardWritten tells the zxid of a committed guarded transaction, and the
// guard's version after it. ok is false when the answer lacks them.
func (a *answer) guardWritten() (zxid int64, version int32, ok bool) {
	if guard := a.results[1].Stat; guard != nil {
		return guard.Mzxid, guard.Version, true
	}
	return 0, 0, false
}

// multi sends one transaction and waits for its answer. It returns when the
// session ends at the latest.
func (c *conn) multi(ops []any) answer {
	results, err := c.lib.Multi(ops...)
	// In a failed multi the operations before the culprit carry no error and
	// those after it carry one that means nothing: the first one counts. Its
	// error tells that ZooKeeper executed the whole and refused it, whatever
	// the error is.
	if len(results) == len(ops) {
		for i := range results {
			if results[i].Error != nil {
				return answer{refused: true, err: refusal(results[i].Error), culprit: i}
			}
		}
		if err == nil {
			return answer{committed: true, results: results}
		}
	}
	if err == nil {
		err = fmt.Errorf("%d results for %d operations", len(results), len(ops))
	}
	return answer{err: fmt.Errorf("sending a transaction: %w", translate(err)), culprit: -1}
}

// refusal is translate for the error of one operation inside a transaction,
// where a code that we do not know is still an answer.
func refusal(err error) error {
	if known := translate(err); !errors.Is(known, ErrUnavailable) {
		return known
	}
	return err
}
