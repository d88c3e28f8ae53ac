package conn

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/zk"
)

var errTestOver = fmt.Errorf("%w: the test is over", zk.ErrSessionGone)

func TestEventsThatComeBeforeTheConstructorReturnsAreNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := assert.Value(zk.Config{Servers: []string{"127.0.0.1:1"}}.WithDefaults())(t)
		c := newConn(&cfg, func() {})
		defer c.cancel()
		handled := false
		go func() {
			c.event(gozk.Event{Type: gozk.EventSession, State: gozk.StateExpired}) // on the library's goroutine, which may be quicker than Connect
			handled = true
		}()
		synctest.Wait()
		assert.Must(t, !handled && c.Err() == nil, "the event was handled, or dropped, before there was anything to close")
		lib, events, err := gozk.Connect(cfg.Servers, time.Second, gozk.WithLogger(libLogger{cfg.Logger}),
			gozk.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
				time.Sleep(time.Millisecond)
				return nil, io.EOF
			}))
		assert.NoError(t, err)
		c.attach(lib)
		for range events { // ends only when the library has been closed
		}
		assert.That(t, errors.Is(c.Err(), zk.ErrSessionGone), "the session's end is %v, want ErrSessionGone", c.Err())
	})
}

func TestAnImpossibleFrameEndsTheConnectionAndNotTheProcess(t *testing.T) {
	for name, frame := range map[string][]byte{
		"negative":  {0xff, 0xff, 0xff, 0xff},
		"too short": {0, 0, 0, 3},
		"too long":  {0x7f, 0xff, 0xff, 0xff},
	} {
		t.Run(name, func(t *testing.T) {
			connections := make(chan struct{}, 100)
			addr := fixture.Script(t, func(conn net.Conn) {
				t.Cleanup(func() { _ = conn.Close() })
				select {
				case connections <- struct{}{}:
				default:
				}
				if fixture.Handshake(conn) == nil {
					_, _ = conn.Write(append(frame, make([]byte, 100)...))
				}
			})
			cfg := assert.Value(zk.Config{Servers: []string{addr}}.WithDefaults())(t)
			c := assert.Value(Open(fixture.Context(t), &cfg, func() {}))(t)
			fixture.Await(t, connections)
			fixture.Await(t, connections) // it has hung up and tries again
			c.End(errTestOver)
			fixture.Await(t, c.closed)
		})
	}
}
