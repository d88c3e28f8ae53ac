package httpapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lockkeeper/internal/events"
)

// BenchmarkStreams tells what an event costs that goes to 1,000 clients, in processor time of the whole process, the
// clients' (which only count bytes) included. Events come in bursts, as they do between two wake-ups of the hub.
func BenchmarkStreams(b *testing.B) {
	for form, request := range map[string]string{
		"sse":    "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"socket": "GET /v1/events/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
	} {
		for _, burst := range []int{1, 10, 100} {
			b.Run(fmt.Sprintf("%s/burst=%d", form, burst), func(b *testing.B) { fanOut(b, request, burst) })
		}
	}
}

func fanOut(b *testing.B, request string, burst int) {
	const clients = 1000
	hub := events.New(events.Options{})
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = hub.Run(ctx) })
	server := New(Options{Locks: quietLocks{newFake()}, Events: hub})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{Handler: server}
	running.Go(func() { _ = srv.Serve(listener) })
	var received atomic.Int64
	var conns []net.Conn
	for range clients {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		conns = append(conns, conn)
		if _, err := io.WriteString(conn, request); err != nil {
			b.Fatal(err)
		}
		running.Go(func() {
			buf := make([]byte, 64<<10)
			for {
				n, err := conn.Read(buf)
				received.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
	}
	for server.open.taken.Load() < clients {
		time.Sleep(time.Millisecond)
	}
	settle := func() { // until nothing more comes
		for was := int64(-1); was != received.Load(); time.Sleep(50 * time.Millisecond) {
			was = received.Load()
		}
	}
	settle()
	before, began := usage(), received.Load()
	b.ResetTimer()
	for i := 0; i < b.N; i += burst {
		for n := range burst {
			hub.Publish(numbered(n))
		}
		for was := received.Load(); received.Load() == was; { // the burst is on its way
			time.Sleep(events.WakePause)
		}
	}
	settle()
	b.StopTimer()
	b.ReportMetric(float64((usage()-before).Microseconds())/float64(b.N*clients), "cpu-µs/delivery")
	b.ReportMetric(float64(received.Load()-began)/float64(b.N*clients), "B/delivery")
	for _, conn := range conns {
		_ = conn.Close()
	}
	cancel()
	server.Drain()
	_ = srv.Close()
	running.Wait()
}

// usage is the processor time of this process.
func usage() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
