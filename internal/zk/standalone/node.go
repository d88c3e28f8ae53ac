package standalone

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/wire"
)

// ErrDown is why Dial and Backup fail while the store cannot be written, and before and after Run's time.
var ErrDown = errors.New("the embedded ZooKeeper is down")

// The pauses between attempts to open a store again that has failed.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// Config says where a Node keeps its data and which clients may reach it.
type Config struct {
	// Dir is the data directory. It is made when it is missing.
	Dir string
	// Listen is host:port for clients outside the process; "" for none.
	Listen string
	// Hold lets clients from outside wait until Admit is called: the first client of a new store makes the nodes.
	Hold bool
	// Logger may be nil for none.
	Logger *slog.Logger

	open func(dir string, create bool) (store, error) // nil: onDisk; tests give others
}

// Node is one ZooKeeper with a store of its own. Its methods are safe for concurrent use.
type Node struct {
	cfg      Config
	secret   []byte       // of the store: by this it is known again
	acls     [][]wire.ACL // see ACLs
	listener net.Listener // nil for none
	admitted chan struct{}
	admit    sync.Once

	mu    sync.Mutex
	up    *life // nil while there is none
	cause error // why there is none
}

// life is a server over an open store, until either fails.
type life struct {
	store  store
	server *embedded.Server
	ctx    context.Context // ends with the life
	end    context.CancelFunc
	users  sync.WaitGroup // connections and backups; begun only while the node is up with this life
}

// Open opens the store and makes everything ready. Run must be called, or Close.
func Open(cfg Config) (*Node, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.open == nil {
		cfg.open = onDisk(cfg.Logger)
	}
	if err := refuseUnfinished(cfg.Dir); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, admitted: make(chan struct{})}
	if !cfg.Hold {
		n.Admit()
	}
	store, err := cfg.open(cfg.Dir, true)
	if err != nil {
		return nil, err
	}
	n.secret = bytes.Clone(store.Secret())
	_ = os.RemoveAll(filepath.Join(cfg.Dir, unfinished)) // of a restore that died when all was done; it does no harm
	if n.up, err = n.begin(store, true); err != nil {
		return nil, err
	}
	n.acls = n.up.server.ACLs()
	if cfg.Listen != "" {
		if n.listener, err = net.Listen("tcp", cfg.Listen); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	return n, nil
}

// begin makes a server over a store, which is closed when that fails.
func (n *Node) begin(s store, newProcess bool) (*life, error) {
	server, err := embedded.New(embedded.Config{Storage: s, EndLocalSessions: newProcess, KeepAdmin: true, Logger: n.cfg.Logger})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	l := &life{store: s, server: server}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l, nil
}

// Close releases what Open has made when Run is not called.
func (n *Node) Close() error {
	n.mu.Lock()
	up := n.up
	n.mu.Unlock()
	if n.listener != nil {
		_ = n.listener.Close() // it may be closed already
	}
	if up == nil {
		return nil
	}
	up.server.Close()
	return n.over(up, errors.New("closed"))
}

// Run serves until ctx ends, and returns nil when everything is in good order then: what has reached the server is stored and
// answered, the store is closed. Any error is final. It may be called once.
func (n *Node) Run(ctx context.Context) error {
	var accepting sync.WaitGroup
	defer accepting.Wait()
	if n.listener != nil {
		ending := make(chan struct{})
		defer close(ending)
		defer n.listener.Close()
		accepting.Go(func() {
			select {
			case <-n.admitted:
				n.accept()
			case <-ending:
			}
		})
	}
	n.mu.Lock()
	l := n.up
	n.mu.Unlock()
	if l == nil {
		return ErrDown
	}
	newProcess := true
	for {
		failed := l.server.Run(ctx)
		// Once it has served, the local sessions that are in the store are this process's own.
		newProcess = newProcess && !l.server.Served()
		cause := failed
		if cause == nil {
			cause = errors.New("stopped")
		}
		if failed != nil && !errors.Is(failed, embedded.ErrClosed) {
			n.cfg.Logger.Error("the store cannot be written: requests are refused until it can",
				"data_dir", n.cfg.Dir, "err", failed, "hint", "is the disk full, or broken?")
		}
		down := time.Now()
		err := n.over(l, cause)
		if failed == nil || errors.Is(failed, embedded.ErrClosed) {
			return errors.Join(failed, err)
		}
		if l, err = n.revive(ctx, newProcess); err != nil {
			if ctx.Err() != nil {
				return nil // told to end while it was down: what was acknowledged is stored
			}
			return err
		}
		n.cfg.Logger.Info("the store can be written again", "data_dir", n.cfg.Dir, "down_ms", time.Since(down).Milliseconds())
		n.mu.Lock()
		n.up, n.cause = l, nil
		n.mu.Unlock()
	}
}

