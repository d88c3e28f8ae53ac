package embedded_test

import (
	"bufio"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/zk/wire"
)

// While a client's unread output keeps its further requests waiting, its pings wait, too. That it reads is a sign of life then.
func TestAClientThatReadsSlowlyKeepsItsSessionAndOneThatDoesNotReadLosesIt(t *testing.T) {
	for name, reads := range map[string]bool{"reads slowly": true, "reads nothing": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := embeddedtest.RunT(t, embeddedtest.Pipes())
				slow, other := openRaw(t, s, 4*time.Second), openRaw(t, s, time.Minute)
				slow.create("/mine", nil, wire.FlagEphemeral)
				other.create("/large", make([]byte, 1_000_000), 0)
				const asked = 4
				var burst []byte
				for i := range int32(asked) {
					burst = append(burst, rawzk.Request(i+1, wire.OpGetData, &wire.ReadRequest{Path: "/large"})...)
				}
				assert.NoError(t, slow.Write(burst))
				slow.Frames = wire.NewFrameReader(bufio.NewReaderSize(crawl{slow.Conn}, 64<<10), 64<<20)
				if !reads {
					time.Sleep(10 * time.Second)
					assert.That(t, !other.exists("/mine"), "the session lives on")
					return
				}
				stop, stopped := make(chan struct{}), make(chan struct{})
				go func() { // pings, which wait in the pipe while the server does not read
					defer close(stopped)
					for {
						select {
						case <-stop:
							return
						case <-time.After(time.Second):
							_ = slow.Write(rawzk.Request(wire.XidPing, wire.OpPing, nil)) // fails when the test has
						}
					}
				}()
				defer func() {
					close(stop)
					slow.Conn.Close()
					<-stopped
				}()
				for i := range int32(asked) {
					g := slow.receive()
					assert.Must(t, g.Xid == i+1 && len(g.Body) >= 1_000_000, "reply %d: xid %d, %d bytes", i, g.Xid, len(g.Body))
					other.ping()
				}
				assert.That(t, other.exists("/mine"), "the session is over")
			})
		})
	}
}

// crawl reads 64 kB a second: a megabyte takes four times the session's timeout.
type crawl struct{ nc net.Conn }

func (c crawl) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	return c.nc.Read(p[:min(len(p), 64<<10)])
}
