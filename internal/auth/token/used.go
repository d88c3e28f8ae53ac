package token

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"lockkeeper/internal/zk"
)

const (
	maintainEvery = time.Minute
	writesAtOnce  = 100 // in one round
	writeWithin   = 5 * time.Second
)

// dayOf is the day of a time, in UTC, since the Unix epoch.
func dayOf(t time.Time) int64 { return t.Unix() / int64(day/time.Second) }

// maintain writes last uses, and deletes records of tokens that ended long ago. Each gateway comes at a time of its own, so that the
// others have heard by then what it wrote.
func (s *Store) maintain(ctx context.Context) {
	for {
		select {
		case <-time.After(maintainEvery/2 + rand.N(maintainEvery)):
			s.maintainOnce(ctx, time.Now())
		case <-ctx.Done():
			return
		}
	}
}

func (s *Store) maintainOnce(ctx context.Context, now time.Time) {
	known := s.known.Load()
	if known == nil {
		return
	}
	left := writesAtOnce
	for _, e := range *known {
		op, ok := s.due(e, now)
		if !ok {
			continue
		}
		if left--; left < 0 {
			return
		}
		within, cancel := context.WithTimeout(ctx, writeWithin)
		res := s.tree.Nodes.Commit(within, []zk.Op{op})
		cancel()
		changed := errors.Is(res.Err, zk.ErrBadVersion) || errors.Is(res.Err, zk.ErrNoNode) // another gateway was quicker
		if res.Outcome != zk.Done && res.Outcome != zk.Conflict && !changed {
			s.log.Debug("a token's last use could not be written, and is written later", "token_id", e.ID, "err", res.Err)
			return
		}
	}
}

// due is what is to be written for a record.
func (s *Store) due(e *entry, now time.Time) (op zk.Op, ok bool) {
	op = zk.Op{Path: s.tree.path(e.ID), Version: e.version}
	switch used := e.used.Load(); {
	case e.ended(now):
		op.Kind = zk.OpDelete
		return op, true
	case e.StateAt(now) == Active && used > 0 && (e.LastUsed.IsZero() || used > dayOf(e.LastUsed)):
		told := *e.Record
		told.LastUsed = time.Unix(used*int64(day/time.Second), 0).UTC()
		op.Kind, op.Data = zk.OpSetData, told.encode()
		return op, true
	}
	return op, false
}
