package sim

import (
	"net"
	"sync"
	"sync/atomic"
)

// listener is a net.Listener on the simulated network.
type listener struct {
	name   string
	frozen atomic.Pointer[chan struct{}] // while the process stands still; closed when it goes on
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newListener(name string) *listener {
	return &listener{name: name, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *listener) take(nc net.Conn) {
	l.thaw()
	select {
	case l.conns <- nc:
	case <-l.closed:
		nc.Close()
	}
}

// freeze has new connections wait, those from the process and those to it, until end is called.
func (l *listener) freeze() (end func()) {
	thawed := make(chan struct{})
	l.frozen.Store(&thawed)
	return func() {
		l.frozen.CompareAndSwap(&thawed, nil)
		close(thawed)
	}
}

// thaw waits until the process goes on.
func (l *listener) thaw() {
	if thawed := l.frozen.Load(); thawed != nil {
		select {
		case <-*thawed:
		case <-l.closed:
		}
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return name(l.name) }

type name string

func (n name) Network() string { return "sim" }
func (n name) String() string  { return string(n) }
