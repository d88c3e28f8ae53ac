package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// directSession is long: a session that expired in a busy moment would leave zk.Lock dead for good.
const directSession = 30 * time.Second

// directRoot holds the locks of the direct clients, outside of what the gateway watches.
const directRoot = "/direct"

// directClients are zk.Lock users: one connection that all of them may share, and one for each.
type directClients struct {
	shared *zk.Conn
	own    []*zk.Conn
}

// connect opens all connections. After an error close ends those that are open.
func (d *directClients) connect(ctx context.Context, addr string) (err error) {
	if d.shared, err = dialDirect(ctx, addr); err != nil {
		return err
	}
	for range maxClients {
		conn, err := dialDirect(ctx, addr)
		if err != nil {
			return err
		}
		d.own = append(d.own, conn)
	}
	return nil
}

func dialDirect(ctx context.Context, addr string) (*zk.Conn, error) {
	conn, events, err := zk.Connect([]string{addr}, directSession, zk.WithLogger(silent{}))
	if err != nil {
		return nil, fmt.Errorf("direct client: %w", err)
	}
	for {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				return conn, nil
			}
		case <-ctx.Done():
			conn.Close()
			return nil, fmt.Errorf("direct client: %w", ctx.Err())
		}
	}
}

// silent: what is worth knowing comes back as an error of the call.
type silent struct{}

func (silent) Printf(string, ...any) {}

func (d *directClients) close() {
	if d.shared != nil {
		d.shared.Close()
	}
	for _, conn := range d.own {
		conn.Close()
	}
}

// newDirectLocker is a client of lock on the given connection.
func newDirectLocker(conn *zk.Conn, lock string) locker {
	return directLocker{zk.NewLock(conn, directRoot+"/"+lock, zk.WorldACL(zk.PermAll))}
}

// directLocker calls zk.Lock, which cannot be cancelled: a call that hangs is the watchdog's.
type directLocker struct{ lock *zk.Lock }

func (l directLocker) Lock(context.Context) error   { return l.lock.Lock() }
func (l directLocker) Unlock(context.Context) error { return l.lock.Unlock() }
