package chaos

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// balancer deals out connections in turn, as a balancer does that knows nothing of HTTP. It knows nothing of health either: a
// backend that refuses is passed over, one that is silent is not.
type balancer struct {
	listener net.Listener
	backends []string
	running  sync.WaitGroup

	mu     sync.Mutex
	next   int
	open   map[net.Conn]struct{}
	closed bool
}

func startBalancer(t testing.TB, backends []string) *balancer {
	t.Helper()
	l := assert.Value(net.Listen("tcp4", "127.0.0.1:0"))(t)
	b := &balancer{listener: l, backends: backends, open: make(map[net.Conn]struct{})}
	b.running.Go(b.accept)
	t.Cleanup(b.close)
	return b
}

func (b *balancer) url() string { return "http://" + b.listener.Addr().String() }

func (b *balancer) accept() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return // closed; there is nothing else that would end it here
		}
		b.running.Go(func() { b.carry(conn.(*net.TCPConn)) })
	}
}

func (b *balancer) carry(client *net.TCPConn) {
	defer b.forget(client)
	if !b.remember(client) {
		return
	}
	var server *net.TCPConn
	for range b.backends {
		b.mu.Lock()
		backend := b.backends[b.next%len(b.backends)]
		b.next++
		b.mu.Unlock()
		conn, err := net.DialTimeout("tcp4", backend, time.Second)
		if err == nil {
			server = conn.(*net.TCPConn)
			break
		}
	}
	if server == nil {
		return
	}
	defer b.forget(server)
	if !b.remember(server) {
		return
	}
	var there sync.WaitGroup
	there.Go(func() { pass(server, client) })
	pass(client, server)
	there.Wait()
}

// pass carries one direction to its end. A connection that breaks ends both.
func pass(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.Close()
		_ = from.Close()
		return
	}
	_ = to.CloseWrite()
}

func (b *balancer) remember(c net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.open[c] = struct{}{}
	}
	return !b.closed
}

func (b *balancer) forget(c net.Conn) {
	_ = c.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, c)
}

func (b *balancer) close() {
	_ = b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for c := range b.open {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.running.Wait()
}
