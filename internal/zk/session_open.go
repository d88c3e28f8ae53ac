package zk

import (
	"context"
	"errors"
	"fmt"
	"time"

	gozk "github.com/go-zookeeper/zk"
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
		registration: cfg.Root + "/gateways/" + id, guard: cfg.Root + "/guards/" + id, registered: registration,
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

// notReached makes ErrUnavailable of what is no answer either: the caller's
// context ended, or the new session did, before anything was known.
func notReached(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) || errors.Is(err, ErrSessionGone) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
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
	full := s.cfg.full
	acl := c.acls[shown]
	ops := []any{
		&gozk.CheckVersionRequest{Path: full(s.cfg.Root + NodePromiseWindow), Version: layout.PromiseWindowVersion},
		&gozk.CheckVersionRequest{Path: full(s.cfg.Root + NodeFenceBase), Version: layout.FenceBaseVersion},
		&gozk.CreateRequest{Path: full(s.registration), Data: s.registered, Acl: acl, Flags: gozk.FlagEphemeral},
		&gozk.CreateRequest{Path: full(s.guard), Data: []byte{}, Acl: acl, Flags: gozk.FlagEphemeral},
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
		err = s.cfg.authRefused(err)
	}
	return c.lastZxid.Load(), err
}

// transact is multi with a context, for before there is a writer.
func (c *conn) transact(ctx context.Context, ops []any) (answer, error) {
	answered := make(chan answer, 1)
	began := time.Now()
	go func() { answered <- c.multi(ops) }() // ends with the connection at the latest
	select {
	case a := <-answered:
		c.cfg.Metrics.Op("multi", outcome(a.err), time.Since(began))
		return a, nil
	case <-ctx.Done():
		return answer{}, context.Cause(ctx)
	}
}

func (c *Config) authRefused(err error) error {
	hint := "the nodes belong to another ZooKeeper user: check the user and password in the ZooKeeper auth file"
	if c.Auth == nil {
		hint = "the nodes belong to a fleet with a ZooKeeper identity: give its file with --zk-auth-file"
	}
	return &FatalError{Kind: KindAuth, Err: err, Hint: hint}
}
