package sweep

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"lockkeeper/internal/zk"
)

// maxPiece is far below what a transaction may have, so that the gateways and programs that
// are told of it are not told of too much at once.
const maxPiece = 64 << 10

// clear deletes what was found, one transaction after the other.
func (s *sweeper) clear(ctx context.Context, left leftovers) error {
	if err := s.deleteAll(ctx, "clearing guards", single(left.guards), counter(&s.report.Registrations)); err != nil {
		return err
	}
	units := make([][]zk.Op, len(left.leases))
	for i := range left.leases {
		for _, c := range left.leases[i].contenders {
			units[i] = append(units[i], zk.Op{Kind: zk.OpDelete, Path: c.path(), Version: c.version})
		}
	}
	locks := map[string]bool{}
	err := s.deleteAll(ctx, "clearing leases", units, func(unit []zk.Op) {
		s.report.Leases++
		s.report.Contenders += len(unit)
		for i := range unit {
			locks[unit[i].Path[:strings.LastIndexByte(unit[i].Path, '/')]] = true
		}
		s.report.Locks = len(locks)
	})
	if err != nil {
		return err
	}
	if len(s.report.Kept) > 0 {
		return nil // keys and successions of leases that are still there have to stay
	}
	for _, part := range []struct {
		what  string
		ops   []zk.Op
		count *int
	}{
		{"clearing keys", left.keys, &s.report.Keys},
		{"clearing successions", left.successions, &s.report.Successions},
		{"clearing the outbox", left.outbox, &s.report.Outbox},
	} {
		if err := s.deleteAll(ctx, part.what, single(part.ops), counter(part.count)); err != nil {
			return err
		}
	}
	return nil
}

// single makes a unit of each operation.
func single(ops []zk.Op) [][]zk.Op {
	units := make([][]zk.Op, len(ops))
	for i := range ops {
		units[i] = ops[i : i+1]
	}
	return units
}

// deleteAll deletes units, each whole or not at all, in their order; count is told those
// that went.
func (s *sweeper) deleteAll(ctx context.Context, what string, units [][]zk.Op, count func([]zk.Op)) error {
	for done := 0; done < len(units); {
		end, size := done, 0
		for ; end < len(units); end++ {
			add := 0
			for i := range units[end] {
				add += s.Size(&units[end][i])
			}
			if end > done && size+add > s.opt.piece {
				break
			}
			size += add
		}
		piece := units[done:end]
		done = end
		if err := s.deletePiece(ctx, piece, count); err != nil {
			return err
		}
		s.progress(what, done, len(units))
	}
	return nil
}

// rereads bounds how often a piece is tried again because other programs write to what it deletes.
const rereads = 16

// deletePiece deletes units in one transaction. What is gone already is left out, what
// somebody has written to meanwhile is deleted at its new version: whoever wrote to a lease
// of a fleet that is gone (Curator's Revoker does) wants it to go as well.
func (s *sweeper) deletePiece(ctx context.Context, units [][]zk.Op, count func([]zk.Op)) error {
	for again := 0; len(units) > 0; {
		if s.opt.DryRun {
			s.tell(units, count)
			return nil
		}
		ops := s.proof()
		var at []int // the unit of each operation
		for range ops {
			at = append(at, -1)
		}
		for i, unit := range units {
			for range unit {
				at = append(at, i)
			}
			ops = append(ops, unit...)
		}
		culprit, err := s.Commit(ctx, ops)
		switch {
		case err == nil:
			s.registrations++
			s.report.Transactions++
			s.tell(units, count)
			if s.opt.committed != nil {
				s.opt.committed()
			}
			return nil
		case errors.Is(err, zk.ErrTooLarge):
			return refuse(KindTooBig, "", "the contenders of one lease: %w", err)
		case culprit < 0 && errors.Is(err, zk.ErrUnavailable):
			return unknown(err)
		case culprit < 0:
			return err
		case at[culprit] < 0:
			return s.somebodyCame(ctx, err)
		}
		unit, path := at[culprit], ops[culprit].Path
		switch {
		case errors.Is(err, zk.ErrNoNode):
			units = without(units, unit, path)
		case errors.Is(err, zk.ErrNotEmpty):
			s.report.Kept = append(s.report.Kept, path)
			units = append(units[:unit:unit], units[unit+1:]...)
		case errors.Is(err, zk.ErrBadVersion):
			if again++; again > rereads {
				return fmt.Errorf("somebody goes on writing to it: %w", err)
			}
			stat, err := s.Exists(ctx, path)
			if err != nil {
				return err
			}
			if stat == nil {
				units = without(units, unit, path)
				continue
			}
			for i := range units[unit] {
				if units[unit][i].Path == path {
					units[unit][i].Version = stat.Version
				}
			}
		default:
			return err
		}
	}
	return nil
}

// proof is what each transaction begins with; it fails when a gateway has registered since
// none was there. See the package's comment.
func (s *sweeper) proof() []zk.Op {
	prefix := s.Root() + zk.NodeGateways + "/sweep-"
	return []zk.Op{
		{Kind: zk.OpCreate, Path: prefix, Sequential: true},
		{Kind: zk.OpDelete, Path: fmt.Sprintf("%s%010d", prefix, s.registrations), Version: -1},
	}
}

// somebodyCame says who made a transaction's proof fail.
func (s *sweeper) somebodyCame(ctx context.Context, cause error) error {
	if !errors.Is(cause, zk.ErrNoNode) {
		return cause
	}
	ids, _, err := s.Children(ctx, s.Root()+zk.NodeGateways)
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		return s.inUse(ctx, ids)
	}
	return refuse(KindInUse, "keep all gateways stopped, and run one sweep at a time", "a gateway was started meanwhile, or another sweep is at work")
}

// tell notes what has gone, or would go.
func (s *sweeper) tell(units [][]zk.Op, count func([]zk.Op)) {
	for _, unit := range units {
		count(unit)
		s.deleted(unit)
	}
}

func counter(n *int) func([]zk.Op) { return func([]zk.Op) { *n++ } }

// without leaves an operation out; a unit without operations goes too.
func without(units [][]zk.Op, unit int, path string) [][]zk.Op {
	var kept []zk.Op
	for _, op := range units[unit] {
		if op.Path != path {
			kept = append(kept, op)
		}
	}
	if len(kept) == 0 {
		return append(units[:unit:unit], units[unit+1:]...)
	}
	out := append([][]zk.Op(nil), units...)
	out[unit] = kept
	return out
}
