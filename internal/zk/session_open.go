package zk

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// idLength is that of a gateway id: 64 random bits in base32.
const idLength = 13

// OpenSession starts a ZooKeeper session and registers it as the gateway id,
// with the given data (address, version). The registration commits only if the
// promise window and the fence base are still what layout says; if they are
// not, the error is ErrBadVersion and the layout has to be opened again.
// ErrUnavailable means that ZooKeeper could not be reached, ErrNodeExists that
// the id is taken, *FatalError that trying again is useless.
//
// ctx limits the opening alone. The session lives until Close, its expiry or
// its deposition.
func OpenSession(ctx context.Context, cfg Config, layout *Layout, id string, registration []byte) (*Session, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	if registration == nil {
		registration = []byte{}
	}
	s := &Session{
		cfg: &cfg, id: id, window: layout.PromiseWindow, fence: newFence(layout.PromiseWindow),
		registration: cfg.Root + NodeGateways + "/" + id, guard: cfg.Root + NodeGuards + "/" + id, registered: registration,
		wakeup: make(chan struct{}, 1), done: make(chan struct{}), released: make(chan struct{}),
	}
	if s.conn, err = connect(ctx, s.cfg, s.wake); err != nil {
		return nil, fmt.Errorf("opening a session: %w", err)
	}
	began, sent := time.Now(), cfg.Clock.Now()
	zxid, err := s.register(ctx, layout)
	if err != nil {
		err = notReached(ctx, fmt.Errorf("registering gateway %s: %w", id, err))
		s.conn.end(err)
		return nil, err
	}
	for _, path := range []string{s.registration, s.guard} {
		s.ephemerals.used += s.ephemeralSize(&Op{Kind: OpCreate, Path: path, Ephemeral: true})
	}
	s.writer = newWriter(began)
	s.lastAnswer = cfg.Clock.Now()
	s.fence.committed(0, sent, zxid)
	go s.run()
	return s, nil
}

func checkID(id string) error {
	ok := len(id) == idLength
	for _, r := range id {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9')
	}
	if !ok {
		return &FatalError{Kind: KindConfig, Err: fmt.Errorf("gateway id %q is not %d lower-case base32 characters", id, idLength)}
	}
	return nil
}

// register creates registration and guard in one transaction and tells a zxid
// that is not before it. A lost attempt is repeated: at most one of them can
// commit, for the id is new, and the session is told by the nodes' owner.
func (s *Session) register(ctx context.Context, layout *Layout) (zxid int64, err error) {
	c := s.conn
	ops := []any{
		c.encode(&Op{Kind: OpCheck, Path: s.cfg.Root + NodePromiseWindow, Version: layout.PromiseWindowVersion}),
		c.encode(&Op{Kind: OpCheck, Path: s.cfg.Root + NodeFenceBase, Version: layout.FenceBaseVersion}),
		c.encode(&Op{Kind: OpCreate, Path: s.registration, Data: s.registered, Ephemeral: true}),
		c.encode(&Op{Kind: OpCreate, Path: s.guard, Ephemeral: true}),
	}
	err = c.retry(ctx, reqMulti, func(ctx context.Context) error {
		a, err := c.transact(ctx, ops)
		switch {
		case err != nil:
			return err
		case a.refused && errors.Is(a.err, ErrNoNode):
			return &FatalError{Kind: KindMissingRoot, Hint: "was the root deleted while gateways were starting?",
				Err: fmt.Errorf("a part of the layout is gone: %w", a.err)}
		}
		return a.err
	}, func(ctx context.Context) (bool, error) {
		stat, err := c.exists(ctx, s.registration)
		return stat != nil && stat.EphemeralOwner == c.sessionID(), err
	})
	if errors.Is(err, ErrNoAuth) {
		err = authRefused(s.cfg, err)
	}
	return c.lastSeen(), err
}
