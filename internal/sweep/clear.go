package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lockkeeper/internal/offline"
	"lockkeeper/internal/zk"
)

// maxPiece is far below what a transaction may have, to bound the watch events that
// one transaction causes.
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

// deleteAll deletes units, each whole or not at all, in their order; count gets the deleted ones.
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

// deletePiece deletes units in one transaction. Missing nodes are left out. A node that was
// written meanwhile is deleted at its new version: a program that writes to a lease
// of a dead fleet (Curator's Revoker does) wants it to end as well.
func (s *sweeper) deletePiece(ctx context.Context, units [][]zk.Op, count func([]zk.Op)) error {
	if s.opt.DryRun {
		s.note(units, count)
		return nil
	}
	for again := 0; len(units) > 0; {
		ops := s.proof()
		proof := len(ops)
		var at []int // the unit of each operation behind the proof
		for i, unit := range units {
			at = append(at, slices.Repeat([]int{i}, len(unit))...)
			ops = append(ops, unit...)
		}
		culprit, err := s.Commit(ctx, ops)
		switch {
		case err == nil:
			s.registrations++
			s.report.Transactions++
			s.note(units, count)
			if s.opt.committed != nil {
				s.opt.committed()
			}
			return nil
		case errors.Is(err, zk.ErrTooLarge):
			return offline.Refuse(KindTooBig, "", "the contenders of one lease: %w", err)
		case culprit < 0 && errors.Is(err, zk.ErrUnavailable):
			return unknown(err)
		case culprit < 0:
			return err
		case culprit < proof:
			return s.proofFailed(ctx, err)
		case errors.Is(err, zk.ErrBadVersion):
			if again++; again > rereads {
				return fmt.Errorf("another program keeps writing to it: %w", err)
			}
		}
		if units, err = s.without(ctx, units, at[culprit-proof], ops[culprit].Path, err); err != nil {
			return err
		}
	}
	return nil
}

// without are the units after the operation on a path has failed: a node that is gone is left out, one that was
// written gets its new version, and one with children keeps its whole unit.
func (s *sweeper) without(ctx context.Context, units [][]zk.Op, unit int, path string, failed error) ([][]zk.Op, error) {
	at := slices.IndexFunc(units[unit], func(op zk.Op) bool { return op.Path == path })
	gone := errors.Is(failed, zk.ErrNoNode)
	switch {
	case gone:
	case errors.Is(failed, zk.ErrNotEmpty):
		s.report.Kept = append(s.report.Kept, path)
		return slices.Delete(slices.Clone(units), unit, unit+1), nil
	case errors.Is(failed, zk.ErrBadVersion):
		stat, err := s.Exists(ctx, path)
		if err != nil {
			return nil, err
		}
		if gone = stat == nil; !gone {
			units[unit][at].Version = stat.Version
			return units, nil
		}
	default:
		return nil, failed
	}
	units = slices.Clone(units)
	if units[unit] = slices.Delete(slices.Clone(units[unit]), at, at+1); len(units[unit]) == 0 {
		units = slices.Delete(units, unit, unit+1)
	}
	return units, nil
}

// proof begins each transaction; it fails when a gateway has registered since
// none was registered. See the package's comment.
func (s *sweeper) proof() []zk.Op {
	prefix := s.Root() + zk.NodeGateways + "/sweep-"
	return []zk.Op{
		{Kind: zk.OpCreate, Path: prefix, Sequential: true},
		{Kind: zk.OpDelete, Path: fmt.Sprintf("%s%010d", prefix, s.registrations), Version: -1},
	}
}

// proofFailed says what made a transaction's proof fail.
func (s *sweeper) proofFailed(ctx context.Context, cause error) error {
	if !errors.Is(cause, zk.ErrNoNode) {
		return cause
	}
	ids, _, err := s.Children(ctx, s.Root()+zk.NodeGateways)
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		return offline.InUse(ctx, s.Offline, ids)
	}
	return offline.Refuse(KindInUse, "keep all gateways stopped, and run one sweep at a time", "a gateway was started meanwhile, or another sweep is at work")
}

// note reports what was deleted, or would be.
func (s *sweeper) note(units [][]zk.Op, count func([]zk.Op)) {
	for _, unit := range units {
		count(unit)
		s.deleted(unit)
	}
}

func counter(n *int) func([]zk.Op) { return func([]zk.Op) { *n++ } }
