package zk

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
)

// guardLooks is how many looks at guards are under way at once: they share the
// connection with the writes, and nobody waits for them.
const guardLooks = 8

// Guards looks at the guards of gateways, pipelined on the writer's connection,
// whose server has come at least to this session's own last transaction. A
// gateway whose guard could not be looked at before ctx ended is not in the answer.
func (s *Session) Guards(ctx context.Context, ids []string) map[string]Guard {
	found := make(map[string]Guard, len(ids))
	var mu sync.Mutex
	var looks errgroup.Group
	looks.SetLimit(guardLooks)
	for _, id := range ids {
		looks.Go(func() error {
			stat, err := s.conn.exists(ctx, s.cfg.Root+NodeGuards+"/"+id)
			if err != nil {
				return nil // it is looked at again the next time
			}
			var g Guard
			if stat != nil {
				g = Guard{There: true, Version: stat.Version, Czxid: stat.Czxid}
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
func endGuard(g *Guard, path string) ([]Op, error) {
	switch {
	case !g.There:
		return []Op{{Kind: OpCreate, Path: path}, {Kind: OpDelete, Path: path, Version: -1}}, nil
	case g.Version == -1:
		return nil, errAnyVersion // it comes once in 2^32 writes
	}
	return []Op{{Kind: OpDelete, Path: path, Version: g.Version}}, nil
}

// Abandon ends the session of a gateway that was deposed, as somebody has seen who
// watches the succession: a writer that gets no answers would not hear of it. The
// fence closes for good before Abandon returns; Err will be ErrDeposed. A session
// that is being closed comes to its own end.
func (s *Session) Abandon() {
	s.fence.Close()
	s.mu.Lock()
	closing := s.closing
	s.mu.Unlock()
	if !closing {
		s.conn.end(fmt.Errorf("%w: there is a succession to this gateway", ErrDeposed))
	}
}
