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

// directClients are users of go-zookeeper's zk.Lock: one connection that all of them may share, and one for each.
type directClients struct {
	shared *zk.Conn
	own    []*zk.Conn
}

// connectDirect opens all connections.
func (r *rig) connectDirect(ctx context.Context, s *store) (*directClients, error) {
	d := &directClients{}
	r.atEnd(d.close)
	var err error
	if d.shared, err = dialDirect(ctx, s.addrList()); err != nil {
		return nil, err
	}
	for range maxClients {
		conn, err := dialDirect(ctx, s.addrList())
		if err != nil {
			return nil, err
		}
		d.own = append(d.own, conn)
	}
	return d, nil
}

func dialDirect(ctx context.Context, addrs []string) (*zk.Conn, error) {
	conn, events, err := zk.Connect(addrs, directSession, zk.WithLogger(silent{}))
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

// directLocker calls zk.Lock, which cannot be cancelled: the engine gives up on a turn that hangs.
type directLocker struct{ lock *zk.Lock }

func newDirectLocker(conn *zk.Conn, lock string) locker {
	return directLocker{zk.NewLock(conn, directRoot+"/"+lock, zk.WorldACL(zk.PermAll))}
}

func (l directLocker) Lock(context.Context) error   { return l.lock.Lock() }
func (l directLocker) Unlock(context.Context) error { return l.lock.Unlock() }
