// Package unixsock listens on Unix sockets, and tells which user is at the other end of a connection.
//
// # What it promises
//
// The socket has its mode from its first moment: no other user can connect before. A socket that a dead process has left
// is replaced; one that a process serves, and a file that is no socket, are left alone. Close removes the socket.
//
// The remote address of a connection is the user at its other end, as it was when that process connected: "uid:1000". The
// kernel says so; a client cannot choose it.
//
// The package starts no goroutine.
package unixsock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrInUse is the error for a socket that a process serves.
var ErrInUse = errors.New("another process serves it")

// ErrNoSocket is the error for a path at which there is something else.
var ErrNoSocket = errors.New("there is a file that is no socket")

// Listen serves a socket with that mode.
func Listen(path string, mode fs.FileMode) (net.Listener, error) {
	if err := clear(path); err != nil {
		return nil, err
	}
	address, done, err := addressOf(path)
	if err != nil {
		return nil, err
	}
	defer done()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		// Before it has a name: there is no moment at which others could open it.
		if controlled := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), uint32(mode.Perm())) }); controlled != nil {
			return controlled
		}
		return err
	}}
	inner, err := config.Listen(context.Background(), "unix", address)
	if err != nil {
		return nil, err
	}
	l := &listener{inner.(*net.UnixListener), path, sync.OnceFunc(func() { _ = os.Remove(path) })} // it may be gone, and the next one would remove it, too
	l.SetUnlinkOnClose(false)                                                                      // by its real name, in Close
	if err := os.Chmod(path, mode); err != nil {                                                   // where the system does not take it over from the socket, or the umask is stricter
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// clear removes a socket that a dead process has left.
func clear(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return ErrNoSocket
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := Dial(ctx, path)
	if err == nil {
		_ = c.Close()
		return ErrInUse
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err // busy, or of another user
	}
	return os.Remove(path)
}

// Dial connects to a socket.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	address, done, err := addressOf(path)
	if err != nil {
		return nil, err
	}
	defer done()
	var d net.Dialer
	return d.DialContext(ctx, "unix", address)
}

// addressOf names a socket so that the system takes it: an address may have about a hundred bytes. done is called when it is
// not needed any more.
func addressOf(path string) (address string, done func(), err error) {
	if len(path) < 100 {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { dir.Close() }, nil
}

type listener struct {
	*net.UnixListener
	path   string
	remove func() // once: after that the path may be another process's
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return conn{c, peer(userOf(c))}, nil
}

// Addr is the path that Listen was given.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

func (l *listener) Close() error {
	l.remove()
	return l.UnixListener.Close()
}

// conn is a connection whose remote address is a user.
type conn struct {
	*net.UnixConn
	from peer
}

func (c conn) RemoteAddr() net.Addr { return c.from }

// NetConn is the connection itself.
func (c conn) NetConn() net.Conn { return c.UnixConn }

// peer is the user at the other end.
type peer string

const prefix = "uid:"

func (p peer) Network() string { return "unix" }
func (p peer) String() string  { return string(p) }

// UID is the user id in the remote address of a connection, if that came to a socket of Listen.
func UID(remote string) (uid string, ok bool) { return strings.CutPrefix(remote, prefix) }

// userOf is the user at the other end as an address, "unix" when the kernel does not say.
func userOf(c syscall.Conn) string {
	said := "unix"
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if uid, err := peerUID(int(fd)); err == nil {
				said = prefix + strconv.FormatUint(uint64(uid), 10)
			}
		})
	}
	return said
}
