package sweep

import (
	"context"
	"errors"
	"fmt"

	"lockkeeper/internal/offline"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

// Rotation says what RotateSecret has done.
type Rotation struct {
	FleetID string // it stays
	KeyID   string // of the new key
	Dropped int    // how many keys there were
	// Open: every client of ZooKeeper can read the new secret, too, because the fleet has no identity.
	Open bool
}

// RotateSecret replaces the keys of a fleet whose gateways are all stopped by a new one. The fleet id stays, so the
// contenders are still the fleet's. The old keys are dropped: a client that read them can forge nothing any more, and
// the tokens of leases that run are refused from now on.
//
// The secret's node is deleted and created in one transaction, so its ACL has never been changed: this is how
// gateways tell a secret that only the fleet ever read (layout.Secret.Exposed). The transaction fails when a
// gateway has registered meanwhile, as those of a sweep do. It also writes the fence base, with the value that it
// has: a gateway whose session has ended, and that still runs with the old keys, cannot register again before it has
// read the layout.
func RotateSecret(ctx context.Context, cfg zk.Config) (Rotation, error) {
	return rotateSecret(ctx, cfg, Options{})
}

func rotateSecret(ctx context.Context, cfg zk.Config, opt Options) (Rotation, error) {
	o, err := layout.OpenOffline(ctx, cfg)
	if err != nil {
		return Rotation{}, err
	}
	defer o.Close()
	s := sweeper{Offline: o, opt: opt}
	done, err := s.rotate(ctx)
	if err != nil {
		return Rotation{}, fmt.Errorf("replacing the secret of %s: %w", o.FullRoot(), err)
	}
	done.Open = !cfg.Identified()
	return done, nil
}

func (s *sweeper) rotate(ctx context.Context) (done Rotation, err error) {
	// A client that may write the layout could replace the new secret at once. An ACL that hides a node from this
	// fleet is reported here, by the node's name, and not by the first read of the node.
	if err := s.SecureLayout(ctx); err != nil {
		return done, err
	}
	if err := s.open(ctx); err != nil {
		return done, err
	}
	if _, err := s.Barrier(ctx); err != nil {
		return done, err
	}
	if err := s.noGateway(ctx); err != nil {
		return done, err
	}
	path := s.Root() + zk.NodeSecret
	data, stat, err := s.Get(ctx, path)
	if err != nil {
		return done, err
	}
	old, err := layout.ParseSecret(data)
	if err != nil {
		return done, err
	}
	fresh, err := layout.RenewSecret(data)
	if err != nil {
		return done, err
	}
	made, err := layout.ParseSecret(fresh)
	if err != nil {
		return done, err
	}
	base, baseStat, err := s.Get(ctx, s.Root()+zk.NodeFenceBase)
	if err != nil {
		return done, err
	}
	if s.opt.looked != nil {
		s.opt.looked()
	}
	ops := append(s.proof(), zk.Op{Kind: zk.OpSetData, Path: s.Root() + zk.NodeFenceBase, Data: base, Version: baseStat.Version},
		zk.Op{Kind: zk.OpDelete, Path: path, Version: stat.Version}, zk.Op{Kind: zk.OpCreate, Path: path, Data: fresh})
	switch at, err := s.Commit(ctx, ops); {
	case err == nil:
	case at < 0 && errors.Is(err, zk.ErrUnavailable):
		return done, offline.Refuse(KindUnknown, "run it again: to replace the secret once more does no harm", "the connection was lost: %w", err)
	case at >= 0 && at < len(s.proof()):
		return done, s.proofFailed(ctx, err)
	default:
		return done, err
	}
	return Rotation{FleetID: old.FleetID, KeyID: made.Keys[0].ID, Dropped: len(old.Keys)}, nil
}
