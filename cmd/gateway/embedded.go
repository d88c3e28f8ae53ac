package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"syscall"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/httpapi"
	"lockkeeper/internal/locks/manager"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/embedded/disk"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/standalone"
	"lockkeeper/internal/zk/wire"
)

const (
	// defaultDataDir is where a gateway without --zk keeps everything.
	defaultDataDir = "lockkeeper-data"
	// embeddedServer is the address that stands for the server in this process.
	// It is never resolved.
	embeddedServer = "embedded:2181"
)

// dataDir is the data directory as an absolute path: what is logged has to
// mean the same in another directory.
func (c *config) dataDir() (string, error) {
	dir := c.DataDir
	if dir == "" {
		dir = defaultDataDir
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", usage("give an absolute path with --data-dir", "--data-dir: %w", err)
	}
	return dir, nil
}

// ownStore is the ZooKeeper of a gateway that runs without --zk. The methods of
// nil do what a gateway with --zk needs: nothing.
type ownStore struct {
	dir     string
	node    *standalone.Node
	running bool
	end     context.CancelFunc
	ended   chan struct{}
	err     error // how the node ended; once ended is closed
	admin   *admin
}

// openStore opens the store when there is no --zk.
func (c *config) openStore(logger *slog.Logger) (*ownStore, error) {
	if c.ZK != "" {
		return nil, nil
	}
	dir, err := c.dataDir()
	if err != nil {
		return nil, err
	}
	node, err := standalone.Open(standalone.Config{Dir: dir, Listen: c.EmbeddedListen, Hold: true, Logger: logger.With("part", "embedded")})
	if err != nil {
		return nil, storeProblem(dir, err)
	}
	return &ownStore{dir: dir, node: node}, nil
}

// reach has the gateway use the store as a user of its own, unless it was given
// one: other clients of --embedded-listen must not read the secret of the lease
// tokens, or write what is the gateways' alone.
func (o *ownStore) reach(cfg *zk.Config) {
	cfg.Dial = o.node.Dial
	if cfg.Auth == nil {
		cfg.Auth = new(zk.DigestAuth)
		cfg.Auth.User, cfg.Auth.Password = o.node.Identity()
	}
}

// store is the manager's. Others are let in when the layout is there: before that
// they could make it, with a secret of theirs.
func (o *ownStore) store(z *term.ZooKeeper) term.Store {
	if o == nil {
		return z
	}
	return laidOut{z, o.node}
}

type laidOut struct {
	*term.ZooKeeper
	node *standalone.Node
}

func (s laidOut) Layout(ctx context.Context) (*layout.Layout, error) {
	layout, err := s.ZooKeeper.Layout(ctx)
	if err == nil {
		s.node.Admit()
	}
	return layout, err
}

// run starts the node. It outlives everything that needs it; its own failure
// ends the group.
func (o *ownStore) run(group *errgroup.Group, ctx context.Context) {
	if o == nil {
		return
	}
	o.running = true
	o.ended = make(chan struct{})
	var living context.Context
	living, o.end = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(o.ended)
		o.err = o.node.Run(living)
	}()
	group.Go(func() error {
		select {
		case <-o.ended:
			return storeProblem(o.dir, o.err)
		case <-ctx.Done():
			return nil
		}
	})
}

// administer opens the socket of gateway backup, gateway token and gateway secret. Without it everything else
// works, so a file system that has no sockets is no reason not to.
func (o *ownStore) administer(routes func(*http.ServeMux), logger *slog.Logger) {
	if o == nil {
		return
	}
	admin, err := openAdmin(o.dir, o.node, routes, logger)
	if err != nil {
		logger.Warn("no backup and no token can be made, and the secret cannot be rotated, while this gateway runs", "err", err)
		return
	}
	o.admin = admin
}

// stop ends the node in good order and returns how it has ended.
func (o *ownStore) stop() error {
	if o == nil || !o.running {
		return nil
	}
	if o.admin != nil {
		o.admin.close()
	}
	o.end()
	<-o.ended
	return storeProblem(o.dir, o.err)
}

// close gives up what openStore has opened, if it was never run.
func (o *ownStore) close() {
	if o != nil && !o.running {
		_ = o.node.Close() // something else has failed, and is reported
	}
}

// addr is where --embedded-listen serves; nil: nowhere.
func (o *ownStore) addr() net.Addr {
	if o == nil {
		return nil
	}
	return o.node.Addr()
}

// acls are those that the nodes of the store had when it was opened; nil with --zk.
func (o *ownStore) acls() [][]wire.ACL {
	if o == nil {
		return nil
	}
	return o.node.ACLs()
}

// describe is where the gateway keeps everything, for the log.
func (o *ownStore) describe(c *config) []any {
	if o == nil {
		return []any{"zookeeper", c.ZK}
	}
	about := []any{"zookeeper", "embedded", "data_dir", o.dir}
	if addr := o.addr(); addr != nil {
		about = append(about, "embedded_listen", addr.String())
	}
	return about
}

// servers are the addresses at which others reach the same ZooKeeper: with a
// store of one's own that of --embedded-listen, if any.
func (o *ownStore) servers(configured []string) []string {
	switch {
	case o == nil:
		return configured
	case o.node.Addr() == nil:
		return nil
	}
	return []string{o.node.Addr().String()}
}

// watched is the manager, which is not ready while its store cannot be written.
func (o *ownStore) watched(manager *manager.Manager) httpapi.Locks {
	if o == nil {
		return manager
	}
	return storedLocks{manager, o.node}
}

type storedLocks struct {
	*manager.Manager
	node *standalone.Node
}

func (s storedLocks) Ready() error {
	if err := s.node.Err(); err != nil {
		return err
	}
	return s.Manager.Ready()
}

// storeProblem says what to do about a store that cannot be used.
func storeProblem(dir string, err error) error {
	if err == nil {
		return nil
	}
	problem := &problemError{code: exitIO, err: err, hint: "can this user write to " + dir + ", and is there room?"}
	switch {
	case errors.Is(err, disk.ErrLocked):
		problem.code = exitInUse
	case errors.Is(err, disk.ErrNewer):
		problem.code = exitConfig
	case errors.Is(err, syscall.EROFS):
		problem.hint = "its file system is read-only; gateway restore --input lockkeeper.db takes a copy into another directory"
	case errors.Is(err, syscall.EADDRINUSE):
		problem.code, problem.hint = exitUsage, "another program uses the address; choose one with --embedded-listen"
	case errors.As(err, new(*net.OpError)):
		problem.code, problem.hint = exitUsage, "for example --embedded-listen 127.0.0.1:2181"
	}
	var cause *disk.Error
	if errors.As(err, &cause) && cause.Hint != "" {
		problem.hint = cause.Hint
		bare := *cause
		bare.Hint = ""
		problem.err = &bare
	}
	return problem
}
