package session

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/zk"
)

// guardLooks is how many looks at guards are under way at once: they share the
// connection with the writes, and no request waits for them.
const guardLooks = 8

// Guards looks at the guards of gateways, pipelined on the writer's connection, whose server has come at least to this
// session's own last transaction. A gateway whose guard could not be looked at before ctx ended is not in the answer.
func (s *Session) Guards(ctx context.Context, ids []string) map[string]zk.Guard {
	found := make(map[string]zk.Guard, len(ids))
	var mu sync.Mutex
	var looks errgroup.Group
	looks.SetLimit(guardLooks)
	for _, id := range ids {
		looks.Go(func() error {
			stat, err := s.conn.Exists(ctx, s.cfg.Root+zk.NodeGuards+"/"+id)
			if err != nil {
				return nil // it is looked at again the next time
			}
			var g zk.Guard
			if stat != nil {
				g = zk.Guard{There: true, Version: stat.Version, Czxid: stat.Czxid}
			}
			mu.Lock()
			defer mu.Unlock()
			found[id] = g
			return nil
		})
	}
	_ = looks.Wait() // none fails
	return found
}

// errAnyVersion: a delete at this version would delete any.
var errAnyVersion = errors.New("its guard's version is the one by which ZooKeeper means any")

// endGuard is what ends a guard, or fails when it is not as it was found.
func endGuard(g *zk.Guard, path string) ([]zk.Op, error) {
	switch {
	case !g.There:
		return []zk.Op{{Kind: zk.OpCreate, Path: path}, {Kind: zk.OpDelete, Path: path, Version: -1}}, nil
	case g.Version == -1:
		return nil, errAnyVersion // it comes once in 2^32 writes
	}
	return []zk.Op{{Kind: zk.OpDelete, Path: path, Version: g.Version}}, nil
}

// Abandon ends the session of a gateway that was deposed, as its replica of the succession shows: a writer that gets no
// answers would not notice. The trust window closes for good before Abandon returns; Err will be ErrDeposed. A session
// that is being closed comes to its own end.
func (s *Session) Abandon() {
	s.trust.Close()
	s.mu.Lock()
	closing := s.leaving
	s.mu.Unlock()
	if !closing {
		s.conn.End(fmt.Errorf("%w: there is a succession to this gateway", zk.ErrDeposed))
	}
}
