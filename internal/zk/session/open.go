package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
	"lockkeeper/internal/zk/layout"
)

// idLength is that of a gateway id: 64 random bits in base32.
const idLength = 13

// Open starts a ZooKeeper session and registers it as the gateway id, with the given data (address, version). The
// registration commits only if the promise window and the fence base are still what layout says; if they are not, the
// error is ErrBadVersion and the layout has to be opened again. ErrUnavailable means that ZooKeeper could not be
// reached, ErrNodeExists that the id is taken, *FatalError that trying again is useless.
//
// ctx limits the opening alone. The session lives until Close, its expiry or its deposition.
func Open(ctx context.Context, cfg zk.Config, layout *layout.Layout, id string, registration []byte) (*Session, error) {
	cfg, err := cfg.WithDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	if registration == nil {
		registration = []byte{}
	}
	s := &Session{newWriter(facts{
		cfg: &cfg, id: id, window: layout.PromiseWindow, trust: newTrustWindow(layout.PromiseWindow),
		registration: cfg.Root + zk.NodeGateways + "/" + id, guard: cfg.Root + zk.NodeGuards + "/" + id, registered: registration,
	})}
	if s.conn, err = conn.Open(ctx, s.cfg, s.wake); err != nil {
		return nil, fmt.Errorf("opening a session: %w", err)
	}
	began, sent := time.Now(), cfg.Clock.Now()
	zxid, err := s.register(ctx, layout)
	if err != nil {
		err = conn.NotReached(ctx, fmt.Errorf("registering gateway %s: %w", id, err))
		s.conn.End(err)
		return nil, err
	}
	for _, path := range []string{s.registration, s.guard} {
		s.ephemerals.used += s.ephemerals.size(&zk.Op{Kind: zk.OpCreate, Path: path, Ephemeral: true})
	}
	s.lastAnswer = cfg.Clock.Now()
	s.trust.committed(0, sent, zxid)
	s.lastCommit = began
	go s.run()
	return s, nil
}

func checkID(id string) error {
	ok := len(id) == idLength
	for _, r := range id {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9')
	}
	if !ok {
		return &zk.FatalError{Kind: zk.KindConfig, Err: fmt.Errorf("gateway id %q is not %d lower-case base32 characters", id, idLength)}
	}
	return nil
}

// register creates registration and guard in one transaction and tells a zxid that is not before it. A lost attempt is
// repeated: at most one of them can commit, for the id is new, and the session is told by the nodes' owner.
func (s *Session) register(ctx context.Context, layout *layout.Layout) (zxid int64, err error) {
	c := s.conn
	ops := []conn.Op{
		c.Op(&zk.Op{Kind: zk.OpCheck, Path: s.cfg.Root + zk.NodePromiseWindow, Version: layout.PromiseWindowVersion}),
		c.Op(&zk.Op{Kind: zk.OpCheck, Path: s.cfg.Root + zk.NodeFenceBase, Version: layout.FenceBaseVersion}),
		c.Op(&zk.Op{Kind: zk.OpCreate, Path: s.registration, Data: s.registered, Ephemeral: true}),
		c.Op(&zk.Op{Kind: zk.OpCreate, Path: s.guard, Ephemeral: true}),
	}
	err = c.Retry(ctx, conn.ReqMulti, func(ctx context.Context) error {
		a, err := c.Transact(ctx, ops)
		switch {
		case err != nil:
			return err
		case a.Refused && errors.Is(a.Err, zk.ErrNoNode):
			return &zk.FatalError{Kind: zk.KindMissingRoot, Hint: "was the root deleted while gateways were starting?",
				Err: fmt.Errorf("a part of the layout is gone: %w", a.Err)}
		}
		return a.Err
	}, func(ctx context.Context) (bool, error) {
		stat, err := c.Exists(ctx, s.registration)
		return stat != nil && stat.EphemeralOwner == c.SessionID(), err
	})
	if errors.Is(err, zk.ErrNoAuth) {
		err = conn.AuthRefused(s.cfg, err)
	}
	return c.LastZxid(), err
}