// over ends a life whose server has ended: it is not used any more, and the store is closed.
func (n *Node) over(l *life, cause error) error {
	n.mu.Lock()
	n.up, n.cause = nil, cause
	n.mu.Unlock()
	l.end()
	l.users.Wait()
	if err := l.store.Close(); err != nil {
		return fmt.Errorf("closing the store: %w", err)
	}
	return nil
}

// errGone is why a store is not served that is not the one which failed.
var errGone = errors.New("the store is gone")

// revive opens the store again until it can be written, or that is hopeless, or ctx ends. It never makes a new one: where the
// file system of the store is gone, an empty lock service would take the place of one that has leases. Nor does it give up
// then, for a supervisor would start the process again, and that one would make a store.
func (n *Node) revive(ctx context.Context, newProcess bool) (*life, error) {
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval, policy.MaxInterval = firstRetry, lastRetry
	try := func() (*life, error) {
		s, err := n.cfg.open(n.cfg.Dir, false)
		if err == nil && !bytes.Equal(s.Secret(), n.secret) {
			err = errors.Join(fmt.Errorf("%w: another one is in its place", errGone), s.Close())
		}
		if err == nil {
			if err = s.Probe(); err != nil {
				err = errors.Join(err, s.Close())
			}
		}
		var l *life
		if err == nil {
			l, err = n.begin(s, newProcess)
		}
		if err != nil && final(err) {
			err = backoff.Permanent(err)
		}
		return l, err
	}
	told := false
	return backoff.Retry(ctx, try, backoff.WithBackOff(policy), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, _ time.Duration) {
			if gone := errors.Is(err, errGone) || errors.Is(err, fs.ErrNotExist); gone && !told {
				told = true
				n.cfg.Logger.Error("the store is gone: requests are refused until it is back", "data_dir", n.cfg.Dir, "err", err,
					"hint", "is its file system mounted?")
			}
			n.cfg.Logger.Debug("the store cannot be written yet", "data_dir", n.cfg.Dir, "err", err)
		}))
}

// use counts a user of the present life, or says why there is none.
func (n *Node) use(do func(*life)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.up == nil {
		return fmt.Errorf("%w: %w", ErrDown, n.cause)
	}
	do(n.up)
	return nil
}

// Dial connects the process to its own server; it fits zk.Config.Dial. What is asked for does not matter. It never waits.
func (n *Node) Dial(_ context.Context, _, _ string) (net.Conn, error) {
	var client net.Conn
	err := n.use(func(l *life) {
		var server net.Conn
		client, server = newPipe()
		l.users.Go(func() { l.server.ServeLocal(server) })
	})
	return client, err
}

// Admit begins to serve clients from outside, if Config.Hold has them wait. It may be called again.
func (n *Node) Admit() { n.admit.Do(func() { close(n.admitted) }) }

// accept serves connections from outside until the listener is closed.
func (n *Node) accept() {
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		nc, err := n.listener.Accept()
		switch {
		case err == nil:
			pause = shortest
			if n.use(func(l *life) { l.users.Go(func() { l.server.ServeConn(nc) }) }) != nil {
				_ = nc.Close() // as if the port were closed
			}
		case errors.Is(err, net.ErrClosed):
			return
		default: // out of descriptors, most likely: it passes when connections end
			n.cfg.Logger.Warn("cannot accept", "address", n.listener.Addr(), "err", err)
			time.Sleep(pause)
			pause = min(2*pause, longest)
		}
	}
}

// Addr is where clients outside the process reach the server; nil when they cannot.
func (n *Node) Addr() net.Addr {
	if n.listener == nil {
		return nil
	}
	return n.listener.Addr()
}

// Identity is the process's own identity at its server: user and password of the scheme "digest". It lives as long as the
// store, also in backups and what is restored from them. Only a reader of the store knows it.
func (n *Node) Identity() (user, password string) {
	mac := hmac.New(sha256.New, n.secret) // what sessions' passwords are made of it has eight bytes: never this
	mac.Write([]byte("the process that has the store"))
	return "lockkeeper", hex.EncodeToString(mac.Sum(nil))
}

// ACLs are the lists that nodes of the store had when it was opened, each once, but for ZooKeeper's own nodes.
func (n *Node) ACLs() [][]wire.ACL { return n.acls }

// Err is nil while the node serves, and else why it does not.
func (n *Node) Err() error { return n.use(func(*life) {}) }

// Backup writes a consistent copy of the store to w while the server goes on. It fails when the store does. The store cannot
// be opened again before w has taken or refused what is being written, so a Write must not block for ever.
func (n *Node) Backup(ctx context.Context, w io.Writer) (int64, error) {
	var l *life
	if err := n.use(func(up *life) {
		l = up
		l.users.Add(1)
	}); err != nil {
		return 0, err
	}
	defer l.users.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	return l.store.Backup(ctx, w)
}
