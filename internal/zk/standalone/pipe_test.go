package standalone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/embedded"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/session"
)

func TestWhatIsWrittenArrivesInOrderHoweverItIsCut(t *testing.T) {
	testkit.NoLeaks(t)
	a, b := newPipe()
	want := make([]byte, 5*pipeBuffer)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(want) // never fails
	var writing sync.WaitGroup
	writing.Go(func() {
		for rest := want; len(rest) > 0; {
			n := min(len(rest), rand.IntN(3*pipeBuffer/2)+1)
			m, err := a.Write(rest[:n])
			assert.That(t, m == n && err == nil, "wrote %d of %d: %v", m, n, err)
			rest = rest[n:]
		}
		a.Close()
	})
	var got []byte
	for {
		p := make([]byte, rand.IntN(pipeBuffer)+1)
		n, err := b.Read(p)
		got = append(got, p[:n]...)
		if err == io.EOF {
			break
		}
		assert.NoError(t, err)
	}
	writing.Wait()
	assert.That(t, bytes.Equal(got, want), "got %d bytes of %d, or others", len(got), len(want))
}

func TestReadsTakeTogetherWhatWasWrittenOneAfterTheOther(t *testing.T) {
	a, b := newPipe()
	for range 3 {
		assert.Value(a.Write([]byte("xyz")))(t)
	}
	p := make([]byte, 100)
	n, err := b.Read(p)
	assert.That(t, n == 9 && err == nil, "read %d: %v", n, err)
}

func TestDeadlinesEndWaitingInVirtualTime(t *testing.T) {
	full := make([]byte, pipeBuffer+1)
	for name, c := range map[string]struct {
		set  func(net.Conn, time.Time) error
		wait func(net.Conn) error
	}{
		"read":  {net.Conn.SetReadDeadline, func(c net.Conn) error { _, err := c.Read(make([]byte, 1)); return err }},
		"write": {net.Conn.SetWriteDeadline, func(c net.Conn) error { _, err := c.Write(full); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _ := newPipe()
				began := time.Now()
				assert.NoError(t, c.set(a, began.Add(time.Second)))
				err := c.wait(a)
				assert.That(t, errors.Is(err, os.ErrDeadlineExceeded) && time.Since(began) == time.Second,
					"%v after %v", err, time.Since(began))
				var timeout net.Error
				assert.That(t, errors.As(err, &timeout) && timeout.Timeout(), "%v is no timeout", err)
				// Set while a reader waits: earlier, and later again.
				assert.NoError(t, c.set(a, time.Time{}))
				ended := make(chan error)
				began = time.Now()
				go func() { ended <- c.wait(a) }()
				synctest.Wait()
				assert.NoError(t, c.set(a, began.Add(time.Hour)))
				synctest.Wait()
				assert.NoError(t, c.set(a, began.Add(time.Minute)))
				if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
}

func TestClosingEitherEndEndsEverything(t *testing.T) {
	testkit.NoLeaks(t)
	a, b := newPipe()
	reading := make(chan error)
	go func() { _, err := b.Read(make([]byte, 1)); reading <- err }()
	writing := make(chan error)
	go func() { _, err := b.Write(make([]byte, pipeBuffer+1)); writing <- err }()
	a.Close()
	assert.Equal(t, <-reading, io.EOF, "reading from a closed end")
	assert.Equal(t, <-writing, io.ErrClosedPipe, "writing to a closed end")
	_, err := a.Read(make([]byte, 1))
	assert.Equal(t, err, io.ErrClosedPipe, "reading on the closed end")
	_, err = a.Write([]byte("x"))
	assert.Equal(t, err, io.ErrClosedPipe, "writing on the closed end")
	assert.Equal(t, a.SetDeadline(time.Now()), io.ErrClosedPipe, "a deadline on the closed end")
	a.Close()
	b.Close()
}

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

// The gateway's transactions and go-zookeeper's requests are written to one connection by two goroutines.
func TestWritesOfTwoGoroutinesToAPipeFollowEachOther(t *testing.T) {
	a, b := newPipe()
	const large, rounds = 2 * pipeBuffer, 20
	var all sync.WaitGroup
	var done atomic.Bool
	all.Go(func() {
		defer done.Store(true)
		for range rounds {
			n, err := a.Write(bytes.Repeat([]byte("x"), large))
			assert.That(t, n == large && err == nil, "wrote %d: %v", n, err)
		}
	})
	all.Go(func() {
		for !done.Load() {
			assert.Value(a.Write([]byte("-")))(t)
		}
	})
	go func() { all.Wait(); _ = a.Close() }()
	got := assert.Value(io.ReadAll(b))(t)
	for _, run := range bytes.FieldsFunc(got, func(r rune) bool { return r == '-' }) {
		assert.Must(t, len(run)%large == 0, "another write came after %d bytes of one of %d", len(run)%large, large)
	}
}
