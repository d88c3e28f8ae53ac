package standalone

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/session"
)

// BenchmarkWays compares how a gateway may reach a server in its own process: lock cycles through the writer of internal/zk,
// each goroutine on a lock of its own, over a storage that costs nothing.
func BenchmarkWays(b *testing.B) {
	unix := func(b *testing.B) (net.Conn, net.Conn) {
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		assert.NoError(b, err)
		var ends [2]net.Conn
		for i, fd := range fds {
			f := os.NewFile(uintptr(fd), "pair")
			if ends[i], err = net.FileConn(f); err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
		return ends[0], ends[1]
	}
	loopback := func(b *testing.B) (net.Conn, net.Conn) {
		l := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(b)
		defer l.Close()
		client := assert.Value(net.Dial("tcp", l.Addr().String()))(b)
		server := assert.Value(l.Accept())(b)
		return client, server
	}
	for _, way := range []struct {
		name string
		make func(*testing.B) (net.Conn, net.Conn)
	}{
		{"netPipe", func(*testing.B) (net.Conn, net.Conn) { return net.Pipe() }},
		{"ours", func(*testing.B) (net.Conn, net.Conn) { return newPipe() }},
		{"socketpair", unix},
		{"loopback", loopback},
	} {
		for _, clients := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("way=%s/clients=%d", way.name, clients), func(b *testing.B) {
				server := assert.Value(embedded.New(embedded.Config{Storage: embedded.NewMemoryStorage()}))(b)
				var running sync.WaitGroup
				running.Go(func() { _ = server.Run(context.Background()) }) // ends by Close
				dial := func(context.Context, string, string) (net.Conn, error) {
					client, nc := way.make(b)
					running.Go(func() { server.ServeLocal(nc) })
					return client, nil
				}
				cycles(b, dial, clients)
				server.Close()
				running.Wait()
			})
		}
	}
}

// cycles takes and gives back b.N locks.
func cycles(b *testing.B, dial func(context.Context, string, string) (net.Conn, error), clients int) {
	b.Helper()
	cfg := zk.Config{Servers: []string{"embedded:2181"}, Dial: dial, CreateRoot: true}
	layout := assert.Value(layout.Open(b.Context(), cfg))(b)
	s := assert.Value(session.Open(b.Context(), cfg, layout, "abcdefghijklm", nil))(b)
	do := func(dir string, ops ...zk.Op) zk.Result {
		result := make(chan zk.Result, 1)
		if err := s.Submit(&zk.Write{Queues: []string{dir}, Ops: ops, Done: func(r zk.Result) { result <- r }}); err != nil {
			b.Error(err)
			return zk.Result{}
		}
		return <-result
	}
	for c := range clients {
		dir := fmt.Sprintf("%s/locks/%d", zk.DefaultRoot, c)
		do(dir, zk.Op{Kind: zk.OpCreate, Path: dir})
	}
	b.ResetTimer()
	var running sync.WaitGroup
	for c := range clients {
		running.Go(func() {
			dir := fmt.Sprintf("%s/locks/%d", zk.DefaultRoot, c)
			for range b.N/clients + 1 {
				made := do(dir, zk.Op{Kind: zk.OpCreate, Path: dir + "/write-lease-", Sequential: true})
				if made.Outcome != zk.Done {
					b.Errorf("%+v", made)
					return
				}
				do(dir, zk.Op{Kind: zk.OpDelete, Path: made.Paths[0]})
			}
		})
	}
	running.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
	b.StopTimer()
	if err := s.Close(context.Background()); err != nil {
		b.Error(err)
	}
	<-s.Done()
}
